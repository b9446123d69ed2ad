/** What a person decided after the attempt that had asked was gone: what becomes of it, and what Pi is told. */
import { type ApprovalSpec, fingerprintText, type Grant } from '../domain/decisions.ts';
import { boundValue } from './bounded-text.ts';
import { sha256 } from './decision-files.ts';

const ARGUMENTS_BYTES = 2 * 1024;

/** What came of a call that the wrapper ran. */
export interface GrantResult {
  readonly grant: Grant;
  readonly isError: boolean;
  readonly text: string;
}

export class GrantBook {
  /** Commands that the wrapper runs itself. */
  readonly toRun: readonly Grant[];
  readonly #held: readonly Grant[];
  readonly #denied: readonly Grant[];
  readonly #spent = new Set<Grant>();

  constructor(approvals: Pick<ApprovalSpec, 'grants'> | null) {
    const grants = approvals?.grants ?? [];
    const approved = grants.filter(({ decision }) => decision === 'approved');
    this.toRun = approved.filter(isRunnable);
    this.#held = approved.filter((grant) => !isRunnable(grant));
    this.#denied = grants.filter(({ decision }) => decision === 'denied');
  }

  /** The approval that this very call has, null for none. It is given once. */
  spend(fingerprint: string): string | null {
    const grant = this.#held.find(
      (one) => one.fingerprint === fingerprint && !this.#spent.has(one),
    );
    if (grant === undefined) return null;
    this.#spent.add(grant);
    return grant.approvalId;
  }

  /** What Pi is told of all decisions; empty when there are none. */
  paragraph(results: readonly GrantResult[]): string {
    const parts = [
      ...results.map(ranText),
      ...this.#held.map(
        (grant) =>
          `- Approved: ${callText(grant)}\n  It has not run. Call it again exactly as it was, if it is still needed; no other call is covered by this approval.`,
      ),
      ...this.#denied.map(
        (grant) =>
          `- Denied: ${callText(grant)}\n  Reason: ${grant.reason ?? 'none was given'}. It has not run. Do not do the same in another way.`,
      ),
    ];
    if (parts.length === 0) return '';
    return `While this run was interrupted, a person decided on calls that had been asked for:\n${parts.join('\n')}`;
  }
}

/** Where the arguments were redacted or cut they are not the ones that were approved. */
const isRunnable = ({ execute, tool, fingerprint, ...grant }: Grant): boolean =>
  execute &&
  tool === 'bash' &&
  sha256(fingerprintText({ tool, arguments: grant.arguments, cwd: grant.cwd })) === fingerprint;

const callText = ({ tool, arguments: given, cwd }: Grant): string =>
  `${tool} ${JSON.stringify(boundValue(given, ARGUMENTS_BYTES))} in ${cwd}`;

function ranText({ grant, isError, text }: GrantResult): string {
  const how = isError ? 'It has run now, and failed' : 'It has run now';
  return `- Approved: ${callText(grant)}\n  ${how}; do not run it again. It printed:\n${fenceOf(text)}`;
}

/** A block that what was printed cannot end. */
function fenceOf(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const marks = '`'.repeat(longest + 1);
  return `${marks}\n${text.replace(/\n$/, '')}\n${marks}`;
}
