/**
 * The script language: which turns the scripted model plays.
 *
 * The script travels in the conversation itself, one model turn per line after a
 * line `#script`, so that a killed and resumed client needs no state here. The
 * whole script is read at every request: a typo shows at the first turn, not at
 * the one that has it. README.md beside this file is the list for people.
 */

/** A piece of one assistant message, in the order it is streamed. */
export type Part =
  | { readonly kind: 'text'; readonly text: string; readonly pace?: Pace }
  | { readonly kind: 'thought'; readonly text: string }
  | { readonly kind: 'call'; readonly tool: string; readonly args: unknown };

/** How a text is spread over time. */
interface Pace {
  /** Number of deltas. */
  readonly chunks: number;
  /** Pause before each delta, milliseconds. */
  readonly gap: number;
}

/** A turn that becomes an assistant message of the conversation. */
export interface MessageTurn {
  readonly kind: 'message';
  /** The script line. */
  readonly line: string;
  readonly parts: readonly Part[];
  /** Whether the output limit ends it (`finish_reason` length). */
  readonly truncated: boolean;
}

/** A turn that leaves no trace in the conversation: the next request stands at the same place. */
export type FaultTurn = {
  readonly line: string;
  /** Played this often, then passed; without it the turn is never passed. */
  readonly times?: number;
} & (
  | {
      readonly kind: 'status';
      readonly status: number;
      readonly retryAfter?: number;
      readonly message?: string;
    }
  | { readonly kind: 'hang' }
  | { readonly kind: 'cut'; readonly text: string }
);

export type Turn = MessageTurn | FaultTurn;

/** A script line that cannot be played. */
export class ScriptError extends Error {
  constructor(line: string, why: string) {
    super(`script line ${JSON.stringify(line)}: ${why}`);
    this.name = 'ScriptError';
  }
}

const START = '#script';
const END = '#end';
const SEPARATOR = ' ;; ';
const DEFAULT_CUT_TEXT = 'This answer is going to be cut';
const DEFAULT_TRUNCATED_TEXT = 'This answer reached its limit';

/** A summary request quotes the conversation, script included: what is quoted is not meant. */
const QUOTED = /<conversation>[\s\S]*?<\/conversation>/g;

/** The script in a user message, if it carries one; the last one, if several. */
export function findScript(text: string): Turn[] | undefined {
  const lines = text
    .replace(QUOTED, '')
    .split('\n')
    .map((line) => line.trim());
  const start = lines.lastIndexOf(START);
  if (start === -1) return undefined;
  const end = lines.indexOf(END, start);
  const body = lines.slice(start + 1, end === -1 ? undefined : end);
  return body.filter((line) => line !== '').map(parseTurn);
}

/** One script line. */
function parseTurn(line: string): Turn {
  const { word, rest } = firstWord(line);
  switch (word) {
    case 'status':
      return parseStatus(line, rest);
    case 'hang':
      return { kind: 'hang', line, ...onlyTimes(line, rest) };
    case 'cut':
      return parseCut(line, rest);
    default:
      return parseMessage(line);
  }
}

/**
 * The turn to play now. `answered` is the number of assistant messages since the
 * script; a fault never becomes one, so faults are counted apart, by `spent`.
 */
export function pickTurn(
  script: readonly Turn[],
  answered: number,
  spent: (index: number) => number,
): { readonly index: number; readonly turn: Turn } | undefined {
  let ahead = answered;
  for (const [index, turn] of script.entries()) {
    if (turn.kind === 'message') {
      if (ahead === 0) return { index, turn };
      ahead -= 1;
    } else if (ahead === 0 && spent(index) < (turn.times ?? Number.POSITIVE_INFINITY)) {
      return { index, turn };
    }
  }
  return undefined;
}

/** A message that is nothing but a text. */
export function textTurn(line: string, text: string): MessageTurn {
  return { kind: 'message', line, parts: [{ kind: 'text', text }], truncated: false };
}

function parseMessage(line: string): MessageTurn {
  const parts: Part[] = [];
  let truncated = false;
  for (const piece of line.split(SEPARATOR).map((part) => part.trim())) {
    const { word, rest } = firstWord(piece);
    if (word === 'length') truncated = true;
    parts.push(...parsePart(line, word, rest));
  }
  const first = parts[0];
  if (first?.kind === 'thought' && parts.length === 1) {
    // Pi leaves a message that is only thought out of its next request: the turn would repeat for ever.
    parts.push({ kind: 'text', text: first.text });
  }
  if (parts.length === 0) parts.push({ kind: 'text', text: DEFAULT_TRUNCATED_TEXT });
  return { kind: 'message', line, parts, truncated };
}

