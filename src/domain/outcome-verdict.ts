/** How an outcome is decided from what was found. Pure; the evidence is gathered elsewhere. */
import type { OutcomeReason, OutcomeState } from './outcome.ts';
import { OUTCOME_REASONS } from './outcome.ts';
import type { WorkUnitStatus } from './work-unit.ts';

export interface Settled {
  readonly state: Exclude<OutcomeState, 'pending'>;
  readonly code: OutcomeReason | null;
  readonly message: string | null;
}

/** What was found of the files and of the JSON that had to be there. */
export interface LeftEvidence {
  /** A sentence for each output that is not there. */
  readonly missing: readonly string[];
  /** What is wrong with the result; null when it is right or none was asked for. */
  readonly result: string | null;
}

const MESSAGE_MAX = 4_000;
const bounded = (message: string): string =>
  message.length <= MESSAGE_MAX ? message : `${message.slice(0, MESSAGE_MAX - 2)} …`;

const SATISFIED: Settled = { state: 'satisfied', code: null, message: null };
const settle = (
  state: 'blocked' | 'refuted' | 'skipped',
  code: OutcomeReason,
  detail: string | null,
): Settled => ({
  state,
  code,
  message: bounded([OUTCOME_REASONS[code], ...(detail === null ? [] : [detail])].join(': ')),
});

/** One that is never looked at. */
export const skippedBecause = (code: OutcomeReason): Settled => settle('skipped', code, null);

/** After files and result: settled, or the question goes to the verification. */
export function decideByEvidence(
  { missing, result }: LeftEvidence,
  hasVerify: boolean,
): Settled | 'verify' {
  const lacking = [...missing, ...(result === null ? [] : [result])];
  if (lacking.length > 0) return settle('blocked', 'delegated_outcome_missing', lacking.join('; '));
  return hasVerify ? 'verify' : SATISFIED;
}

/** How a verification ended. */
export interface VerifyEnd {
  readonly handle: string;
  readonly status: Extract<WorkUnitStatus, 'succeeded' | 'failed' | 'cancelled'>;
  readonly errorCode: string | null;
  readonly errorMessage: string | null;
  /** Of its program; null when that did not exit by itself. */
  readonly exitCode: number | null;
  /** The tail of what it printed. */
  readonly output: string;
}

/** Only a program that exited has said no; whatever else became of it is no answer. */
export function decideByVerify(end: VerifyEnd): Settled {
  if (end.status === 'succeeded') return SATISFIED;
  if (end.status === 'failed' && end.errorCode === 'exit_code' && end.exitCode !== null) {
    const output = end.output.trim();
    return settle(
      'refuted',
      'verify_failed',
      `${end.handle} exited with status ${end.exitCode}${output === '' ? ', without a word' : `: ${output}`}`,
    );
  }
  const why = [end.errorCode, end.errorMessage].filter((part) => part !== null).join(', ');
  return verifyNotRun(`${end.handle} is ${end.status}${why === '' ? '' : `: ${why}`}`);
}

/** There is no verification to ask, and why. */
export const verifyNotRun = (why: string): Settled => settle('blocked', 'verify_not_run', why);
