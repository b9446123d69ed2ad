/**
 * The ledger: one line for each attempt that has ended, read from what the store knows of it.
 * Nothing is written for it, so there is exactly one, whatever died in between.
 */

import type { OutcomeState } from './outcome.ts';
import { FAILURES, type FailureCode } from './outcome-codes.ts';
import { type AttemptStatus, TERMINAL_ATTEMPT_STATUSES } from './work-unit.ts';

/** How an attempt ended, each with the sentence a person reads. */
export const LEDGER_RESULTS = {
  exit: 'It ended by itself, well or not',
  timeout: 'One of its clocks ran out',
  signal: 'A signal, a crash or the watchdog ended it',
  oom: 'The kernel ended it for want of memory',
  'spawn-error': 'It could not be started; nothing of it ran',
  phantom: 'It ended well, and what it had to leave behind is not there',
  stopped: 'Somebody ended it: by request, a new prompt, a halt, a refusal, a ceiling',
  lost: 'It went away with what it ran in, was suspended, or nothing tells how it ended',
  running: 'It has not ended',
} as const;
export type LedgerResult = keyof typeof LEDGER_RESULTS;

export const LEDGER_VERIFIES = ['ok', 'failed', 'skipped', 'not_run', 'pending'] as const;
export type LedgerVerify = (typeof LEDGER_VERIFIES)[number];

/** Work that outlive makes for itself: owner types whose attempts are not anybody's results. */
export const OWN_WORK = ['driver_census', 'outcome_verify', 'linear_setup'] as const;
export const DRIVER_OWNER = 'driver';

/** What was found of a declared outcome, as far as a line tells it. */
export interface LedgerOutcome {
  readonly state: OutcomeState;
  readonly code: string | null;
  /** The work unit that verified, where one was made. */
  readonly verifyId: string | null;
}

/** What a result is decided by. */
export interface LedgerEnd {
  readonly status: AttemptStatus;
  readonly errorCode: string | null;
  readonly outcome: LedgerOutcome | null;
  /** Exit status and signal of the runner's program, by the last word; null where there is none. */
  readonly lastWord: { readonly exitCode: number | null; readonly signal: string | null } | null;
  /** The same of the attempt's main process, by unit or exit record. */
  readonly process: { readonly status: number | null; readonly signal: string | null };
}

const RESULT_OF_FAILURE: Readonly<Record<FailureCode, LedgerResult>> = {
  hard_timeout: 'timeout',
  idle_timeout: 'timeout',
  heartbeat_timeout: 'timeout',
  tool_timeout: 'timeout',
  // Not a clock of the run: a person refused, or was not there.
  approval_expired: 'stopped',
  approval_denied: 'stopped',
  approval_resume_effect_unknown: 'lost',
  budget_exceeded: 'stopped',
  oom: 'oom',
  watchdog: 'signal',
  crashed: 'signal',
  killed: 'signal',
  launch_failed: 'spawn-error',
  exit_code: 'exit',
  runner_no_result: 'exit',
  leftovers: 'exit',
  runner_error: 'exit',
  runner_protocol: 'exit',
  spawn_error: 'spawn-error',
  cwd_missing: 'spawn-error',
  sandbox_unavailable: 'spawn-error',
  provider_auth: 'exit',
  provider_unavailable: 'exit',
  rate_limited: 'exit',
  context_overflow: 'exit',
  output_limit: 'exit',
  model_error: 'exit',
  aborted: 'stopped',
  runtime_interrupted_no_checkpoint: 'lost',
  disk_full: 'exit',
  spool_lost: 'exit',
};

function resultOfFailure({ errorCode, lastWord }: LedgerEnd): LedgerResult {
  // Without a word of the runner's it was the spool that could not be opened.
  if (errorCode === 'disk_full' && lastWord === null) return 'spawn-error';
  // A later outlive may have written a code that is not known here.
  if (errorCode === null || !Object.hasOwn(FAILURES, errorCode)) return 'exit';
  return RESULT_OF_FAILURE[errorCode as FailureCode];
}

const isPhantom = (outcome: LedgerOutcome | null): boolean =>
  outcome?.state === 'blocked' && outcome.code === 'delegated_outcome_missing';

/** How it ended. Total: whatever the row says has a result. */
export function ledgerResult(end: LedgerEnd): LedgerResult {
  if (!TERMINAL_ATTEMPT_STATUSES.has(end.status)) return 'running';
  if (end.status === 'succeeded') return isPhantom(end.outcome) ? 'phantom' : 'exit';
  if (end.status === 'failed') return resultOfFailure(end);
  return end.status === 'cancelled' ? 'stopped' : 'lost';
}

/** Linux's own, from 1; the numbers are the same on all that Node runs on but MIPS. */
const SIGNALS = (
  'HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT ' +
  'CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS'
).split(' ');
const RTMIN = 34;

/** Number of a signal's name, with or without SIG; null for one that is not known. */
function signalNumber(name: string): number | null {
  const short = name.replace(/^SIG/, '');
  const real = /^RTMIN(?:\+(\d{1,2}))?$/.exec(short);
  if (real) return RTMIN + Number(real[1] ?? 0);
  const at = SIGNALS.indexOf(short);
  return at === -1 ? null : at + 1;
}

function ofSignal({ process, lastWord }: LedgerEnd): number | null {
  const name = process.signal ?? lastWord?.signal ?? null;
  const number = name === null ? null : signalNumber(name);
  return number === null ? null : 128 + number;
}

/** A failure is never 0: not where the program exited with 0 and the model had failed. */
function ofExit({ status, process, lastWord }: LedgerEnd): number {
  if (status === 'succeeded') return 0;
  return lastWord?.exitCode || process.status || 1;
}

/**
 * The exit status as every path tells it: 124 for a timeout whatever the process said, as
 * timeout(1), 127 where nothing was started, 128 and the signal's number, 130 where it was
 * stopped, as `outlive run` exits. Null where nobody knows.
 */
export function ledgerRc(end: LedgerEnd): number | null {
  switch (ledgerResult(end)) {
    case 'exit':
    case 'phantom':
      return ofExit(end);
    case 'timeout':
      return 124;
    case 'spawn-error':
      return 127;
    case 'stopped':
      return 130;
    case 'oom':
      return ofSignal(end) ?? 137;
    case 'signal':
      return ofSignal(end);
    case 'lost':
    case 'running':
      return null;
  }
}

/** `satisfied`, `blocked(delegated_outcome_missing)`; null where none was declared. */
export function outcomeWord(outcome: LedgerOutcome | null): string | null {
  if (outcome === null) return null;
  return outcome.code === null ? outcome.state : `${outcome.state}(${outcome.code})`;
}

/** What became of the verification; null where nothing was declared that would be run. */
export function ledgerVerify(outcome: LedgerOutcome | null): LedgerVerify | null {
  switch (outcome?.state) {
    case undefined:
      return null;
    case 'pending':
      return 'pending';
    case 'satisfied':
      return outcome?.verifyId == null ? null : 'ok';
    case 'blocked':
      return 'not_run';
    case 'refuted':
      return 'failed';
    case 'skipped':
      return 'skipped';
  }
}
