/** ops/scripts/install and uninstall, and what the command line makes of installed units. */
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { RuntimeView } from '../../src/api/schemas.ts';
import { sliceName } from '../../src/domain/names.ts';
import { type CliResult, cli } from '../support/cli.ts';
import {
  apiSocket,
  dropIn,
  freePort,
  httpSocket,
  install,
  opsScript,
  property,
  service,
  takenUpAgain,
  UNITS,
  uninstall,
} from '../support/installed.ts';
import { Rig, systemctl } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await uninstall(rig);
  await rig.end();
  rmSync(path.join(UNITS, `${service(rig)}.d`), { recursive: true, force: true });
});

/** Every file below the unit directory with its content; links with their targets. */
function unitFiles(): Record<string, string> {
  if (!existsSync(UNITS)) return {};
  const entries = readdirSync(UNITS, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => !entry.isDirectory());
  return Object.fromEntries(
    files.map((entry) => {
      const file = path.join(entry.parentPath, entry.name);
      return [
        path.relative(UNITS, file),
        entry.isSymbolicLink() ? 'link' : readFileSync(file, 'utf8'),
      ];
    }),
  );
}

const runtime = async (): Promise<RuntimeView> =>
  JSON.parse((await cli(rig, ['daemon', 'status', '--json'])).stdout) as RuntimeView;

const active = async (...units: readonly string[]): Promise<string[]> =>
  Promise.all(units.map((unit) => property(unit, 'ActiveState')));

