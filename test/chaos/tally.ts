/** Adds rounds up and says what they amount to. Pure. */
import type { RoundResult } from './protocol.ts';

export interface Tally {
  passed: number;
  failed: number;
  readonly struck: Map<string, number>;
  readonly missed: Map<string, number>;
  readonly points: Set<string>;
}

export const newTally = (): Tally => ({
  passed: 0,
  failed: 0,
  struck: new Map(),
  missed: new Map(),
  points: new Set(),
});

function countAll(counts: Map<string, number>, names: readonly string[]): void {
  for (const name of new Set(names)) counts.set(name, (counts.get(name) ?? 0) + 1);
}

export function addRound(tally: Tally, result: RoundResult): void {
  if (result.violations.length === 0) tally.passed += 1;
  else tally.failed += 1;
  countAll(tally.struck, result.struck);
  countAll(tally.missed, result.missed);
  for (const point of result.points) tally.points.add(point);
}

/**
 * The report's last lines. In a full run a point that was never reached is a failure of
 * its own: nothing says any more what happens when the daemon dies there.
 */
export function summary(
  tally: Tally,
  names: { readonly faults: readonly string[]; readonly points: readonly string[] },
  full: boolean,
): string[] {
  const unreached = names.points.filter((point) => !tally.points.has(point));
  const unstruck = names.faults.filter((name) => !tally.struck.has(name));
  const failed = tally.failed + (full ? unreached.length : 0);
  const counts = [...tally.struck].sort(([a], [b]) => a.localeCompare(b));
  return [
    `struck: ${counts.map(([name, count]) => `${name} ${count}`).join(', ')}`,
    ...(tally.missed.size > 0
      ? [`found nothing to strike: ${[...tally.missed].map(([n, c]) => `${n} ${c}`).join(', ')}`]
      : []),
    ...(unstruck.length > 0 ? [`never struck: ${unstruck.join(', ')}`] : []),
    `points reached: ${names.points.filter((point) => tally.points.has(point)).join(', ')}`,
    ...(unreached.length > 0
      ? [`points never reached${full ? ', which is a failure' : ''}: ${unreached.join(', ')}`]
      : []),
    `${tally.passed} passed, ${failed} failed`,
  ];
}

export const hasFailed = (lines: readonly string[]): boolean =>
  !lines.at(-1)?.endsWith(', 0 failed');
