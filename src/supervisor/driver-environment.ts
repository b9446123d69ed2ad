/** Variables by which a driver's work knows what it is about. */
import { DRIVER_CENSUS } from '../domain/driver.ts';
import { DRIVER_OWNER } from '../domain/ledger.ts';
import type { WorkUnitRow } from '../store/work-units.ts';

/** OUTLIVE_DRIVER for a census and a run, OUTLIVE_TICK for a census; none for other work. */
export function driverEnvironment({
  ownerType,
  ownerId,
  idempotencyKey,
}: WorkUnitRow): Readonly<Record<string, string>> {
  if (ownerType === DRIVER_CENSUS) {
    const tick = /^driver-census \S+ (\d+)$/.exec(idempotencyKey)?.[1];
    return { OUTLIVE_DRIVER: ownerId, ...(tick === undefined ? {} : { OUTLIVE_TICK: tick }) };
  }
  return ownerType === DRIVER_OWNER ? { OUTLIVE_DRIVER: ownerId } : {};
}
