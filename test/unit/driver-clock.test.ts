/** When a driver looks next. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BACKOFF_MAX_MS, nextTick, tickDelay, untilTick } from '../../src/domain/driver-clock.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const end = { startedAt: 0, now: 0, failures: 0, random: 0 };

describe('the next tick', () => {
  it('is counted from the start of the last one, so that a slow census delays nothing', () => {
    expect(nextTick({ every: 5 * MINUTE }, { ...end, startedAt: 1_000, now: 90_000 })).toBe(
      301_000,
    );
  });

  it('is at once, and one, however many were missed', () => {
    expect(nextTick({ every: MINUTE }, { ...end, now: 8 * HOUR })).toBe(8 * HOUR);
  });

  it('never comes by itself without `every`', () => {
    expect(nextTick({ jitter: 5 }, { ...end, failures: 3 })).toBeNull();
  });

  it('is at most a tenth of `every` later, or as much as is said', () => {
    expect(nextTick({ every: MINUTE }, { ...end, random: 0.5 })).toBe(63_000);
    expect(nextTick({ every: MINUTE, jitter: 0 }, { ...end, random: 0.9 })).toBe(MINUTE);
    expect(nextTick({ every: MINUTE, jitter: 10_000 }, { ...end, random: 0.999_999 })).toBe(69_999);
  });
});

describe('a clock that was set', () => {
  const minutely = { every: MINUTE };
  const wait = (nextAt: number, now: number, failures = 0): number =>
    untilTick(minutely, failures, { nextAt, now });

  it('forward makes what was missed due now', () => {
    expect(wait(MINUTE, 100 * HOUR)).toBe(0);
  });

  it('back leaves nothing due later than the longest there is between two ticks', () => {
    expect(wait(MINUTE, 0)).toBe(MINUTE);
    expect(wait(1.1 * MINUTE, 0)).toBe(1.1 * MINUTE);
    expect(wait(30 * 24 * HOUR, 0)).toBe(0);
    expect(wait(30 * MINUTE, 0, 5)).toBe(30 * MINUTE);
  });
});

describe('a census that fails', () => {
  it('is asked half as often each time, down to a 32nd, at least every six hours', () => {
    const minutes = [0, 1, 2, 3, 4, 5, 6, 60].map(
      (failures) => tickDelay(MINUTE, failures) / MINUTE,
    );
    expect(minutes).toEqual([1, 2, 4, 8, 16, 32, 32, 32]);
    expect(tickDelay(HOUR, 5)).toBe(BACKOFF_MAX_MS);
  });

  it('is never asked more often than one that works, and never later than the jitter allows', () => {
    const times = fc.record({
      startedAt: fc.nat(1e12),
      now: fc.nat(1e12),
      failures: fc.nat(1_000),
      random: fc.double({ min: 0, max: 0.999_999, noNaN: true }),
    });
    fc.assert(
      fc.property(fc.integer({ min: 1_000, max: 30 * 24 * HOUR }), times, (every, tick) => {
        const due = nextTick({ every }, tick) ?? 0;
        expect(due).toBeGreaterThanOrEqual(tick.now);
        expect(due).toBeGreaterThanOrEqual(tick.startedAt + every);
        const delay = Math.max(tick.startedAt + Math.max(every, BACKOFF_MAX_MS), tick.now);
        expect(due).toBeLessThanOrEqual(delay + every / 10);
      }),
    );
  });
});
