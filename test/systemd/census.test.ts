/** Units without rows and rows without units, on real systemd. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { appears, Rig, systemctl } from '../support/rig.ts';

const run = promisify(execFile);
let rig: Rig;
const others: Rig[] = [];
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  for (const other of others.splice(0)) await other.end();
  await rig.end();
});

const ghost = (workspace: string): string => `outlive-${workspace}-ghost-1.service`;

async function startGhost(name: string): Promise<void> {
  await run('systemd-run', ['--user', '--quiet', '--unit', name, 'sleep', '600']);
}

async function recoveryOf(which: Rig): Promise<Record<string, unknown>> {
  const response = await which.client.supervisor();
  return response.recovery ?? {};
}

/** Changes the store as nothing of ours would: what a restore or a hand left behind. */
function edit(sql: string): void {
  const db = new Database(path.join(rig.config.directories.store, 'outlive.db'));
  try {
    db.exec(sql);
  } finally {
    db.close();
  }
}

describe('a unit of our prefix that no row accounts for', () => {
  it('is reported at start and left alone; T16 KiroCrew#8133, T61 containerd#13784', async () => {
    const name = ghost(rig.workspace);
    await startGhost(name);
    await rig.startDaemon();
    expect((await recoveryOf(rig))['foreignUnits']).toEqual([name]);
    expect(await systemctl('is-active', name)).toBe('active');
    await systemctl('stop', name);
  });

  it('of another workspace is nobody of ours: two daemons never touch each other; T20 agetor PR#85', async () => {
    const other = await Rig.create();
    others.push(other);
    await other.startDaemon();
    const { id } = await other.submit({
      argv: ['sh', '-c', 'touch begun; while [ ! -e go ]; do sleep 0.05; done'],
    });
    await appears(path.join(other.tree, 'begun'));
    await rig.startDaemon();
    expect((await recoveryOf(rig))['foreignUnits']).toEqual([]);
    await run('touch', [path.join(other.tree, 'go')]);
    expect((await other.outcome(id)).workUnit.status).toBe('succeeded');
  });
});

describe('a row without an attempt that could be under way', () => {
  it.each([
    ['claimed', 'queued again and run; row 218', 'succeeded', null],
    ['cancelling', 'over', 'cancelled', 'cancelled_by_request'],
    [
      'running',
      'failed, never a cancellation; row 219',
      'failed',
      'runtime_interrupted_no_checkpoint',
    ],
  ] as const)('that is %s is %s', async (status, _, after, code) => {
    const daemon = await rig.startDaemon();
    const { id } = await rig.submit({ argv: ['true'] });
    await rig.outcome(id);
    daemon.kill('SIGKILL');
    await daemon.exited;
    edit(`UPDATE work_units SET status = '${status}', active_attempt_id = NULL, ended_at = NULL,
      error_code = NULL WHERE id = '${id}'`);
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    const last = await rig.client.getWorkUnit(id);
    expect(workUnit.id).toBe(id);
    expect([last.status, last.errorCode]).toEqual([after, code]);
  });
});

describe('leases and slots of an attempt that is over', () => {
  it('are released at the start; row 224', async () => {
    const daemon = await rig.startDaemon();
    const { id } = await rig.submit({ argv: ['true'], exclusive: true });
    await rig.outcome(id);
    daemon.kill('SIGKILL');
    await daemon.exited;
    edit(`UPDATE resource_leases SET released_at = NULL, status = 'active';
      UPDATE runtime_semaphore_slots SET released_at = NULL, status = 'active'`);
    await rig.startDaemon();
    expect((await rig.client.leases()).items).toEqual([]);
    const { workUnit } = await rig.runToEnd({ argv: ['true'], exclusive: true });
    expect(workUnit.status).toBe('succeeded');
  });
});
