/**
 * A question to a person and the checkpoint behind it: which states belong together, and
 * what the evidence of a lost attempt says of each. Pure.
 */

/** What became of the question. */
export const APPROVAL_STATUSES = ['pending', 'approved', 'denied', 'expired', 'dropped'] as const;
export type ApprovalStatus = (typeof APPROVAL_STATUSES)[number];

/**
 * From where work goes on.
 * `waiting`: nobody has acted on the answer; `resume_pending`: a replacement attempt is bound
 * to it; `resumed`: the replacement has acted on it; `resume_failed`: nobody ever will, for a
 * reason with a code; `closed`: the attempt that asked has acted on it, or nobody need.
 */
export const CHECKPOINT_STATES = [
  'waiting',
  'resume_pending',
  'resumed',
  'resume_failed',
  'closed',
] as const;
export type CheckpointState = (typeof CHECKPOINT_STATES)[number];

/** Why a checkpoint can never be resumed. */
export const CHECKPOINT_FAILURES = {
  effect_unknown: 'Whether the call took effect cannot be known',
  lineage_broken: 'The attempt that was to act on it is not one of its work unit',
  work_ended: 'Its work unit has ended',
} as const;
export type CheckpointFailure = keyof typeof CHECKPOINT_FAILURES;

/** The part of a row that decides. */
export interface Checkpoint {
  readonly status: ApprovalStatus;
  readonly checkpoint: CheckpointState;
  /** Lines were lost, or could not be seen, after it was decided and before its start was. */
  readonly doubted: boolean;
  readonly startAttemptId: string | null;
  readonly ended: boolean;
}

/** What a runner can do with an answer that comes after its attempt is gone. */
export interface ResumeCapabilities {
  /** A session of the runner's own that waits for the answer: typed, verified. None has it. */
  readonly nativeResume: boolean;
  /** Tools whose approved call the wrapper runs itself before the runner goes on. */
  readonly hostApprovalContinuation: readonly string[];
}

/** The registry: nothing else may conclude from a runner's name what it can do. */
export const RESUME_CAPABILITIES: Readonly<Record<'pi' | 'command', ResumeCapabilities>> = {
  pi: { nativeResume: false, hostApprovalContinuation: ['bash'] },
  command: { nativeResume: false, hostApprovalContinuation: [] },
};

/** What is to be done about a checkpoint whose attempt is gone. */
export type CheckpointVerdict =
  /** Nobody has answered: it waits on. */
  | 'wait'
  /** A person said no, and the model was not told. */
  | 'tell'
  /** Approved and never begun: one attempt may act on it. */
  | 'grant'
  /** Begun and ended: what it said is known, and it is not done again. */
  | 'finished'
  /** Begun, and nobody knows whether it ended; or what would tell is lost. */
  | 'effect_unknown'
  /** Nothing is left to do. */
  | 'over';

/**
 * Decides from the row and the spool of the attempt that could have acted, which was read to
 * its end. A start is on the disk before the call acts, so a whole spool without one proves that
 * nothing was done; where it is not whole the row is doubted.
 * A start outweighs all else: a store that was put back may know the start and no answer.
 */
export function judgeCheckpoint(row: Checkpoint): CheckpointVerdict {
  if (row.checkpoint !== 'waiting' && row.checkpoint !== 'resume_pending') return 'over';
  if (row.startAttemptId !== null) return row.ended ? 'finished' : 'effect_unknown';
  if (row.status === 'pending') return 'wait';
  if (row.status === 'denied') return 'tell';
  if (row.status !== 'approved') return 'over';
  return row.doubted ? 'effect_unknown' : 'grant';
}

/** Where a suspension may begin, and nowhere else. */
export const SUSPENSIONS = ['approval_wait', 'resume_pre_dispatch'] as const;
export type Suspension = (typeof SUSPENSIONS)[number];

/** A checkpoint and the state of its work unit, as a suspension finds them together. */
export interface SuspensionShape {
  readonly workUnit: string;
  readonly checkpoints: readonly Pick<Checkpoint, 'status' | 'checkpoint'>[];
}

/**
 * Which suspension fits, null for a combination that must not be: a pending question beside a
 * work unit that runs, an answer already bound beside one that waits, a mixture of both.
 */
export function suspensionOf({ workUnit, checkpoints }: SuspensionShape): Suspension | null {
  const open = checkpoints.filter(
    ({ checkpoint }) => checkpoint === 'waiting' || checkpoint === 'resume_pending',
  );
  if (open.length === 0 || open.length !== checkpoints.length) return null;
  const isPending = open.some(({ status }) => status === 'pending');
  const isBound = open.some(({ checkpoint }) => checkpoint === 'resume_pending');
  if (open.some((one) => one.status === 'pending' && one.checkpoint === 'resume_pending')) {
    return null;
  }
  if (workUnit === 'waiting_for_approval') return isPending ? 'approval_wait' : null;
  if (workUnit !== 'running' || isPending) return null;
  return isBound ? 'resume_pre_dispatch' : 'approval_wait';
}
