/** Gates of work that waits for other work: what counts, how much of it, and when it is too late. */
import { describe, expect, it } from 'vitest';
import {
  afterSchema,
  type DependencyState,
  dependencyGate,
  dependencyState,
  movesDependents,
  neededOf,
} from '../../src/domain/dependencies.ts';
import { OUTCOME_STATES } from '../../src/domain/outcome.ts';
import { WORK_UNIT_STATUSES } from '../../src/domain/work-unit.ts';

describe('a dependency', () => {
  it('without a declared outcome is satisfied by its success, and by nothing else', () => {
    const states = WORK_UNIT_STATUSES.map((status) => [
      status,
      dependencyState({ status, declared: false, outcome: null }),
    ]);
    expect(Object.fromEntries(states)).toEqual({
      queued: 'pending',
      claimed: 'pending',
      running: 'pending',
      waiting_for_approval: 'pending',
      cancelling: 'pending',
      stale: 'pending',
      succeeded: 'satisfied',
      failed: 'failed',
      cancelled: 'failed',
    });
  });

  it('with a declared outcome is satisfied by that, once its process has succeeded', () => {
    const of = (outcome: (typeof OUTCOME_STATES)[number]): DependencyState =>
      dependencyState({ status: 'succeeded', declared: true, outcome });
    expect(OUTCOME_STATES.map(of)).toEqual([
      'pending',
      'satisfied',
      'failed', // blocked
      'failed', // refuted
      'failed', // skipped
    ]);
    expect(dependencyState({ status: 'succeeded', declared: true, outcome: null })).toBe('pending');
  });

  it('that is tried again is pending, whatever came of the attempt before it', () => {
    for (const outcome of OUTCOME_STATES) {
      const state = dependencyState({ status: 'queued', declared: true, outcome });
      expect(state, outcome).toBe('pending');
    }
  });

  it('that is no more is failed: nothing will ever come of it', () => {
    expect(dependencyState({ status: null, declared: false, outcome: null })).toBe('failed');
  });
});

describe('a gate', () => {
  const gate = (states: string, needed: number) => {
    const names = { s: 'satisfied', p: 'pending', f: 'failed' } as const;
    const all = states.split('').map((letter) => ({ state: names[letter as keyof typeof names] }));
    return dependencyGate(all, needed);
  };

  it.each([
    ['sss', 3, 'open'],
    ['ssp', 3, 'waits'],
    ['ssf', 3, 'stuck'],
    ['spf', 3, 'stuck'],
    ['ppf', 1, 'waits'],
    ['spf', 1, 'open'],
    ['fff', 1, 'stuck'],
    ['spf', 2, 'waits'],
    ['sff', 2, 'stuck'],
    ['ssf', 2, 'open'],
  ])('of %s that needs %i is %s', (states, needed, kind) => {
    expect(gate(states, needed).kind).toBe(kind);
  });

  it('says how many are missing, and which may still come or failed', () => {
    expect(gate('sppf', 2)).toEqual({
      kind: 'waits',
      pending: [{ state: 'pending' }, { state: 'pending' }],
      missing: 1,
    });
    expect(gate('spff', 3)).toEqual({
      kind: 'stuck',
      failed: [{ state: 'failed' }, { state: 'failed' }],
      missing: 1,
    });
  });
});

describe('what a request waits for', () => {
  it('is all of it, unless it says any or how many', () => {
    const needed = (given?: unknown): number =>
      neededOf(afterSchema.parse({ workUnits: ['a', 'b', 'c'], needed: given }));
    expect([needed(), needed('all'), needed('any'), needed(2)]).toEqual([3, 3, 1, 2]);
  });

  it.each([
    [{ workUnits: [] }, ['workUnits']],
    [{ workUnits: [''] }, ['workUnits', 0]],
    [{ workUnits: ['a\0'] }, ['workUnits', 0]],
    [{ workUnits: Array.from({ length: 65 }, (_, index) => `h${index}`) }, ['workUnits']],
    [{ workUnits: ['a'], needed: 2 }, ['needed']],
    [{ workUnits: ['a'], needed: 0 }, ['needed']],
    [{ workUnits: ['a'], needed: 'some' }, ['needed']],
  ])('is refused as %j', (given, path) => {
    expect(afterSchema.safeParse(given).error?.issues.map((issue) => issue.path)).toEqual([path]);
  });
});

it('an end, a retry and an outcome move those that wait; a start does not', () => {
  const types = ['work_unit.failed', 'work_unit.queued', 'outcome.settled', 'work_unit.started'];
  expect(types.map(movesDependents)).toEqual([true, true, true, false]);
});
