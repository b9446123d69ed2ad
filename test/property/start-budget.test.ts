/** The budget of starts that run nothing: it ends, and it is forgotten. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { backOff, START_BUDGET } from '../../src/domain/start-budget.ts';

const HOUR = 3_600_000;

/** Failures one after another, each as soon as its backoff is over. @returns the delays, and when it ended. */
function inARow(pauseMs = 0, most = 100): { delays: (number | null)[]; tookMs: number } {
  let now = 1_000_000_000_000;
  const began = now;
  let failures = { count: 0, lastAt: null as number | null };
  const delays: (number | null)[] = [];
  while (delays.length < most && delays.at(-1) !== null) {
    const { count, delayMs } = backOff(failures, now);
    delays.push(delayMs);
    failures = { count, lastAt: now };
    now += (delayMs ?? 0) + pauseMs;
  }
  return { delays, tookMs: now - began };
}

describe('the budget of starts', () => {
  it('ends after as many in a row as it says, and not within a minute', () => {
    const { delays, tookMs } = inARow();
    expect(delays).toHaveLength(START_BUDGET);
    expect(delays.at(-1)).toBeNull();
    expect(tookMs).toBeGreaterThan(60_000);
    expect(tookMs).toBeLessThan(HOUR);
  });

  it('waits longer each time, at least a second and at most a minute', () => {
    const delays = inARow().delays.filter((delay) => delay !== null);
    expect(delays).toEqual([...delays].sort((a, b) => a - b));
    expect(Math.min(...delays)).toBe(1_000);
    expect(Math.max(...delays)).toBe(60_000);
  });

  it('is never spent by a failure an hour', () => {
    const { delays } = inARow(HOUR, 1_000);
    expect(new Set(delays)).toEqual(new Set([1_000]));
  });

  it('decides every count at every time, and forgives nothing to a clock that went back', () => {
    const count = fc.integer({ min: 0, max: 10_000 });
    const time = fc.integer({ min: 0, max: 4_102_444_800_000 });
    fc.assert(
      fc.property(count, fc.option(time), time, (before, lastAt, now) => {
        const backoff = backOff({ count: before, lastAt }, now);
        expect(backoff.count).toBeGreaterThanOrEqual(1);
        expect(backoff.count).toBeLessThanOrEqual(before + 1);
        if (lastAt !== null && now < lastAt) expect(backoff.count).toBe(before + 1);
        expect(backoff.delayMs === null).toBe(backoff.count >= START_BUDGET);
        if (backoff.delayMs !== null) expect(backoff.delayMs).toBeLessThanOrEqual(60_000);
      }),
    );
  });
});
