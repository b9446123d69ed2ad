/** How long an attempt may run, and what is left of that once a suspension has ended it. */
import type { TimeoutPolicy } from '../domain/work-unit.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';

/** A replacement has to start its runner and to say what happened: never less than this. */
const LEAST_MS = 60_000;

type Timed = Pick<
  AttemptRow,
  'hardTimeoutMs' | 'startedAt' | 'waitedMs' | 'waitingSince' | 'lastEventAt' | 'lastHeartbeatAt'
>;

/** The timeouts of one attempt: its work unit's, the hard one shortened by what was used before. */
export function timeoutsOf(
  { timeoutPolicy }: Pick<WorkUnitRow, 'timeoutPolicy'>,
  { hardTimeoutMs }: Pick<AttemptRow, 'hardTimeoutMs'>,
): TimeoutPolicy {
  return hardTimeoutMs === null ? timeoutPolicy : { ...timeoutPolicy, hardTimeoutMs };
}

/** Time spent waiting for a person until `at`, milliseconds. */
export function waitedUntil(attempt: Pick<Timed, 'waitedMs' | 'waitingSince'>, at: string): number {
  const { waitedMs, waitingSince } = attempt;
  if (waitingSince === null) return waitedMs;
  return waitedMs + Math.max(0, Date.parse(at) - Date.parse(waitingSince));
}

/**
 * Milliseconds of the hard timeout that are left for the next attempt: waiting for a person
 * is not counted, nor is the time after its last sign of life. At least a minute, and never
 * more than there was.
 */
export function timeLeft(workUnit: WorkUnitRow, attempt: Timed, at: string): number {
  const { hardTimeoutMs } = timeoutsOf(workUnit, attempt);
  if (attempt.startedAt === null) return hardTimeoutMs;
  const start = Date.parse(attempt.startedAt);
  const signs = [attempt.lastEventAt, attempt.lastHeartbeatAt].flatMap((sign) =>
    sign === null ? [] : [Date.parse(sign)],
  );
  const end = Math.min(Date.parse(at), Math.max(start, ...signs));
  const waited = waitedUntil(attempt, new Date(end).toISOString());
  const used = Math.max(0, end - start - waited);
  return Math.min(hardTimeoutMs, Math.max(LEAST_MS, hardTimeoutMs - used));
}
