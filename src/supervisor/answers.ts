/** The part of the supervisor that has to do with questions: decides, delivers, keeps the time. */
import { OutliveError } from '../domain/errors.ts';
import type { ApprovalRow } from '../store/approvals.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { EventRow } from '../store/events.ts';
import { type ApprovalClock, keepApprovalClock } from './approval-clock.ts';
import { type DecisionRequest, decide } from './approval-decide.ts';
import type { Context } from './context.ts';
import { deliverDecisions } from './decision-files.ts';
import { keyed, Repeated } from './idempotent.ts';

/** A decision whose file could not be written is carried out again after this long. */
const RETRY_MS = 5_000;

interface Hands {
  /** Something about the attempt of this work unit has to be looked at. */
  hintOwner(workUnitId: string): void;
  /** Tells the wrapper that a decision lies there; a wrapper that is not told finds it itself. */
  look(attemptId: string): void;
  /** Queued work may start. */
  wake(): void;
}

export interface Answers {
  /**
   * Stores a person's answer and carries it to the attempt that waits for it.
   * @throws OutliveError `not_found`, `approval_closed`, `state_conflict`, `idempotency_mismatch`.
   */
  decide(id: string, request: DecisionRequest, key?: string): ApprovalRow;
  /** A watch begins to follow this attempt: what was decided before is carried to it. */
  attached(attempt: AttemptRow): void;
  start(): void;
  close(): Promise<void>;
}

function decideOnce(
  context: Context,
  id: string,
  request: DecisionRequest,
  key: string | undefined,
): ApprovalRow {
  const command = request.decision === 'approved' ? 'approve' : 'deny';
  try {
    return decide(keyed(context, key, command, id), id, request);
  } catch (error) {
    const row = error instanceof Repeated ? context.store.approvals.get(id) : null;
    if (row) return row;
    throw error instanceof Repeated
      ? new OutliveError('not_found', `There is no approval "${id}" any more.`)
      : error;
  }
}

export function createAnswers(context: Context, hands: Hands): Answers {
  const retries = new Set<NodeJS.Timeout>();
  let closing = false;
  // One after the other: two that write the same file at once would tear it.
  let delivering: Promise<void> = Promise.resolve();
  let clock: ApprovalClock | null = null;
  let unsubscribe: () => void = () => undefined;

  const carry = async (attempt: AttemptRow): Promise<void> => {
    try {
      if ((await deliverDecisions(context, attempt)) > 0) hands.look(attempt.id);
    } catch (error) {
      context.log.error({ err: error, unit: attempt.unit }, 'a decision could not be carried over');
      if (closing) return; // The next daemon does it.
      const timer = setTimeout(() => {
        retries.delete(timer);
        deliver(attempt);
      }, RETRY_MS);
      retries.add(timer);
    }
  };
  const deliver = (attempt: AttemptRow): void => {
    delivering = delivering.then(() => carry(attempt));
  };

  const attemptOf = ({ workUnitId, attemptId }: ApprovalRow): AttemptRow | null => {
    const { attempts, workUnits } = context.store;
    const isActive = workUnits.get(workUnitId)?.activeAttemptId === attemptId;
    return isActive ? attempts.get(attemptId) : null;
  };

  /** To the attempt that waits for it, or to the queue; repeatable. */
  const passOn = (row: ApprovalRow): void => {
    const attempt = attemptOf(row);
    if (attempt) deliver(attempt);
    hands.hintOwner(row.workUnitId);
    hands.wake();
    clock?.wake();
  };

  /** Also decisions that were committed together with something else, as a webhook's. */
  const heed = (events: readonly EventRow[]): void => {
    if (events.some(({ type }) => type === 'approval.requested')) clock?.wake();
    for (const { type, data } of events) {
      if (type !== 'approval.changed' || data['cause'] !== 'decided') continue;
      const row = context.store.approvals.get(String(data['approvalId']));
      if (row) passOn(row);
    }
  };

  return {
    decide: (id, request, key) => {
      const row = decideOnce(context, id, request, key);
      passOn(row);
      return row;
    },
    attached: deliver,
    start: () => {
      clock = keepApprovalClock(context, hands.hintOwner);
      unsubscribe = context.hub.subscribe(heed);
    },
    close: async () => {
      closing = true;
      unsubscribe();
      for (const timer of retries) clearTimeout(timer);
      await delivering;
      await clock?.close();
    },
  };
}
