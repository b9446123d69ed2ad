/**
 * How often a start that ran nothing is tried again, and when. Pure.
 *
 * What keeps systemd from starting a unit is mostly over in a moment (a reload, a busy
 * manager, the bus away), so the work backs off instead of failing; what does not pass must
 * come to an end all the same. Both are forgotten with time: a start that fails once an
 * hour is no reason to give work up.
 */

/** So many starts in a row that ran nothing fail the work. */
export const START_BUDGET = 8;
const FIRST_DELAY_MS = 1_000;
const GROWTH = 4;
const LONGEST_DELAY_MS = 60_000;
/** One of them is forgiven for each of these that passed since the last. */
const FORGIVEN_AFTER_MS = 10 * 60_000;

export interface StartFailures {
  /** In a row, what was forgiven taken off. */
  readonly count: number;
  /** When the last one was, milliseconds since the epoch; null before the first. */
  readonly lastAt: number | null;
}

export interface Backoff {
  /** With the one that just happened. */
  readonly count: number;
  /** Time until the next start, milliseconds; null when there is none any more. */
  readonly delayMs: number | null;
}

/** What follows from one more start that ran nothing. A clock that was set back forgives nothing. */
export function backOff({ count, lastAt }: StartFailures, now: number): Backoff {
  const quietMs = lastAt === null ? 0 : Math.max(0, now - lastAt);
  const left = Math.max(0, count - Math.floor(quietMs / FORGIVEN_AFTER_MS));
  const failures = left + 1;
  if (failures >= START_BUDGET) return { count: failures, delayMs: null };
  const delayMs = Math.min(FIRST_DELAY_MS * GROWTH ** left, LONGEST_DELAY_MS);
  return { count: failures, delayMs };
}
