/** What becomes of work whose start ran nothing: back to the queue after a while, or failed after too many. */
import type { Outcome } from '../domain/classify.ts';
import { describeOutcome } from '../domain/outcome-codes.ts';
import { type Backoff, backOff, START_BUDGET } from '../domain/start-budget.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';
import type { Transaction } from './writer.ts';

type NeverStarted = Extract<Outcome, { kind: 'never_started' }>;

/** One more start that ran nothing, as it stands in words. */
export const startsInARow = (count: number): string =>
  `${count} of ${START_BUDGET} starts in a row ran nothing`;

function giveUp(
  transaction: Transaction,
  workUnit: WorkUnitRow,
  attemptId: string,
  count: number,
  reason: string | null,
): void {
  const why = reason === null ? '' : `; the last time: ${reason}`;
  const errorMessage = `${describeOutcome('launch_failed')}: ${count} starts in a row ran nothing${why}`;
  const failure = { errorCode: 'launch_failed', errorMessage };
  transaction.moveWorkUnit(workUnit, 'launch_failed', {
    actor: 'system',
    attemptId,
    data: failure,
    patch: {
      ...failure,
      endedAt: transaction.at,
      activeAttemptId: null,
      neverStartedCount: count,
      neverStartedAt: transaction.at,
    },
  });
}

function endCancelled(transaction: Transaction, workUnit: WorkUnitRow, attemptId: string): void {
  const errorCode = 'cancelled_by_request';
  transaction.moveWorkUnit(workUnit, 'never_started', {
    actor: 'system',
    attemptId,
    data: { reason: 'never_started', errorCode },
    patch: {
      errorCode,
      errorMessage: describeOutcome(errorCode),
      endedAt: transaction.at,
      activeAttemptId: null,
    },
  });
}

function delay(
  context: Context,
  transaction: Transaction,
  { id, handle }: WorkUnitRow,
  attemptId: string,
  backoff: Backoff & { readonly delayMs: number },
  reason: string | null,
): void {
  const { count, delayMs } = backoff;
  const until = new Date(context.entropy.now() + delayMs).toISOString();
  context.store.queue.delay(id, until);
  const data = { count, limit: START_BUDGET, until, reason };
  const type = 'diagnostic.start_backoff';
  transaction.append(id, [{ type, actor: 'system', attemptId, data }]);
  context.log.warn({ handle, ...data }, 'a start ran nothing; backing off');
}

/**
 * Puts work whose start ran nothing back, to be started again when its backoff is over.
 * It fails as `launch_failed` once the budget is spent; what is being cancelled is over.
 * Must run in the transaction that ends the attempt.
 */
export function requeue(
  context: Context,
  transaction: Transaction,
  workUnit: WorkUnitRow,
  attemptId: string,
  { reason, counts }: NeverStarted,
): void {
  if (workUnit.status === 'cancelling') {
    endCancelled(transaction, workUnit, attemptId);
    return;
  }
  const { neverStartedCount: count, neverStartedAt: last } = workUnit;
  const failures = { count, lastAt: last === null ? null : Date.parse(last) };
  const { count: inARow, delayMs } = backOff(failures, context.entropy.now());
  if (counts && delayMs === null) {
    giveUp(transaction, workUnit, attemptId, inARow, reason);
    return;
  }
  transaction.moveWorkUnit(workUnit, 'never_started', {
    actor: 'system',
    attemptId,
    data: { reason: 'never_started', ...(reason === null ? {} : { cause: reason }) },
    patch: {
      activeAttemptId: null,
      ...(counts ? { neverStartedCount: inARow, neverStartedAt: transaction.at } : {}),
    },
  });
  if (counts && delayMs !== null) {
    delay(context, transaction, workUnit, attemptId, { count: inARow, delayMs }, reason);
  }
}
