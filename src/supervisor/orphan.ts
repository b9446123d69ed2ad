/** Work that claims to be under way and has no attempt that could be. */
import { describeOutcome } from '../domain/outcome-codes.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { blockMissing } from './approval-loss.ts';
import type { Context } from './context.ts';
import type { Transaction } from './writer.ts';

type Seen = Pick<WorkUnitRow, 'id' | 'status' | 'activeAttemptId'>;

/** It waits, and nothing is left to be answered: the answers are acted on, or a person has to look. */
function settleWaiting(context: Context, transaction: Transaction, row: WorkUnitRow): void {
  const open = context.store.approvals.open(row.id);
  if (open.some(({ status }) => status === 'pending')) return;
  if (open.length === 0) blockMissing(context, transaction, row, null);
  else {
    const data = { reason: 'approval_resume' };
    transaction.moveWorkUnit(row, 'approval_resume', { actor: 'system', data });
  }
}

/**
 * Brings such a work unit to where the evidence allows: a claim that made no attempt goes
 * back to the queue, a cancellation with nothing to cancel is over, anything else was
 * interrupted and fails as that, never as a cancellation. Does nothing when the row has
 * moved on.
 */
export function settleOrphan(context: Context, seen: Seen): void {
  context.writer.commit((transaction) => {
    const row = transaction.workUnit(seen.id);
    if (row.status !== seen.status || row.activeAttemptId !== seen.activeAttemptId) return;
    const common = { actor: 'system', attemptId: row.activeAttemptId } as const;
    if (row.status === 'claimed') {
      const data = { reason: 'no_attempt' };
      const patch = { activeAttemptId: null };
      transaction.moveWorkUnit(row, 'never_started', { ...common, data, patch });
      return;
    }
    if (row.status === 'cancelling') {
      const errorCode = 'cancelled_by_request';
      const patch = {
        errorCode,
        errorMessage: describeOutcome(errorCode),
        endedAt: transaction.at,
        activeAttemptId: null,
      } as const;
      transaction.moveWorkUnit(row, 'runner_cancelled', { ...common, data: { errorCode }, patch });
      return;
    }
    if (row.status === 'waiting_for_approval' && row.activeAttemptId === null) {
      settleWaiting(context, transaction, row);
      return;
    }
    const errorCode = 'runtime_interrupted_no_checkpoint';
    const errorMessage = describeOutcome(errorCode);
    const stale = transaction.moveWorkUnit(row, 'runner_lost', { ...common, data: { errorCode } });
    transaction.moveWorkUnit(stale, 'reconcile_failed', {
      ...common,
      data: { errorCode, errorMessage },
      patch: { errorCode, errorMessage, endedAt: transaction.at, activeAttemptId: null },
    });
  });
}
