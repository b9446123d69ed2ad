/** Another attempt for work that failed, or that nobody can say anything about any more. */
import { OutliveError } from '../domain/errors.ts';
import { describeOutcome } from '../domain/outcome-codes.ts';
import { type Actor, TERMINAL_ATTEMPT_STATUSES, TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { releaseResources } from './admission.ts';
import type { Context } from './context.ts';
import { proveDead } from './prove-dead.ts';
import type { Transaction } from './writer.ts';

/** A group that is not empty by then is in use. */
const EMPTY_WAIT_MS = 2_000;

const isGone = async (context: Context, attempt: AttemptRow): Promise<boolean> =>
  (await proveDead(context, attempt, EMPTY_WAIT_MS)).dead;

function requireHandle(context: Context, workUnit: WorkUnitRow): void {
  const holder = context.store.workUnits.getByHandle(workUnit.handle);
  if (!holder || holder.id === workUnit.id || TERMINAL_STATUSES.has(holder.status)) return;
  throw new OutliveError(
    'handle_taken',
    `Handle "${workUnit.handle}" now belongs to another work unit (${holder.status}). Submit it anew under another handle.`,
    { extra: { workUnitId: holder.id } },
  );
}

function giveUp(
  context: Context,
  transaction: Transaction,
  workUnit: WorkUnitRow,
  attemptId: string | null,
): WorkUnitRow {
  if (attemptId !== null) {
    const attempt = transaction.attempt(attemptId);
    if (!TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) {
      releaseResources(context, transaction, attempt, 'lost');
      transaction.moveAttempt(attempt, 'lost', {
        endedAt: transaction.at,
        errorCode: 'no_evidence',
        errorMessage: describeOutcome('no_evidence'),
      });
    }
  }
  const code = workUnit.errorCode ?? 'runtime_interrupted_no_checkpoint';
  return transaction.moveWorkUnit(workUnit, 'reconcile_failed', {
    actor: 'system',
    attemptId,
    data: { errorCode: code },
    patch: { errorCode: code, endedAt: transaction.at, activeAttemptId: null },
  });
}

/**
 * Queues another attempt of a failed work unit. A stale one is first proved to run no
 * more: then it fails and is queued in one transaction.
 * @throws OutliveError `not_found`, `state_conflict`, `stale_unproved`, `handle_taken`, `bus_unavailable`.
 */
export async function retry(context: Context, id: string, actor: Actor): Promise<WorkUnitRow> {
  const seen = context.store.workUnits.get(id);
  const attempt = seen?.activeAttemptId ? context.store.attempts.get(seen.activeAttemptId) : null;
  if (seen?.status === 'stale' && attempt && !(await isGone(context, attempt))) {
    throw new OutliveError(
      'stale_unproved',
      `Something of ${attempt.unit} may still run. Stop it (systemctl --user stop ${attempt.unit}) and try again.`,
      { extra: { unit: attempt.unit } },
    );
  }
  return context.writer.commit((transaction) => {
    let workUnit = transaction.workUnit(id);
    requireHandle(context, workUnit);
    if (
      workUnit.status === 'stale' &&
      workUnit.activeAttemptId === (seen?.activeAttemptId ?? null)
    ) {
      workUnit = giveUp(context, transaction, workUnit, workUnit.activeAttemptId);
    }
    return transaction.moveWorkUnit(workUnit, 'retry', {
      actor,
      data: { reason: 'retry', after: workUnit.errorCode },
      patch: { errorCode: null, errorMessage: null, endedAt: null, neverStartedCount: 0 },
    });
  });
}
