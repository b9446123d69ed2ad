/** When a driver looks next. Times are arguments. */

/** No failing census waits longer, unless `every` is longer anyway. */
export const BACKOFF_MAX_MS = 6 * 60 * 60_000;
/** ×2 for each failure in a row, up to ×32. */
const DOUBLINGS_MAX = 5;

export interface TickClock {
  /** Milliseconds; absent: it never ticks by itself. */
  readonly every?: number | undefined;
  /** Milliseconds; absent: a tenth of `every`. */
  readonly jitter?: number | undefined;
}

export interface TickEnd {
  /** When the tick began, milliseconds since the epoch. */
  readonly startedAt: number;
  readonly now: number;
  /** In a row, this one included; 0 after a success. */
  readonly failures: number;
  /** In [0, 1). */
  readonly random: number;
}

/** Milliseconds from one tick to the next. */
export function tickDelay(every: number, failures: number): number {
  const backedOff = every * 2 ** Math.min(failures, DOUBLINGS_MAX);
  return Math.max(every, Math.min(backedOff, BACKOFF_MAX_MS));
}

/**
 * How long to wait for a tick that is due at `nextAt`. Nobody means to wait longer than the
 * longest there is between two: then the clock was set back since, and it is due now.
 */
export function untilTick(
  { every = 0, jitter }: TickClock,
  failures: number,
  { nextAt, now }: { nextAt: number; now: number },
): number {
  const longest = tickDelay(every, failures) + (jitter ?? every / 10);
  const wait = nextAt - now;
  return wait > longest ? 0 : Math.max(0, wait);
}

/**
 * When the next tick is due, milliseconds since the epoch; null where none comes by itself.
 * It is counted from the start of the last one, so what was missed meanwhile is made up for once.
 */
export function nextTick({ every, jitter }: TickClock, end: TickEnd): number | null {
  if (every === undefined) return null;
  const spread = jitter ?? every / 10;
  const due = Math.max(end.startedAt + tickDelay(every, end.failures), end.now);
  return due + Math.floor(end.random * spread);
}
