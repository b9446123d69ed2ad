/**
 * What happens in a work unit, as Linear's activities. Pure.
 *
 * Linear refuses a content that has a field too many or too few, and one refused is nothing
 * told; so every content is made here, and nowhere else. Texts are redacted already.
 */
import { describeOutcome, isFailureCode, type OutcomeCode } from '../domain/outcome-codes.ts';
import type { ActivityContent } from './port.ts';
import {
  boundMarkdown,
  clean,
  codeBlock,
  cutMiddle,
  isBlank,
  mentionStripper,
  oneLine,
} from './text.ts';

/** What an activity is stored and posted with, beside its id and session. */
export interface Said {
  readonly content: ActivityContent;
  readonly ephemeral?: true;
  readonly signal?: 'select';
  readonly signalMetadata?: {
    readonly options: readonly { readonly label: string; readonly value: string }[];
  };
}

const ACTION_LENGTH = 100;
const PARAMETER_LENGTH = 500;
const RESULT_LENGTH = 2_000;
const THOUGHT_LENGTH = 4_000;
const ANSWER_LENGTH = 20_000;

export const STARTING = 'Starting to work on this.';
/** Said after a restart, a reboot, a crash: nobody has to do anything. */
export const RESUMING = 'Resuming after the interruption from where it was.';
export const STILL_WORKING = 'Still working.';
export const NO_TEXT = 'Done. The agent left no text.';
/** In the place of an answer that Linear refused. */
export const REFUSED = (handle: string): string =>
  `The work has ended, but Linear refused its last message. Read it with \`outlive logs ${handle || 'HANDLE'}\`.`;

/** The texts of one agent, whose own names are in no text. */
export interface Speech {
  thought(text: string, fallback?: string): ActivityContent | null;
  response(text: string | null, fallback?: string): ActivityContent;
  error(sentence: string): ActivityContent;
  /** Something that a person has to say something to. */
  asking(text: string): ActivityContent;
  started(call: Call): Said;
  ended(call: Call, result: Result): Said;
  several(calls: Readonly<Record<string, number>>): Said;
  question(question: Question): Said;
}

/** A tool call as events tell it. */
export interface Call {
  readonly tool: string;
  readonly arguments: unknown;
}

export interface Result {
  readonly text: string;
  readonly isError: boolean;
}

/** A question to a person. */
export interface Question extends Call {
  readonly approvalId: string;
  readonly reason: string | null;
  readonly diff: string | null;
  /** RFC 3339. */
  readonly expiresAt: string;
}

// The argument that says most about a call, in the order of preference.
const TELLING = ['command', 'path', 'file_path', 'pattern', 'url', 'query'];

/** What a call is about: one line, never empty. */
export function describe(given: unknown): string {
  const text = clean(argumentText(given));
  return isBlank(text) ? 'running' : oneLine(text, PARAMETER_LENGTH);
}

function argumentText(given: unknown): string {
  if (typeof given === 'string') return given;
  if (typeof given === 'number' || typeof given === 'boolean') return String(given);
  if (typeof given !== 'object' || given === null) return '';
  const record = given as Readonly<Record<string, unknown>>;
  const telling = TELLING.map((name) => record[name]).find(
    (value): value is string => typeof value === 'string' && !isBlank(value),
  );
  if (telling !== undefined) return telling;
  return Object.keys(record).length === 0 ? '' : JSON.stringify(record);
}

const toolName = (tool: string): string => {
  const name = oneLine(clean(tool), ACTION_LENGTH);
  return isBlank(name) ? 'tool' : name;
};

function resultText({ text, isError }: Result): string {
  const whole = clean(text).trim();
  const shown = isBlank(whole) ? '(no output)' : cutMiddle(whole, RESULT_LENGTH);
  const block = shown.includes('\n') ? codeBlock(shown) : shown;
  if (!isError) return block;
  return shown.includes('\n') ? `Failed:\n${block}` : `Failed: ${block}`;
}

/** Whether a value is one of ours to say: the codes of outcomes. */
const sentenceOf = (code: string): string => {
  const known = isFailureCode(code) ? describeOutcome(code) : null;
  return known ?? 'It did not end well';
};

// What a person can do, where that is not to look.
const REMEDIES: Readonly<Partial<Record<OutcomeCode, string>>> = {
  provider_auth: 'Check the key of the model provider on the machine that runs outlive',
  rate_limited: 'Wait until the model provider lets it go on, then write here again',
  provider_unavailable: 'Write here again once the model provider is back',
  context_overflow: 'Start a new thread: this conversation has become too long',
  budget_exceeded: 'Raise its spend ceiling, then write here again',
  hard_timeout: 'Write here again and it goes on from where it was',
  idle_timeout: 'Write here again and it goes on from where it was',
  approval_denied: 'Write here what to do instead',
  approval_expired: 'Write here again, and answer its question in time',
  disk_full: 'Free some space on the machine that runs outlive, then write here again',
  cwd_missing: 'Bring its working directory back, then write here again',
  oom: 'Give it more memory, or a smaller task',
};

/** How a work unit ended, as far as somebody has to be told. */
export interface Ending {
  readonly handle: string;
  readonly status: 'succeeded' | 'failed' | 'cancelled';
  readonly errorCode: string | null;
  readonly errorMessage: string | null;
  /** The runner's last text, null for none. */
  readonly text: string | null;
}

