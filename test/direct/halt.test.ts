/** ops/scripts/halt where attempts run without systemd. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type CliResult, cli } from '../support/cli.ts';
import { opsScript } from '../support/installed.ts';
import { appears, Rig } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create({ withoutSystemd: true });
});
afterEach(async () => {
  await rig.end();
});

/** With a person's programs; the rig's have none but what the executor needs. */
const halt = (...args: readonly string[]): Promise<CliResult> =>
  opsScript(rig, 'halt', ['--workspace', rig.workspace, ...args], {
    env: { PATH: process.env['PATH'] ?? '' },
  });

async function started(handle: string, ownerType?: string): Promise<{ id: string; unit: string }> {
  const { id } = await rig.submit({
    handle,
    argv: ['sleep', '600'],
    ...(ownerType === undefined ? {} : { ownerType }),
  });
  await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
  return { id, unit: `outlive-${rig.workspace}-${handle}-1.service` };
}

describe('halt of direct attempts', () => {
  it('stops the one that is meant, recorded as halted also by a daemon that starts later', async () => {
    const daemon = await rig.startDaemon();
    const meant = await started('issue42');
    const other = await started('issue42-fix');
    daemon.kill('SIGKILL');
    await daemon.exited;
    const listed = await halt('--list');
    expect(listed.stdout.trim().split('\n').sort()).toEqual([other.unit, meant.unit].sort());
    expect(await halt('issue42')).toMatchObject({ status: 0, stdout: `stopped ${meant.unit}\n` });
    expect((await halt('--list')).stdout).toBe(`${other.unit}\n`);
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(meant.id);
    expect(workUnit).toMatchObject({ status: 'cancelled', attempts: [{ errorCode: 'halted' }] });
    expect((await rig.client.getWorkUnit(other.id)).status).toBe('running');
    expect(await halt('--attempts')).toMatchObject({
      status: 0,
      stdout: `stopped ${other.unit}\n`,
    });
    expect((await rig.outcome(other.id)).workUnit.attempts[0]?.errorCode).toBe('halted');
  });

  it('S2: halt arguments: --drivers stops what drivers started, also their looks for work, and nobody else’s; row 308, row 150', async () => {
    const daemon = await rig.startDaemon();
    const own = await started('mine');
    // Words of a person's, in what a driver's attempts are told by.
    const like = await rig.submit({
      handle: 'like',
      argv: ['sleep', '600'],
      environment: { OWNER: 'driver', OUTLIVE_VAR_OWNER: 'OUTLIVE_OWNER=driver' },
    });
    await rig.waitForEvent(like.id, ({ type }) => type === 'started', 'its start');
    const drivers = [await started('issue42', 'driver'), await started('look', 'driver_census')];
    // It needs no daemon for that.
    daemon.kill('SIGKILL');
    await daemon.exited;
    const halted = await halt('--drivers');
    expect(halted).toMatchObject({ status: 0, stderr: expect.any(String) as string });
    expect(halted.stdout.trim().split('\n').sort()).toEqual(
      drivers.map(({ unit }) => `stopped ${unit}`).sort(),
    );
    expect((await halt('--list')).stdout.trim().split('\n')).toEqual([
      `outlive-${rig.workspace}-like-1.service`,
      own.unit,
    ]);
    await rig.startDaemon();
    for (const { id } of drivers) {
      expect((await rig.outcome(id)).workUnit.attempts[0]?.errorCode).toBe('halted');
    }
    const { stdout } = await cli(rig, ['ledger', '--all', '--json']);
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { result: string });
    expect(lines.map(({ result }) => result)).toEqual(['stopped', 'stopped']);
    expect((await rig.client.getWorkUnit(own.id)).status).toBe('running');
    expect(await halt('--attempts')).toMatchObject({ status: 0 });
    expect((await rig.outcome(own.id)).workUnit.attempts[0]?.errorCode).toBe('halted');
    await rig.outcome(like.id);
  });

  it('S2: halt arguments: --drivers also stops what verifies a driver’s run; row 308', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({
      handle: 'issue42',
      argv: ['true'],
      ownerType: 'driver',
      outcome: { verify: { argv: ['sh', '-c', 'touch verifies; sleep 600'] } },
    });
    await appears(path.join(rig.tree, 'verifies'));
    expect((await halt('--drivers')).stdout).toMatch(/^stopped outlive-\S+\.service\n$/);
    expect((await rig.outcome(id)).workUnit.outcome).toMatchObject({ code: 'verify_not_run' });
  });

  it('leaves a process alone that has a dead keeper’s pid by now', async () => {
    await rig.startDaemon();
    const { id, unit } = await started('reused');
    const { directories } = rig.config;
    const entry = JSON.parse(
      readFileSync(path.join(directories.direct, `${unit}.json`), 'utf8'),
    ) as {
      nonce: string;
      attemptDirectory: string;
    };
    const file = path.join(entry.attemptDirectory, 'process.json');
    const whole = readFileSync(file, 'utf8');
    writeFileSync(file, whole.replace(/"startTicks":\d+/, '"startTicks":1'));
    expect(await halt('--attempts')).toMatchObject({ status: 0, stdout: '' });
    expect(existsSync(path.join(directories.exits, `${entry.nonce}.halt`))).toBe(false);
    writeFileSync(file, whole);
    expect((await rig.client.getWorkUnit(id)).status).toBe('running');
    await rig.client.cancelWorkUnit(id);
    await rig.outcome(id);
  });
});
