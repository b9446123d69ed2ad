/** Declared outcomes over a real store: the row made with the end, the judge, retention. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { OutliveError } from '../../src/domain/errors.ts';
import { OUTCOME_VERIFY } from '../../src/domain/outcome.ts';
import type { StartWorkUnit } from '../../src/domain/request.ts';
import type { OutcomeRow } from '../../src/store/outcomes.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { createJudge, type Judge } from '../../src/supervisor/outcomes.ts';
import { type Submission, type SubmitOptions, submit } from '../../src/supervisor/submit.ts';
import { QueueRig, STARVING_MS, type Wanted } from '../support/core-queue.ts';
import { GONE, gathered } from './approval-rig.ts';
import { cleanUp, insertWorkUnit, open, raw, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

type Submit = (input: StartWorkUnit, options: SubmitOptions) => Submission;
const VERIFY = { verify: { argv: ['true'] } };

/** A queue whose ends are judged, once the test says so. */
class Court {
  readonly directory = temporaryDirectory();
  readonly rig: QueueRig;
  readonly submissions: Submission[] = [];
  readonly #submit: Submit;

  constructor(submitted?: Submit) {
    this.rig = new QueueRig(open(this.directory));
    this.#submit =
      submitted ??
      ((input, options) => {
        const submission = submit(this.rig.context, input, options);
        this.submissions.push(submission);
        return submission;
      });
  }

