/** Cancels: the decision is durable first, then the process is told. */
import { describeOutcome } from '../domain/outcome-codes.ts';
import type { Actor } from '../domain/work-unit.ts';
import { TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';
import type { Transaction } from './writer.ts';

export interface CancelRequest {
  readonly actor: Actor;
  readonly reason: string | null;
}

function intend(
  context: Context,
  transaction: Transaction,
  attemptId: string,
  request: CancelRequest,
): boolean {
  const attempt = transaction.attempt(attemptId);
  if (TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) return false;
  const intent = { kind: 'cancel', code: 'cancelled_by_request', ...request } as const;
  transaction.moveAttempt(attempt, 'cancel', { abortRequestedAt: transaction.at });
  // A failure that was decided before stays what it is; the cancellation came too late for it.
  if (!attempt.intent) context.store.attempts.patch(attemptId, { intent });
  return true;
}

/**
 * Cancels a work unit in any state that is not final. Where nothing runs it is over at
 * once; else the attempt's watch stops the unit and commits the end.
 * Cancelling what is cancelled (or being cancelled) changes nothing.
 * @throws OutliveError `not_found`, `state_conflict` when it has succeeded or failed.
 */
export function cancel(context: Context, id: string, request: CancelRequest): WorkUnitRow {
  const after = context.writer.commit((transaction): WorkUnitRow => {
    const workUnit = transaction.workUnit(id);
    const attemptId = workUnit.activeAttemptId;
    const moved = transaction.moveWorkUnit(workUnit, 'cancel', {
      actor: request.actor,
      attemptId,
      data: { reason: request.reason },
    });
    if (moved.status !== 'cancelling' || workUnit.status === 'cancelling') return moved;
    if (attemptId !== null && intend(context, transaction, attemptId, request))
      return transaction.workUnit(id);
    const code = 'cancelled_by_request';
    const errorMessage = describeOutcome(code);
    return transaction.moveWorkUnit(moved, 'runner_cancelled', {
      actor: request.actor,
      data: { errorCode: code, errorMessage, reason: request.reason },
      patch: { errorCode: code, errorMessage, endedAt: transaction.at, activeAttemptId: null },
    });
  });
  context.fault('cancel_intended');
  return after;
}
