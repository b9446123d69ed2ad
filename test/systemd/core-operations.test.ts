/** Interrupt, suspend, fail and retry of real attempts, through a daemon in the test's own process. */
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { fail, suspend } from '../../src/supervisor/end.ts';
import { InProcessDaemon } from '../support/core-daemon.ts';
import { Rig, script } from '../support/rig.ts';

let rig: Rig;
let daemon: InProcessDaemon;
beforeEach(async () => {
  rig = await Rig.create();
  daemon = await InProcessDaemon.start(rig);
});
afterEach(async () => {
  await daemon.close();
  await rig.end();
});

const request = { actor: 'user', reason: 'another prompt' } as const;
const GRACE = { cancelGraceMs: 1_000 };

/** Submits and waits until what runs says `up`. */
async function up(input: Parameters<InProcessDaemon['submit']>[0]): Promise<string> {
  const id = daemon.submit({ timeoutPolicy: GRACE, ...input });
  await daemon.next(
    id,
    'it to say up',
    ({ type, data }) =>
      (type === 'tool.update' || type === 'stdout_delta') && JSON.stringify(data).includes('up'),
  );
  return id;
}
const endless = (prefix = ''): string[] => [
  'sh',
  '-c',
  `${prefix}echo up; while :; do sleep 0.05; done`,
];

describe('interrupt', () => {
  it('is told over the control socket: Pi ends as interrupted_by_prompt, its session closed', async () => {
    const id = await up({ prompt: script('bash echo up; sleep 600') });
    expect(daemon.supervisor.interrupt(id, request).status).toBe('cancelling');
    const ended = await daemon.end(id);
    expect([ended.status, ended.errorCode]).toEqual(['cancelled', 'interrupted_by_prompt']);
    const [attempt] = daemon.attempts(id);
    expect(attempt?.intent).toMatchObject({ kind: 'interrupt', actor: 'user' });
    expect(attempt?.lastWord, 'the wrapper had time for its last word').not.toBeNull();
    await rig.unitsAreGone();
  });

  it('of a command that ignores it: every process of the unit is killed all the same', async () => {
    const id = await up({
      argv: endless('trap "" TERM INT; '),
      timeoutPolicy: { cancelGraceMs: 60_000 },
    });
    daemon.supervisor.interrupt(id, request);
    const ended = await daemon.end(id);
    expect([ended.status, ended.errorCode]).toEqual(['cancelled', 'interrupted_by_prompt']);
    await rig.unitsAreGone();
  });

  it('of a wrapper that is stopped and cannot be told: killed, and no more is left of it; T87 pi-agents#139', async () => {
    const id = await up({ argv: endless(), timeoutPolicy: { cancelGraceMs: 60_000 } });
    process.kill(daemon.attempts(id)[0]?.opened?.pid ?? 0, 'SIGSTOP');
    daemon.supervisor.interrupt(id, request);
    const ended = await daemon.end(id);
    expect([ended.status, ended.errorCode]).toEqual(['cancelled', 'interrupted_by_prompt']);
    await rig.unitsAreGone();
  });
});

describe('fail and suspend', () => {
  it('fail stores its intent before the unit is told, and ends with its own code; row 071', async () => {
    const id = await up({ argv: endless() });
    const { executor, store } = daemon.context;
    const stored: unknown[] = [];
    const stop = executor.stop.bind(executor);
    vi.spyOn(executor, 'stop').mockImplementation((unit) => {
      stored.push(store.attempts.getByUnit(unit)?.intent?.kind);
      return stop(unit);
    });
    expect(fail(daemon.context, id, 'budget_exceeded', 'no money left').status).toBe('cancelling');
    const [attempt] = daemon.attempts(id);
    expect(attempt?.intent).toMatchObject({ kind: 'fail', code: 'budget_exceeded' });
    await daemon.supervisor.reconcile([id]);
    const ended = await daemon.end(id);
    expect([ended.status, ended.errorCode]).toEqual(['failed', 'budget_exceeded']);
    expect(stored, 'what was stored when the unit was told').toEqual(['fail']);
  });

  it('suspend ends the attempt as lost(suspended), which is no cancellation; row 070', async () => {
    const id = await up({ argv: endless() });
    const attemptId = daemon.attempts(id)[0]?.id ?? '';
    expect(suspend(daemon.context, attemptId, 'shutdown')).toBe(true);
    expect(daemon.workUnit(id).status, 'the logical state before the process is gone').toBe(
      'running',
    );
    await daemon.supervisor.reconcile([id]);
    const ended = await daemon.end(id);
    expect(daemon.attempts(id)[0]).toMatchObject({ status: 'lost', errorCode: 'suspended' });
    expect(ended.status).not.toBe('cancelled');
    expect(daemon.store.resources.slotsHeld()).toEqual([]);
    expect(suspend(daemon.context, attemptId, 'again')).toBe(false);
  });
});

describe('retry', () => {
  it('makes attempt 2 of the same work unit from failed, in a unit of its own; row 040, row 058', async () => {
    const go = path.join(rig.tree, 'go');
    const id = daemon.submit({ argv: ['sh', '-c', `[ -e ${go} ] || { touch ${go}; exit 7; }`] });
    const failed = await daemon.end(id);
    expect([failed.status, failed.errorCode]).toEqual(['failed', 'exit_code']);
    const queued = await daemon.supervisor.retry(id, 'user');
    expect(queued).toMatchObject({ id, status: 'queued', errorCode: null, endedAt: null });
    const ended = await daemon.end(id);
    expect([ended.status, ended.attemptCount]).toEqual(['succeeded', 2]);
    const [first, second] = daemon.attempts(id);
    expect([first?.status, second?.status]).toEqual(['failed', 'succeeded']);
    expect(second?.unit).not.toBe(first?.unit);
    expect(second?.nonce).not.toBe(first?.nonce);
  });

  it('of a run that a timeout ended inherits nothing of its intent', async () => {
    const go = path.join(rig.tree, 'go');
    const id = await up({ argv: ['sh', '-c', `[ -e ${go} ] && exit 0; echo up; sleep 600`] });
    fail(daemon.context, id, 'idle_timeout', null);
    await daemon.supervisor.reconcile([id]);
    expect((await daemon.end(id)).errorCode).toBe('idle_timeout');
    await rig.unitsAreGone();
    const touched = daemon.submit({ argv: ['touch', go] });
    expect((await daemon.end(touched)).status).toBe('succeeded');
    await daemon.supervisor.retry(id, 'user');
    expect(await daemon.end(id)).toMatchObject({ status: 'succeeded', errorCode: null });
    expect(daemon.attempts(id)[1]?.intent).toBeNull();
  });

  it('of running, succeeded or cancelled work is a state_conflict', async () => {
    const id = await up({ argv: endless() });
    await expect(daemon.supervisor.retry(id, 'user')).rejects.toMatchObject({
      code: 'state_conflict',
    });
    daemon.supervisor.cancel(id, request);
    await daemon.end(id);
    await expect(daemon.supervisor.retry(id, 'user')).rejects.toMatchObject({
      code: 'state_conflict',
    });
  });
});
