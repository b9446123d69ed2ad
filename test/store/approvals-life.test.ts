/** The whole life of an approved call under random crashes: at most once, and once when it is over. */
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { TERMINAL_STATUSES } from '../../src/domain/work-unit.ts';
import type { ApprovalRow } from '../../src/store/approvals.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import { decide } from '../../src/supervisor/approval-decide.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { suspend } from '../../src/supervisor/end.ts';
import { settleOrphan } from '../../src/supervisor/orphan.ts';
import { end, evidence, lastWord } from '../property/evidence.ts';
import { ask, begin, finish } from '../support/approvals.ts';
import { QueueRig } from '../support/core-queue.ts';
import { cleanUp, open } from './rig.ts';

afterEach(cleanUp);

const APPROVE = { decision: 'approved', reason: null, fail: false, actor: 'user' } as const;
const loss = { session: null, cwd: { path: '/', exists: true } };
const gathered = (known: ReturnType<typeof evidence>) => ({
  evidence: known,
  record: null,
  unusable: null,
  disagreement: null,
  artifacts: [],
  loss,
});

/**
 * The wrapper of one attempt, as far as the call goes: what it has spooled and not yet been
 * read, where it stands. It dies at any step; its spool stays.
 */
class Wrapper {
  readonly attempt: AttemptRow;
  readonly #world: World;
  readonly #spool: ((row: ApprovalRow) => void)[] = [];
  #at: 'idle' | 'waits' | 'begun' | 'acted' | 'over' = 'idle';

  constructor(world: World, attempt: AttemptRow) {
    this.#world = world;
    this.attempt = attempt;
    if (world.row?.boundAttemptId === attempt.id) this.#at = 'waits';
    // What is over is told to the model, not done again.
    if (world.row?.ended) this.#at = 'over';
  }

