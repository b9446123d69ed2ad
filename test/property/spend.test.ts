import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Ceiling,
  dayOf,
  formatMicroUsd,
  NOTHING_SPENT,
  nextDay,
  overriding,
  plus,
  reached,
  remaining,
  type Spend,
  spendOf,
} from '../../src/domain/spend.ts';

const ZONES = [
  'UTC',
  'Europe/Berlin',
  'America/St_Johns',
  'Australia/Lord_Howe',
  'Pacific/Kiritimati',
];
const spend: fc.Arbitrary<Spend> = fc
  .tuple(fc.nat({ max: 1_000_000 }), fc.double({ min: 0, max: 50, noNaN: true }))
  .map(([tokens, usd]) => spendOf(tokens, usd));
const ceiling: fc.Arbitrary<Ceiling> = fc.record({
  microUsd: fc.option(fc.integer({ min: 1, max: 100_000_000 }), { nil: null }),
  tokens: fc.option(fc.integer({ min: 1, max: 10_000_000 }), { nil: null }),
});

describe('what is spent', () => {
  it('adds up exactly, in any order', () => {
    fc.assert(
      fc.property(fc.array(spend, { maxLength: 50 }), (parts) => {
        const sum = parts.reduce(plus, NOTHING_SPENT);
        expect(parts.toReversed().reduce(plus, NOTHING_SPENT)).toEqual(sum);
        for (const value of Object.values(sum)) expect(Number.isSafeInteger(value)).toBe(true);
        expect(sum.unpricedTokens).toBeLessThanOrEqual(sum.tokens);
      }),
    );
  });

  it('reaches a ceiling exactly when nothing of it remains', () => {
    fc.assert(
      fc.property(fc.array(spend, { maxLength: 20 }), ceiling, (parts, max) => {
        const sum = parts.reduce(plus, NOTHING_SPENT);
        const left = remaining(sum, max);
        expect(reached(sum, max) !== null).toBe(left.microUsd === 0 || left.tokens === 0);
        expect(left.microUsd === null).toBe(max.microUsd === null);
        expect(left.tokens === null).toBe(max.tokens === null);
      }),
    );
  });

  it('once reached stays reached, whatever more is spent', () => {
    fc.assert(
      fc.property(spend, spend, ceiling, (before, more, max) => {
        if (reached(before, max) !== null) expect(reached(plus(before, more), max)).not.toBeNull();
      }),
    );
  });

  it('without a price has tokens and no cost that is known', () => {
    expect(spendOf(120, 0)).toEqual({ microUsd: 0, tokens: 120, unpricedTokens: 120 });
    expect(spendOf(120, 0.000264)).toEqual({ microUsd: 264, tokens: 120, unpricedTokens: 0 });
  });

  it.each([
    [0, '$0.00'],
    [264, '$0.000264'],
    [10_000, '$0.01'],
    [2_500_000, '$2.50'],
  ])('%i micro-dollars read %s', (microUsd, text) => {
    expect(formatMicroUsd(microUsd)).toBe(text);
  });

  it("is held by a request's own ceiling first, else by its kind's", () => {
    expect(overriding({ maxTokens: 5 }, { maxTokens: 9, maxCostUsd: 1 })).toEqual({
      maxTokens: 5,
      maxCostUsd: 1,
    });
    expect(overriding(undefined, {})).toEqual({});
  });
});

describe('a day', () => {
  const instant = fc.integer({ min: Date.parse('2024-01-01'), max: Date.parse('2030-01-01') });

  it('ends at the first instant of the next one, in every zone', () => {
    fc.assert(
      fc.property(instant, fc.constantFrom(...ZONES), (now, zone) => {
        const next = nextDay(now, zone);
        expect(dayOf(next - 1, zone)).toBe(dayOf(now, zone));
        expect(dayOf(next, zone)).not.toBe(dayOf(now, zone));
        expect(next - now).toBeLessThanOrEqual(25 * 3_600_000);
      }),
    );
  });

  it('has 23 and 25 hours where the clocks change', () => {
    const length = (day: string): number => {
      const begins = nextDay(Date.parse(`${day}T12:00:00Z`) - 24 * 3_600_000, 'Europe/Berlin');
      return (nextDay(begins, 'Europe/Berlin') - begins) / 3_600_000;
    };
    expect([length('2026-03-29'), length('2026-06-01'), length('2026-10-25')]).toEqual([
      23, 24, 25,
    ]);
  });
});
