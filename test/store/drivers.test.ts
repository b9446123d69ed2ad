/** What the census guard lets through, in every state that a subject can be in. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DriverSpecInput } from '../../src/domain/driver.ts';
import { OUTCOME_VERIFY } from '../../src/domain/outcome.ts';
import type { CancellationCode } from '../../src/domain/outcome-codes.ts';
import type { Actor } from '../../src/domain/work-unit.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { cancel, fail, interrupt } from '../../src/supervisor/end.ts';
import { retry } from '../../src/supervisor/retry.ts';
import { submit } from '../../src/supervisor/submit.ts';
import { DriverRig, line } from '../support/driver-rig.ts';
import { GONE, gathered } from './approval-rig.ts';
import { cleanUp, open, refusal, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

let rig: DriverRig;
beforeEach(() => {
  const directory = temporaryDirectory();
  rig = new DriverRig(open(directory), directory);
});

const ISSUE = 'github:acme/app#42';
const VERIFY: Partial<DriverSpecInput> = { outcome: { verify: { argv: ['true'] } } };
/** How many work units there ever were about it. */
const workOn = (subject = ISSUE): number => rig.store.drivers.workOn(subject).length;

describe('a tick', () => {
  it('makes one work unit per subject, as the driver says', () => {
    rig.put('issues', { ...VERIFY, priority: 3, environment: { A: 'b' }, hardTimeoutMs: 5_000 });
    rig.tick('issues', [
      line(ISSUE, { title: 'x', vars: { branch: 'main' } }),
      line('b', { priority: 7 }),
    ]);
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'started', b: 'started' });
    const workUnit = rig.store.workUnits.get(rig.work('issues', ISSUE));
    expect(workUnit).toMatchObject({
      handle: 'github-acme-app-42',
      kind: 'external_work_step',
      ownerType: 'driver',
      ownerId: 'issues',
      externalSubject: ISSUE,
      channelId: 'driver:issues',
      createdByActor: 'scheduler',
      priority: 3,
      timeoutPolicy: { hardTimeoutMs: 5_000, idleTimeoutMs: 5_000 },
      request: {
        argv: ['true'],
        leftovers: 'fail',
        outcome: { verify: { argv: ['true'] } },
        environment: { A: 'b', OUTLIVE_VAR_BRANCH: 'main' },
      },
    });
    expect(rig.store.workUnits.get(rig.work('issues', 'b'))?.priority).toBe(7);
  });

  it('fills the prompt of an agent, and says which variable a census did not give', () => {
    rig.put('issues', {
      run: { prompt: 'Mend {{ subject }} ({{handle}}): {{title}} on {{vars.b}} {{x}}' },
    });
    rig.tick('issues', [line('a', { title: '{{handle}}', vars: { b: 'main' } }), line('c')]);
    const { request } = rig.store.workUnits.get(rig.work('issues', 'a')) ?? {};
    expect(request?.prompt).toBe('Mend a (a): {{handle}} on main {{x}}');
    expect(rig.row('issues').report?.subjects[1]).toMatchObject({
      action: 'skipped',
      code: 'unusable',
      message: expect.stringContaining('vars.b') as string,
    });
  });

  it('is one for each driver: who asks while it is under way is told of it', () => {
    rig.put('issues');
    const census = rig.begin('issues');
    expect(rig.drivers.tick('issues')).toMatchObject({ begun: false, row: { tick: 1 } });
    expect(rig.queue.queued()).toEqual([]);
    expect(rig.row('issues')).toMatchObject({ tick: 1, censusId: census });
  });

  it('and its census are one commit: a crash leaves both or neither', () => {
    rig.put('issues');
    const dying = rig.another((input, options) =>
      submit(rig.queue.context, input, {
        ...options,
        within: (transaction, workUnit) => {
          options.within?.(transaction, workUnit);
          throw new Error('killed');
        },
      }),
    );
    dying.start();
    expect(() => dying.tick('issues')).toThrow('killed');
    dying.close();
    expect(rig.row('issues')).toMatchObject({ tick: 0, censusId: null });
    expect(rig.queue.queued()).toEqual([]);
  });

  it('that a daemon did not live to act on is acted on by the next, once', () => {
    rig.put('issues');
    const census = rig.begin('issues');
    rig.drivers.close();
    rig.end(census, [line(ISSUE)]);
    expect(rig.row('issues')).toMatchObject({ tick: 1, censusId: census });
    rig.restart();
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'started' });
    rig.restart();
    expect(workOn()).toBe(1);
  });

  it('that was half done when a daemon died is done to its end: nothing twice', () => {
    rig.put('issues');
    const census = rig.begin('issues');
    rig.drivers.close();
    rig.end(census, [line('a'), line('b')]);
    let left = 1;
    const dying = rig.another((input, options) => {
      if (left-- === 0) throw new Error('killed');
      return submit(rig.queue.context, input, options);
    });
    dying.start();
    dying.close();
    expect([workOn('a'), workOn('b')]).toEqual([1, 0]);
    rig.restart();
    expect([workOn('a'), workOn('b')]).toEqual([1, 1]);
    expect(rig.said('issues')).toEqual({ a: 'started', b: 'started' });
  });

  it('of a driver that was removed and made again has a number of its own', () => {
    rig.put('issues');
    rig.tick('issues', []);
    const census = rig.begin('issues');
    rig.drivers.remove('issues');
    rig.put('issues');
    rig.end(census, [line(ISSUE)]);
    expect(workOn()).toBe(0);
    rig.tick('issues', [line(ISSUE)]);
    expect(rig.row('issues').report).toMatchObject({ tick: 3, ok: true, started: 1 });
  });

  it('starts nothing for a driver that was paused meanwhile', () => {
    rig.put('issues');
    const census = rig.begin('issues');
    rig.drivers.pause('issues');
    rig.end(census, [line(ISSUE)]);
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'stopped' });
    expect(refusal(() => rig.drivers.tick('issues')).code).toBe('state_conflict');
  });

  it('X24: whose prompt file is gone failed, and says which', () => {
    rig.put('issues');
    const row = rig.row('issues');
    const promptFile = '/nowhere/prompt.md';
    const spec = { ...row.spec, run: { promptFile } };
    rig.store.write(() =>
      rig.store.drivers.put({
        name: 'issues',
        source: 'file',
        spec,
        nextAt: null,
        at: row.createdAt,
      }),
    );
    rig.tick('issues', [line(ISSUE)]);
    expect(rig.row('issues')).toMatchObject({
      failures: 1,
      report: { ok: false, started: 0, message: expect.stringContaining(promptFile) as string },
    });
    expect(rig.drivers.problems()).toEqual([expect.stringContaining('does not exist')]);
    expect(workOn()).toBe(0);
  });
});

