/** What is known of an attempt's end, gathered from several witnesses. Pure data. */
import { z } from 'zod';
import type { LeftoverPolicy } from './outcome.ts';
import type { CancellationCode, FailureCode } from './outcome-codes.ts';
import type { LastWord, Opened } from './spool.ts';
import type { Actor } from './work-unit.ts';

/** A user manager as a process: a restarted one has another start time. */
export const managerInstanceSchema = z.object({
  pid: z.int(),
  /** Field 22 of /proc/PID/stat, clock ticks after boot. */
  startTicks: z.int(),
});
export type ManagerInstance = z.infer<typeof managerInstanceSchema>;

export const EXIT_RECORD_VERSION = 1;

/**
 * The exit record that ExecStopPost leaves in `exits/<nonce>.json`, version 1.
 * Written by a shell script, so each field may be empty: then it is null.
 */
export const exitRecordSchema = z.object({
  v: z.literal(EXIT_RECORD_VERSION),
  nonce: z.string(),
  invocationId: z.string().nullable(),
  /** $SERVICE_RESULT: success, exit-code, signal, timeout, oom-kill, watchdog, core-dump, … */
  serviceResult: z.string().nullable(),
  /** $EXIT_CODE: exited, killed, dumped. */
  exitCode: z.string().nullable(),
  /** $EXIT_STATUS: a number or a signal's name without SIG. */
  exitStatus: z.string().nullable(),
  bootId: z.string().nullable(),
  /** Seconds since boot, without suspend on no kernel we know of: only a hint. */
  uptimeSeconds: z.number().nullable(),
  ts: z.string().nullable(),
  manager: managerInstanceSchema.nullable(),
  /** `systemctl --user is-system-running` at that moment: `stopping` means the host or session goes down. */
  managerState: z.string().nullable(),
});
export type ExitRecord = z.infer<typeof exitRecordSchema>;

/**
 * What a system call says of a place where no file is to be had, now or later: a directory
 * in its stead, no permission. Other errors (EIO, EMFILE) may pass.
 */
const NO_FILE = new Set(['EISDIR', 'EACCES', 'EPERM', 'ELOOP', 'ENOTDIR', 'ENXIO']);
export const isNoFile = (error: unknown): boolean =>
  NO_FILE.has(String((error as { code?: unknown }).code));

/** The version of a record that only a later outlive can read, null for any other. */
export function laterRecordVersion(value: unknown): number | null {
  const parsed = z.looseObject({ v: z.int() }).safeParse(value);
  return parsed.success && parsed.data.v > EXIT_RECORD_VERSION ? parsed.data.v : null;
}

/** How the main process ended, whichever witness says so. */
export interface ProcessEnd {
  readonly witness: 'unit' | 'record' | 'journal';
  /** systemd's Result / $SERVICE_RESULT. */
  readonly result: string;
  readonly how: 'exited' | 'killed' | 'dumped' | 'unknown';
  /** Exit status when `how` is exited. */
  readonly status: number | null;
  /** Signal name without SIG when killed or dumped. */
  readonly signal: string | null;
  /** Monotonic time the main process ran, milliseconds; null when the witness cannot tell. */
  readonly elapsedMs: number | null;
  /** The manager's state at the end, null when the witness cannot tell. */
  readonly managerState: string | null;
}

/** A durable decision taken before the process was touched. It belongs to one attempt. */
export type Intent =
  | {
      readonly kind: 'cancel';
      readonly actor: Actor;
      readonly code: CancellationCode;
      readonly reason: string | null;
    }
  | {
      readonly kind: 'interrupt';
      readonly actor: Actor;
      readonly code: 'interrupted_by_prompt';
      readonly reason: string | null;
    }
  | { readonly kind: 'suspend'; readonly actor: Actor; readonly reason: string | null }
  | {
      readonly kind: 'fail';
      readonly actor: Actor;
      readonly code: FailureCode;
      readonly reason: string | null;
    };

/** What was told against a start that came to nothing. */
export const startProblemSchema = z.object({
  /** `name_taken`: a unit that is not ours has the name, which is nobody's failure to start. */
  kind: z.enum(['refused', 'unanswered', 'name_taken']),
  /** In systemd's words. */
  reason: z.string(),
});
export type StartProblem = z.infer<typeof startProblemSchema>;

/** Everything the classification may look at. */
export interface Evidence {
  readonly intent: Intent | null;
  /** A halt marker named by the nonce lies in the exits directory. */
  readonly haltMarker: boolean;
  /** The best witness of the process's end, null when there is none. */
  readonly end: ProcessEnd | null;
  readonly opened: Opened | null;
  readonly lastWord: LastWord | null;
  /** The spool says that the wrapper met the hard deadline itself. */
  readonly saidDeadline: boolean;
  /** The spool says that the wrapper was told to stop before any last word. */
  readonly saidToldToStop: boolean;
  readonly approvalOpen: boolean;
  readonly claim: 'none' | 'wrapper' | 'revoked';
  /** Null when nothing was told against the start. */
  readonly startProblem: StartProblem | null;
  readonly hardTimeoutMs: number;
  /** Boot id or manager instance of the attempt are no longer the running ones. */
  readonly hostChanged: boolean;
  /** Absent in what was stored by a daemon before this: then they are ignored. */
  readonly leftoverPolicy?: LeftoverPolicy;
}
