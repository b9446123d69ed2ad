/** Recovery, the reading part: the store and the executor as they are now. */
import type { Context } from '../supervisor/context.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import type { RecoveryView } from './plan.ts';

/** Work without an attempt that has a question open: an answer, or its expiry, goes on with it. */
const suspendedWork = ({ store }: Context): string[] =>
  store.approvals
    .list({ status: 'pending', workUnitId: null, beforeId: null, limit: Number.MAX_SAFE_INTEGER })
    .map(({ workUnitId }) => workUnitId)
    .filter((id) => {
      const workUnit = store.workUnits.get(id);
      return workUnit?.status === 'waiting_for_approval' && workUnit.activeAttemptId === null;
    });

/**
 * Reads everything a plan needs. The store is read after the units, and who is watched in
 * the same moment: an attempt that is made in between has no unit yet, and is watched.
 */
export async function observe(
  context: Context,
  supervisor: Pick<Supervisor, 'watched'>,
  reported: ReadonlySet<string>,
): Promise<RecoveryView> {
  const units = await context.executor.list();
  const { attempts, workUnits, resources } = context.store;
  const nonces = units.flatMap(({ nonce }) => (nonce === null ? [] : [nonce]));
  return {
    units,
    endedNonces: new Set(nonces.filter((nonce) => attempts.hasEnded(nonce))),
    attempts: attempts.listActive(),
    work: workUnits.listActive(),
    endedHolders: resources.endedHolders(),
    suspended: new Set(suspendedWork(context)),
    watched: supervisor.watched,
    reported,
  };
}
