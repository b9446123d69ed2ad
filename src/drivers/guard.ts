/** The census guard: whether work on a subject may be made, asked in the transaction that makes it. */
import { SKIPS, type Skip } from '../domain/driver.ts';
import type { SubjectWork } from '../store/driver-guard.ts';
import type { Store } from '../store/store.ts';

export interface GuardQuestion {
  readonly driver: string;
  /** The census that named it. */
  readonly censusId: string;
  readonly subject: string;
  readonly maxAtOnce: number;
  /** The work that is just being made. */
  readonly except?: string;
}

/** Why not. */
export interface Refusal {
  readonly code: Skip;
  readonly message: string;
  /** The work that it is refused for. */
  readonly workUnitId: string | null;
}

export function refusal(code: Skip, why = '', workUnitId: string | null = null): Refusal {
  const message = why === '' ? SKIPS[code] : `${SKIPS[code]} (${why})`;
  return { code, message, workUnitId };
}

const because = (code: Skip, work: SubjectWork | undefined): Refusal | null =>
  work ? refusal(code, work.handle, work.id) : null;

/** By the order of events, since clocks go back; by time only where retention has taken them. */
function isNewer(
  { position, endedAt }: SubjectWork,
  began: { readonly position: number; readonly ts: string } | null,
): boolean {
  if (began === null) return true;
  return position === null ? endedAt !== null && endedAt >= began.ts : position > began.position;
}

/** Nothing of it is in memory: also two daemons, one after the other, answer as one. */
export function guard(
  { drivers }: Pick<Store, 'drivers'>,
  question: GuardQuestion,
): Refusal | null {
  const { driver, censusId, subject, maxAtOnce, except } = question;
  const row = drivers.get(driver);
  if (row?.state !== 'active' || row.censusId !== censusId) return refusal('stopped');
  const hold = drivers.holdOn(subject);
  if (hold) return refusal('held', hold.code, hold.workUnitId);
  const work = drivers.workOn(subject, except);
  const began = drivers.claimedAt(censusId);
  const known =
    because(
      'busy',
      work.find(({ live }) => live),
    ) ??
    because(
      'verifying',
      work.find(({ verifying }) => verifying),
    ) ??
    because(
      'newer',
      work.find((one) => isNewer(one, began)),
    );
  if (known) return known;
  const working = drivers.working(driver, except);
  return working >= maxAtOnce ? refusal('full', `${working} of ${maxAtOnce}`) : null;
}
