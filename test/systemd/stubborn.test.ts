/** Runs that beat, and runs that do not end when they are told to, on real systemd. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { STORE_FILE } from '../../src/store/open.ts';
import { cli } from '../support/cli.ts';
import { type DaemonProcess, Rig, systemctl } from '../support/rig.ts';

let rig: Rig;
const dropIns: string[] = [];
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  for (const file of dropIns.splice(0)) rmSync(file);
  await systemctl('daemon-reload');
  await rig.end();
});

/** A setting of the person's own for every attempt of the workspace. */
async function everyUnit(...settings: readonly string[]): Promise<void> {
  const prefix = path.join(
    os.homedir(),
    '.config/systemd/user',
    `outlive-${rig.workspace}-.service.d`,
  );
  const file = path.join(prefix, 'theirs.conf');
  mkdirSync(prefix, { recursive: true });
  writeFileSync(file, `[Service]\n${settings.join('\n')}\n`);
  dropIns.push(file);
  await systemctl('daemon-reload');
}

interface Lease {
  readonly acquiredAt: string;
  readonly renewedAt: string;
  readonly expiresAt: string;
  readonly releasedAt: string | null;
}

/** The lease of this work, as the file says. */
function lease(workUnitId: string): Lease {
  const db = new Database(path.join(rig.config.directories.store, STORE_FILE), { readonly: true });
  try {
    const row = db
      .prepare<[string], Lease>(
        `SELECT acquired_at AS acquiredAt, last_renewed_at AS renewedAt, expires_at AS expiresAt,
           released_at AS releasedAt FROM resource_leases WHERE work_unit_id = ?`,
      )
      .get(workUnitId);
    if (!row) throw new Error('it holds no lease');
    return row;
  } finally {
    db.close();
  }
}

describe('a runner that says nothing', () => {
  it('is beaten for by its wrapper, and each beat renews its leases; row 085, row 103', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['sleep', '600'],
      exclusive: true,
      timeoutPolicy: { heartbeatIntervalMs: 200 },
    });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its program');
    const { lastEventAt } = await rig.client.getWorkUnit(id);
    const beat = async (): Promise<string> =>
      (await rig.client.getWorkUnit(id)).lastHeartbeatAt ?? '';
    const beats: string[] = [];
    const renewed: Lease[] = [];
    for (let count = 0; count < 3; count++) {
      await expect.poll(beat, { timeout: 20_000, interval: 50 }).not.toBe(beats.at(-1) ?? '');
      beats.push(await beat());
      renewed.push(lease(id));
    }
    expect(beats).toEqual([...beats].sort());
    const first = renewed[0];
    const last = renewed.at(-1);
    expect(last && first && last.renewedAt > first.renewedAt, JSON.stringify(renewed)).toBe(true);
    expect(last && first && last.expiresAt > first.expiresAt).toBe(true);
    expect((await rig.client.getWorkUnit(id)).lastEventAt, 'a beat is no progress').toBe(
      lastEventAt,
    );
    await rig.client.cancelWorkUnit(id);
    expect((await rig.outcome(id)).workUnit.status).toBe('cancelled');
  });
});

describe('a run that does not end when it is told to', () => {
  /**
   * Its processes are in a frozen cgroup below the unit's, of which systemd knows nothing: so
   * neither the wrapper nor SIGTERM can end the runner. (systemd's own stop continues what
   * SIGSTOP stopped, and thaws the unit's own cgroup.)
   */
  async function stubborn(
    options: Parameters<Rig['startDaemon']>[0] = {},
  ): Promise<{ id: string; unit: string; group: string; daemon: DaemonProcess }> {
    const daemon = await rig.startDaemon(options);
    const { id } = await rig.submit({
      argv: ['sh', '-c', 'trap "" TERM; echo up; while :; do sleep 0.1; done'],
      exclusive: true,
      timeoutPolicy: { cancelGraceMs: 0, heartbeatTimeoutMs: 600_000 },
    });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its output');
    const [attempt] = (await rig.client.getWorkUnit(id)).attempts;
    const unit = attempt?.unit ?? '';
    const group = `/sys/fs/cgroup${await systemctl('show', '--value', '-p', 'ControlGroup', unit)}`;
    const ice = path.join(group, 'ice');
    mkdirSync(ice);
    const pids = readFileSync(path.join(group, 'cgroup.procs'), 'utf8').trim().split('\n');
    for (const pid of pids) moveTo(ice, pid);
    writeFileSync(path.join(ice, 'cgroup.freeze'), '1');
    return { id, unit, group, daemon };
  }

  /** A short-lived process of the shell may be gone by now. */
  function moveTo(group: string, pid: string): void {
    try {
      writeFileSync(path.join(group, 'cgroup.procs'), pid);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }

  async function isStaleAndHolds(id: string): Promise<void> {
    await rig.waitForEvent(id, ({ type }) => type === 'work_unit.stale', 'it to be stale');
    expect((await rig.client.getWorkUnit(id)).status).toBe('stale');
    const second = await rig.submit({ argv: ['true'], exclusive: true });
    await expect(rig.client.retryWorkUnit(id)).rejects.toMatchObject({ code: 'stale_unproved' });
    expect((await rig.client.getWorkUnit(second.id)).status, 'its tree is not given away').toBe(
      'queued',
    );
    expect(lease(id).releasedAt).toBeNull();
    await rig.client.cancelWorkUnit(second.id);
  }

  it('is stale after its grace while systemd still waits, and holds what it has; row 105, row 254, row 282', async () => {
    await everyUnit('TimeoutStopSec=120');
    const { id, unit } = await stubborn();
    await rig.client.cancelWorkUnit(id, { reason: 'enough' });
    await isStaleAndHolds(id);
    const stuck = await cli(rig, ['stuck']);
    expect(stuck.stdout).toContain((await rig.client.getWorkUnit(id)).handle);
    expect(stuck.stdout).toMatch(/stale/);
    await systemctl('kill', '--signal=SIGKILL', unit);
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    expect(lease(id).releasedAt).not.toBeNull();
    await rig.unitsAreGone();
  });

  it('is stale under the next daemon, when the one that stored the order is dead; row 223', async () => {
    await everyUnit('TimeoutStopSec=120');
    const { id, unit, daemon } = await stubborn({ fault: 'cancel_intended' });
    await rig.client.cancelWorkUnit(id, { reason: 'enough' }).catch(() => undefined);
    await daemon.exited;
    await rig.startDaemon();
    await isStaleAndHolds(id);
    await systemctl('kill', '--signal=SIGKILL', unit);
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    expect(lease(id).releasedAt).not.toBeNull();
  });

  it('is stale also when systemd gave its unit up and left its processes; row 105, row 254', async () => {
    await everyUnit('SendSIGKILL=no', 'TimeoutStopSec=1');
    const { id, unit, group } = await stubborn();
    await rig.client.cancelWorkUnit(id, { reason: 'enough' });
    await expect
      .poll(() => systemctl('show', '--value', '-p', 'ActiveState', unit), { timeout: 30_000 })
      .toBe('failed');
    await isStaleAndHolds(id);
    writeFileSync(path.join(group, 'cgroup.kill'), '1');
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    expect(lease(id).releasedAt).not.toBeNull();
  });
});
