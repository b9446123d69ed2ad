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
import { OutliveError } from '../../src/domain/errors.ts';
import {
  TERMINAL_ATTEMPT_STATUSES,
  TERMINAL_STATUSES,
  WORK_UNIT_STATUSES,
} from '../../src/domain/work-unit.ts';
import { repairApprovals } from '../../src/recovery/approvals.ts';
import type { ApprovalRow } from '../../src/store/approvals.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import type { WorkUnitRow } from '../../src/store/work-units.ts';
import { decide, expireApprovals } from '../../src/supervisor/approval-decide.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { suspend } from '../../src/supervisor/end.ts';
import { settleOrphan } from '../../src/supervisor/orphan.ts';
import { cleanUp, open } from '../store/rig.ts';
import { ask, begin, finish, say } from '../support/approvals.ts';
import { QueueRig } from '../support/core-queue.ts';
import { end, evidence, lastWord } from './evidence.ts';

afterEach(cleanUp);

const [EARLY, LATE] = ['2026-01-01T00:00:00.000Z', '2026-01-02T00:00:00.000Z'];

/** Every row and every time of damage; a decision is made at one of two times, or at none. */
const combinations = APPROVAL_STATUSES.flatMap((status) =>
  CHECKPOINT_STATES.flatMap((checkpoint) =>
    [null, EARLY, LATE].flatMap((decidedAt) =>
      [null, 'an attempt'].flatMap((startAttemptId) =>
        [false, true].flatMap((ended) =>
          [null, EARLY, LATE].map((damagedAt) => ({
            row: { status, checkpoint, decidedAt, startAttemptId, ended } as Checkpoint,
            damagedAt: damagedAt ?? null,
          })),
        ),
      ),
    ),
  ),
);

/** The same as questions in another order: what is known of the call before what was said of it. */
function modelVerdict({ row, damagedAt }: (typeof combinations)[number]): string {
  const isOpen = row.checkpoint.startsWith('waiting') || row.checkpoint.endsWith('pending');
  const mayAct = isOpen && row.status === 'approved';
  const isBegun = row.startAttemptId !== null;
  if (mayAct && isBegun && row.ended) return 'finished';
  if (mayAct && isBegun) return 'effect_unknown';
  // Its start could stand in what was lost only if there was leave to start by then.
  const mayBeHidden = damagedAt !== null && row.decidedAt !== null && row.decidedAt <= damagedAt;
  if (mayAct) return mayBeHidden ? 'effect_unknown' : 'grant';
  if (isOpen && row.status === 'denied') return 'tell';
  return isOpen && row.status === 'pending' ? 'wait' : 'over';
}

