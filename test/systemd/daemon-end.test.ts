/** How a daemon ends in order, and how it keeps its place while it lives. */
import { existsSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { dropInDirectoryName } from '../../src/domain/names.ts';
import {
  appears,
  type DaemonProcess,
  Rig,
  said,
  sequenceIsWhole,
  systemctl,
  within,
} from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

const ended = (daemon: DaemonProcess): Promise<number | NodeJS.Signals> =>
  within('the daemon to end', daemon.exited);

/** Lines of the log that a person would be alarmed by. */
const errors = (daemon: DaemonProcess): string[] =>
  daemon
    .output()
    .split('\n')
    .filter((line) => /"level":(50|60)/.test(line));

describe('SIGTERM', () => {
  it('in the middle of an ingest ends in order: nothing is logged as an error, nothing is lost or twice', async () => {
    const go = path.join(rig.tree, 'go');
    const script = `echo up; until [ -e ${go} ]; do sleep 0.1; done; yes line | head -c 7000000; touch ${go}.done; until [ -e ${go}.end ]; do sleep 0.1; done`;
    const killed = await rig.startDaemon();
    const { id } = await rig.submit({ argv: ['sh', '-c', script] });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its output');
    killed.kill('SIGKILL');
    await ended(killed);
    writeFileSync(go, '');
    await appears(`${go}.done`);
    const daemon = await rig.startDaemon();
    daemon.kill('SIGTERM');
    expect(await ended(daemon)).toBe(0);
    expect(errors(daemon)).toEqual([]);
    await rig.startDaemon();
    writeFileSync(`${go}.end`, '');
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit.status).toBe('succeeded');
    expect(sequenceIsWhole(events)).toBe(true);
    const output = events
      .filter(({ type }) => type === 'stdout_delta')
      .map(({ data }) => String(data['text']))
      .join('');
    expect(output.length).toBe('up\n'.length + 7_000_000);
  });

  it('while systemd holds a start back ends within seconds, and nothing is logged as an error', async () => {
    const { userRuntime } = rig.config.directories;
    const slow = `slow-${rig.workspace}.service`;
    const place = path.join(userRuntime, 'systemd/user', dropInDirectoryName(rig.workspace));
    mkdirSync(place, { recursive: true });
    writeFileSync(path.join(place, '10-after.conf'), `[Unit]\nAfter=${slow}\n`);
    const units = path.join(userRuntime, 'systemd/user', slow);
    writeFileSync(units, '[Service]\nType=oneshot\nExecStart=/bin/sleep 600\n');
    try {
      await systemctl('daemon-reload');
      await systemctl('start', '--no-block', slow);
      const daemon = await rig.startDaemon();
      await rig.submit({ argv: ['echo', 'late'] });
      while (!(await systemctl('list-jobs')).includes(`outlive-${rig.workspace}-`));
      const asked = Date.now();
      daemon.kill('SIGTERM');
      expect(await ended(daemon)).toBe(0);
      expect(Date.now() - asked).toBeLessThan(15_000);
      expect(errors(daemon)).toEqual([]);
    } finally {
      await systemctl('stop', slow);
      rmSync(units);
      await systemctl('daemon-reload');
    }
  });
});

describe('the runtime directory', () => {
  it('that is removed under a living daemon is put back, with socket and lock', async () => {
    const daemon = await rig.startDaemon();
    const { apiSocket, runtime, userRuntime } = rig.config.directories;
    rmSync(path.join(userRuntime, 'outlive', `${rig.workspace}.lock.db`));
    // The daemon may be quicker than whoever removes: then the latter tries again, as rm -rf would.
    rmSync(runtime, { recursive: true, maxRetries: 5 });
    await said(daemon, 'is put back');
    await expect
      .poll(
        () =>
          rig.client.runtime().then(
            ({ pid }) => pid,
            () => null,
          ),
        { timeout: 20_000 },
      )
      .toBe(daemon.pid);
    expect(statSync(apiSocket).mode & 0o777).toBe(0o600);
    const other = rig.spawnDaemon({ env: { XDG_STATE_HOME: path.join(rig.base, 'other-state') } });
    expect(await ended(other)).toBe(5);
    expect(other.output()).toContain(`pid ${daemon.pid}`);
    const ran = await rig.runToEnd({ argv: ['echo', 'after'] });
    expect(ran.workUnit.status).toBe('succeeded');
    daemon.kill('SIGTERM');
    expect(await ended(daemon)).toBe(0);
    expect(existsSync(apiSocket)).toBe(false);
  });

  it('that somebody else has by now is left to them: the daemon ends by workspace_owned', async () => {
    const daemon = await rig.startDaemon();
    const { apiSocket, userRuntime } = rig.config.directories;
    rmSync(path.join(userRuntime, 'outlive', `${rig.workspace}.lock.db`));
    const other = await rig.startDaemon({
      env: { XDG_STATE_HOME: path.join(rig.base, 'other-state') },
    });
    expect(await ended(daemon)).toBe(5);
    expect(daemon.output()).toContain('workspace_owned');
    expect(existsSync(apiSocket)).toBe(true);
    expect((await rig.client.runtime()).pid).toBe(other.pid);
  });
});
