/**
 * How an attempt can end other than well: the codes that `errorCode` carries,
 * each with the sentence a person reads.
 */

/** Codes of a failed attempt. */
export const FAILURES = {
  hard_timeout: 'It ran into its hard timeout',
  idle_timeout: 'It made no progress for its idle timeout',
  heartbeat_timeout: 'Its wrapper gave no sign of life for the heartbeat timeout',
  tool_timeout: 'One tool call took longer than the tool budget',
  approval_expired: 'Nobody answered its approval request in time',
  approval_denied: 'A person denied what it asked to do',
  approval_resume_effect_unknown:
    'It was lost in the middle of an approved call; whether that took effect is not known',
  budget_exceeded: 'It reached its spend ceiling',
  oom: 'The kernel ended it for want of memory',
  watchdog: 'systemd ended it because its watchdog was not fed',
  crashed: 'It crashed and left a core dump',
  killed: 'It was killed by a signal from outside',
  launch_failed: 'systemd could not start it',
  exit_code: 'It exited with a status other than 0',
  runner_no_result: 'It exited with 0 but left no result',
  runner_error: 'The runner reported an error',
  runner_protocol: 'The runner said something that is not its protocol',
  spawn_error: 'Its program could not be started',
  cwd_missing: 'Its working directory does not exist',
  sandbox_unavailable: 'The sandbox it was to run in could not be had; nothing of it ran',
  provider_auth: 'The model provider refused the credentials, or there are none',
  provider_unavailable: 'The model provider failed or could not be reached',
  rate_limited: 'The model provider limited the rate',
  context_overflow: 'The conversation no longer fits the model',
  output_limit: 'The model stopped at its output limit',
  model_error: 'The model provider answered with an error',
  aborted: 'The runner was aborted',
  runtime_interrupted_no_checkpoint: 'It was lost with the machinery it ran in',
  leftovers: 'It ended and left processes behind',
  disk_full: 'There was no space left for it',
  spool_lost: 'Its last word could not be written',
} as const;
export type FailureCode = keyof typeof FAILURES;

/** Codes of a cancelled attempt. */
export const CANCELLATIONS = {
  cancelled_by_request: 'It was cancelled by request',
  interrupted_by_prompt: 'A new prompt interrupted it',
  halted: 'An operator halted it',
  stopped_externally: 'Something outside outlive stopped it',
} as const;
export type CancellationCode = keyof typeof CANCELLATIONS;

/** Why an attempt is lost: nobody can say how it ended, or its machine went away. */
export const LOSSES = {
  host_shutdown: 'The machine or its user manager went away under it',
  suspended: 'It was suspended to be resumed later',
  no_evidence: 'Nothing is left that tells how it ended',
  never_started: 'It never started; nothing ran',
} as const;
export type LossCode = keyof typeof LOSSES;
export const isLossCode = (code: string): code is LossCode => Object.hasOwn(LOSSES, code);

/** Why lost work waits for a person: what `errorCode` of a stale work unit carries. */
export const RESUME_BLOCKS = {
  resume_session_corrupt: 'Its conversation is damaged; going on from it would be a guess',
  resume_session_missing: 'Its conversation is gone; everything would be done again',
  resume_cwd_missing: 'Its work tree is not there',
  resume_too_old: 'It was lost too long ago to go on without being asked',
  resume_budget_exhausted: 'It was lost too often in a short time',
  approval_resume_checkpoint_missing:
    'It was waiting for an answer, and nothing is left to go on from',
  resume_needs_decision: 'It was lost, and is to wait for a person then',
} as const;
export type ResumeBlock = keyof typeof RESUME_BLOCKS;

export type OutcomeCode = FailureCode | CancellationCode | LossCode | ResumeBlock;

/** The sentence behind a code. */
export function describeOutcome(code: OutcomeCode): string {
  return { ...FAILURES, ...CANCELLATIONS, ...LOSSES, ...RESUME_BLOCKS }[code];
}

export const isFailureCode = (code: string): code is FailureCode => Object.hasOwn(FAILURES, code);
