/** A user manager that comes and goes between daemons: each attempt stays with the executor that started it. */
import { existsSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Rig, systemctl, within } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

const waits = (name: string): { argv: string[] } => ({
  argv: ['sh', '-c', `echo x >> ${name}.runs; echo up; until [ -e ${name} ]; do sleep 0.1; done`],
});
const goOn = (name: string): void => writeFileSync(path.join(rig.tree, name), '');
const runsOf = (name: string): string => readFileSync(path.join(rig.tree, `${name}.runs`), 'utf8');

async function underWay(input: { argv: string[] }): Promise<string> {
  const { id } = await rig.submit(input);
  await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'the work to be under way');
  return id;
}

/** A bus address with nothing behind it yet. */
const noBus = (): Record<string, string> => ({
  DBUS_SESSION_BUS_ADDRESS: `unix:path=${path.join(rig.base, 'bus')}`,
});

/** Puts the real bus behind it. */
function busComes(): void {
  const real = (rig.env['DBUS_SESSION_BUS_ADDRESS'] ?? '').replace(/^unix:path=/, '').split(',')[0];
  symlinkSync(real ?? '', path.join(rig.base, 'bus'));
}

describe('where the bus refuses the connection', () => {
  it('row 140: work runs directly, once, and no unit is made', async () => {
    await rig.startDaemon({ env: noBus() });
    expect(await rig.client.runtime()).toMatchObject({ executor: 'direct', status: 'degraded' });
    const id = await underWay(waits('one'));
    expect(await rig.loadedUnits()).toBe('');
    goOn('one');
    const { workUnit } = await rig.outcome(id);
    expect(workUnit).toMatchObject({ status: 'succeeded', attempts: [{ executor: 'direct' }] });
    expect(runsOf('one')).toBe('x\n');
  });

  it('a direct attempt is taken up, and ended, by a daemon that has systemd; new work gets a unit', async () => {
    const first = await rig.startDaemon({ env: noBus() });
    const [kept, stopped] = [await underWay(waits('one')), await underWay(waits('two'))];
    first.kill('SIGKILL');
    await first.exited;
    await rig.startDaemon();
    expect(await rig.client.runtime()).toMatchObject({
      executor: 'systemd',
      status: 'ready',
      problems: [],
    });
    for (const id of [kept, stopped]) {
      await rig.waitForEvent(id, ({ type }) => type === 'attempt.reattached', 're-attachment');
    }
    await rig.client.cancelWorkUnit(stopped);
    goOn('one');
    expect((await rig.outcome(kept)).workUnit).toMatchObject({
      status: 'succeeded',
      attempts: [{ executor: 'direct', reattached: 1 }],
    });
    expect((await rig.outcome(stopped)).workUnit).toMatchObject({
      status: 'cancelled',
      errorCode: 'cancelled_by_request',
      attempts: [{ executor: 'direct' }],
    });
    const { workUnit } = await rig.runToEnd({ argv: ['true'] });
    expect(workUnit.attempts[0]?.executor).toBe('systemd');
    expect([runsOf('one'), runsOf('two')]).toEqual(['x\n', 'x\n']);
  });

  it('T61 containerd#13784, T19 cmux#11043: an attempt of systemd waits, is neither given up nor started again, and is taken up when the bus comes', async () => {
    const first = await rig.startDaemon();
    const id = await underWay(waits('one'));
    const { attempts } = await rig.client.getWorkUnit(id);
    first.kill('SIGKILL');
    await first.exited;
    await rig.startDaemon({ env: noBus() });
    const runtime = await rig.client.runtime();
    expect(runtime.problems).toEqual([
      expect.stringMatching(/^direct_executor: /),
      expect.stringMatching(/^bus_unavailable: attempts that systemd started wait/),
    ]);
    // Other work goes on meanwhile, directly.
    const other = await rig.runToEnd({ argv: ['true'] });
    expect(other.workUnit.attempts[0]?.executor).toBe('direct');
    expect(await rig.client.getWorkUnit(id)).toMatchObject({ status: 'running' });
    expect(await systemctl('is-active', attempts[0]?.unit ?? '')).toBe('active');
    busComes();
    await rig.waitForEvent(id, ({ type }) => type === 'attempt.reattached', 're-attachment');
    goOn('one');
    const { workUnit } = await rig.outcome(id);
    expect(workUnit).toMatchObject({
      status: 'succeeded',
      attempts: [{ id: attempts[0]?.id, executor: 'systemd', reattached: 1 }],
    });
    expect(runsOf('one')).toBe('x\n');
    expect(await rig.client.runtime()).toMatchObject({ executor: 'direct' });
    await rig.unitsAreGone();
  });

  it('a start that systemd may have taken is settled with systemd, never started directly beside it', async () => {
    const first = await rig.startDaemon({ fault: 'start_answered' });
    const { id } = await rig.submit(waits('one'));
    expect(await first.exited).toBe('SIGKILL');
    await rig.startDaemon({ env: noBus() });
    await within('the unit to run', upIn('one'));
    expect(await rig.client.getWorkUnit(id)).toMatchObject({
      status: 'claimed',
      attempts: [{ executor: 'systemd' }],
    });
    busComes();
    goOn('one');
    const { workUnit } = await rig.outcome(id);
    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts).toHaveLength(1);
    expect(runsOf('one')).toBe('x\n');
  });
});

/** The unit's own trace: nobody tells us of it while the bus is away. */
async function upIn(name: string): Promise<void> {
  while (!existsSync(path.join(rig.tree, `${name}.runs`))) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
