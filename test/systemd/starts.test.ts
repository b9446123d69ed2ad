/** Starts that do not go through at once: held back, refused, late, cancelled meanwhile; on real systemd. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import { sliceName } from '../../src/domain/names.ts';
import { Rig, script, systemctl } from '../support/rig.ts';

const run = promisify(execFile);
const USER_UNITS = path.join(os.homedir(), '.config/systemd/user');

let rig: Rig;
let undo: (() => unknown)[] = [];
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  for (const step of undo.reverse()) await step();
  undo = [];
  await rig.end();
});

/** A file of the person's own unit directory, gone again after the test. */
function unitFile(name: string, lines: readonly string[]): void {
  const file = path.join(USER_UNITS, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, `${lines.join('\n')}\n`);
  undo.push(() => rmSync(file));
}

const gate = (): string => path.join(rig.base, 'gate');
const gatekeeper = (): string => `${rig.workspace}-gate.service`;

/** Lets every unit of the workspace wait for a service that waits for a file. */
async function holdStartsBack(): Promise<() => void> {
  const wait = `until [ -e ${gate()} ]; do sleep 0.05; done`;
  unitFile(gatekeeper(), [
    '[Service]',
    'Type=oneshot',
    'RemainAfterExit=yes',
    `ExecStart=/bin/sh -c '${wait}'`,
  ]);
  undo.push(() => systemctl('stop', gatekeeper()));
  unitFile(`outlive-${rig.workspace}-.service.d/gate.conf`, [
    '[Unit]',
    `Wants=${gatekeeper()}`,
    `After=${gatekeeper()}`,
  ]);
  undo.push(() => systemctl('daemon-reload'));
  await systemctl('daemon-reload');
  return () => writeFileSync(gate(), '');
}

const ranLog = (): string => path.join(rig.tree, 'ran');
const COUNTED = ['sh', '-c', 'echo ran >> ran'];
const ran = (): string => (existsSync(ranLog()) ? readFileSync(ranLog(), 'utf8') : '');

const isBackoff = ({ type }: EventView): boolean => type === 'diagnostic.start_backoff';

/** Resolves once systemd has the unit's start job queued. */
async function held(unit: string): Promise<void> {
  await expect
    .poll(() => systemctl('list-jobs', '--plain', '--no-legend'), { timeout: 20_000, interval: 50 })
    .toContain(unit);
}

async function unitOf(id: string): Promise<string> {
  const { data } = await rig.waitForEvent(
    id,
    ({ type }) => type === 'attempt.created',
    'its first attempt',
  );
  return String(data['unit']);
}

/** Work whose start is held back, and the daemon that asked for it. */
async function heldBack(input: Parameters<Rig['submit']>[0] = { argv: COUNTED }) {
  const open = await holdStartsBack();
  const daemon = await rig.startDaemon();
  const { id } = await rig.submit(input);
  const unit = await unitOf(id);
  await held(unit);
  return { open, daemon, id, unit };
}

describe('a start that systemd holds back', () => {
  it('is waited for by the next daemon: it runs once, watched, as the first attempt', async () => {
    const { open, daemon, id, unit } = await heldBack();
    daemon.kill('SIGKILL');
    await daemon.exited;
    const next = await rig.startDaemon();
    await rig.client.reconcileWorkUnit(id);
    expect((await rig.client.getWorkUnit(id)).status).toBe('claimed');
    expect(await systemctl('list-jobs', '--plain', '--no-legend')).toContain(unit);
    open();
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorMessage]).toEqual(['succeeded', null]);
    expect(workUnit.attempts).toHaveLength(1);
    expect(ran()).toBe('ran\n');
    expect(next.output()).not.toContain('"level":"error"');
    await rig.unitsAreGone();
  });

  it('survives a reexec of the manager in that moment', async () => {
    const { open, id } = await heldBack();
    await systemctl('daemon-reexec');
    await rig.client.reconcileWorkUnit(id);
    expect((await rig.client.getWorkUnit(id)).status).toBe('claimed');
    open();
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.attempts.length]).toEqual(['succeeded', 1]);
    expect(ran()).toBe('ran\n');
  });

  it('still finds its credentials when it is let on, and they are gone once it runs', async () => {
    const open = await holdStartsBack();
    const env = withKey();
    const daemon = await rig.startDaemon({ env });
    const { id } = await rig.submit({ prompt: script('bash echo up; sleep 3', 'say Done') });
    const unit = await unitOf(id);
    await held(unit);
    expect(credentialFiles(), 'while its start is held back').not.toEqual([]);
    daemon.kill('SIGKILL');
    await daemon.exited;
    await rig.startDaemon({ env });
    open();
    await rig.waitForEvent(id, ({ type }) => type === 'work_unit.started', 'its start');
    expect(credentialFiles(), 'once it runs').toEqual([]);
    expect((await rig.outcome(id)).workUnit.status).toBe('succeeded');
  });

  it('is cancelled before it ran; let on afterwards it runs nothing', async () => {
    const { open, id, unit } = await heldBack();
    await rig.client.cancelWorkUnit(id, { reason: 'enough' });
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    open();
    await systemctl('start', gatekeeper());
    expect(await systemctl('list-jobs', '--plain', '--no-legend')).not.toContain(unit);
    expect(ran()).toBe('');
    await rig.unitsAreGone();
  });

  it('holds no shutdown of the daemon up', async () => {
    const { open, daemon, id } = await heldBack();
    daemon.kill('SIGTERM');
    expect(await daemon.exited).toBe(0);
    await rig.startDaemon();
    open();
    expect((await rig.outcome(id)).workUnit.status).toBe('succeeded');
    expect(ran()).toBe('ran\n');
  });
});

