/** Recovery, the reading part: the store and the executor as they are now. */
import type { Context } from '../supervisor/context.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import type { RecoveryView } from './plan.ts';

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
    watched: supervisor.watched,
    reported,
  };
}