function parsePart(line: string, word: string, rest: string): Part[] {
  switch (word) {
    case 'say':
      return [{ kind: 'text', text: withEscapes(needed(line, rest, 'say TEXT')) }];
    case 'length':
      return rest === '' ? [] : [{ kind: 'text', text: withEscapes(rest) }];
    case 'think':
      return [{ kind: 'thought', text: withEscapes(needed(line, rest, 'think TEXT')) }];
    case 'slow':
      return [parseSlow(line, rest)];
    case 'bash':
      return [call('bash', { command: needed(line, rest, 'bash CMD') })];
    case 'read':
      return [call('read', { path: needed(line, rest, 'read PATH') })];
    case 'write':
      return [parseWrite(line, rest)];
    case 'edit':
      return [parseEdit(line, rest)];
    case 'call':
      return [parseCall(line, rest)];
    default:
      throw new ScriptError(line, `unknown directive ${JSON.stringify(word)}`);
  }
}

function parseSlow(line: string, rest: string): Part {
  const match = /^(\d+)\s+(\d+)\s+(.+)$/.exec(rest);
  const chunks = Number(match?.[2]);
  if (match?.[3] === undefined || chunks < 1)
    throw new ScriptError(line, 'expected slow MS N TEXT');
  return { kind: 'text', text: withEscapes(match[3]), pace: { gap: Number(match[1]), chunks } };
}

function parseWrite(line: string, rest: string): Part {
  const { word, rest: text } = firstWord(needed(line, rest, 'write PATH TEXT'));
  return call('write', { path: word, content: withEscapes(text) });
}

function parseEdit(line: string, rest: string): Part {
  const { word, rest: change } = firstWord(rest);
  const match = /^(.+?) =>(?: (.*))?$/.exec(change);
  if (match?.[1] === undefined) throw new ScriptError(line, 'expected edit PATH OLD => NEW');
  const edit = { oldText: withEscapes(match[1]), newText: withEscapes(match[2] ?? '') };
  return call('edit', { path: word, edits: [edit] });
}

function parseCall(line: string, rest: string): Part {
  const { word, rest: json } = firstWord(needed(line, rest, 'call NAME {json}'));
  try {
    return call(word, JSON.parse(json === '' ? '{}' : json));
  } catch {
    throw new ScriptError(line, 'the arguments of call are not JSON');
  }
}

function parseStatus(line: string, rest: string): FaultTurn {
  const pattern =
    /^([45]\d\d)(?:\s+retry-after\s+(\d+(?:\.\d+)?))?(?:\s+x(\d+))?(?:\s+message\s+(.+))?$/;
  const match = pattern.exec(rest);
  if (match === null) {
    throw new ScriptError(line, 'expected status CODE [retry-after SECONDS] [xK] [message TEXT]');
  }
  return {
    kind: 'status',
    line,
    status: Number(match[1]),
    ...(match[2] !== undefined && { retryAfter: Number(match[2]) }),
    ...(match[3] !== undefined && { times: Number(match[3]) }),
    ...(match[4] !== undefined && { message: withEscapes(match[4]) }),
  };
}

function parseCut(line: string, rest: string): FaultTurn {
  const match = /^(x\d+)?\s*(.*)$/.exec(rest);
  const text =
    match?.[2] === undefined || match[2] === '' ? DEFAULT_CUT_TEXT : withEscapes(match[2]);
  return { kind: 'cut', line, text, ...onlyTimes(line, match?.[1] ?? '') };
}

function onlyTimes(line: string, rest: string): { times?: number } {
  if (rest === '') return {};
  const match = /^x(\d+)$/.exec(rest);
  if (match === null)
    throw new ScriptError(line, `expected nothing or xK, not ${JSON.stringify(rest)}`);
  return { times: Number(match[1]) };
}

function call(tool: string, args: unknown): Part {
  return { kind: 'call', tool, args };
}

function firstWord(text: string): { word: string; rest: string } {
  const match = /^(\S*)\s*([\s\S]*)$/.exec(text);
  return { word: match?.[1] ?? '', rest: match?.[2] ?? '' };
}

function needed(line: string, rest: string, shape: string): string {
  if (rest === '') throw new ScriptError(line, `expected ${shape}`);
  return rest;
}

/** `\n` and `\t` in a TEXT, `\\` for a backslash. Commands are taken as they are: their shell has escapes of its own. */
function withEscapes(text: string): string {
  return text.replace(/\\([nt\\])/g, (_, letter: string) =>
    letter === 'n' ? '\n' : letter === 't' ? '\t' : '\\',
  );
}