describe('install', () => {
  it('writes units, enables them and starts the daemon; a second time it changes nothing', async () => {
    const first = await install(rig);
    expect(first.stderr).toContain(`${service(rig)} is active`);
    expect(await active(service(rig), apiSocket(rig), httpSocket(rig))).toEqual([
      'active',
      'active',
      'inactive',
    ]);
    expect(await systemctl('is-enabled', service(rig), apiSocket(rig))).toBe('enabled\nenabled');
    const [files, { runtimeInstanceId }] = [unitFiles(), await runtime()];
    const second = await install(rig);
    expect(second.stderr).not.toContain('wrote');
    expect(unitFiles()).toEqual(files);
    expect((await runtime()).runtimeInstanceId).toBe(runtimeInstanceId);
  });

  it('gives the daemon the paths of the shell it was run from, and no more of its environment', async () => {
    await opsScript(rig, 'install', ['--no-linger'], { env: { SECRET_OF_SHELL: 'sesame' } });
    const { pid } = await runtime();
    const environment = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
    for (const name of ['PATH', 'XDG_STATE_HOME', 'XDG_CONFIG_HOME', 'PI_CODING_AGENT_DIR']) {
      expect(environment).toContain(`${name}=${rig.env[name]}`);
    }
    expect(environment.join(' ')).not.toContain('sesame');
    const { directories } = rig.config;
    expect(existsSync(path.join(directories.store, 'outlive.db'))).toBe(true);
  });

  it('lets a daemon.env of the person’s speak, and says where keys of a shell do not go', async () => {
    const config = path.dirname(rig.config.directories.configFile);
    mkdirSync(config, { recursive: true });
    writeFileSync(path.join(config, 'config.json'), '{"keyVariables":["LAB_KEY"]}');
    writeFileSync(path.join(config, 'daemon.env'), 'LAB_KEY=sesame\n', { mode: 0o600 });
    await install(rig, '--no-start');
    const started = await cli(rig, ['daemon', 'start'], { env: { LAB_KEY: 'other' } });
    expect(started.status, started.stderr).toBe(0);
    expect(started.stderr).toContain('LAB_KEY of this shell is not handed to the installed unit');
    const { pid } = await runtime();
    expect(readFileSync(`/proc/${pid}/environ`, 'utf8')).toContain('LAB_KEY=sesame\0');
    expect(await systemctl('show', service(rig))).not.toContain('sesame');
  });

  it('takes over from a transient daemon: attempts run on, the same store, one daemon', async () => {
    expect((await cli(rig, ['daemon', 'start'])).status).toBe(0);
    const { id } = await rig.submit({ handle: 'kept', argv: ['sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    const attempt = `outlive-${rig.workspace}-kept-1.service`;
    const invocation = await property(attempt, 'InvocationID');
    await install(rig);
    const transient = `outlived-${rig.workspace}.service`;
    expect(await active(transient, service(rig), attempt)).toEqual([
      'inactive',
      'active',
      'active',
    ]);
    expect(await property(attempt, 'InvocationID')).toBe(invocation);
    await takenUpAgain(rig, id);
  });

  it('opens the port it was told, and closes it when told none', async () => {
    const port = await freePort();
    await install(rig, '--port', String(port));
    expect(await runtime()).toMatchObject({ host: '127.0.0.1', port });
    expect(await active(httpSocket(rig))).toEqual(['active']);
    const other = await freePort();
    await install(rig, '--port', String(other));
    expect(await runtime()).toMatchObject({ port: other });
    await install(rig, '--port', 'none');
    expect(await runtime()).toMatchObject({ port: null });
    expect(await active(httpSocket(rig), apiSocket(rig))).toEqual(['inactive', 'active']);
  });

  it('never touches a drop-in of a person’s, nor a file of theirs that has one of our names', async () => {
    const mine = await dropIn(service(rig), '[Service]\nEnvironment=OUTLIVE_LOG_LEVEL=debug\n');
    await install(rig);
    expect(readFileSync(`/proc/${(await runtime()).pid}/environ`, 'utf8')).toContain('=debug\0');
    await install(rig, '--port', String(await freePort()));
    await uninstall(rig);
    expect(readFileSync(mine, 'utf8')).toContain('=debug');
    const theirs = path.join(UNITS, sliceName(rig.workspace));
    writeFileSync(theirs, '[Slice]\nCPUWeight=7\n');
    const refused = await opsScript(rig, 'install', ['--no-linger']);
    expect(refused.status).toBe(1);
    expect(refused.stderr).toContain(`${theirs} is not ours`);
    await uninstall(rig);
    expect(readFileSync(theirs, 'utf8')).toContain('CPUWeight=7');
    rmSync(theirs);
  });

  it('--dry-run shows files and commands, and changes nothing', async () => {
    const before = unitFiles();
    const shown = await opsScript(rig, 'install', ['--dry-run']);
    expect(shown.status, shown.stderr).toBe(0);
    expect(shown.stdout).toContain(`--- ${UNITS}/outlived@.service`);
    expect(shown.stdout).toContain(`+ systemctl --user enable -q ${service(rig)}`);
    expect(unitFiles()).toEqual(before);
    expect(await active(service(rig))).toEqual(['inactive']);
  });

  it('says what the log says when the daemon does not come up', async () => {
    mkdirSync(path.dirname(rig.config.directories.state), { recursive: true });
    writeFileSync(rig.config.directories.state, 'in the way');
    const result = await opsScript(rig, 'install', ['--no-linger']);
    expect(result.status).toBe(1);
    expect(result.stderr).toMatch(/did not come up[\s\S]*state_dir_unwritable/);
    rmSync(rig.config.directories.state);
  });

  it('asks the account’s lingering, and leaves it as it is', async () => {
    const linger = (): string =>
      execFileSync('loginctl', ['show-user', os.userInfo().username, '-P', 'Linger'], {
        encoding: 'utf8',
      }).trim();
    const before = linger();
    const result = await install(rig);
    expect(linger()).toBe(before);
    expect(result.stderr.includes('lingering is off')).toBe(before === 'no');
  });

  it.each([
    ['a workspace that is none', ['--workspace', 'Not-One'], 2, 'is no workspace'],
    ['a port that is none', ['--port', '70000'], 2, '--port "70000"'],
    ['an option it does not know', ['--frob'], 2, 'unknown argument: --frob'],
    ['an option without its value', ['--port'], 2, '--port needs a value'],
  ] as const)('refuses %s', async (_what, args, status, said) => {
    const result = await opsScript(rig, 'install', args);
    expect(result).toMatchObject({ status, stdout: '' });
    expect(result.stderr).toContain(said);
  });

  it('says what is missing where no user manager answers', async () => {
    const env = { XDG_RUNTIME_DIR: path.join(rig.base, 'nowhere'), DBUS_SESSION_BUS_ADDRESS: '' };
    const result = await opsScript(rig, 'install', [], { env });
    expect(result.status).toBe(69);
    expect(result.stderr).toContain('no systemd user manager answers');
  });
});

describe('uninstall', () => {
  it('leaves the state and nothing else, and a running attempt runs on', async () => {
    const before = unitFiles();
    await install(rig);
    const { id } = await rig.submit({ handle: 'kept', argv: ['sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    const gone = await opsScript(rig, 'uninstall');
    expect(gone.status, gone.stderr).toBe(0);
    const attempt = `outlive-${rig.workspace}-kept-1.service`;
    expect(gone.stderr).toContain(attempt);
    expect(await active(attempt)).toEqual(['active']);
    expect(unitFiles()).toEqual(before);
    expect(existsSync(rig.config.directories.apiSocket)).toBe(false);
    expect((await opsScript(rig, 'uninstall')).status).toBe(0);
    // Installed again, the daemon takes it up where it is.
    await install(rig);
    await takenUpAgain(rig, id);
    const stopped = await opsScript(rig, 'uninstall', ['--stop-attempts']);
    expect(stopped.status, stopped.stderr).toBe(0);
    expect(
      await systemctl('list-units', '--all', '--plain', '--no-legend', `*${rig.workspace}*`),
    ).toBe('');
    const { userRuntime, runtime: ours, store } = rig.config.directories;
    expect(existsSync(ours)).toBe(false);
    expect(
      existsSync(path.join(userRuntime, `systemd/user/outlive-${rig.workspace}-.service.d`)),
    ).toBe(false);
    expect(statSync(path.join(store, 'outlive.db')).size).toBeGreaterThan(0);
  });

  it('--purge removes the state, not before it was confirmed, and not beneath a running attempt', async () => {
    await install(rig);
    const { state } = rig.config.directories;
    const { id } = await rig.submit({ handle: 'kept', argv: ['sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    const unasked = await opsScript(rig, 'uninstall', ['--purge']);
    expect(unasked).toMatchObject({ status: 2 });
    const beneath = await opsScript(rig, 'uninstall', ['--purge', '--yes']);
    expect(beneath).toMatchObject({ status: 1 });
    expect(await active(service(rig))).toEqual(['active']);
    const purged = await opsScript(rig, 'uninstall', ['--purge', '--yes', '--stop-attempts']);
    expect(purged.status, purged.stderr).toBe(0);
    expect(existsSync(state)).toBe(false);
  });

  it('leaves another workspace’s units alone', async () => {
    const other = await Rig.create();
    try {
      await install(rig);
      await install(other);
      await opsScript(rig, 'uninstall');
      expect(await active(service(other), apiSocket(other))).toEqual(['active', 'active']);
      expect(existsSync(path.join(UNITS, 'outlived@.service'))).toBe(true);
      expect((await cli(other, ['daemon', 'restart'])).status).toBe(0);
    } finally {
      await uninstall(other);
      await other.end();
    }
    expect(existsSync(path.join(UNITS, 'outlived@.service'))).toBe(false);
  });
});

describe('outlive daemon with installed units', () => {
  const daemon = (verb: string): Promise<CliResult> => cli(rig, ['daemon', verb]);

  it('start, stop and restart are those of the unit; after a stop no connection wakes it', async () => {
    await install(rig, '--no-start');
    const started = await daemon('start');
    expect(started.status, started.stderr).toBe(0);
    expect(started.stdout).toContain(service(rig));
    expect(await active(service(rig), apiSocket(rig))).toEqual(['active', 'active']);
    expect((await daemon('start')).stderr).toContain('running already');
    const { pid } = await runtime();
    const restarted = await daemon('restart');
    expect(restarted.status, restarted.stderr).toBe(0);
    expect((await runtime()).pid).not.toBe(pid);
    const stopped = await daemon('stop');
    expect(stopped.stderr).toContain('The daemon is stopped. No attempt was running.');
    expect(await daemon('status')).toMatchObject({ status: 4 });
    expect(await active(service(rig), apiSocket(rig))).toEqual(['inactive', 'inactive']);
    expect((await daemon('stop')).stderr).toContain('No daemon was running.');
    const logs = await daemon('logs');
    expect(logs.stdout).toContain('"msg":"ready"');
  });

  it('stop where only the sockets are open closes them and starts nothing', async () => {
    await install(rig);
    await systemctl('stop', service(rig));
    const starts = await property(service(rig), 'InvocationID');
    expect((await daemon('stop')).stderr).toContain('No daemon was running.');
    expect(await property(service(rig), 'InvocationID')).toBe(starts);
    expect(await active(service(rig), apiSocket(rig))).toEqual(['inactive', 'inactive']);
  });

  it('start shows the end of the log of one that does not come up, and does not wait for its retries', async () => {
    await install(rig);
    await daemon('stop');
    const { state } = rig.config.directories;
    rmSync(state, { recursive: true });
    writeFileSync(state, 'in the way');
    const result = await daemon('start');
    rmSync(state);
    expect(result.status).toBe(1);
    expect(result.stderr).toMatch(/did not come up[\s\S]*state_dir_unwritable/);
    // Mended, it comes up by itself.
    await expect
      .poll(() => property(service(rig), 'ActiveState'), { timeout: 15_000 })
      .toBe('active');
  });
});
