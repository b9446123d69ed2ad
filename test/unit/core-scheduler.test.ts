/** The scheduler's loop: what it looks at, when, and whom it tells. Every launch fails, which is enough. */
import { afterEach, describe, expect, it } from 'vitest';
import { LEASE_TTL_MS } from '../../src/supervisor/admission.ts';
import { createScheduler, type Scheduler } from '../../src/supervisor/scheduler.ts';
import { cleanUp, open } from '../store/rig.ts';
import { QueueRig } from '../support/core-queue.ts';

let scheduler: Scheduler | null = null;
afterEach(async () => {
  await scheduler?.close();
  scheduler = null;
  await cleanUp();
});

/** Starts a scheduler; resolves with the work units it launched once there are `count`. */
function launched(
  rig: QueueRig,
  count: number,
  onSuspect: (workUnitId: string) => void = () => undefined,
): Promise<string[]> {
  const { promise, resolve } = Promise.withResolvers<string[]>();
  const ids: string[] = [];
  scheduler = createScheduler(
    rig.context,
    ({ workUnitId }) => {
      ids.push(workUnitId);
      if (ids.length === count) resolve(ids);
    },
    onSuspect,
  );
  scheduler.start();
  return promise;
}

describe('the scheduler', () => {
  it('looks at everything again when it starts: limits may be others by then', async () => {
    const rig = new QueueRig(open(), { runner: { command: 1 } });
    rig.submit();
    const rest = [rig.submit(), rig.submit()];
    rig.claimAll();
    rig.configure('runner', 'command', 3);
    expect(rig.claimAll(), 'nobody told the queue').toEqual([]);
    expect(new Set(await launched(rig, 2))).toEqual(new Set(rest));
  });

  it('does not stop at the end of one look while more is queued', async () => {
    const rig = new QueueRig(open(), { provider: { p: 1 } });
    rig.submit({ providerPresetId: 'p' });
    rig.claimAll();
    rig.store.write(() => {
      for (let index = 0; index < 250; index++) rig.submit({ providerPresetId: 'p', priority: 1 });
    });
    const free = rig.submit();
    expect(await launched(rig, 1)).toEqual([free]);
  });

  it('launches more than it starts at once, one after the other', async () => {
    const rig = new QueueRig(open());
    const ids = Array.from({ length: 20 }, () => rig.submit());
    expect(new Set(await launched(rig, 20))).toEqual(new Set(ids));
  });

  it('has the owner of a lease that was not renewed in time looked at; row 086', async () => {
    const rig = new QueueRig(open());
    const leases = [{ type: 'task' as const, key: 't' }];
    const owner = rig.submit({ leases });
    rig.claimAll();
    rig.entropy.advance(LEASE_TTL_MS + 1);
    rig.submit({ leases });
    const { promise, resolve } = Promise.withResolvers<string>();
    void launched(rig, 1, resolve);
    expect(await promise).toBe(owner);
  });

  it('takes what is submitted later once it is woken', async () => {
    const rig = new QueueRig(open());
    const all = launched(rig, 1);
    const id = rig.submit();
    scheduler?.wake();
    expect(await all).toEqual([id]);
  });
});

describe('delayed work', () => {
  it('is launched by a timer when its time has come, and not before', async () => {
    const rig = new QueueRig(open());
    const id = rig.submit();
    rig.store.queue.delay(id, new Date(rig.entropy.now() + 60).toISOString());
    const all = launched(rig, 1);
    const other = rig.submit();
    scheduler?.wake();
    expect(await all, 'the delayed one is passed by').toEqual([other]);
    await scheduler?.close();
    const late = launched(rig, 1);
    rig.entropy.advance(60); // The real timer of 60 ms finds the injected clock there.
    expect(await late).toEqual([id]);
  });
});