/** A daemon's environment with a key that Pi runs are given. */
function withKey(): Record<string, string> {
  const { configFile } = rig.config.directories;
  mkdirSync(path.dirname(configFile), { recursive: true });
  writeFileSync(configFile, JSON.stringify({ keyVariables: ['SOME_KEY'] }));
  return { SOME_KEY: 'a-secret' };
}

/** Files that hold a key for an attempt, below the runtime directory. */
function credentialFiles(): string[] {
  return readdirSync(rig.config.directories.runtime, { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.includes('/credentials/'),
  );
}

describe('credentials', () => {
  it('of a daemon that died before it removed them are removed by the next, while it runs', async () => {
    const env = withKey();
    const armed = await rig.startDaemon({ fault: 'start_answered', env });
    const { id } = await rig.submit({ prompt: script('bash echo up; sleep 3', 'say Done') });
    await armed.exited;
    expect(credentialFiles(), 'what it left').not.toEqual([]);
    await rig.startDaemon({ env });
    await rig.waitForEvent(id, ({ type }) => type === 'attempt.reattached', 'the re-attachment');
    expect(credentialFiles()).toEqual([]);
    expect((await rig.outcome(id)).workUnit.status).toBe('succeeded');
  });
});

describe('a start that ran nothing', () => {
  const maskSlice = async (): Promise<void> => {
    const slice = sliceName(rig.workspace);
    await systemctl('mask', '--runtime', slice);
    undo.push(() => systemctl('unmask', '--runtime', slice));
  };

  it('because the slice is masked is tried again later, tells so, and runs once it is not', async () => {
    await rig.startDaemon();
    await maskSlice();
    const { id } = await rig.submit({ argv: COUNTED });
    const { data } = await rig.waitForEvent(id, isBackoff, 'the backoff');
    expect(data).toMatchObject({ count: 1, reason: expect.stringMatching(/masked/) });
    const { summary, waiting } = await rig.client.explain(id);
    expect(summary).toMatch(/backing off until .*: 1 of 8 starts in a row ran nothing/);
    expect(waiting?.why).toBe('delayed');
    const { backingOff } = await rig.client.supervisor();
    expect(backingOff).toMatchObject([{ workUnitId: id, starts: 1, limit: 8 }]);
    await systemctl('unmask', '--runtime', sliceName(rig.workspace));
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorMessage]).toEqual(['succeeded', null]);
    expect(ran()).toBe('ran\n');
  });

  it('is cancelled at once while it backs off', async () => {
    const daemon = await rig.startDaemon();
    await maskSlice();
    const { id } = await rig.submit({ argv: COUNTED });
    await rig.waitForEvent(id, (event) => isBackoff(event) && event.data['count'] === 2, 'backoff');
    const cancelled = await rig.client.cancelWorkUnit(id, { reason: 'enough' });
    expect(cancelled).toMatchObject({ status: 'cancelled', errorCode: 'cancelled_by_request' });
    expect(daemon.output()).toContain('backing off');
    await rig.unitsAreGone();
  });

  it('because what it requires fails says which job result that was', async () => {
    unitFile(`${rig.workspace}-broken.service`, [
      '[Service]',
      'Type=oneshot',
      'ExecStart=/bin/false',
    ]);
    unitFile(`outlive-${rig.workspace}-.service.d/broken.conf`, [
      '[Unit]',
      `Requires=${rig.workspace}-broken.service`,
      `After=${rig.workspace}-broken.service`,
    ]);
    undo.push(() => systemctl('daemon-reload'));
    await systemctl('daemon-reload');
    await rig.startDaemon();
    const { id } = await rig.submit({ argv: COUNTED });
    const { data } = await rig.waitForEvent(id, isBackoff, 'the backoff');
    expect(data).toMatchObject({ reason: expect.stringMatching(/"dependency"/) });
    await rig.client.cancelWorkUnit(id);
    expect(ran()).toBe('');
  });

  it('because others have its names does not count: the first free name is taken', async () => {
    await rig.startDaemon();
    const names = Array.from(
      { length: 9 },
      (_, index) => `outlive-${rig.workspace}-job-${index + 1}`,
    );
    for (const name of names) {
      await run('systemd-run', ['--user', '--quiet', `--unit=${name}`, 'sleep', '600']);
    }
    undo.push(() => systemctl('stop', ...names));
    const { workUnit, events } = await rig.runToEnd({ argv: COUNTED, handle: 'job' });
    expect([workUnit.status, workUnit.attempts.length]).toEqual(['succeeded', 10]);
    expect(events.filter(isBackoff)).toEqual([]);
    expect(ran()).toBe('ran\n');
  });
});

