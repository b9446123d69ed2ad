/** Takes the next queued work unit: in one transaction it gets an attempt, a unit name and a nonce. */
import { newNonce, uuidv7 } from '../domain/ids.ts';
import { unitName } from '../domain/names.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';

export interface Claim {
  readonly workUnit: WorkUnitRow;
  readonly attempt: AttemptRow;
}

/**
 * Claims by priority, then age. The unit name is durable before anything is started
 * under it (a crash in between finds it again: case T59).
 * @returns null when nothing is queued.
 */
export function claimNext(context: Context): Claim | null {
  const { store, writer, entropy, executor, workspace, runtimeInstanceId } = context;
  const claim = writer.commit((transaction): Claim | null => {
    const queued = store.workUnits.nextQueued();
    if (!queued) return null;
    const id = uuidv7(entropy);
    const attemptNumber = queued.attemptCount + 1;
    const { handle, runnerId } = queued;
    const unit = unitName({ workspace, handle, counter: store.attempts.nextCounter(handle) });
    store.attempts.insert({
      id,
      workUnitId: queued.id,
      attemptNumber,
      runtimeInstanceId,
      runnerId,
      unit,
      nonce: newNonce(entropy),
      executor: executor.kind,
      at: transaction.at,
    });
    const workUnit = transaction.moveWorkUnit(queued, 'claim', {
      actor: 'scheduler',
      attemptId: id,
      data: { attemptNumber, unit },
      patch: {
        activeAttemptId: id,
        attemptCount: attemptNumber,
        errorCode: null,
        errorMessage: null,
      },
    });
    transaction.append(workUnit.id, [
      { type: 'attempt.created', actor: 'scheduler', attemptId: id, data: { attemptNumber, unit } },
    ]);
    return { workUnit, attempt: transaction.attempt(id) };
  });
  if (claim) context.fault('claimed');
  return claim;
}