/** A sentence a person can act on: what happened, what outlive knows, what to do. */
export function failureSentence({ handle, errorCode, errorMessage }: Ending): string {
  const code = errorCode ?? '';
  const said = oneLine(clean(errorMessage ?? ''), 1_000).replace(/[.\s]+$/, '');
  const what = sentenceOf(code);
  const detail = isBlank(said) || said.startsWith(what) ? '' : `: ${said}`;
  const head = said.startsWith(what) ? said : `${what}${detail}`;
  const remedy = isFailureCode(code) ? REMEDIES[code] : undefined;
  const look = `\`outlive explain ${handle}\` tells more`;
  return `${head}. ${remedy === undefined ? 'Write here to try again' : remedy}; ${look}.`;
}

/** A text that is too long ends with where the whole of it is. */
function shortened(text: string, handle: string): string {
  const where = `\n\n*It is longer than fits here; the whole of it: \`outlive logs ${handle}\`.*`;
  const whole = clean(text).trim();
  return whole.length <= ANSWER_LENGTH
    ? whole
    : boundMarkdown(whole, ANSWER_LENGTH - where.length) + where;
}

/**
 * The last word about a work unit; null where there is none to say: another turn took the
 * place of this one and goes on.
 */
export function endingOf(speech: Speech, ending: Ending): ActivityContent | null {
  const { handle, status, errorCode, errorMessage, text } = ending;
  if (status === 'succeeded') return speech.response(shortened(text ?? '', handle), NO_TEXT);
  if (status === 'failed') return speech.error(failureSentence(ending));
  if (errorCode === 'interrupted_by_prompt') return null;
  // Somebody wanted that: it is no error.
  const why = errorCode === null || errorCode === 'cancelled_by_request' ? '' : errorMessage;
  const said = oneLine(clean(why ?? ''), 500).replace(/[.\s]+$/, '');
  const reason = isBlank(said) ? '' : `: ${said}`;
  return speech.response(`Stopped${reason}. Write here and it goes on from where it was.`);
}

function questionBody(question: Question): string {
  const { approvalId, reason, diff, expiresAt } = question;
  const about = describe(question.arguments);
  const shown =
    diff === null || isBlank(clean(diff))
      ? codeBlock(wholeArgument(question.arguments))
      : `${codeBlock(about)}\n${codeBlock(cutMiddle(clean(diff), RESULT_LENGTH))}`;
  const why = reason === null || isBlank(clean(reason)) ? '' : `${oneLine(clean(reason), 500)}\n\n`;
  return `May \`${toolName(question.tool).replaceAll('`', '')}\` do this?

${shown}
${why}Answer here with **approve** or **deny**; a reason may follow. In outlive: \`outlive approve ${approvalId}\` or \`outlive deny ${approvalId}\`. It can be answered until ${expiresAt}.`;
}

/** What a person decides about is not told in one line. */
function wholeArgument(given: unknown): string {
  const text = clean(argumentText(given)).trim();
  return isBlank(text) ? describe(given) : cutMiddle(text, RESULT_LENGTH);
}

/** Makes the texts of an agent that is called by these names. */
export function createSpeech(ownNames: readonly string[]): Speech {
  let known = -1;
  let stripper = mentionStripper([]);
  // More of them may be learned: what the app is called, Linear knows.
  const strip = (text: string): string => {
    if (known !== ownNames.length) stripper = mentionStripper(ownNames);
    known = ownNames.length;
    return stripper(text);
  };
  const body = (text: string, max: number): string => boundMarkdown(strip(clean(text)).trim(), max);
  const line = (text: string, fallback: string, max: number): string => {
    const stripped = oneLine(strip(text), max);
    return isBlank(stripped) ? fallback : stripped;
  };
  const action = (tool: string, parameter: string, result?: string): ActivityContent => ({
    type: 'action',
    action: line(toolName(tool), 'tool', ACTION_LENGTH),
    parameter: line(parameter, 'running', PARAMETER_LENGTH),
    ...(result === undefined ? {} : { result: boundMarkdown(strip(result), 2 * RESULT_LENGTH) }),
  });
  const orElse = (text: string, fallback: string): string => (isBlank(text) ? fallback : text);
  return {
    thought: (text, fallback) => {
      const said = orElse(body(text, THOUGHT_LENGTH), fallback ?? '');
      return said === '' ? null : { type: 'thought', body: said };
    },
    response: (text, fallback = NO_TEXT) => ({
      type: 'response',
      body: orElse(body(text ?? '', ANSWER_LENGTH), fallback),
    }),
    error: (sentence) => ({
      type: 'error',
      body: orElse(body(sentence, THOUGHT_LENGTH), 'It did not end well.'),
    }),
    asking: (text) => ({
      type: 'elicitation',
      body: orElse(body(text, ANSWER_LENGTH), 'A person has to decide how it goes on.'),
    }),
    started: ({ tool, arguments: given }) => ({
      content: action(tool, describe(given)),
      ephemeral: true,
    }),
    ended: ({ tool, arguments: given }, result) => ({
      content: action(tool, describe(given), resultText(result)),
    }),
    several: (calls) => {
      const names = Object.entries(calls).map(([tool, n]) => `${toolName(tool)} ×${n}`);
      const total = Object.values(calls).reduce((sum, n) => sum + n, 0);
      const all = oneLine(names.join(', '), RESULT_LENGTH);
      return { content: action('tools', `${total} calls`, isBlank(all) ? 'done' : all) };
    },
    question: (question) => ({
      content: { type: 'elicitation', body: body(questionBody(question), ANSWER_LENGTH) },
      signal: 'select',
      signalMetadata: {
        options: [
          { label: 'Approve', value: 'approve' },
          { label: 'Deny', value: 'deny' },
        ],
      },
    }),
  };
}
