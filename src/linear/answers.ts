/** What a person wrote, read as the answer to a question. Pure. */
import { clean } from './text.ts';

export interface Answer {
  readonly decision: 'approved' | 'denied';
  /** What they added, null for nothing. */
  readonly reason: string | null;
}

const APPROVING =
  /^(?:yes|yep|yeah|y|ok|okay|approved?|allow(?:ed)?|go ahead|go for it|do it|sure|lgtm|👍|✅)(?![\p{L}\p{N}])/iu;
const DENYING =
  /^(?:no|nope|n|den(?:y|ied)|reject(?:ed)?|refused?|disallow(?:ed)?|never|do not|don['’]?t|not|👎|❌)(?![\p{L}\p{N}])/iu;
// In the rest of an answer either takes back what its beginning said, or may do so.
const DOUBT =
  /(?:^|[^\p{L}])(?:no|not|never|den(?:y|ied)|reject(?:ed)?|don['’]?t|cannot|can['’]?t|but|unless|wait|only|if)(?![\p{L}])/iu;
const CONSENT =
  /(?:^|[^\p{L}])(?:yes|approved?|go ahead|go for it|do it|problem|worries|objections?|lgtm)(?![\p{L}])/iu;
const MENTIONS = /^(?:\s*@[\p{L}\p{N}._-]+[\s,:]*)+/u;
const MARKUP = /^[\s"'“”*_`>]+/u;
const SEPARATOR = /^[\s"'“”*_`.,:;!–—-]+/u;

/**
 * Reads yes or no from the beginning of a text. Null when it is neither, both, or a question:
 * then somebody has to be asked again, since what is approved acts.
 */
export function parseAnswer(text: string): Answer | null {
  const said = clean(text).replace(MENTIONS, '').replace(MARKUP, '').trim();
  if (said.includes('?')) return null;
  const yes = APPROVING.exec(said)?.[0];
  const no = yes === undefined ? DENYING.exec(said)?.[0] : undefined;
  const word = yes ?? no;
  if (word === undefined) return null;
  const rest = said.slice(word.length);
  if ((yes === undefined ? CONSENT : DOUBT).test(rest)) return null;
  const reason = rest.replace(SEPARATOR, '').trim();
  return {
    decision: yes === undefined ? 'denied' : 'approved',
    reason: reason === '' ? null : reason,
  };
}
