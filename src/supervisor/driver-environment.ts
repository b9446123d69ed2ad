/** Variables by which a driver's work knows what it is about. */
import { DRIVER_CENSUS } from '../domain/driver.ts';
import { DRIVER_OWNER } from '../domain/ledger.ts';
import type { WorkUnitRow } from '../store/work-units.ts';

/** OUTLIVE_DRIVER for a census and a run, OUTLIVE_TICK for a census, OUTLIVE_SUBJECT for a run; none for other work. */
export function driverEnvironment({
  ownerType,
  ownerId,
  idempotencyKey,
  externalSubject,
}: WorkUnitRow): Readonly<Record<string, string>> {
  if (ownerType === DRIVER_CENSUS) {
    const tick = /^driver-census \S+ (\d+)$/.exec(idempotencyKey)?.[1];
    return { OUTLIVE_DRIVER: ownerId, ...(tick === undefined ? {} : { OUTLIVE_TICK: tick }) };
  }
  if (ownerType !== DRIVER_OWNER) return {};
  return { OUTLIVE_DRIVER: ownerId, OUTLIVE_SUBJECT: externalSubject ?? '' };
}
