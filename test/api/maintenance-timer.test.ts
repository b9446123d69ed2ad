/** Retention by itself: at the start, at every interval, and not after the end. */
import type { Logger } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createMaintenance } from '../../src/supervisor/maintenance.ts';
import { insertWorkUnit, newEvent } from '../store/rig.ts';
import { bootApi, cleanUp, type Rig, silent } from '../support/api-rig.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

beforeEach(() => {
  // Only timers: the files and their times are real.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(async () => {
  vi.useRealTimers();
  await cleanUp();
});

/** Upkeep whose wall clock the test moves, and whose runs it can wait for. */
function watched(rig: Rig) {
  let now = Date.now();
  let runs = 0;
  let ran = Promise.withResolvers<void>();
  const log = Object.create(silent) as Logger;
  log.info = () => {
    runs += 1;
    ran.resolve();
  };
  const maintenance = createMaintenance(
    { ...rig.inner, log, entropy: { ...rig.inner.entropy, now: () => now } },
    { policy: { maxAgeMs: 30 * DAY, budgetBytes: null }, intervalMs: HOUR },
  );
  return {
    maintenance,
    runs: () => runs,
    nextRun: async () => {
      await ran.promise;
      ran = Promise.withResolvers();
      // The loop goes to sleep in the turns after its run.
      for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
    },
    pass: (ms: number) => {
      now += ms;
    },
  };
}

function plantEnded({ store }: Rig): string {
  const id = insertWorkUnit(store);
  store.write(() => {
    store.events.append(id, [newEvent(id)]);
    const row = store.workUnits.get(id);
    const at = new Date().toISOString();
    if (row) store.workUnits.move(row, 'failed', { endedAt: at }, at);
  });
  return id;
}

describe('retention by itself', () => {
  it('runs at the start and at every interval, by the daemon’s own clock; row 352', async () => {
    const rig = await bootApi();
    const id = plantEnded(rig);
    const { maintenance, nextRun, runs, pass } = watched(rig);
    maintenance.start();
    await nextRun();
    expect(rig.store.events.span(id).floor).toBe(0);
    pass(30 * DAY);
    await vi.advanceTimersByTimeAsync(HOUR - 1);
    expect(runs()).toBe(1);
    await vi.advanceTimersByTimeAsync(1);
    await nextRun();
    expect(rig.store.events.span(id).floor).toBe(1);
    await maintenance.close();
    await vi.advanceTimersByTimeAsync(2 * HOUR);
    expect(runs()).toBe(2);
  });

  it('goes on after a run that failed', async () => {
    const rig = await bootApi();
    const { maintenance, nextRun, runs } = watched(rig);
    const failing = vi.spyOn(rig.store.retention, 'pending').mockImplementationOnce(() => {
      throw new Error('the disk is away');
    });
    maintenance.start();
    while (failing.mock.calls.length === 0) await new Promise((resolve) => setImmediate(resolve));
    for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(runs()).toBe(0);
    await vi.advanceTimersByTimeAsync(HOUR);
    await nextRun();
    expect(runs()).toBe(1);
    await maintenance.close();
  });
});
