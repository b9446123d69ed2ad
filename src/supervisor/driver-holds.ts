/**
 * A person who stops a driver's work does not want it started again by the next tick: its
 * subject is held from the very transaction that ends it.
 */
import { DRIVER_OWNER } from '../domain/ledger.ts';
import { OUTCOME_VERIFY } from '../domain/outcome.ts';
import type { CancellationCode } from '../domain/outcome-codes.ts';
import type { Actor } from '../domain/work-unit.ts';
import type { Store } from '../store/store.ts';
import type { WorkUnitRow } from '../store/work-units.ts';

/** A prompt that takes its place is no stop. */
const STOPS: ReadonlySet<string> = new Set<CancellationCode>([
  'cancelled_by_request',
  'halted',
  'stopped_externally',
]);

/** Holds the subject of a driver's work that ended because somebody stopped it. */
export function holdStopped(
  { store, at }: { readonly store: Store; readonly at: string },
  workUnit: WorkUnitRow,
  { actor, attemptId }: { readonly actor: Actor; readonly attemptId?: string | null },
): void {
  const { errorCode } = workUnit;
  if (errorCode === null || !STOPS.has(errorCode)) return;
  // Newer work that took its place was asked for by somebody else, and stops nobody.
  const asked = attemptId ? store.attempts.get(attemptId)?.intent?.actor : undefined;
  if ((asked ?? actor) === 'scheduler') return;
  holdSubject({ store, at }, workUnit, errorCode as CancellationCode);
}

/**
 * Holds the subject of a driver's work, whatever that will end as: somebody asked for its end.
 * What verifies a driver's work is that work still.
 */
export function holdSubject(
  { store, at }: { readonly store: Store; readonly at: string },
  workUnit: WorkUnitRow,
  code: CancellationCode,
): void {
  const judged =
    workUnit.ownerType === OUTCOME_VERIFY ? store.outcomes.byVerify(workUnit.id) : null;
  const { id, ownerType, ownerId, externalSubject } =
    (judged && store.workUnits.get(judged.workUnitId)) ?? workUnit;
  if (ownerType !== DRIVER_OWNER || externalSubject === null) return;
  store.drivers.hold({
    subject: externalSubject,
    driver: ownerId,
    workUnitId: id,
    code,
    heldAt: at,
  });
}

/** A person asked for it: not the scheduler, and not outlive itself. */
export const isPersons = (actor: Actor): boolean => actor !== 'scheduler' && actor !== 'system';

/** Who has a driver's work tried again has taken the subject up again. */
export function releaseRetried(store: Store, { ownerType, externalSubject }: WorkUnitRow): void {
  if (ownerType === DRIVER_OWNER && externalSubject !== null)
    store.drivers.release(externalSubject);
}
