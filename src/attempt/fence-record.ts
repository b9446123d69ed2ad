/** What our extension inside Pi says of calls (pi-extension.ts), and what it is answered. */
import { isObject, numberOf, parseJson, stringOf } from './json.ts';

/** A dialog's title, or a notice, of ours begins so. */
const FENCE = 'outlive:fence ';

export type FenceRecord =
  /** The extension is up; the tools that are really its own. */
  | { readonly kind: 'ready'; readonly tools: readonly unknown[] }
  | {
      readonly kind: 'begin';
      readonly toolCallId: string;
      readonly tool: string;
      /** As they will be acted on. */
      readonly arguments: unknown;
      readonly cwd: string;
      /** Somebody else's tool, asked about in the hook: it can be let through, but not replaced. */
      readonly foreign: boolean;
    }
  | {
      readonly kind: 'end';
      readonly toolCallId: string;
      readonly tool: string;
      readonly isError: boolean;
      /** The whole text of the result. */
      readonly result: string;
      readonly durationMs: number | null;
    }
  /** The call was given up before it had its answer, and did not run. */
  | { readonly kind: 'dropped'; readonly toolCallId: string };

export type BeginRecord = Extract<FenceRecord, { kind: 'begin' }>;
export type EndRecord = Extract<FenceRecord, { kind: 'end' }>;

/** The answer to a `begin`, as the extension reads it. */
export type FenceAnswer = { readonly go: true } | { readonly refused: string };

/** Null where a text is no record of the fence. */
export function fenceRecordOf(text: string | null): FenceRecord | null {
  if (text?.startsWith(FENCE) !== true) return null;
  const raw = parseJson(text.slice(FENCE.length));
  if (!isObject(raw)) return null;
  if (raw['kind'] === 'ready') {
    return { kind: 'ready', tools: Array.isArray(raw['tools']) ? raw['tools'] : [] };
  }
  const toolCallId = stringOf(raw['toolCallId']);
  if (toolCallId === null) return null;
  if (raw['kind'] === 'dropped') return { kind: 'dropped', toolCallId };
  const tool = stringOf(raw['tool']) ?? '';
  if (raw['kind'] === 'begin') {
    const foreign = raw['foreign'] !== false;
    const cwd = stringOf(raw['cwd']) ?? '';
    return { kind: 'begin', toolCallId, tool, arguments: raw['arguments'], cwd, foreign };
  }
  if (raw['kind'] !== 'end') return null;
  const result = stringOf(raw['result']) ?? '';
  const isError = raw['isError'] === true;
  return {
    kind: 'end',
    toolCallId,
    tool,
    isError,
    result,
    durationMs: numberOf(raw['durationMs']),
  };
}
