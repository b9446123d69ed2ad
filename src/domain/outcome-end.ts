/** What an end means for the outcome that was declared: looked at, or skipped and why. */
import type { OutcomeReason } from './outcome.ts';
import type { FailureCode } from './outcome-codes.ts';
import { isFailureCode } from './outcome-codes.ts';
import type { WorkUnitStatus } from './work-unit.ts';

export type OutcomeAtEnd =
  | { readonly state: 'pending' }
  | { readonly state: 'skipped'; readonly code: OutcomeReason };

type Skip = 'timed_out' | 'was_cancelled' | 'was_lost' | 'never_ran';

/** Failures after which nothing is judged. Every other one is an end of the run's own. */
const SKIPPED: Readonly<Record<FailureCode, Skip | null>> = {
  hard_timeout: 'timed_out',
  idle_timeout: 'timed_out',
  heartbeat_timeout: 'timed_out',
  tool_timeout: 'timed_out',
  budget_exceeded: 'timed_out',
  approval_expired: 'was_lost',
  approval_denied: 'was_lost',
  approval_resume_effect_unknown: 'was_lost',
  runtime_interrupted_no_checkpoint: 'was_lost',
  aborted: 'was_cancelled',
  launch_failed: 'never_ran',
  spawn_error: 'never_ran',
  cwd_missing: 'never_ran',
  sandbox_unavailable: 'never_ran',
  oom: null,
  watchdog: null,
  crashed: null,
  killed: null,
  exit_code: null,
  runner_no_result: null,
  runner_error: null,
  runner_protocol: null,
  provider_auth: null,
  provider_unavailable: null,
  rate_limited: null,
  context_overflow: null,
  output_limit: null,
  model_error: null,
  leftovers: null,
  disk_full: null,
  spool_lost: null,
};

export interface WorkUnitEnd {
  readonly status: Extract<WorkUnitStatus, 'succeeded' | 'failed' | 'cancelled'>;
  readonly errorCode: string | null;
  /** Attempts there ever were. */
  readonly attemptCount: number;
}

/** Total: a failure with a code of another outlive, or with none, is one that nobody can judge. */
export function outcomeAtEnd({ status, errorCode, attemptCount }: WorkUnitEnd): OutcomeAtEnd {
  if (attemptCount === 0) return { state: 'skipped', code: 'never_ran' };
  if (status === 'succeeded') return { state: 'pending' };
  if (status === 'cancelled') return { state: 'skipped', code: 'was_cancelled' };
  if (errorCode === null || !isFailureCode(errorCode))
    return { state: 'skipped', code: 'was_lost' };
  const code = SKIPPED[errorCode];
  return code === null ? { state: 'pending' } : { state: 'skipped', code };
}
