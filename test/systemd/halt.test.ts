/** ops/scripts/halt against real units: with the daemon running, hanging and dead. */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { CliResult } from '../support/cli.ts';
import { cli } from '../support/cli.ts';
import { untilDriverIs } from '../support/driver-watch.ts';
import {
  apiSocket,
  httpSocket,
  install,
  opsScript,
  property,
  service,
  uninstall,
} from '../support/installed.ts';
import { type DaemonProcess, Rig, systemctl } from '../support/rig.ts';

let rig: Rig;
let daemon: DaemonProcess;

const halt = (...args: readonly string[]): Promise<CliResult> => opsScript(rig, 'halt', args);
const unit = (handle: string, counter = 1): string =>
  `outlive-${rig.workspace}-${handle}-${counter}.service`;
const state = (name: string): Promise<string> => property(name, 'ActiveState');

/** Starts `sleep` under each handle and waits until it runs. */
async function sleepers(...handles: readonly string[]): Promise<string[]> {
  const ids: string[] = [];
  for (const handle of handles) {
    const { id } = await rig.submit({ handle, argv: ['sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', `${handle} to start`);
    ids.push(id);
  }
  return ids;
}

const HALTED = { status: 'cancelled', errorCode: 'halted', rule: 4, actor: 'operator' };

/** How it ended, who did it, and which rule said so. */
async function endOf(id: string): Promise<Record<string, unknown>> {
  const { workUnit, events } = await rig.outcome(id);
  const { status, errorCode, attempts } = workUnit;
  const rule = attempts.at(-1)?.decidedByRule;
  return { status, errorCode, rule, actor: events.at(-1)?.actor };
}

describe('halt', () => {
  beforeEach(async () => {
    rig = await Rig.create();
    daemon = await rig.startDaemon();
  });
  afterEach(async () => {
    await rig.end();
  });

  it('HANDLE with the daemon running: the one attempt, recorded as halted by an operator; row 149', async () => {
    const [id = ''] = await sleepers('issue42');
    const result = await halt('issue42');
    expect(result).toMatchObject({ status: 0, stdout: `stopped ${unit('issue42')}\n` });
    expect(await state(unit('issue42'))).toBe('inactive');
    expect(await endOf(id)).toEqual(HALTED);
  });

  it('issue42 leaves issue42-fix, issue42-7, issue4 and another workspace’s issue42 alone', async () => {
    const handles = ['issue42-fix', 'issue42-7', 'issue4', 'a-issue42'];
    const ids = await sleepers('issue42', ...handles);
    const foreign = `outlive-${rig.workspace}x-issue42-1.service`;
    execFileSync('systemd-run', ['--user', '-q', `--unit=${foreign}`, 'sleep', '600']);
    try {
      expect((await halt('issue42')).stdout).toBe(`stopped ${unit('issue42')}\n`);
      expect(await endOf(ids[0] ?? '')).toEqual(HALTED);
      for (const handle of handles) expect(await state(unit(handle)), handle).toBe('active');
      expect(await state(foreign)).toBe('active');
      expect((await halt('issue42-7')).stdout).toBe(`stopped ${unit('issue42-7')}\n`);
    } finally {
      await systemctl('stop', foreign);
    }
  });

  it('UNIT stops that one, and says its workspace by itself; row 149', async () => {
    const [id = '', other = ''] = await sleepers('pr7', 'pr8');
    const result = await opsScript(rig, 'halt', [unit('pr7')], {
      env: { OUTLIVE_WORKSPACE: 'main' },
    });
    expect(result).toMatchObject({ status: 0, stdout: `stopped ${unit('pr7')}\n` });
    expect(await endOf(id)).toEqual(HALTED);
    expect((await rig.client.getWorkUnit(other)).status).toBe('running');
  });

  it('--attempts stops them all, and the daemon lives; row 150', async () => {
    const ids = await sleepers('a', 'b', 'c');
    const result = await halt('--attempts');
    expect(result.status).toBe(0);
    expect(result.stdout.trim().split('\n').sort()).toEqual(
      ['a', 'b', 'c'].map((handle) => `stopped ${unit(handle)}`),
    );
    for (const id of ids) expect(await endOf(id)).toEqual(HALTED);
    expect((await rig.client.runtime()).pid).toBe(daemon.pid);
  });

  it('S2: halt arguments: --drivers stops what drivers started, also with the daemon dead, and nobody else’s; row 308, row 150', async () => {
    const [own = ''] = await sleepers('mine');
    const ids: string[] = [];
    for (const [handle, ownerType] of [
      ['issue42', 'driver'],
      ['look', 'driver_census'],
    ] as const) {
      const { id } = await rig.submit({ handle, ownerType, argv: ['sleep', '600'] });
      await rig.waitForEvent(id, ({ type }) => type === 'started', `${handle} to start`);
      ids.push(id);
    }
    daemon.kill('SIGKILL');
    await daemon.exited;
    const result = await halt('--drivers');
    expect(result.status).toBe(0);
    expect(result.stdout.trim().split('\n').sort()).toEqual(
      ['issue42', 'look'].map((handle) => `stopped ${unit(handle)}`),
    );
    expect(await state(unit('mine'))).toBe('active');
    await rig.startDaemon();
    for (const id of ids) expect(await endOf(id)).toEqual(HALTED);
    expect((await rig.client.getWorkUnit(own)).status).toBe('running');
  });

  it('with the daemon dead: the next one records what was halted, and by whom', async () => {
    const [id = '', other = ''] = await sleepers('issue42', 'issue43');
    daemon.kill('SIGKILL');
    await daemon.exited;
    expect(await halt('issue42')).toMatchObject({ status: 0 });
    expect(await state(unit('issue42'))).toBe('inactive');
    await rig.startDaemon();
    expect(await endOf(id)).toEqual(HALTED);
    expect((await rig.client.getWorkUnit(other)).status).toBe('running');
  });

  it('with the daemon stopped by SIGSTOP: as well', async () => {
    const [id = ''] = await sleepers('issue42');
    daemon.kill('SIGSTOP');
    expect(await halt('issue42')).toMatchObject({ status: 0 });
    daemon.kill('SIGCONT');
    expect(await endOf(id)).toEqual(HALTED);
  });

  it('a tree that ignores SIGTERM and has left its session is gone when it returns', async () => {
    const stubborn = `trap '' TERM; setsid sh -c 'trap "" TERM; echo up; sleep 600' & sleep 600 & wait; sleep 600`;
    const { id } = await rig.submit({
      handle: 'stubborn',
      argv: ['sh', '-c', stubborn],
      timeoutPolicy: { cancelGraceMs: 1_000 },
    });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its output');
    const group = await property(unit('stubborn'), 'ControlGroup');
    expect(await halt('stubborn')).toMatchObject({ status: 0 });
    expect(existsSync(path.join('/sys/fs/cgroup', group))).toBe(false);
    expect(await endOf(id)).toEqual(HALTED);
  });

  it('a frozen unit is stopped, too', async () => {
    const [id = ''] = await sleepers('frozen');
    await systemctl('freeze', unit('frozen'));
    expect(await halt('frozen')).toMatchObject({ status: 0 });
    expect(await endOf(id)).toEqual(HALTED);
  });

  it('one that is ending already is not marked: why it ends was decided by somebody else', async () => {
    const argv = ['sh', '-c', 'trap "sleep 2; exit 3" TERM; echo up; sleep 600 & wait'];
    const { id } = await rig.submit({ handle: 'ending', argv });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its output');
    await systemctl('stop', '--no-block', unit('ending'));
    expect(await state(unit('ending'))).toBe('deactivating');
    expect(await halt('ending')).toMatchObject({
      status: 0,
      stdout: `stopped ${unit('ending')}\n`,
    });
    expect(await endOf(id)).toMatchObject({ errorCode: 'stopped_externally', actor: 'external' });
  });

  it('is done with 0 where nothing of that runs, and names what does; X27', async () => {
    await sleepers('issue42');
    for (const wish of ['issue43', unit('issue43'), unit('issue42', 2)]) {
      const result = await halt(wish);
      expect(result).toMatchObject({ status: 0, stdout: '' });
      expect(result.stderr).toContain(unit('issue42'));
    }
    expect(await state(unit('issue42'))).toBe('active');
    expect(readdirSync(rig.exitRecords()).filter((name) => name.endsWith('.halt'))).toEqual([]);
  });

  it('--list names active and activating units; X27', async () => {
    await sleepers('issue42');
    expect(await halt('--list')).toMatchObject({ status: 0, stdout: `${unit('issue42')}\n` });
    // A start that systemd holds back: its unit is there, and is not active yet.
    const late = unit('late');
    const starting = spawn(
      'systemd-run',
      ['--user', '-q', `--unit=${late}`, '-p', 'ExecStartPre=sleep 600', '-p', 'Type=exec', 'true'],
      { stdio: 'ignore' },
    );
    await expect.poll(() => state(late)).toBe('activating');
    expect((await halt('--list')).stdout.split('\n')).toContain(late);
    const result = await halt('--attempts');
    expect(result.stdout).toContain(`stopped ${late}`);
    expect(result.stderr).toContain('carries no nonce');
    expect(result.status).toBe(1);
    starting.kill();
  });

  it('--all names a daemon that is no unit of systemd', async () => {
    const [id = ''] = await sleepers('issue42');
    const result = await halt('--all');
    expect(result.status).toBe(1);
    expect(result.stderr).toContain('a daemon that is no unit still answers');
    expect(await endOf(id)).toEqual(HALTED);
  });
});

describe('halt --all', () => {
  beforeAll(async () => {
    rig = await Rig.create();
    await install(rig);
  });
  afterAll(async () => {
    await uninstall(rig);
    await rig.end();
  });

  it('stops sockets, daemon and attempts: nothing runs and nothing starts again; row 151', async () => {
    const ids = await sleepers('issue42', 'issue42-fix');
    const census = `echo '{"handle":"issue43","subject":"issue:43"}'`;
    await rig.client.putDriver('loop', {
      census: { argv: ['sh', '-c', census] },
      run: { argv: ['sleep', '600'] },
      every: 1_000,
      cwd: rig.tree,
    });
    await untilDriverIs(rig, 'loop', 'its run', (of) => of.subjects[0]?.status === 'running');
    const result = await halt('--all');
    expect(result.status, result.stderr).toBe(0);
    const attempts = ['issue42', 'issue42-fix', 'issue43'].map((handle) => unit(handle));
    for (const name of [apiSocket(rig), service(rig), ...attempts]) {
      expect(result.stdout).toContain(`stopped ${name}`);
      expect(await state(name), name).toBe('inactive');
    }
    expect(await state(httpSocket(rig))).toBe('inactive');
    // A client's knock must not wake it.
    expect(await cli(rig, ['ps'])).toMatchObject({ status: 4 });
    expect(await state(service(rig))).toBe('inactive');
    expect(await halt('--all')).toMatchObject({ status: 0, stdout: '' });
    expect((await cli(rig, ['daemon', 'start'])).status).toBe(0);
    for (const id of ids) expect(await endOf(id)).toEqual(HALTED);
    // The next look of the driver would undo it.
    expect((await rig.client.driver('loop')).holds).toMatchObject([{ subject: 'issue:43' }]);
    await rig.client.removeDriver('loop');
  });

  it('does not wait for a daemon that hangs, and systemd does not start it again', async () => {
    const [id = ''] = await sleepers('issue44');
    await systemctl('kill', '-s', 'STOP', '--kill-who=main', service(rig));
    expect(await halt('--all')).toMatchObject({ status: 0 });
    expect(await state(service(rig))).toMatch(/^(inactive|failed)$/);
    expect(await state(unit('issue44'))).toBe('inactive');
    expect((await cli(rig, ['daemon', 'start'])).status).toBe(0);
    expect(await endOf(id)).toEqual(HALTED);
  });
});
