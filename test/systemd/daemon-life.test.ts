/** The daemon's own life through the command line, on a real user manager. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { RuntimeView, WorkUnitView } from '../../src/api/schemas.ts';
import { type Ended, launch, root } from '../cli/outlive.ts';

const WORKSPACE = 'life';
const UNIT = `outlived-${WORKSPACE}.service`;
const SECRET = 'a-key-that-no-bus-may-show';
const runtimeDirectory = process.env['XDG_RUNTIME_DIR'] ?? '';

let home: string;
beforeAll(() => {
  home = mkdtempSync(path.join(os.homedir(), 'life-'));
  mkdirSync(path.join(home, 'config', 'outlive'), { recursive: true });
  const config = { api: { port: 0 }, keyVariables: ['LIFE_KEY'] };
  writeFileSync(path.join(home, 'config/outlive/config.json'), JSON.stringify(config));
});
afterEach(async () => {
  await outlive('daemon', 'stop');
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

function outlive(...args: readonly string[]): Promise<Ended> {
  return launch(path.join(root, 'ops/scripts/outlive'), ['--workspace', WORKSPACE, ...args], {
    runtimeDirectory,
    cwd: home,
    env: {
      HOME: os.homedir(),
      XDG_CONFIG_HOME: path.join(home, 'config'),
      XDG_STATE_HOME: path.join(home, 'state'),
      LIFE_KEY: SECRET,
    },
  }).ended;
}

const systemctl = (...args: readonly string[]): string =>
  execFileSync('systemctl', ['--user', ...args], { encoding: 'utf8' });

const runtime = async (): Promise<RuntimeView> =>
  JSON.parse((await outlive('daemon', 'status', '--json')).stdout) as RuntimeView;

describe('outlive daemon', () => {
  it('start returns when the daemon answers, and shows pid, socket and unit', async () => {
    const { code, stdout } = await outlive('daemon', 'start');
    expect(code).toBe(0);
    const { pid, socket } = await runtime();
    for (const fact of [String(pid), socket, UNIT]) expect(stdout).toContain(fact);
    expect(systemctl('show', '-P', 'MainPID', UNIT).trim()).toBe(String(pid));
  });

  it('start hands keys over as credentials: not on the bus, no file left behind', async () => {
    await outlive('daemon', 'start');
    expect(systemctl('show', UNIT) + systemctl('cat', UNIT)).not.toContain(SECRET);
    const credential = path.join(runtimeDirectory, 'credentials', UNIT, 'LIFE_KEY');
    expect(readFileSync(credential, 'utf8')).toBe(SECRET);
    const left = readdirSync(path.join(runtimeDirectory, 'outlive', WORKSPACE));
    expect(left.filter((name) => name.startsWith('daemon-start-'))).toEqual([]);
  });

  it('start is done at once where a daemon answers, also when two ask together', async () => {
    const both = await Promise.all([outlive('daemon', 'start'), outlive('daemon', 'start')]);
    expect(both.map(({ code }) => code)).toEqual([0, 0]);
    const { runtimeInstanceId } = await runtime();
    expect((await outlive('daemon', 'start')).stderr).toContain('running already');
    expect((await runtime()).runtimeInstanceId).toBe(runtimeInstanceId);
  });

  it('start works after a daemon that was killed, and status says that it failed', async () => {
    await outlive('daemon', 'start');
    systemctl('kill', '-s', 'KILL', '--kill-who=main', UNIT);
    await expect.poll(() => systemctl('show', '-P', 'ActiveState', UNIT).trim()).toBe('failed');
    const status = await outlive('daemon', 'status');
    expect(status.code).toBe(4);
    expect(status.stderr).toContain(`${UNIT} is failed (signal)`);
    expect(status.stderr).toContain(`outlive daemon start --workspace ${WORKSPACE}`);
    expect((await outlive('daemon', 'start')).code).toBe(0);
  });

  it('start shows the end of the log of a daemon that does not come up', async () => {
    const state = path.join(home, 'state', 'outlive', WORKSPACE);
    rmSync(state, { recursive: true, force: true });
    writeFileSync(state, 'in the way');
    const { code, stderr } = await outlive('daemon', 'start');
    rmSync(state);
    expect(code).toBe(1);
    expect(stderr).toContain('did not come up');
    expect(stderr).toContain(`outlived: `);
  });

  it('restart and stop leave a running attempt alone; the next daemon takes it up', async () => {
    await outlive('daemon', 'start');
    const args = ['--runner', 'command', '--handle', 'sleeper', '--detach', '--', 'sleep', '600'];
    expect((await outlive('run', ...args)).stdout).toBe('sleeper\n');
    const unit = `outlive-${WORKSPACE}-sleeper-1.service`;
    await expect.poll(() => systemctl('show', '-P', 'ActiveState', unit).trim()).toBe('active');
    const invocation = systemctl('show', '-P', 'InvocationID', unit);
    const restarted = await outlive('daemon', 'restart');
    expect(restarted.stderr).toContain('1 running attempt goes on');
    expect(restarted.code).toBe(0);
    expect((await outlive('daemon', 'stop')).code).toBe(0);
    expect(systemctl('show', '-P', 'InvocationID', unit)).toBe(invocation);
    expect(systemctl('show', '-P', 'ActiveState', UNIT).trim()).toBe('inactive');
    await outlive('daemon', 'start');
    const shown = JSON.parse((await outlive('show', 'sleeper', '--json')).stdout) as WorkUnitView;
    expect(shown).toMatchObject({ status: 'running', attempts: [{ reattached: 2 }] });
    expect((await outlive('cancel', 'sleeper')).code).toBe(0);
    const ended = await outlive('events', 'sleeper', '--follow');
    expect(ended.stdout).toContain('work_unit.cancelled');
  });

  it('stop says that none was running, and logs are the journal of the unit', async () => {
    expect(await outlive('daemon', 'stop')).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('No daemon was running.') as string,
    });
    await outlive('daemon', 'start');
    const { code, stdout } = await outlive('daemon', 'logs', '-n', '20');
    expect(code).toBe(0);
    expect(stdout).toContain('ready');
  });
});
