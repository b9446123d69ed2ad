/** Checkpoints: the judge against a small model, and what every reachable store must satisfy. */
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import {
  APPROVAL_STATUSES,
  CHECKPOINT_STATES,
  type Checkpoint,
  judgeCheckpoint,
  suspensionOf,
} from '../../src/domain/approval.ts';
import { TERMINAL_STATUSES, WORK_UNIT_STATUSES } from '../../src/domain/work-unit.ts';
import { cleanUp, open } from '../store/rig.ts';
import { QueueRig } from '../support/core-queue.ts';
import { ACTS, type Act, World } from './approval-world.ts';

afterEach(cleanUp);

/** Every row. */
const combinations: readonly Checkpoint[] = APPROVAL_STATUSES.flatMap((status) =>
  CHECKPOINT_STATES.flatMap((checkpoint) =>
    [false, true].flatMap((doubted) =>
      [null, 'an attempt'].flatMap((startAttemptId) =>
        [false, true].map((ended) => ({ status, checkpoint, doubted, startAttemptId, ended })),
      ),
    ),
  ),
);

/** The same as questions in another order: what is known of the call before what was said of it. */
function modelVerdict(row: Checkpoint): string {
  const isOpen = row.checkpoint.startsWith('waiting') || row.checkpoint.endsWith('pending');
  const mayAct = isOpen && row.status === 'approved';
  const isBegun = row.startAttemptId !== null;
  if (isOpen && isBegun) return row.ended ? 'finished' : 'effect_unknown';
  // Its start could stand in what was lost.
  if (mayAct) return row.doubted ? 'effect_unknown' : 'grant';
  if (isOpen && row.status === 'denied') return 'tell';
  return isOpen && row.status === 'pending' ? 'wait' : 'over';
}

describe('judgeCheckpoint', () => {
  it('row 351: answers every combination as the model does', () => {
    expect(combinations).toHaveLength(5 * 5 * 2 * 2 * 2);
    for (const one of combinations) {
      expect(judgeCheckpoint(one), JSON.stringify(one)).toBe(modelVerdict(one));
    }
  });

  it('grants nothing that was begun, and nothing that nobody approved', () => {
    for (const row of combinations) {
      if (judgeCheckpoint(row) !== 'grant') continue;
      expect(row).toMatchObject({ status: 'approved', startAttemptId: null });
    }
  });
});

const rows = APPROVAL_STATUSES.flatMap((status) =>
  CHECKPOINT_STATES.map((checkpoint) => ({ status, checkpoint })),
);
const isOpenRow = ({ checkpoint }: Pick<Checkpoint, 'checkpoint'>): boolean =>
  checkpoint === 'waiting' || checkpoint === 'resume_pending';

describe('suspensionOf', () => {
  it('row 323: is total, and what it says of one checkpoint is a table of nine', () => {
    const table = WORK_UNIT_STATUSES.flatMap((workUnit) =>
      rows.flatMap((row) => {
        const kind = suspensionOf({ workUnit, checkpoints: [row] });
        return kind === null ? [] : [`${workUnit} ${row.status} ${row.checkpoint}: ${kind}`];
      }),
    );
    // What is answered and open beside work that runs; a question beside work that waits.
    expect(table.toSorted()).toEqual(
      [
        'waiting_for_approval pending waiting: approval_wait',
        ...['approved', 'denied', 'expired', 'dropped'].flatMap((status) => [
          `running ${status} waiting: approval_wait`,
          `running ${status} resume_pending: resume_pre_dispatch`,
        ]),
      ].toSorted(),
    );
    expect(suspensionOf({ workUnit: 'running', checkpoints: [] })).toBeNull();
  });

  it('of several is what they agree on, in any order', () => {
    const several = fc.array(fc.constantFrom(...rows), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(fc.constantFrom(...WORK_UNIT_STATUSES), several, (workUnit, checkpoints) => {
        const kind = suspensionOf({ workUnit, checkpoints });
        expect(suspensionOf({ workUnit, checkpoints: checkpoints.toReversed() })).toBe(kind);
        const waits = checkpoints.filter(({ status }) => status === 'pending');
        const bound = checkpoints.filter(({ checkpoint }) => checkpoint === 'resume_pending');
        const isPossible =
          checkpoints.every(isOpenRow) &&
          !waits.some((row) => bound.includes(row)) &&
          workUnit === (waits.length > 0 ? 'waiting_for_approval' : 'running');
        if (!isPossible) expect(kind).toBeNull();
        else if (waits.length > 0) expect(kind).toBe('approval_wait');
        else expect(kind).toBe(bound.length > 0 ? 'resume_pre_dispatch' : 'approval_wait');
      }),
      { numRuns: 3_000 },
    );
  });
});

const WEIGHTS: Readonly<Partial<Record<Act, number>>> = {
  claim: 5,
  ask: 6,
  approve: 5,
  begin: 3,
  finish: 2,
  lose: 4,
  suspend: 2,
  cancel: 0.3,
  succeed: 0.5,
  fail: 0.3,
  denyForGood: 0.5,
  expire: 0.5,
};
const steps = fc.array(
  fc.tuple(
    fc.oneof(
      ...ACTS.map((act) => ({
        arbitrary: fc.constant(act),
        weight: Math.round(10 * (WEIGHTS[act] ?? 1)),
      })),
    ),
    fc.nat({ max: 5 }),
  ),
  { minLength: 10, maxLength: 60 },
);

describe('row 241: every store that can be reached', () => {
  it('row 220, row 242: has questions, attempts and work that belong together, and tells of each change once', () => {
    const met = new Map<string, number>();
    const rig = new QueueRig(open());
    fc.assert(
      fc.property(steps, (acts) => {
        const world = new World(rig);
        const trace: string[] = [];
        for (const [act, pick] of acts) {
          trace.push(act);
          world.act(act, pick);
          expect(world.violations(), trace.join(' ')).toEqual([]);
          met.set(world.workUnit.status, (met.get(world.workUnit.status) ?? 0) + 1);
          if (TERMINAL_STATUSES.has(world.workUnit.status)) break;
        }
        expect(world.untold(), trace.join(' ')).toEqual([]);
        world.leave();
      }),
      { numRuns: 200 },
    );
    for (const status of ['waiting_for_approval', 'running', 'queued', 'failed', 'cancelled']) {
      expect(met.get(status) ?? 0, status).toBeGreaterThan(5);
    }
  });
});