  /** One step of the call; each line is on the disk before the next step. */
  step(): void {
    const { rig } = this.#world;
    if (this.#at === 'idle') {
      if (this.#world.row === null) this.#world.asked = ask(rig.context, this.attempt).id;
      this.#at = 'waits';
    } else if (this.#at === 'waits') {
      const mayAct = [this.#world.row?.attemptId, this.#world.row?.boundAttemptId];
      if (this.#world.row?.status !== 'approved' || !mayAct.includes(this.attempt.id)) return;
      this.#spool.push((row) => begin(rig.context, this.attempt, row));
      this.#at = 'begun';
    } else if (this.#at === 'begun') {
      this.#world.executed += 1;
      this.#at = 'acted';
    } else if (this.#at === 'acted') {
      this.#spool.push((row) => finish(rig.context, this.attempt, row));
      this.#at = 'over';
    }
  }

  get isOver(): boolean {
    return this.#at === 'over';
  }

  /** The daemon reads the next line of the spool, or all. */
  ingest(all: boolean): void {
    do {
      const line = this.#spool.shift();
      const { row } = this.#world;
      if (line && row) line(row);
    } while (all && this.#spool.length > 0);
  }
}

/** One work unit; all worlds of a test share a store, and each is over before the next. */
class World {
  readonly rig: QueueRig;
  readonly id: string;
  executed = 0;
  asked: string | null = null;
  #wrapper: Wrapper | null = null;

  constructor(rig: QueueRig) {
    this.rig = rig;
    this.id = rig.submit({ runnerId: 'pi', prompt: 'go' });
  }

  get row(): ApprovalRow | null {
    return this.asked === null ? null : this.rig.store.approvals.get(this.asked);
  }

  get status(): string {
    return this.rig.store.workUnits.get(this.id)?.status ?? 'gone';
  }

  claim(): void {
    this.rig.entropy.advance(400_000);
    if (this.rig.claimAll().length === 0) return;
    this.rig.run(this.id);
    this.#wrapper = new Wrapper(this, this.rig.active(this.id));
  }

  step(): void {
    this.#wrapper?.step();
  }

  ingest(): void {
    this.#wrapper?.ingest(false);
  }

  approve(): void {
    this.rig.entropy.advance(1);
    if (this.row?.status === 'pending') decide(this.rig.context, this.row.id, APPROVE);
  }

  /** Its suspension is ordered; it ends with the next crash, and may go on until then. */
  suspend(): void {
    if (this.#wrapper) suspend(this.rig.context, this.#wrapper.attempt.id, 'approval_wait');
  }

  /** The attempt goes with its machine; what it spooled is read to the end before anything is said. */
  crash(): void {
    const wrapper = this.#wrapper;
    if (!wrapper) return;
    this.#wrapper = null;
    wrapper.ingest(true);
    const { intent } = this.rig.active(this.id);
    const gone = gathered(evidence({ hostChanged: true, intent }));
    conclude(this.rig.context, wrapper.attempt.id, gone);
  }

  /** A daemon that starts looks at everything once more. */
  restart(): void {
    const seen = this.rig.store.workUnits.get(this.id);
    const isSuspended = seen?.status === 'waiting_for_approval' && seen.activeAttemptId === null;
    if (isSuspended) settleOrphan(this.rig.context, seen);
  }

  /** The run ends well, once its call is over. */
  succeed(): void {
    const wrapper = this.#wrapper;
    if (!wrapper?.isOver) return;
    this.#wrapper = null;
    wrapper.ingest(true);
    // What was ordered to stop and came to its end all the same counts as suspended.
    const { intent } = this.rig.active(this.id);
    const well = evidence({ lastWord: lastWord(), end: end('success exited 0'), intent });
    conclude(this.rig.context, wrapper.attempt.id, gathered(well));
  }
}

type Act = 'claim' | 'step' | 'ingest' | 'approve' | 'suspend' | 'crash' | 'restart' | 'succeed';
const WEIGHTS: Readonly<Record<Act, number>> = {
  claim: 3,
  step: 6,
  ingest: 2,
  approve: 3,
  suspend: 1,
  crash: 2,
  restart: 1,
  succeed: 1,
};
/** Each as often as it weighs, so that a crash meets every step of the call. */
const anAct = fc.oneof(
  ...Object.entries(WEIGHTS).map(([act, weight]) => ({
    arbitrary: fc.constant(act as Act),
    weight,
  })),
);

/** How it may end, and what is true then. Too many losses in an hour: a person is asked. */
const ENDS: Readonly<Record<string, object>> = {
  succeeded: { executed: 1, row: { ended: true, failureCode: null } },
  approval_resume_effect_unknown: { row: { failureCode: 'effect_unknown', ended: false } },
  resume_budget_exhausted: {},
};

describe('row 351: an approved call under random crashes', () => {
  it('acts at most once, exactly once in work that succeeds, and never again where its effect is unknown', () => {
    const rig = new QueueRig(open());
    const seen: string[] = [];
    fc.assert(
      fc.property(fc.array(anAct, { minLength: 10, maxLength: 40 }), (acts) => {
        const world = new World(rig);
        for (const act of acts) world[act]();
        // Then all is well, and it goes on to its end.
        for (let turns = 0; turns < 12 && !TERMINAL_STATUSES.has(world.status as never); turns++) {
          world.restart();
          world.claim();
          world.step();
          world.approve();
          for (let steps = 0; steps < 4; steps++) world.step();
          world.succeed();
        }
        const workUnit = world.rig.store.workUnits.get(world.id);
        const how = workUnit?.errorCode ?? workUnit?.status ?? 'gone';
        seen.push(how, ...(world.row?.boundAttemptId ? ['resumed'] : []));
        expect(world.executed).toBeLessThanOrEqual(1);
        expect(ENDS, 'it ends in one of these ways').toHaveProperty(how);
        expect(
          { executed: world.executed, row: world.row },
          `${how} after ${acts.join(' ')}`,
        ).toMatchObject(ENDS[how] ?? {});
      }),
      { numRuns: 150 },
    );
    const count = (how: string) => seen.filter((one) => one === how).length;
    expect(count('succeeded'), 'most go well').toBeGreaterThan(20);
    expect(count('approval_resume_effect_unknown'), 'some were hit in the call').toBeGreaterThan(3);
    expect(count('resumed'), 'some went on in a replacement').toBeGreaterThan(3);
  });
});
