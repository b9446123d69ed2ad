/** Work that waits for other work: random graphs, failures, retries and kills, against a model. */
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { type DependencyState, dependencyGate } from '../../src/domain/dependencies.ts';
import { cleanUp, temporaryDirectory } from '../store/rig.ts';
import { type Act, type End, Graph, rightEnds, type Step } from './dependency-world.ts';

afterEach(cleanUp);

const STEPS = 50;

const anEnd: fc.Arbitrary<End> = fc.oneof(
  { weight: 6, arbitrary: fc.constant('ok' as const) },
  { weight: 2, arbitrary: fc.constantFrom('failed' as const, 'lost' as const) },
  { weight: 1, arbitrary: fc.constant('refuted' as const) },
);

/** Waits for up to four of the twelve before it. */
const stepAt = (index: number): fc.Arbitrary<Step> =>
  fc
    .record({
      after: fc.uniqueArray(
        fc.integer({ min: Math.max(0, index - 12), max: Math.max(0, index - 1) }),
        {
          maxLength: index === 0 ? 0 : 4,
        },
      ),
      needed: fc.constantFrom('all' as const, 'any' as const, 1, 2, 3),
      ends: fc.array(anEnd, { minLength: 1, maxLength: 3 }),
      declares: fc.boolean(),
      cancelled: fc.integer({ min: 0, max: 19 }).map((drawn) => drawn === 0),
    })
    .map((step) => ({
      ...step,
      needed:
        typeof step.needed === 'number'
          ? Math.min(step.needed, Math.max(1, step.after.length))
          : step.needed,
    }));

const graph = fc.tuple(...Array.from({ length: STEPS }, (_, index) => stepAt(index)));

const WEIGHTS: Readonly<Record<Act, number>> = {
  submit: 5,
  claim: 6,
  end: 5,
  slip: 1,
  settle: 3,
  retry: 2,
  cancel: 1,
  wait: 1,
};

const deed = fc.record({
  act: fc.oneof(
    ...(Object.entries(WEIGHTS) as [Act, number][]).map(([act, weight]) => ({
      weight,
      arbitrary: fc.constant(act),
    })),
  ),
  pick: fc.nat({ max: 1_000 }),
  /** Of twenty: the daemon is killed in the middle of it, or right after it. */
  kill: fc.integer({ min: 0, max: 19 }),
});

describe('work that waits for other work', () => {
  it('a graph of 50 steps with random failures and kills ends in the one right state', async () => {
    const deeds = fc.array(deed, { minLength: 100, maxLength: 200, size: 'max' });
    await fc.assert(
      fc.asyncProperty(graph, deeds, async (steps, all) => {
        const world = new Graph(steps, temporaryDirectory());
        for (const { act, pick, kill } of all) {
          if (kill === 0) await world.killedDuring(act, pick);
          await world.act(act, pick);
          if (kill === 1) world.restart();
        }
        expect(world.violations()).toEqual([]);
        await world.finish();
        expect(world.violations()).toEqual([]);
        const right = rightEnds(steps);
        expect(world.known.map(({ state }) => state)).toEqual(right.map(({ state }) => state));
        const attempts = world.known.map((one, index) =>
          right[index]?.attempts === null ? null : one.attempts,
        );
        expect(attempts, 'attempts that ended by themselves').toEqual(
          right.map((one) => one.attempts),
        );
        await cleanUp();
      }),
      { numRuns: 5, endOnFailure: true },
    );
  });
});

describe('a gate', () => {
  const states = fc.array(fc.constantFrom<DependencyState>('pending', 'satisfied', 'failed'), {
    minLength: 1,
    maxLength: 8,
  });

  it('is stuck exactly when no way of what is pending could open it', () => {
    fc.assert(
      fc.property(states, fc.nat({ max: 7 }), (all, less) => {
        const needed = 1 + (less % all.length);
        const kind = (given: readonly DependencyState[]) =>
          dependencyGate(
            given.map((state) => ({ state })),
            needed,
          ).kind;
        const best = all.map((state) => (state === 'pending' ? 'satisfied' : state));
        expect(kind(all) === 'stuck').toBe(kind(best) !== 'open');
        const worst = all.map((state) => (state === 'pending' ? 'failed' : state));
        expect(kind(all) === 'open').toBe(kind(worst) === 'open');
      }),
    );
  });
});
