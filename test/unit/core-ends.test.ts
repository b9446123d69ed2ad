/** Cancel, interrupt, fail, suspend and retry as decisions in the store, before any process is touched. */
import { afterEach, describe, expect, it } from 'vitest';
import type { Executor, UnitFacts } from '../../src/executor/port.ts';
import { cancel, fail, interrupt, suspend } from '../../src/supervisor/end.ts';
import { retry } from '../../src/supervisor/retry.ts';
import { cleanUp, open, refusal } from '../store/rig.ts';
import { QueueRig } from '../support/core-queue.ts';

afterEach(cleanUp);

const request = { actor: 'user', reason: 'enough' } as const;
const LEASE = { leases: [{ type: 'bound_path' as const, key: '/repo' }] };

function running(executor: Partial<Executor> = {}): { rig: QueueRig; id: string } {
  const rig = new QueueRig(open(), {}, executor);
  const id = rig.submit(LEASE);
  rig.claimAll();
  rig.run(id);
  return { rig, id };
}
const status = (rig: QueueRig, id: string): string | undefined =>
  rig.store.workUnits.get(id)?.status;

describe('cancel', () => {
  it('of running work stores the intent with its attempt and releases nothing; row 069', () => {
    const { rig, id } = running();
    expect(cancel(rig.context, id, request).status).toBe('cancelling');
    const attempt = rig.active(id);
    expect(attempt).toMatchObject({ status: 'cancelling', intent: { kind: 'cancel', ...request } });
    expect(rig.store.resources.leasesHeld()).toMatchObject([{ attemptId: attempt.id }]);
  });

  it('twice changes nothing: the first intent stays', () => {
    const { rig, id } = running();
    cancel(rig.context, id, request);
    const before = rig.store.events.page(id, 0, 100);
    cancel(rig.context, id, { actor: 'operator', reason: 'me too' });
    expect(rig.store.events.page(id, 0, 100)).toEqual(before);
    expect(rig.active(id).intent).toMatchObject(request);
  });

  it('after a timeout was decided is too late to make a cancellation of it; row 104', () => {
    const { rig, id } = running();
    fail(rig.context, id, 'idle_timeout', null);
    cancel(rig.context, id, request);
    expect(rig.active(id).intent).toMatchObject({ kind: 'fail', code: 'idle_timeout' });
  });

  it('of queued work is over at once, with its code and without an attempt; row 059', () => {
    const rig = new QueueRig(open());
    const id = rig.submit();
    expect(cancel(rig.context, id, request)).toMatchObject({
      status: 'cancelled',
      errorCode: 'cancelled_by_request',
      activeAttemptId: null,
      attemptCount: 0,
    });
    expect(rig.claimAll()).toEqual([]);
  });

  it('of what has succeeded is refused', () => {
    const { rig, id } = running();
    rig.end(id);
    expect(refusal(() => cancel(rig.context, id, request)).code).toBe('state_conflict');
  });
});

describe('interrupt, fail and suspend', () => {
  it('fail of queued work is refused and changes nothing', () => {
    const rig = new QueueRig(open());
    const id = rig.submit();
    const act = () => fail(rig.context, id, 'budget_exceeded', null);
    expect(refusal(act).code).toBe('state_conflict');
    expect(status(rig, id)).toBe('queued');
  });

  it('interrupt of queued work ends it at once, since nothing of it runs', () => {
    const rig = new QueueRig(open());
    const id = rig.submit();
    interrupt(rig.context, id, request);
    expect(rig.store.workUnits.get(id)).toMatchObject({
      status: 'cancelled',
      errorCode: 'interrupted_by_prompt',
    });
  });

  it('suspend stores its intent and leaves the logical state as it is; row 070', () => {
    const { rig, id } = running();
    const { id: attemptId } = rig.active(id);
    expect(suspend(rig.context, attemptId, 'shutdown')).toBe(true);
    expect([status(rig, id), rig.active(id).intent?.kind]).toEqual(['running', 'suspend']);
    expect(rig.store.resources.leasesHeld()).toHaveLength(1);
  });

  it('a cancellation takes the place of a suspension: what somebody ended is not resumed', () => {
    const { rig, id } = running();
    suspend(rig.context, rig.active(id).id, 'shutdown');
    expect(cancel(rig.context, id, request).status).toBe('cancelling');
    expect(rig.active(id).intent).toMatchObject({ kind: 'cancel', ...request });
  });

  it('a suspension takes the place of nothing', () => {
    const { rig, id } = running();
    cancel(rig.context, id, request);
    suspend(rig.context, rig.active(id).id, 'shutdown');
    expect(rig.active(id).intent).toMatchObject({ kind: 'cancel', ...request });
  });

  it('suspend of an attempt that has ended says no', () => {
    const { rig, id } = running();
    const { id: attemptId } = rig.active(id);
    rig.end(id);
    expect(suspend(rig.context, attemptId, 'shutdown')).toBe(false);
  });
});

