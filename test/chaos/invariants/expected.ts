/** As what a piece of work may end, given what was done to it. */
import { LOST, TOO_OLD } from '../faults/fault.ts';
import type { AttemptRow, EventRow, History, WorkUnitRow } from '../history.ts';
import type { Manner, Work } from '../plan.ts';

/** How it ends when nobody touches it. */
const NATURAL: Record<Manner, string> = {
  plain: 'succeeded',
  stubborn: 'succeeded',
  orphan: 'succeeded',
  pi: 'succeeded',
  failing: 'failed/exit_code',
  unspawnable: 'failed/spawn_error',
};

export const naturalEnd = ({ manner }: Work): string => NATURAL[manner];

export const endOf = ({ status, error_code }: WorkUnitRow): string =>
  error_code === null ? status : `${status}/${error_code}`;

/** As what the faults of the round let this work end. */
function struckEnds({ ledger }: History, { key }: Work): Set<string> {
  const ends = ledger.flatMap((entry) => {
    if (entry.what !== 'fault') return [];
    return entry.keys === 'all' || entry.keys.includes(key) ? entry.allows : [];
  });
  return new Set(ends);
}

/** A fault may have left nothing that tells how its attempt ended. */
export const mayBeLost = (history: History, work: Work): boolean =>
  struckEnds(history, work).has(LOST) || storeWasReplaced(history);

/**
 * Ends that the faults of the round allow for this work, beside its natural one. A lost
 * command has failed; a lost run of Pi goes on in its next attempt and ends as it would have.
 */
export function faultEnds(history: History, work: Work): Set<string> {
  const allowed = struckEnds(history, work);
  if (work.manner === 'pi') allowed.delete(LOST);
  else allowed.delete(TOO_OLD);
  return allowed;
}

/** A copy of the store was put back: what happened since is unknown to it. */
export const storeWasReplaced = ({ ledger }: History): boolean =>
  ledger.some((entry) => entry.what === 'damaged' && entry.file === 'store');

export const spoolWasDamaged = ({ ledger }: History, attempt: string): boolean =>
  ledger.some(
    (entry) => entry.what === 'damaged' && entry.file === 'spool' && entry.attempt === attempt,
  );

export const faultNames = ({ ledger }: History): string[] =>
  ledger.flatMap((entry) => (entry.what === 'fault' ? [entry.name] : []));

export const workUnitOf = (history: History, { key }: Work): WorkUnitRow | undefined =>
  history.workUnits.find(({ handle }) => handle === key);

/** In the order they were made. */
export const attemptsOf = ({ attempts }: History, { id }: WorkUnitRow): AttemptRow[] =>
  attempts
    .filter(({ work_unit_id }) => work_unit_id === id)
    .sort((a, b) => a.attempt_number - b.attempt_number);

export const eventsOf = ({ events }: History, { id }: WorkUnitRow): EventRow[] =>
  events.filter(({ work_unit_id }) => work_unit_id === id);

export const dataOf = ({ data_json }: EventRow): Record<string, unknown> =>
  JSON.parse(data_json) as Record<string, unknown>;

export const isRetry = (event: EventRow): boolean =>
  event.type === 'work_unit.queued' && dataOf(event)['reason'] === 'retry';