describe('a census', () => {
  it('that failed, that has a bad line or that was cut starts nothing, and is told', () => {
    rig.put('issues');
    rig.end(rig.begin('issues'), [line(ISSUE)], 'failed');
    expect(rig.row('issues').report?.message).toContain('issues-census-1 failed');
    rig.tick('issues', [line(ISSUE), '{"subject":"b"}']);
    expect(rig.row('issues').report?.message).toContain('line 2: handle');
    const census = rig.begin('issues');
    rig.prints(census, `${line(ISSUE)}\n`, true);
    rig.end(census, []);
    expect(rig.row('issues')).toMatchObject({
      failures: 3,
      report: { ok: false, message: expect.stringContaining('more than') as string },
    });
    expect(workOn()).toBe(0);
    rig.tick('issues', []);
    expect(rig.row('issues')).toMatchObject({ failures: 0, report: { ok: true, found: 0 } });
  });
});

describe('the guard', () => {
  it('S2: census guard with an active unit; row 146: work in any state that is no end keeps a subject', () => {
    rig.put('issues');
    rig.tick('issues', [line(ISSUE)]);
    const id = rig.work('issues', ISSUE);
    const again = (why = 'busy'): void => {
      rig.tick('issues', [line(ISSUE)]);
      expect(rig.said('issues'), rig.store.workUnits.get(id)?.status).toEqual({ [ISSUE]: why });
      expect(rig.row('issues').report?.subjects[0]?.workUnitId).toBe(id);
    };
    again(); // claimed: the census was, too
    rig.queue.run(id);
    again();
    rig.queue.makeStale(id);
    again('held'); // Somebody wants its end.
    rig.store.drivers.release(ISSUE);
    again();
    expect(workOn()).toBe(1);
  });

  it('row 146: also work that waits in the queue, and that of somebody else', () => {
    rig.put('issues');
    const holder = rig.queue.submit({ leases: [{ type: 'task', key: 't' }] });
    rig.queue.claimAll();
    const theirs = rig.queue.submit({
      externalSubject: ISSUE,
      leases: [{ type: 'task', key: 't' }],
    });
    rig.tick('issues', [line(ISSUE)]);
    expect(rig.store.workUnits.get(theirs)?.status).toBe('queued');
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'busy' });
    rig.queue.end(holder);
  });

  it('S2: only one driver per verdict; row 081: two that look at the same moment start one', () => {
    rig.put('one');
    rig.put('two');
    const [first, second] = [rig.begin('one'), rig.begin('two')];
    rig.end(first, [line(ISSUE)]);
    rig.end(second, [line(ISSUE)]);
    expect([rig.said('one'), rig.said('two')]).toEqual([
      { [ISSUE]: 'started' },
      { [ISSUE]: 'busy' },
    ]);
    // Also after the first has come to its end: the second census was older than that.
    const late = rig.begin('two');
    rig.run('one', ISSUE);
    rig.queue.end(rig.work('one', ISSUE));
    rig.end(late, [line(ISSUE)]);
    expect(rig.said('two')).toEqual({ [ISSUE]: 'newer' });
    expect(workOn()).toBe(1);
  });

  it('S2: what changes between the look and the commit is seen in the commit; row 081', () => {
    rig.put('issues');
    const census = rig.begin('issues');
    rig.drivers.close();
    const racing = rig.another((input, options) => {
      if (input.ownerType === 'driver') {
        // Somebody submits, and it ends, in between.
        const id = rig.queue.submit({ externalSubject: ISSUE });
        rig.queue.claimAll();
        rig.queue.end(id);
      }
      return submit(rig.queue.context, input, options);
    });
    racing.start();
    rig.end(census, [line(ISSUE)]);
    racing.close();
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'newer' });
    expect(rig.store.drivers.driven('issues', 10)).toEqual([]);
  });

  it('keeps a subject while what its work left is being verified', () => {
    rig.put('issues', VERIFY);
    rig.tick('issues', [line(ISSUE)]);
    const id = rig.run('issues', ISSUE);
    rig.queue.end(id);
    expect(rig.store.outcomes.latest(id)?.state).toBe('pending');
    rig.tick('issues', [line(ISSUE)]);
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'verifying' });
    const census = rig.begin('issues');
    settle(id);
    rig.end(census, [line(ISSUE)]);
    expect(rig.said('issues'), 'the verdict is newer than the census').toEqual({
      [ISSUE]: 'newer',
    });
    rig.tick('issues', [line(ISSUE)]);
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'started' });
    expect(workOn()).toBe(2);
  });

  it('goes by times where retention has taken the events', () => {
    rig.put('issues');
    rig.tick('issues', [line(ISSUE)]);
    const id = rig.run('issues', ISSUE);
    const early = rig.begin('issues');
    rig.queue.end(id);
    const forget = (): number => rig.store.retention.dropEvents(id, 1_000);
    rig.store.write(() => {
      const [row] = rig.store.retention.compactable(10).filter((one) => one.id === id);
      if (row) rig.store.retention.begin(row, 'age', row.endedAt);
      expect(forget()).toBeGreaterThan(0);
    });
    rig.end(early, [line(ISSUE)]);
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'newer' });
    rig.tick('issues', [line(ISSUE)]);
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'started' });
  });

  it('lets a subject of which a census that began after the end tells be worked on again', () => {
    rig.put('issues');
    rig.tick('issues', [line(ISSUE)]);
    rig.queue.end(rig.run('issues', ISSUE), 'failed');
    rig.tick('issues', [line(ISSUE)]);
    expect(rig.said('issues')).toEqual({ [ISSUE]: 'started' });
  });

  it('lets no more be worked on than may be, verifications included', () => {
    rig.put('issues', { ...VERIFY, maxAtOnce: 2 });
    const lines = ['a', 'b', 'c', 'd'].map((subject) => line(subject));
    rig.tick('issues', lines);
    expect(rig.said('issues')).toEqual({ a: 'started', b: 'started', c: 'full', d: 'full' });
    const id = rig.run('issues', 'a');
    rig.queue.end(id);
    rig.tick('issues', lines.slice(2));
    expect(rig.said('issues')).toEqual({ c: 'full', d: 'full' });
    settle(id);
    rig.tick('issues', lines.slice(2));
    expect(rig.said('issues')).toEqual({ c: 'started', d: 'full' });
  });

  it('says why no work can be asked for one subject, and starts the others', () => {
    rig.put('issues');
    rig.queue.submit({ handle: 'a' });
    rig.tick('issues', [line('a'), line('b'), line('c', { cwd: '/nowhere/at/all' })]);
    expect(rig.said('issues')).toEqual({ a: 'unusable', b: 'started', c: 'unusable' });
    const messages = rig.row('issues').report?.subjects.map(({ message }) => message ?? '');
    expect(messages?.[0]).toContain('Handle "a" belongs to');
    expect(messages?.[2]).toContain('does not exist');
  });
});

