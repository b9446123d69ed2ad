import { expect, test } from 'vitest';
import { OutliveError } from '../../src/domain/errors.ts';
import { startWatchdog } from '../../src/systemd/watchdog.ts';
import { ManualTimers } from './systemd-manual-timers.ts';

function start(look: () => string) {
  const timers = new ManualTimers();
  const fed: string[] = [];
  const reports: string[] = [];
  const stop = startWatchdog({
    deadlineMs: 60_000,
    notifier: {
      watchdog: async (status) => {
        fed.push(status);
      },
    },
    look,
    timers,
    report: (problem) => reports.push(problem),
  });
  /** Lets one beat pass and waits for the next to be set. */
  const beat = async (): Promise<number> => {
    const ms = await timers.pass(() => true);
    await expect.poll(() => timers.pending).toBe(1);
    return ms;
  };
  return { fed, reports, stop, beat, timers };
}

test('it is fed three times per deadline, with what the daemon says of itself', async () => {
  const { beat, fed } = start(() => 'workspace main, 2 running');
  expect(await beat()).toBe(20_000);
  await beat();
  expect(fed).toEqual(['workspace main, 2 running', 'workspace main, 2 running']);
});

test.each(['disk_full', 'store_unavailable', 'store_damaged', 'bus_unavailable'] as const)(
  'a fault of the world (%s) is told as degraded, and it is fed',
  async (code) => {
    const { beat, fed, reports } = start(() => {
      throw new OutliveError(code, 'it is away.');
    });
    await beat();
    expect(fed).toEqual([`degraded: ${code}: it is away.`]);
    expect(reports).toEqual([]);
  },
);

test('a daemon that cannot look at itself starves, and says why; it is looked at again', async () => {
  let broken = true;
  const { beat, fed, reports } = start(() => {
    if (broken) throw new TypeError('database connection is not open');
    return 'up';
  });
  await beat();
  expect(fed).toEqual([]);
  expect(reports).toEqual([expect.stringContaining('database connection is not open')]);
  broken = false;
  await beat();
  expect(fed).toEqual(['up']);
});

test('after the stop nothing is fed and no timer is left', async () => {
  const { fed, stop, timers } = start(() => 'up');
  stop();
  expect(timers.pending).toBe(0);
  expect(fed).toEqual([]);
});
