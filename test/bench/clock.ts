/** One clock for all: CLOCK_MONOTONIC in milliseconds, which is also that of systemd's *Monotonic properties. */

export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/**
 * Converts a wall time of now, as other processes note it, to the monotonic clock. Made
 * anew for each measurement, because the wall clock may be stepped or slewed; made at a
 * tick of the millisecond, because Date.now() tells no more.
 */
export function wallToMonotonic(): (wallMs: number) => number {
  const first = Date.now();
  let tick = first;
  while (tick === first) tick = Date.now();
  const ahead = tick - monotonicMs();
  return (wallMs) => wallMs - ahead;
}