/** Its verification says yes. */
function settle(id: string): void {
  const row = rig.store.outcomes.latest(id);
  if (!row) throw new Error(`${id} declared no outcome`);
  rig.queue.context.writer.commit((transaction) => {
    rig.store.outcomes.settle(
      row,
      { state: 'satisfied', code: null, message: null },
      null,
      transaction.at,
    );
    transaction.append(id, [{ type: 'outcome.settled', actor: 'system', data: {} }]);
  });
}

/** The work of the subject runs, and is ended as `conclude` ends it. */
function stopped(code: CancellationCode, actor: Actor): string {
  rig.tick('issues', [line(ISSUE)]);
  expect(rig.said('issues')).toEqual({ [ISSUE]: 'started' });
  const id = rig.run('issues', ISSUE);
  rig.queue.context.writer.commit((transaction) => {
    const attempt = rig.queue.active(id);
    transaction.moveAttempt(attempt, 'cancelled', { endedAt: transaction.at });
    transaction.moveWorkUnit(transaction.workUnit(id), 'runner_cancelled', {
      actor,
      attemptId: attempt.id,
      patch: { errorCode: code, endedAt: transaction.at, activeAttemptId: null },
    });
  });
  return id;
}

describe('a hold', () => {
  const again = (): Record<string, string> => {
    rig.tick('issues', [line(ISSUE)]);
    return rig.said('issues');
  };

  it.each([
    ['cancelled_by_request', 'user'],
    ['halted', 'operator'],
    ['stopped_externally', 'external'],
  ] as const)('S2: a halt holds the subject until it is resumed (%s by %s)', (code, actor) => {
    rig.put('issues');
    const id = stopped(code, actor);
    expect(rig.store.drivers.holdsOf('issues')).toMatchObject([
      { subject: ISSUE, workUnitId: id, code },
    ]);
    rig.restart();
    expect(again()).toEqual({ [ISSUE]: 'held' });
    expect(again()).toEqual({ [ISSUE]: 'held' });
    expect(rig.drivers.resume('issues', ISSUE).released).toEqual([ISSUE]);
    expect(again()).toEqual({ [ISSUE]: 'started' });
    expect(refusal(() => rig.drivers.resume('issues', ISSUE)).code).toBe('not_found');
  });

  it('is kept for every driver, and over a removal of the one whose work it was', () => {
    rig.put('issues');
    rig.put('other');
    stopped('halted', 'operator');
    rig.drivers.remove('issues');
    rig.tick('other', [line(ISSUE)]);
    expect(rig.said('other')).toEqual({ [ISSUE]: 'held' });
    rig.put('issues');
    expect(again()).toEqual({ [ISSUE]: 'held' });
    expect(rig.drivers.resume('issues').released).toEqual([ISSUE]);
    expect(again()).toEqual({ [ISSUE]: 'started' });
  });

  it('is of a cancellation in the queue, too', () => {
    rig.put('issues');
    rig.tick('issues', [line(ISSUE)]);
    const id = rig.work('issues', ISSUE);
    rig.queue.claimAll();
    cancel(rig.queue.context, id, { actor: 'user', reason: null });
    expect(again()).toEqual({ [ISSUE]: 'held' });
    rig.tick('issues', [line('b')]);
    const queued = rig.work('issues', 'b');
    cancel(rig.queue.context, queued, { actor: 'user', reason: null });
    expect(rig.store.drivers.holdOn('b')?.workUnitId).toBe(queued);
  });

  it('is of a stop that comes while it is being ended for something else', () => {
    rig.put('issues');
    rig.tick('issues', [line(ISSUE)]);
    const id = rig.run('issues', ISSUE);
    fail(rig.queue.context, id, 'idle_timeout', null);
    cancel(rig.queue.context, id, { actor: 'scheduler', reason: null });
    expect(rig.store.drivers.holdOn(ISSUE)).toBeNull();
    cancel(rig.queue.context, id, { actor: 'user', reason: null });
    rig.queue.end(id, 'failed');
    expect(rig.store.drivers.holdOn(ISSUE)).toMatchObject({ code: 'cancelled_by_request' });
    expect(again()).toEqual({ [ISSUE]: 'held' });
  });

  it('is of a halt, whatever else had ended it by then', () => {
    rig.put('issues');
    rig.tick('issues', [line(ISSUE)]);
    const id = rig.run('issues', ISSUE);
    fail(rig.queue.context, id, 'idle_timeout', null);
    const { intent } = rig.queue.active(id);
    const known = { ...GONE, intent, haltMarker: true };
    conclude(rig.queue.context, rig.queue.active(id).id, gathered(known));
    expect(rig.store.workUnits.get(id)?.errorCode).toBe('idle_timeout');
    expect(again()).toEqual({ [ISSUE]: 'held' });
  });

  it('is of a stop of what verifies its work', () => {
    rig.put('issues');
    rig.tick('issues', [line(ISSUE)]);
    const id = rig.run('issues', ISSUE);
    rig.queue.end(id);
    const row = { workUnitId: id, attemptNumber: 1, attemptId: null, at: 'now' } as const;
    const pending = { state: 'pending', code: null, message: null } as const;
    rig.store.outcomes.insert({ ...row, ...pending });
    const verify = rig.queue.submit({ ownerType: OUTCOME_VERIFY, ownerId: id });
    expect(rig.store.outcomes.verifiedBy(row, verify, null)).toBe(true);
    cancel(rig.queue.context, verify, { actor: 'operator', reason: null });
    expect(rig.store.drivers.holdOn(ISSUE)).toMatchObject({ workUnitId: id });
  });

  it('ends when somebody has work on the subject tried again', async () => {
    rig.put('issues');
    rig.tick('issues', [line(ISSUE)]);
    const id = rig.run('issues', ISSUE);
    rig.queue.end(id, 'failed');
    rig.drivers.pause('issues', ISSUE);
    await retry(rig.queue.context, id, 'user');
    expect(rig.store.drivers.holdOn(ISSUE)).toBeNull();
    expect(again()).toEqual({ [ISSUE]: 'busy' });
  });

  it('does not come from a prompt that interrupts, nor from newer work in its place', () => {
    rig.put('issues');
    rig.tick('issues', [line(ISSUE), line('b')]);
    interrupt(rig.queue.context, rig.run('issues', ISSUE), { actor: 'user', reason: null });
    const b = rig.work('issues', 'b');
    cancel(rig.queue.context, b, { actor: 'scheduler', reason: 'superseded' });
    expect(rig.store.drivers.holdsOf('issues')).toEqual([]);
  });

  it('can be placed by a person before anything was started', () => {
    rig.put('issues');
    rig.drivers.pause('issues', ISSUE);
    expect(again()).toEqual({ [ISSUE]: 'held' });
    expect(rig.row('issues').state).toBe('active');
  });
});
