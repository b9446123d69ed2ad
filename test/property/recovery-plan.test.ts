/** The recovery plan over every mixture of rows and units: complete, safe, and done once carried out. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { unitName } from '../../src/domain/names.ts';
import {
  TERMINAL_STATUSES,
  WORK_UNIT_STATUSES,
  type WorkUnitStatus,
} from '../../src/domain/work-unit.ts';
import type { UnitFacts, UnitState } from '../../src/executor/port.ts';
import { planRecovery, type RecoveryAction, type RecoveryView } from '../../src/recovery/plan.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';

const STATES: readonly UnitState[] = [
  'activating',
  'active',
  'reloading',
  'deactivating',
  'inactive',
  'failed',
];
const DEAD: ReadonlySet<UnitState> = new Set(['inactive', 'failed']);
const UNDER_WAY = WORK_UNIT_STATUSES.filter(
  (status) => !TERMINAL_STATUSES.has(status) && status !== 'queued',
);

/** One handle with whatever may be left of it. */
interface Remains {
  readonly row: 'none' | 'active' | 'ended';
  readonly work: WorkUnitStatus | null;
  readonly unit: { readonly state: UnitState; readonly nonce: 'ours' | 'other' | null } | null;
  readonly watched: boolean;
  readonly holds: boolean;
}

const remains: fc.Arbitrary<Remains> = fc.record({
  row: fc.constantFrom('none', 'active', 'ended'),
  work: fc.option(fc.constantFrom(...UNDER_WAY)),
  unit: fc.option(
    fc.record({
      state: fc.constantFrom(...STATES),
      nonce: fc.constantFrom('ours', 'other', null),
    }),
  ),
  watched: fc.boolean(),
  holds: fc.boolean(),
});

const idOf = (index: number): string => `attempt ${index}`;
const unitOf = (index: number): string =>
  unitName({ workspace: 'main', handle: `w${index}`, counter: 1 });
const nonceOf = (index: number): string => `nonce ${index}`;

const attemptOf = (index: number): AttemptRow =>
  ({ id: idOf(index), unit: unitOf(index), nonce: nonceOf(index) }) as AttemptRow;

function factsOf(index: number, { state, nonce }: NonNullable<Remains['unit']>): UnitFacts {
  const carried = nonce === 'ours' ? nonceOf(index) : nonce;
  return { unit: unitOf(index), nonce: carried, state } as UnitFacts;
}

function viewOf(all: readonly Remains[]): RecoveryView {
  const indexed = all.map((one, index) => ({ ...one, index }));
  return {
    attempts: indexed.filter(({ row }) => row === 'active').map(({ index }) => attemptOf(index)),
    work: indexed.flatMap(({ work, row, index }) =>
      work === null
        ? []
        : [
            {
              id: `work ${index}`,
              handle: `w${index}`,
              status: work,
              activeAttemptId: row === 'none' ? null : idOf(index),
            },
          ],
    ),
    endedHolders: indexed
      .filter(({ row, holds }) => row === 'ended' && holds)
      .map(({ index }) => idOf(index)),
    units: indexed.flatMap(({ unit, index }) => (unit ? [factsOf(index, unit)] : [])),
    endedNonces: new Set(
      indexed.filter(({ row }) => row === 'ended').map(({ index }) => nonceOf(index)),
    ),
    watched: new Set(
      indexed
        .filter(({ row, watched }) => row === 'active' && watched)
        .map(({ index }) => idOf(index)),
    ),
    suspended: new Set(),
    reported: new Set(),
  };
}

/** What the world is like after the action, as far as the next look can tell. */
function carryOut(view: RecoveryView, action: RecoveryAction): RecoveryView {
  switch (action.kind) {
    case 'reattach':
    case 'settle':
      return { ...view, watched: new Set([...view.watched, action.attempt.id]) };
    case 'release_unit':
      return { ...view, units: view.units.filter(({ unit }) => unit !== action.unit) };
    case 'release_resources':
      return {
        ...view,
        endedHolders: view.endedHolders.filter((id) => id !== action.attemptId),
      };
    case 'settle_work':
      return { ...view, work: view.work.filter(({ id }) => id !== action.work.id) };
    case 'report_foreign':
      return { ...view, reported: new Set([...view.reported, action.unit]) };
  }
}

const view = fc.array(remains, { maxLength: 12 }).map(viewOf);

describe('the recovery plan', () => {
  it('leaves nothing to do once it is carried out; row 216', () => {
    fc.assert(
      fc.property(view, (before) => {
        const after = planRecovery(before).reduce(carryOut, before);
        expect(planRecovery(after)).toEqual([]);
      }),
    );
  });

  it('decides about every attempt that nobody watches, exactly once', () => {
    fc.assert(
      fc.property(view, (before) => {
        const decided = planRecovery(before).flatMap((action) =>
          'attempt' in action ? [action.attempt.id] : [],
        );
        const owed = before.attempts.map(({ id }) => id).filter((id) => !before.watched.has(id));
        expect(decided.sort()).toEqual(owed.sort());
      }),
    );
  });

  it('decides about all work under way: by its attempt, by itself, or it waits for a person', () => {
    fc.assert(
      fc.property(view, (before) => {
        const settled = new Set(
          planRecovery(before).flatMap((action) => ('work' in action ? [action.work.id] : [])),
        );
        const live = new Set(before.attempts.map(({ id }) => id));
        for (const { id, status, activeAttemptId } of before.work) {
          const hasAttempt = activeAttemptId !== null && live.has(activeAttemptId);
          expect(settled.has(id)).toBe(!hasAttempt && status !== 'stale');
        }
      }),
    );
  });

  it('takes up and lets go of nothing but what carries our nonce under our name', () => {
    fc.assert(
      fc.property(view, (before) => {
        const loaded = new Map(before.units.map((facts) => [facts.unit, facts]));
        for (const action of planRecovery(before)) {
          if (action.kind === 'reattach') {
            expect(loaded.get(action.attempt.unit)?.nonce).toBe(action.attempt.nonce);
          }
          if (action.kind === 'release_unit') {
            const facts = loaded.get(action.unit);
            expect(DEAD.has(facts?.state ?? 'active')).toBe(true);
            expect(before.endedNonces.has(facts?.nonce ?? '')).toBe(true);
          }
        }
      }),
    );
  });

  it('looks at attempts before it lets anything go', () => {
    const LATE = new Set<RecoveryAction['kind']>(['release_unit', 'release_resources']);
    fc.assert(
      fc.property(view, (before) => {
        const kinds = planRecovery(before).map(({ kind }) => kind);
        const lastLook = Math.max(kinds.lastIndexOf('reattach'), kinds.lastIndexOf('settle'));
        const firstRelease = kinds.findIndex((kind) => LATE.has(kind));
        expect(firstRelease === -1 || firstRelease > lastLook).toBe(true);
      }),
    );
  });
});