describe('judgeCheckpoint', () => {
  it('row 351: answers every combination as the model does', () => {
    expect(combinations).toHaveLength(5 * 5 * 3 * 2 * 2 * 3);
    for (const one of combinations) {
      expect(judgeCheckpoint(one.row, one.damagedAt), JSON.stringify(one)).toBe(modelVerdict(one));
    }
  });

  it('grants nothing that was begun, and nothing that nobody approved', () => {
    for (const { row, damagedAt } of combinations) {
      if (judgeCheckpoint(row, damagedAt) !== 'grant') continue;
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

const ACTS = [
  'claim',
  'ask',
  'approve',
  'deny',
  'denyForGood',
  'begin',
  'finish',
  'speak',
  'drop',
  'lose',
  'suspend',
  'damage',
  'expire',
  'cancel',
  'succeed',
  'fail',
  'restart',
] as const;
type Act = (typeof ACTS)[number];

const LOSS = { session: null, cwd: { path: '/', exists: true } };

/** One work unit in a real store; every act is what a wrapper, a person, a clock or a daemon does. */
class World {
  readonly rig: QueueRig;
  readonly id: string;
  #asked = 0;

  constructor(rig: QueueRig) {
    this.rig = rig;
    this.id = rig.submit({ runnerId: 'pi', prompt: 'go' });
  }

  /** Whatever is left is ended, so that the next world has the queue to itself. */
  leave(): void {
    if (!TERMINAL_STATUSES.has(this.workUnit.status)) this.rig.cancel(this.id);
    if (this.live) this.act('succeed', 0);
    expect(this.live).toBeNull();
  }

  get workUnit(): WorkUnitRow {
    const row = this.rig.store.workUnits.get(this.id);
    if (!row) throw new Error('the work unit is gone');
    return row;
  }

  get questions(): ApprovalRow[] {
    return this.rig.store.approvals.listOfWorkUnit(this.id);
  }

  get live(): AttemptRow | null {
    const { activeAttemptId } = this.workUnit;
    const attempt = activeAttemptId ? this.rig.store.attempts.get(activeAttemptId) : null;
    return attempt && !TERMINAL_ATTEMPT_STATUSES.has(attempt.status) ? attempt : null;
  }

  act(act: Act, pick: number): void {
    this.rig.entropy.advance(1);
    const { live } = this;
    if (act === 'claim') this.#claim();
    else if (act === 'approve' || act === 'deny' || act === 'denyForGood') this.#answer(act, pick);
    else if (act === 'expire') this.#expire();
    else if (act === 'cancel') this.#refusable(() => this.rig.cancel(this.id));
    else if (act === 'restart') this.#restart();
    else if (live) this.#wrapper(act, live, pick);
  }

  #claim(): void {
    this.rig.entropy.advance(400_000);
    if (this.rig.claimAll().length > 0) this.rig.run(this.id);
  }

  /** A person may always be too late; everything else that fails is a fault. */
  #refusable(work: () => unknown): void {
    try {
      work();
    } catch (error) {
      const code = error instanceof OutliveError ? error.code : null;
      if (code !== 'approval_closed' && code !== 'state_conflict') throw error;
    }
  }

  #answer(act: 'approve' | 'deny' | 'denyForGood', pick: number): void {
    const row = this.questions.at(pick % Math.max(1, this.questions.length));
    if (!row) return;
    const decision = act === 'approve' ? 'approved' : 'denied';
    const fail = act === 'denyForGood';
    const request = { decision, fail, reason: null, actor: 'user' } as const;
    this.#refusable(() => decide(this.rig.context, row.id, request));
  }

  #expire(): void {
    this.rig.entropy.advance(3_600_001);
    expireApprovals(this.rig.context);
  }

  /** What a daemon does at its start and every minute. */
  #restart(): void {
    repairApprovals(this.rig.context);
    const { status, activeAttemptId } = this.workUnit;
    const waits = this.questions.some((row) => row.status === 'pending');
    if (status === 'waiting_for_approval' && activeAttemptId === null && !waits) {
      settleOrphan(this.rig.context, this.workUnit);
    }
  }

  #wrapper(act: Act, live: AttemptRow, pick: number): void {
    const { context, store } = this.rig;
    const mine = this.questions.filter(
      ({ attemptId, boundAttemptId }) => attemptId === live.id || boundAttemptId === live.id,
    );
    const may = mine.filter((row) => row.status === 'approved' && isOpenRow(row));
    const unbegun = may.filter((row) => row.startAttemptId === null);
    const begun = this.questions.filter((row) => row.startAttemptId === live.id && !row.ended);
    const of = (some: readonly ApprovalRow[]) => some.at(pick % Math.max(1, some.length));
    if (act === 'ask') ask(context, live, { toolCallId: `call_${++this.#asked}` });
    else if (act === 'begin') for (const row of unbegun.slice(0, 1)) begin(context, live, row);
    else if (act === 'finish') for (const row of begun.slice(0, 1)) finish(context, live, row);
    else if (act === 'speak') say(context, live, 'agent.message', { message: 1, delta: 'x' });
    else if (act === 'drop') {
      const { toolCallId } = of(mine) ?? {};
      if (toolCallId === undefined) return;
      say(context, live, 'approval.resolved', { toolCallId, resolution: 'dropped' });
    } else if (act === 'suspend') suspend(context, live.id, 'approval_wait');
    else if (act === 'damage') {
      context.writer.commit(({ at }) => store.attempts.patch(live.id, { spoolDamagedAt: at }));
    } else this.#end(act, live);
  }

  #end(act: Act, live: AttemptRow): void {
    const isOver = act !== 'lose';
    const known = isOver
      ? {
          end: end(act === 'fail' ? 'exit-code exited 1' : 'success exited 0'),
          lastWord: lastWord(act === 'fail' ? { verdict: 'error', code: 'agent_error' } : {}),
        }
      : { hostChanged: true };
    const { intent, status } = live;
    const evident = evidence({ ...known, intent, approvalOpen: status === 'waiting_for_approval' });
    const gathered = { record: null, unusable: null, disagreement: null, loss: LOSS };
    conclude(this.rig.context, live.id, { ...gathered, evidence: evident });
  }

  /** What must hold between any two acts. */
  check(trace: string): void {
    const { workUnit, questions, live } = this;
    const opened = questions.filter(isOpenRow);
    const pending = questions.filter(({ status }) => status === 'pending');
    const bound = opened.filter(({ checkpoint }) => checkpoint === 'resume_pending');
    const why = `${trace}: ${workUnit.status}, ${opened.map((row) => `${row.status}/${row.checkpoint}`).join(' ')}`;
    if (workUnit.status === 'waiting_for_approval') expect(pending.length, why).toBeGreaterThan(0);
    // One that is being stopped may still ask: its end decides.
    if (workUnit.status === 'running' && live?.status !== 'cancelling') {
      expect(pending, why).toEqual([]);
    }
    if (TERMINAL_STATUSES.has(workUnit.status)) expect(opened, why).toEqual([]);
    if (workUnit.status === 'queued') expect(pending, why).toEqual([]);
    expect(new Set(bound.map((row) => row.boundAttemptId)).size, why).toBeLessThanOrEqual(1);
    for (const row of bound) {
      expect(row.status, why).not.toBe('pending');
      const holder = this.rig.store.attempts.get(row.boundAttemptId ?? '');
      expect(holder?.workUnitId, why).toBe(this.id);
      if (live) expect(row.boundAttemptId, why).toBe(live.id);
    }
    for (const row of questions) {
      expect(row.decidedAt === null, why).toBe(!['approved', 'denied'].includes(row.status));
      expect(row.failureCode === null, why).toBe(row.checkpoint !== 'resume_failed');
      if (row.startAttemptId !== null) expect(row.status, why).toBe('approved');
    }
    const held = this.rig.store.attempts
      .listByWorkUnit(this.id)
      .filter(({ status }) => !TERMINAL_ATTEMPT_STATUSES.has(status));
    expect(held.length, why).toBeLessThanOrEqual(1);
  }

  /** Every change was told, once: the events' revisions of each row count from 2 to where it is. */
  checkEvents(trace: string): void {
    const told = new Map<string, number[]>();
    for (const { type, data } of this.rig.store.events.page(this.id, 0, 10_000)) {
      if (type !== 'approval.changed') continue;
      const id = String(data['approvalId']);
      told.set(id, [...(told.get(id) ?? []), Number(data['revision'])]);
    }
    for (const { id, revision } of this.questions) {
      const expected = Array.from({ length: revision - 1 }, (_, index) => index + 2);
      expect(told.get(id) ?? [], trace).toEqual(expected);
    }
  }
}

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
          world.check(trace.join(' '));
          met.set(world.workUnit.status, (met.get(world.workUnit.status) ?? 0) + 1);
          if (TERMINAL_STATUSES.has(world.workUnit.status)) break;
        }
        world.checkEvents(trace.join(' '));
        world.leave();
      }),
      { numRuns: 200 },
    );
    for (const status of ['waiting_for_approval', 'running', 'queued', 'failed', 'cancelled']) {
      expect(met.get(status) ?? 0, status).toBeGreaterThan(5);
    }
  });
});