describe('an attempt that a dead daemon had not started', () => {
  it('is lost when the next daemon starts, and its work runs; started late it runs nothing and does not stay loaded; row 320', async () => {
    const armed = await rig.startDaemon({ fault: 'prepared' });
    const { id } = await rig.submit({ argv: COUNTED, handle: 'late' });
    await armed.exited;
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect(workUnit.attempts.map(({ status }) => status)).toEqual(['lost', 'succeeded']);
    const [first] = workUnit.attempts;
    const directory = path.join(rig.config.directories.attempts, id, first?.id ?? '');
    const launch = JSON.parse(readFileSync(path.join(directory, 'launch.json'), 'utf8')) as {
      nonce: string;
    };
    await run('systemd-run', [
      '--user',
      '--quiet',
      `--unit=${first?.unit ?? ''}`,
      `--setenv=OUTLIVE_NONCE=${launch.nonce}`,
      process.execPath,
      path.join(import.meta.dirname, '../../dist/attempt/main.js'),
      directory,
    ]);
    await rig.unitsAreGone();
    expect(ran()).toBe('ran\n');
  });
});

describe('a cancellation', () => {
  it('that a daemon before this one stored is not overdue because of the downtime', async () => {
    const armed = await rig.startDaemon({ fault: 'cancel_intended' });
    const { id } = await rig.submit({
      argv: ['sh', '-c', 'trap "sleep 1; exit 0" TERM; echo up; while :; do sleep 0.05; done'],
      timeoutPolicy: { cancelGraceMs: 3_000 },
    });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its output');
    await rig.client.cancelWorkUnit(id, {}).catch(() => undefined);
    await armed.exited;
    // The time itself is tested: grace, margin and two seconds more pass without a daemon.
    await new Promise((resolve) => setTimeout(resolve, 10_500));
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit.status).toBe('cancelled');
    expect(events.map(({ type }) => type)).not.toContain('work_unit.stale');
  });

  it('that comes before a success: the success is kept as a stale event; row 064, row 261', async () => {
    const armed = await rig.startDaemon({ fault: 'cancel_intended' });
    const { id } = await rig.submit({
      argv: ['sh', '-c', `echo up; until [ -e ${gate()} ]; do sleep 0.05; done; echo over`],
    });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its output');
    await rig.client.cancelWorkUnit(id, {}).catch(() => undefined);
    await armed.exited;
    writeFileSync(gate(), '');
    await rig.unitsAreDead();
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    expect(events.filter(({ type }) => type === 'diagnostic.stale_event')).toMatchObject([
      { data: { outcome: { kind: 'succeeded' } } },
    ]);
    expect(events.map(({ type }) => type)).not.toContain('work_unit.succeeded');
  });
});
