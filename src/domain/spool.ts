/**
 * The spool: one JSON object per line, written by the wrapper inside the unit,
 * read by the daemon from a stored offset.
 *
 * A deploy replaces the daemon under running attempts, so a spool may be older than its
 * reader, or newer after a step back. `v` is the format's major version: the daemon reads
 * the present one and the one before ({@link SPOOL_READERS}); a wrapper writes only its
 * own. Within a major version lines may get new types and new fields: both are kept.
 * A line of a later major version is not understood, and so is not passed over either.
 */
import { z } from 'zod';
import { SPOOL_EVENT_TYPES, type SpoolEventType } from './events.ts';

export const SPOOL_VERSION = 1;

/** One line in its present form. */
export interface SpoolLine {
  /** Counts from 1 without gap. */
  readonly n: number;
  /** RFC 3339 UTC of the wrapper's clock. */
  readonly ts: string;
  readonly type: SpoolEventType;
  readonly data: Readonly<Record<string, unknown>>;
}

export type ReadLine =
  | { readonly kind: 'line'; readonly line: SpoolLine }
  /** Of a later minor version: an event that means nothing to us and is kept all the same. */
  | {
      readonly kind: 'unknown_type';
      readonly line: Omit<SpoolLine, 'type'> & { readonly type: string };
    }
  /** Of a later major version: what it means nobody here can say. */
  | { readonly kind: 'newer'; readonly version: number }
  | { readonly kind: 'corrupt'; readonly reason: string };

type Raw = Readonly<Record<string, unknown>>;
/** Reads the line of one major version into the present form. */
export type LineReader = (raw: Raw) => ReadLine;

const lineSchema = z.looseObject({
  v: z.int(),
  n: z.int().min(1),
  ts: z.iso.datetime(),
  type: z.string().min(1).max(100),
  data: z.record(z.string(), z.unknown()),
});

const knownTypes: ReadonlySet<string> = new Set(SPOOL_EVENT_TYPES);
const isKnownType = (type: string): type is SpoolEventType => knownTypes.has(type);

const readV1: LineReader = (raw) => {
  const parsed = lineSchema.safeParse(raw);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    return { kind: 'corrupt', reason: `${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}` };
  }
  const { v: _version, n, ts, type, data: known, ...more } = parsed.data;
  // Fields beside `data` that we do not know are kept within it.
  const data = Object.keys(more).length === 0 ? known : { ...known, lineFields: more };
  return isKnownType(type)
    ? { kind: 'line', line: { n, ts, type, data } }
    : { kind: 'unknown_type', line: { n, ts, type, data } };
};

/** The major versions that are read: the present one and, once there is one, the one before. */
export const SPOOL_READERS: ReadonlyMap<number, LineReader> = new Map([[1, readV1]]);

/** By hand: every line that is ever ingested passes here. */
function isVersioned(value: unknown): value is Raw & { readonly v: number } {
  return typeof value === 'object' && value !== null && 'v' in value && Number.isInteger(value.v);
}

/** What one line says. `value` is its JSON. */
export function readLine(
  value: unknown,
  readers: ReadonlyMap<number, LineReader> = SPOOL_READERS,
): ReadLine {
  if (!isVersioned(value)) return { kind: 'corrupt', reason: 'v: not a version' };
  const { v } = value;
  const reader = readers.get(v);
  if (reader) return reader(value);
  if (v > Math.max(...readers.keys())) return { kind: 'newer', version: v };
  return { kind: 'corrupt', reason: `v: version ${v} is not read any more` };
}

/** Data of `attempt.opened`: ties the file to one attempt, one unit run, one boot. */
export const openedSchema = z.object({
  attemptId: z.string(),
  workUnitId: z.string(),
  nonce: z.string(),
  /** systemd's InvocationID, null outside systemd. */
  invocationId: z.string().nullable(),
  bootId: z.string(),
  /** Seconds since boot when the wrapper began (os.uptime()); the exit record has the same clock. */
  uptimeSeconds: z.number().nullable().default(null),
  pid: z.int(),
  runner: z.string(),
});
export type Opened = z.infer<typeof openedSchema>;

export const usageSchema = z.object({
  inputTokens: z.number(),
  outputTokens: z.number(),
  cacheReadTokens: z.number(),
  cacheWriteTokens: z.number(),
  totalTokens: z.number(),
});
export type Usage = z.infer<typeof usageSchema>;

/** A process of the unit that was still alive when the runner ended. */
export const leftoverSchema = z.object({ pid: z.int(), name: z.string() });

/** Data of `runner.finished`, the last word. */
export const lastWordSchema = z.object({
  verdict: z.enum(['ok', 'error', 'stopped']),
  /** A failure code (outcome-codes.ts) when the verdict is `error`; unknown ones read as runner_error. */
  code: z.string().nullable(),
  message: z.string().nullable(),
  /** The runner's final text; for a command the tail of its output. */
  text: z.string(),
  /** Exit status of the runner's program, null when a signal ended it or it still ran. */
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  usage: usageSchema.nullable(),
  /** US dollars, null where the runner knows no cost. */
  costUsd: z.number().nullable(),
  leftovers: z.array(leftoverSchema),
  /** When a failed provider said it may be asked again, null when it said nothing. */
  retryAt: z.iso.datetime().nullable().default(null),
});
export type LastWord = z.infer<typeof lastWordSchema>;