describe('retry of stale work', () => {
  const facts = (rig: QueueRig, id: string, known: Partial<UnitFacts>): UnitFacts => ({
    unit: rig.active(id).unit,
    nonce: rig.active(id).nonce,
    state: 'active',
    jobPending: false,
    everRan: true,
    frozen: false,
    invocationId: null,
    controlGroup: null,
    mainPid: null,
    result: 'success',
    exit: { how: 'unknown', status: null, signal: null, elapsedMs: null },
    leavesExitRecord: true,
    ...known,
  });

  function stale(unit: Partial<UnitFacts> | null, empty: boolean): { rig: QueueRig; id: string } {
    const made = running({
      read: () => Promise.resolve(unit && facts(made.rig, made.id, unit)),
      waitEmpty: () => Promise.resolve(empty),
    });
    made.rig.makeStale(made.id);
    return made;
  }

  it.each([
    ['its unit is active', { state: 'active' }, true],
    ['its unit is on its way down', { state: 'deactivating' }, true],
    ['its unit is dead and its group is not empty', { state: 'failed' }, false],
    ['its unit is gone and its group is not empty', null, false],
  ] as const)(
    'is 409 stale_unproved while %s, and nothing is released; row 105, row 254',
    async (_, unit, empty) => {
      const { rig, id } = stale(unit, empty);
      const second = rig.submit(LEASE);
      await expect(retry(rig.context, id, 'user')).rejects.toMatchObject({
        code: 'stale_unproved',
      });
      expect(status(rig, id)).toBe('stale');
      expect(rig.claimAll(), 'the resource stays blocked').toEqual([]);
      expect(status(rig, second)).toBe('queued');
    },
  );

  it('proves nothing and changes nothing while the bus is away', async () => {
    const { rig, id } = running();
    rig.makeStale(id);
    await expect(retry(rig.context, id, 'user')).rejects.toThrow(/was asked to read/);
    expect(status(rig, id)).toBe('stale');
    expect(rig.store.resources.leasesHeld()).toHaveLength(1);
  });

  it.each([
    ['its unit is dead', { state: 'inactive' }],
    ['its unit is gone', null],
    ['the name belongs to another by now', { nonce: 'another', state: 'active' }],
  ] as const)(
    'proved gone because %s: the attempt is lost, its leases go, it is queued again',
    async (_, unit) => {
      const { rig, id } = stale(unit, true);
      const { id: attemptId } = rig.active(id);
      const workUnit = await retry(rig.context, id, 'user');
      expect(workUnit).toMatchObject({ status: 'queued', activeAttemptId: null, errorCode: null });
      expect(rig.store.attempts.get(attemptId)).toMatchObject({ status: 'lost' });
      expect(rig.store.resources.leasesHeld()).toEqual([]);
      expect(rig.claimAll()).toEqual([id]);
      expect(rig.active(id)).toMatchObject({ attemptNumber: 2, intent: null });
    },
  );

  it('of failed work whose handle another one has taken is refused: handle_taken', async () => {
    const rig = new QueueRig(open());
    const id = rig.submit({ handle: 'mine' });
    rig.claimAll();
    rig.end(id, 'failed');
    rig.submit({ handle: 'mine' });
    await expect(retry(rig.context, id, 'user')).rejects.toMatchObject({ code: 'handle_taken' });
    expect(status(rig, id)).toBe('failed');
  });
});

describe('cancel of stale work', () => {
  it('is a new order with a time of its own, so that it is carried out anew; row 063', () => {
    const { rig, id } = running();
    rig.makeStale(id);
    rig.entropy.advance(3_600_000);
    expect(cancel(rig.context, id, request).status).toBe('cancelling');
    const now = new Date(rig.entropy.now()).toISOString();
    expect(rig.active(id).abortRequestedAt).toBe(now);
  });
});