  judge(): Judge {
    return createJudge(this.rig.context, this.#submit);
  }

  /** Another judge, once it has looked at what was there. */
  async begin(): Promise<Judge> {
    const judge = this.judge();
    judge.start();
    await judge.rest();
    return judge;
  }

  /** Submits, claims and ends; the clock of the rig goes on in between. */
  run(input: Wanted, how: 'succeeded' | 'failed' = 'succeeded'): string {
    const id = this.rig.submit(input);
    this.rig.claimAll();
    this.rig.end(id, how);
    return id;
  }

  outcome(id: string): OutcomeRow | null {
    return this.rig.store.outcomes.latest(id);
  }

  events(id: string, type: string): Record<string, unknown>[] {
    const { events } = this.rig.store.events.slice(id, 0, { rows: 1_000, bytes: 1e6 });
    return events
      .filter((event) => event.type === type)
      .map(({ data }) => JSON.parse(data) as Record<string, unknown>);
  }

  verifications(): string[] {
    return this.rig.store.workUnits
      .list({ activeOnly: false, status: null, beforeId: null, limit: 100 })
      .filter(({ ownerType }) => ownerType === OUTCOME_VERIFY)
      .map(({ id }) => id);
  }
}

describe('the row of an outcome', () => {
  it('is made with the end, and the terminal event tells of it', () => {
    const court = new Court();
    const id = court.run({ outcome: VERIFY });
    expect(court.outcome(id)).toMatchObject({ state: 'pending', attemptNumber: 1, verifyId: null });
    expect(court.events(id, 'work_unit.succeeded')).toEqual([{ outcome: 'pending', outcomeOf: 1 }]);
    const plain = court.run({});
    expect(court.outcome(plain)).toBeNull();
    expect(court.events(plain, 'work_unit.succeeded')).toEqual([{}]);
  });

  it('is settled from the beginning where nothing is looked at', () => {
    const court = new Court();
    const id = court.rig.submit({ outcome: VERIFY });
    court.rig.cancel(id);
    expect(court.outcome(id)).toMatchObject({
      state: 'skipped',
      code: 'never_ran',
      attemptNumber: 0,
      attemptId: null,
    });
    expect(court.events(id, 'work_unit.cancelled')).toMatchObject([
      { outcome: 'skipped', outcomeCode: 'never_ran' },
    ]);
  });

  it('is one for each end: a retry makes its own, and one that never began leaves the old', () => {
    const court = new Court();
    const retry = (of: string): void =>
      court.rig.context.writer.commit((transaction) => {
        transaction.moveWorkUnit(transaction.workUnit(of), 'retry', { actor: 'user' });
      });
    const id = court.run({ outcome: VERIFY }, 'failed');
    const first = court.outcome(id);
    retry(id);
    court.rig.cancel(id);
    expect(court.outcome(id)).toEqual(first);

    const other = court.run({ outcome: VERIFY }, 'failed');
    retry(other);
    expect(court.rig.claimAll()).toContain(other);
    court.rig.end(other);
    expect(court.outcome(other)).toMatchObject({ attemptNumber: 2, state: 'pending' });
    expect(court.rig.store.outcomes.get({ workUnitId: other, attemptNumber: 1 })).not.toBeNull();
  });

  it('moves once', () => {
    const court = new Court();
    const row = court.outcome(court.run({ outcome: VERIFY }));
    if (!row) throw new Error('there is no row');
    const { store } = court.rig;
    const yes = { state: 'satisfied', code: null, message: null } as const;
    const no = { state: 'refuted', code: 'verify_failed', message: 'no' } as const;
    expect(store.write(() => store.outcomes.settle(row, yes, null, 'now'))).toBe(true);
    expect(store.write(() => store.outcomes.settle(row, no, null, 'now'))).toBe(false);
    expect(store.write(() => store.outcomes.verifiedBy(row, 'x', null))).toBe(false);
    expect(court.outcome(row.workUnitId)).toMatchObject(yes);
  });

  it('goes with its work unit', () => {
    const court = new Court();
    const { store } = court.rig;
    const id = insertWorkUnit(store);
    const row = { workUnitId: id, attemptNumber: 0, attemptId: null, at: 'now' } as const;
    store.outcomes.insert({ ...row, state: 'pending', code: null, message: null });
    expect(court.outcome(id)).not.toBeNull();
    const db = raw(court.directory);
    db.pragma('foreign_keys = ON');
    db.prepare('DELETE FROM work_units WHERE id = ?').run(id);
    expect(court.outcome(id)).toBeNull();
  });
});

describe('the judge', () => {
  it('settles at its start what was left pending, with one verification however often it starts', async () => {
    const court = new Court();
    const id = court.run({ outcome: VERIFY });
    await court.begin();
    await court.begin();
    const [verify = '', ...others] = court.verifications();
    expect(others).toEqual([]);
    expect(court.outcome(id)).toMatchObject({ state: 'pending', verifyId: verify });
    expect(court.rig.store.workUnits.get(verify)).toMatchObject({
      ownerId: id,
      idempotencyKey: `outcome-verify ${id} 1`,
      createdByActor: 'system',
      priority: 1000,
      timeoutPolicy: { hardTimeoutMs: 600_000, idleTimeoutMs: 600_000 },
    });
    court.rig.claimAll();
    court.rig.end(verify);
    expect(court.outcome(id)).toMatchObject({ state: 'satisfied' });
    expect(court.events(id, 'outcome.settled')).toHaveLength(1);
  });

  it('takes up the answer of a verification that ended while nobody listened', async () => {
    const court = new Court();
    const id = court.run({ outcome: VERIFY });
    const first = court.judge();
    first.start();
    await first.rest();
    await first.close();
    const [verify = ''] = court.verifications();
    court.rig.cancel(verify);
    expect(court.outcome(id)).toMatchObject({ state: 'pending' });
    await court.begin();
    expect(court.outcome(id)).toMatchObject({ state: 'blocked', code: 'verify_not_run' });
    expect(court.outcome(id)?.message).toContain('is cancelled');
  });

  it('does nothing once it is closed: that is for the next daemon', async () => {
    const court = new Court();
    const judge = court.judge();
    judge.start();
    await judge.close();
    const id = court.run({ outcome: { outputs: ['nothing'] } });
    expect(court.outcome(id)).toMatchObject({ state: 'pending' });
    await court.begin();
    expect(court.outcome(id)).toMatchObject({ state: 'blocked' });
  });

  it('leaves pending what the store cannot take now', async () => {
    const refused = new OutliveError('disk_full', 'no room');
    const court = new Court(() => {
      throw refused;
    });
    const id = court.run({ outcome: VERIFY });
    const judge = court.judge();
    judge.start();
    await judge.rest();
    await judge.close(); // It would try again.
    expect(court.outcome(id)).toMatchObject({ state: 'pending', verifyId: null });
  });

  it('says that nothing was verified where the working directory is gone', async () => {
    const court = new Court();
    const cwd = path.join(court.directory, 'tree');
    mkdirSync(cwd);
    const id = court.run({ cwd, outcome: VERIFY });
    rmSync(cwd, { recursive: true });
    await court.begin();
    expect(court.outcome(id)).toMatchObject({ state: 'blocked', code: 'verify_not_run' });
    expect(court.outcome(id)?.message).toContain('it does not exist');
  });

  it('takes no work that others made under its key for an answer', async () => {
    const court = new Court();
    const id = court.run({ outcome: VERIFY });
    court.rig.submit({
      ownerType: OUTCOME_VERIFY,
      ownerId: id,
      idempotencyKey: `outcome-verify ${id} 1`,
    });
    await court.begin();
    expect(court.outcome(id)).toMatchObject({ state: 'blocked', code: 'verify_not_run' });
  });

  it('keeps the tree for its verification, also before work that has starved for it', async () => {
    const court = new Court();
    const judge = await court.begin();
    const first = court.rig.submit({ exclusive: true, outcome: VERIFY });
    expect(court.rig.claimAll()).toEqual([first]);
    const next = court.rig.submit({ exclusive: true, priority: 1000 });
    expect(court.rig.claimAll()).toEqual([]);
    court.rig.entropy.advance(STARVING_MS * 2);
    court.rig.end(first);
    expect(court.rig.claimAll(), 'before the judge has looked').toEqual([]);
    await judge.rest();
    const [verify = ''] = court.verifications();
    expect(court.rig.claimAll()).toEqual([verify]);
    court.rig.end(verify);
    await judge.rest();
    expect(court.rig.claimAll()).toEqual([next]);
  });

  it('keeps the tree while its verification has no slot', async () => {
    const court = new Court();
    court.rig.setLimit('runner', 'command', 2);
    const judge = await court.begin();
    const judged = court.rig.submit({ exclusive: true, outcome: VERIFY });
    const other = court.rig.submit({});
    expect(court.rig.claimAll()).toEqual([judged, other]);
    const next = court.rig.submit({ exclusive: true });
    court.rig.end(judged);
    await judge.rest();
    court.rig.setLimit('runner', 'command', 1);
    expect(court.rig.claimAll()).toEqual([]);
    court.rig.end(other);
    const [verify = ''] = court.verifications();
    expect(court.rig.claimAll()).toEqual([verify]);
    court.rig.end(verify);
    await judge.rest();
    expect(court.rig.claimAll()).toEqual([next]);
  });

  it.each([
    new RangeError('too much'),
    Object.assign(new TypeError('too much'), { code: 'ERR_INVALID_ARG_TYPE' }),
  ])('settles what no look will ever decide: %s', async (error) => {
    const court = new Court(() => {
      throw error;
    });
    const id = court.run({ outcome: VERIFY });
    await court.begin();
    expect(court.outcome(id)).toMatchObject({ state: 'blocked', code: 'verify_not_run' });
    expect(court.outcome(id)?.message).toContain('too much');
  });

  it.each(['days ago', 'with its working directory'])(
    'does not wait for a person when its verification was lost %s',
    async (how) => {
      const court = new Court();
      const judge = await court.begin();
      const id = court.run({ outcome: VERIFY });
      await judge.rest();
      const [verify = ''] = court.verifications();
      expect(court.rig.claimAll()).toEqual([verify]);
      court.rig.run(verify);
      const isThere = how === 'days ago';
      court.rig.entropy.advance(isThere ? 3 * 86_400_000 : 1);
      const cwd = { path: '/', exists: isThere };
      conclude(court.rig.context, court.rig.active(verify).id, {
        ...gathered(GONE),
        loss: { session: null, cwd },
      });
      await judge.rest();
      expect(court.rig.store.workUnits.get(verify)?.status).toBe(isThere ? 'queued' : 'failed');
      expect(court.outcome(id)?.state).toBe(isThere ? 'pending' : 'blocked');
    },
  );

  it('counts files from the first attempt of a run on, wherever that began to be seen', async () => {
    const court = new Court();
    const out = path.join(court.directory, 'out');
    const id = court.rig.submit({ outcome: { outputs: [out] } });
    // The rig's clock stands in the past: whatever is written now is newer.
    court.rig.claimAll();
    writeFileSync(out, 'x');
    court.rig.end(id);
    await court.begin();
    expect(court.outcome(id)).toMatchObject({ state: 'satisfied' });
  });
});

describe('retention', () => {
  it('keeps what is to be judged, and what judges it, until that is settled', async () => {
    const court = new Court();
    const judge = await court.begin();
    const { store } = court.rig;
    const id = court.run({ outcome: VERIFY });
    await judge.rest();
    const [verify = ''] = court.verifications();
    const ids = (): string[] => store.retention.compactable(10).map((row) => row.id);
    expect(ids()).toEqual([]);
    const ended = store.workUnits.get(id);
    const seen = { id, status: 'succeeded', endedAt: ended?.endedAt ?? '', events: 1 } as const;
    expect(store.write(() => store.retention.begin(seen, 'age', seen.endedAt))).toBe(false);
    court.rig.claimAll();
    court.rig.end(verify);
    expect(ids().sort()).toEqual([id, verify].sort());
    expect(store.write(() => store.retention.begin(seen, 'age', seen.endedAt))).toBe(true);
  });
});
