/** Retention, backup and restore with a real daemon, killed at the worst moments. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BackupView, CollectView } from '../../src/api/schemas-maintenance.ts';
import { OutliveError } from '../../src/domain/errors.ts';
import type { RestoreReport } from '../../src/store/restore.ts';
import { FAULT_POINTS } from '../../src/supervisor/faults.ts';
import { cli } from '../support/cli.ts';
import { Rig, script, sequenceIsWhole } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

async function parsed<Answer>(...args: readonly string[]): Promise<Answer> {
  const result = await cli(rig, [...args, '--json']);
  expect(result.status, result.stderr).toBe(0);
  return JSON.parse(result.stdout) as Answer;
}

/** Runs retention over all that has ended; the daemon's own run at its start comes first. */
async function collectAll(): Promise<CollectView> {
  for (;;) {
    try {
      return await rig.client.collect({ olderThanMs: 0 });
    } catch (error) {
      if (!(error instanceof OutliveError) || error.code !== 'maintenance_running') throw error;
      await pause(50);
    }
  }
}

const names = (directory: string): string[] =>
  readdirSync(directory).filter((name) => name !== '.trash');

function leftOf(): string[] {
  const { attempts, sessions, exits } = rig.config.directories;
  return [attempts, sessions, exits].flatMap((directory) => [
    ...names(directory),
    ...(existsSync(path.join(directory, '.trash'))
      ? readdirSync(path.join(directory, '.trash'))
      : []),
  ]);
}

const until = (file: string): string => `until [ -e ${file} ]; do sleep 0.05; done`;

describe('outlive gc', () => {
  it('removes all of ended work, also what an agent made unwritable; live work and its retry go on', async () => {
    await rig.startDaemon();
    const flag = path.join(rig.tree, 'go');
    const live = await rig.submit({ argv: ['sh', '-c', `echo up; ${until(flag)}; echo done`] });
    await rig.waitForEvent(live.id, ({ type }) => type === 'stdout_delta', 'its output');
    const pi = await rig.runToEnd({ prompt: script('say hello') });
    expect(pi.workUnit.status).toBe('succeeded');
    const failed = await rig.runToEnd({ argv: ['sh', '-c', `test -e ${flag}`] });
    const { attempts, sessions } = rig.config.directories;
    expect(names(sessions)).toContain(pi.workUnit.id);
    const [attempt = ''] = readdirSync(path.join(attempts, failed.workUnit.id));
    const mine = path.join(attempts, failed.workUnit.id, attempt);
    mkdirSync(path.join(mine, 'locked', 'deep'), { recursive: true });
    writeFileSync(path.join(mine, 'locked', 'deep', 'file'), 'x');
    symlinkSync(rig.tree, path.join(mine, 'locked', 'link'));
    for (const directory of [path.join(mine, 'locked', 'deep'), path.join(mine, 'locked'), mine])
      chmodSync(directory, 0o500);
    chmodSync(path.join(mine, 'locked', 'deep'), 0o000);
    chmodSync(path.join(attempts, failed.workUnit.id), 0o500);

    const would = await parsed<CollectView>('gc', '--dry-run', '--older-than', '0s');
    const report = await parsed<CollectView>('gc', '--older-than', '0s');
    expect(report).toMatchObject({ workUnits: { age: 2, budget: 0 }, problems: [] });
    expect(would.workUnits).toEqual(report.workUnits);
    expect(names(attempts)).toEqual([live.id]);
    expect(names(sessions)).not.toContain(pi.workUnit.id);
    expect(existsSync(rig.tree)).toBe(true);
    const events = await cli(rig, ['events', failed.workUnit.handle]);
    expect(events).toMatchObject({ status: 0, stdout: '' });
    expect(events.stderr).toMatch(/^Its events up to \d+ were removed by retention\.$/m);
    expect((await cli(rig, ['show', failed.workUnit.handle])).stdout).toContain('failed');

    writeFileSync(flag, '');
    const outcome = await rig.outcome(live.id);
    expect(outcome.workUnit.status).toBe('succeeded');
    expect(sequenceIsWhole(outcome.events)).toBe(true);
    await rig.client.retryWorkUnit(failed.workUnit.id);
    const followed: string[] = [];
    const { lastSeq } = failed.events.reduce((_, { seq }) => ({ lastSeq: seq }), { lastSeq: 0 });
    for await (const { type } of rig.client.followEvents(failed.workUnit.id, { afterSeq: lastSeq }))
      followed.push(type);
    expect(followed.at(0)).toBe('work_unit.queued');
    expect(followed.at(-1)).toBe('work_unit.succeeded');
  });

  const points = FAULT_POINTS.filter((point) => point.startsWith('gc_'));
  it.each(points)('killed at %s: the next daemon finishes it by itself', async (fault) => {
    const armed = await rig.startDaemon({ env: { OUTLIVE_FAULT: fault } });
    const { workUnit } = await rig.runToEnd({ argv: ['sh', '-c', 'echo one; echo two'] });
    await rig.unitsAreGone();
    const asked = collectAll().catch((error: unknown) => error);
    expect(await armed.exited).toBe('SIGKILL');
    expect(await asked).toMatchObject({ code: 'daemon_unreachable' });
    await rig.startDaemon();
    await collectAll();
    expect(leftOf()).toEqual([]);
    expect((await rig.client.getWorkUnit(workUnit.id)).status).toBe('succeeded');
    await expect(rig.client.events(workUnit.id)).rejects.toMatchObject({
      code: 'control_plane_snapshot_required',
    });
    expect((await rig.runToEnd({ argv: ['true'] })).workUnit.status).toBe('succeeded');
  });
});

