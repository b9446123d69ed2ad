import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Compactable,
  type RetentionPolicy,
  SETTLED_MS,
  whyItGoes,
} from '../../src/domain/retention.ts';
import { TERMINAL_STATUSES, WORK_UNIT_STATUSES } from '../../src/domain/work-unit.ts';

const NOW = Date.parse('2026-03-01T00:00:00.000Z');
const DAY = 86_400_000;

interface Unit extends Compactable {
  readonly bytes: number;
}

const unit: fc.Arbitrary<Unit> = fc
  .record({
    status: fc.constantFrom(...WORK_UNIT_STATUSES),
    age: fc.integer({ min: -DAY, max: 90 * DAY }),
    bytes: fc.integer({ min: 0, max: 1000 }),
  })
  .map(({ status, age, bytes }) => ({
    status,
    bytes,
    endedAt: TERMINAL_STATUSES.has(status) ? new Date(NOW - age).toISOString() : null,
  }));

const policy: fc.Arbitrary<RetentionPolicy> = fc.record({
  maxAgeMs: fc.option(fc.integer({ min: 0, max: 60 * DAY }), { nil: null }),
  budgetBytes: fc.option(fc.integer({ min: 0, max: 20_000 }), { nil: null }),
});

const scene = fc.record({
  units: fc.array(unit, { maxLength: 40 }),
  policy,
  /** Bytes that belong to no work unit. */
  other: fc.integer({ min: 0, max: 2000 }),
});

const total = (units: readonly Unit[]): number => units.reduce((sum, { bytes }) => sum + bytes, 0);
const age = ({ endedAt }: Unit): number => NOW - Date.parse(endedAt ?? '');

/** What a run does: asks for each, oldest end first, and stops at the first that stays. */
function run(units: readonly Unit[], rules: RetentionPolicy, other: number) {
  const gone: { unit: Unit; reason: 'age' | 'budget'; usedBefore: number }[] = [];
  let usedBytes = total(units) + other;
  const ended = units.filter(({ endedAt }) => endedAt !== null).sort((a, b) => age(b) - age(a));
  for (const one of ended) {
    const reason = whyItGoes(one, rules, { now: NOW, usedBytes });
    if (reason === null) break;
    gone.push({ unit: one, reason, usedBefore: usedBytes });
    usedBytes -= one.bytes;
  }
  const left = units.filter((one) => !gone.some((each) => each.unit === one));
  return { gone, left, usedBytes };
}

describe('what may go', () => {
  it('is never live work, however old, and however full the disk', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...WORK_UNIT_STATUSES.filter((status) => !TERMINAL_STATUSES.has(status))),
        fc.option(
          fc.integer({ min: 0, max: NOW }).map((ms) => new Date(ms).toISOString()),
          {
            nil: null,
          },
        ),
        policy,
        fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
        (status, endedAt, rules, usedBytes) => {
          expect(whyItGoes({ status, endedAt }, rules, { now: NOW, usedBytes })).toBeNull();
        },
      ),
    );
  });

  it('is everything that ended longer ago than its age, and by age nothing younger', () => {
    fc.assert(
      fc.property(scene, ({ units, policy: rules, other }) => {
        const { gone, left } = run(units, rules, other);
        const { maxAgeMs } = rules;
        const old = (one: Unit): boolean =>
          one.endedAt !== null && maxAgeMs !== null && age(one) >= maxAgeMs;
        expect(left.filter(old)).toEqual([]);
        expect(gone.filter((each) => each.reason === 'age' && !old(each.unit))).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });

  it('goes for the budget only while the budget is exceeded, oldest first, nothing just ended', () => {
    let byBudget = 0;
    fc.assert(
      fc.property(scene, ({ units, policy: rules, other }) => {
        const { gone, left } = run(units, rules, other);
        const forBudget = gone.filter(({ reason }) => reason === 'budget');
        byBudget += forBudget.length;
        for (const { unit: one, usedBefore } of forBudget) {
          expect(usedBefore).toBeGreaterThan(rules.budgetBytes ?? Number.POSITIVE_INFINITY);
          expect(age(one)).toBeGreaterThanOrEqual(SETTLED_MS);
        }
        const youngest = Math.min(...gone.map((each) => age(each.unit)));
        const older = left.filter((one) => one.endedAt !== null && age(one) > youngest);
        expect(older).toEqual([]);
      }),
      { numRuns: 500 },
    );
    // Else it proves nothing about the budget.
    expect(byBudget).toBeGreaterThan(50);
  });

  it('brings the disk within its budget, or nothing but live and just ended work is left', () => {
    fc.assert(
      fc.property(scene, ({ units, policy: rules, other }) => {
        const { left, usedBytes } = run(units, rules, other);
        if (rules.budgetBytes === null || usedBytes <= rules.budgetBytes) return;
        expect(left.filter((one) => one.endedAt !== null && age(one) >= SETTLED_MS)).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });
});
