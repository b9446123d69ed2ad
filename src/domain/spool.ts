/**
 * The spool: one JSON object per line, written by the wrapper inside the unit,
 * read by the daemon from a stored offset. Version 1.
 *
 * The daemon reads spools of the previous version too, because a deploy replaces
 * it under running attempts; a wrapper writes only its own.
 */
import { z } from 'zod';
import { SPOOL_EVENT_TYPES } from './events.ts';

export const SPOOL_VERSION = 1;

/** One line. `n` counts from 1 without gap; `ts` is RFC 3339 UTC of the wrapper's clock. */
export const spoolLineSchema = z.object({
  v: z.literal(SPOOL_VERSION),
  n: z.int().min(1),
  ts: z.iso.datetime(),
  type: z.enum(SPOOL_EVENT_TYPES),
  data: z.record(z.string(), z.unknown()),
});
export type SpoolLine = z.infer<typeof spoolLineSchema>;

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