describe('outlive backup and restore', () => {
  it('a run that is under way is taken up again from the copy, each line of it once', async () => {
    let daemon = await rig.startDaemon();
    const [step, finish] = ['step', 'finish'].map((name) => path.join(rig.tree, name));
    await rig.runToEnd({ handle: 'before', argv: ['echo', 'before'] });
    const line = `echo one; ${until(step ?? '')}; echo two; ${until(finish ?? '')}; echo three`;
    const { id } = await rig.submit({ handle: 'long', argv: ['sh', '-c', line] });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its first line');

    const copy = path.join(rig.tree, 'copy.db');
    const backup = await parsed<BackupView>('backup', 'copy.db');
    expect(backup).toMatchObject({ file: copy, workUnits: 2, liveWorkUnits: 1, attempts: 2 });
    expect(statSync(copy).mode & 0o777).toBe(0o600);
    const { position } = await rig.client.supervisor();

    // All of this the copy does not know.
    writeFileSync(step ?? '', '');
    const two = (event: { data: Record<string, unknown> }): boolean =>
      JSON.stringify(event.data).includes('two');
    await rig.waitForEvent(id, two, 'its second line');
    await rig.runToEnd({ handle: 'after', argv: ['echo', 'after'] });
    const unknown = await rig.submit({ handle: 'unknown', argv: ['sleep', '600'] });
    await rig.waitForEvent(unknown.id, ({ type }) => type === 'started', 'the unknown to run');
    const { position: later } = await rig.client.supervisor();

    const refused = await cli(rig, ['restore', 'copy.db']);
    expect(refused.status).toBe(5);
    expect(refused.stderr).toContain('workspace_owned');
    daemon.kill('SIGTERM');
    await daemon.exited;
    const report = await parsed<RestoreReport>('restore', 'copy.db');
    expect(report).toMatchObject({ workUnits: 2, attempts: 2, events: backup.events });
    expect(report.unknownAttempts).toHaveLength(2);
    expect(report.unknownAttempts.join()).toContain(unknown.id);

    daemon = await rig.startDaemon();
    await expect(rig.client.getWorkUnit('after')).rejects.toMatchObject({ code: 'not_found' });
    const supervisor = await rig.client.supervisor();
    expect(supervisor.admission).toBe('paused');
    expect(JSON.stringify(supervisor.recovery?.['foreignUnits'])).toContain('unknown-1.service');
    for (const afterPosition of [position, later]) {
      await expect(rig.client.workspaceEvents({ afterPosition })).rejects.toMatchObject({
        code: 'control_plane_snapshot_required',
      });
    }

    writeFileSync(finish ?? '', '');
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit.status).toBe('succeeded');
    expect(sequenceIsWhole(events)).toBe(true);
    const said = events
      .filter(({ type }) => type === 'stdout_delta')
      .map(({ data }) => JSON.stringify(data));
    for (const word of ['one', 'two', 'three'])
      expect(said.filter((text) => text.includes(word))).toHaveLength(1);
    expect(events.map(({ type }) => type)).toContain('attempt.reattached');

    const held = await rig.submit({ handle: 'held', argv: ['true'] });
    expect((await rig.client.getWorkUnit(held.id)).status).toBe('queued');
    await rig.client.resume();
    expect((await rig.outcome(held.id)).workUnit.status).toBe('succeeded');
  });

  it('a run that ended since the copy is settled from what it left', async () => {
    const daemon = await rig.startDaemon();
    const flag = path.join(rig.tree, 'go');
    const { id } = await rig.submit({ argv: ['sh', '-c', `echo one; ${until(flag)}; echo two`] });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its first line');
    await parsed<BackupView>('backup', 'copy.db');
    writeFileSync(flag, '');
    expect((await rig.outcome(id)).workUnit.status).toBe('succeeded');
    await rig.unitsAreGone();
    daemon.kill('SIGKILL');
    await daemon.exited;
    await parsed<RestoreReport>('restore', 'copy.db');
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['succeeded', null]);
    expect(sequenceIsWhole(events)).toBe(true);
    expect(events.filter(({ type }) => type === 'runner.finished')).toHaveLength(1);
    expect(events.filter(({ type }) => type === 'work_unit.succeeded')).toHaveLength(1);
  });
});
