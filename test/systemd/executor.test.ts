/** The systemd executor against a real user manager: starts, reads, lists, holds. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Executor } from '../../src/executor/port.ts';
import { appears, systemctl } from '../support/rig.ts';
import { nextHint, Rig } from './executor-rig.ts';

const rig = new Rig();
let executor: Executor;

beforeAll(async () => {
  // Everything a path may hold that a unit file would expand.
  rig.exits = path.join(rig.home, `ex its'$HOME%t"q\\x`);
  mkdirSync(rig.exits);
  executor = await rig.connected();
});
afterAll(() => rig.sweep());

const property = (unit: string, name: string): Promise<string> =>
  systemctl('show', '--value', '--property', name, unit);

/** A unit that is none of the executor's. */
function strangers(unit: string, ...command: readonly string[]): void {
  execFileSync('systemd-run', ['--user', '--quiet', `--unit=${unit}`, ...command]);
}

describe('a start', () => {
  test('is present with its nonce, running, and will leave a record', async () => {
    const attempt = rig.attempt('ready; gate');
    const facts = await rig.start(executor, attempt);
    expect(facts).toMatchObject({
      unit: attempt.unit,
      nonce: attempt.request.nonce,
      state: 'active',
      frozen: false,
      result: 'success',
      exit: { how: 'unknown', status: null, signal: null, elapsedMs: null },
      leavesExitRecord: true,
    });
    expect(facts.invocationId).toBe(await property(attempt.unit, 'InvocationID'));
    expect(facts.controlGroup).toBe(await property(attempt.unit, 'ControlGroup'));
    expect(facts.mainPid).toBe(Number(await property(attempt.unit, 'MainPID')));
    expect(facts.controlGroup).toContain(`/outlive-attempts-${rig.workspace}.slice/`);
    attempt.open();
  });

  test('carries the properties it asked for; T65 pm2#1036', async () => {
    const attempt = rig.attempt('ready; gate', { hardTimeoutMs: 90_000, cancelGraceMs: 7_000 });
    await rig.start(executor, attempt);
    const shown = await systemctl('show', attempt.unit);
    for (const line of [
      'Type=exec',
      'Restart=no',
      'KillMode=mixed',
      'KillSignal=15',
      'SendSIGKILL=yes',
      'RuntimeMaxUSec=1min 30s',
      'TimeoutStopUSec=12s',
      'UMask=0077',
      'OOMPolicy=stop',
      'CollectMode=inactive',
      `WorkingDirectory=${attempt.directory}`,
      `SyslogIdentifier=outlive-${rig.workspace}-job-2`,
      `Description=${attempt.request.description}`,
      `DropInPaths=${rig.dropInDirectory}/50-exit.conf`,
    ]) {
      expect(shown.split('\n')).toContain(line);
    }
    attempt.open();
  });

  test('runs in the attempt directory with the given variables, and files it makes are private', async () => {
    const attempt = rig.attempt('umask >mask; pwd >cwd; env >env.tmp; mv env.tmp env; gate', {
      environment: { ODD: `a $b %c "d" \\e ü`, OUTLIVE_NONCE: 'not this one' },
    });
    await rig.start(executor, attempt);
    await appears(path.join(attempt.directory, 'env'));
    const read = (name: string): string =>
      readFileSync(path.join(attempt.directory, name), 'utf8').trim();
    expect(read('cwd')).toBe(attempt.directory);
    expect(Number.parseInt(read('mask'), 8)).toBe(0o077);
    expect(read('env').split('\n')).toContain(`ODD=a $b %c "d" \\e ü`);
    expect(read('env').split('\n')).toContain(`OUTLIVE_NONCE=${attempt.request.nonce}`);
    attempt.open();
  });

  test('hands a credential in as a file that only the unit is told of', async () => {
    const attempt = rig.attempt(
      'cat "$CREDENTIALS_DIRECTORY/API_KEY" >seen.tmp; mv seen.tmp seen; gate',
    );
    const file = path.join(attempt.directory, 'secret');
    writeFileSync(file, 'hunter2', { mode: 0o600 });
    const request = { ...attempt.request, credentials: [{ name: 'API_KEY', path: file }] };
    await rig.start(executor, { ...attempt, request });
    await appears(path.join(attempt.directory, 'seen'));
    expect(readFileSync(path.join(attempt.directory, 'seen'), 'utf8')).toBe('hunter2');
    expect(await systemctl('show', attempt.unit)).not.toContain('hunter2');
    attempt.open();
  });

  test('with % in an argument is refused and nothing is loaded', async () => {
    const attempt = rig.attempt('exit 0', { argv: ['/bin/sh', '-c', 'date +%s'] });
    await expect(executor.start(attempt.request)).rejects.toMatchObject({
      code: 'path_unsupported',
    });
    expect(await executor.read(attempt.unit)).toBeNull();
  });

  test('that systemd refuses is absent, with its words as the reason', async () => {
    const credentials = [{ name: 'no/slash', path: '/etc/hostname' }];
    const attempt = rig.attempt('exit 0', { credentials });
    const result = await executor.start(attempt.request);
    expect(result).toMatchObject({ kind: 'absent', reason: expect.stringContaining('no/slash') });
  });

  test('under a name that is none of this workspace is refused', async () => {
    const attempt = rig.attempt('exit 0', { unit: 'outlive-elsewhere-job-1.service' });
    await expect(executor.start(attempt.request)).rejects.toMatchObject({ code: 'internal' });
  });

  test('under a name that is taken is foreign, and leaves the other alone', async () => {
    const attempt = rig.attempt('exit 0');
    strangers(attempt.unit, 'sleep', '100');
    const before = await property(attempt.unit, 'InvocationID');
    const result = await executor.start(attempt.request);
    expect(result).toMatchObject({ kind: 'foreign', facts: { nonce: null, state: 'active' } });
    expect(await property(attempt.unit, 'InvocationID')).toBe(before);
  });

  test('under the name of an attempt with another nonce is foreign too', async () => {
    const attempt = rig.attempt('ready; gate');
    await rig.start(executor, attempt);
    const nonce = 'f'.repeat(32);
    const result = await executor.start({ ...attempt.request, nonce });
    expect(result).toMatchObject({ kind: 'foreign', facts: { nonce: attempt.request.nonce } });
    attempt.open();
  });

  test('repeated after an unknown outcome finds its own unit present, started once', async () => {
    const attempt = rig.attempt('ready; gate');
    const first = await rig.start(executor, attempt);
    const second = await rig.start(executor, attempt);
    expect(second.invocationId).toBe(first.invocationId);
    attempt.open();
  });

  test('S2: stale failed unit of the same name: it takes the name; row 269, row 135', async () => {
    const attempt = rig.attempt('ready; gate');
    const failed = nextHint(executor, (unit) => unit === attempt.unit);
    strangers(attempt.unit, 'false');
    await failed;
    await rig.until(executor, attempt.unit, (facts) => facts?.state === 'failed');
    const facts = await rig.start(executor, attempt);
    expect(facts).toMatchObject({ state: 'active', nonce: attempt.request.nonce });
    attempt.open();
  });

  test('of twenty at once is twenty units present, each with its own nonce', async () => {
    const attempts = Array.from({ length: 20 }, () => rig.attempt('exit 0'));
    const started = await Promise.all(attempts.map((attempt) => rig.start(executor, attempt)));
    expect(started.map((facts) => facts.nonce)).toEqual(attempts.map((a) => a.request.nonce));
    const records = await Promise.all(attempts.map((attempt) => attempt.record()));
    expect(records.map((record) => record.serviceResult)).toEqual(attempts.map(() => 'success'));
    expect(new Set(records.map((record) => record.invocationId)).size).toBe(20);
  });
});

describe('the exit-record drop-in', () => {
  test('is there again after somebody removed it, and a file beside it stays', async () => {
    const theirs = path.join(rig.dropInDirectory, '10-theirs.conf');
    writeFileSync(theirs, '[Service]\nEnvironment=THEIRS=1\n');
    rmSync(path.join(rig.dropInDirectory, '50-exit.conf'));
    rmSync(path.join(rig.dropInDirectory, 'exit-record.sh'));
    const attempt = rig.attempt('exit 0');
    expect(await rig.start(executor, attempt)).toMatchObject({ leavesExitRecord: true });
    expect(await attempt.record()).toMatchObject({ serviceResult: 'success' });
    expect(existsSync(theirs)).toBe(true);
    rmSync(theirs);
  });

  test('that a later drop-in of a person empties is reported: no record to be expected', async () => {
    const theirs = path.join(rig.dropInDirectory, '90-theirs.conf');
    writeFileSync(theirs, '[Service]\nExecStopPost=\n');
    const attempt = rig.attempt('ready; gate');
    const facts = await rig.start(executor, attempt);
    expect(facts).toMatchObject({ state: 'active', leavesExitRecord: false });
    expect(await property(attempt.unit, 'DropInPaths')).toContain('50-exit.conf');
    rmSync(theirs);
    attempt.open();
  });

  test('is private to the user', () => {
    const mode = (name: string): number =>
      statSync(path.join(rig.dropInDirectory, name)).mode & 0o777;
    expect([mode('50-exit.conf'), mode('exit-record.sh')]).toEqual([0o600, 0o600]);
  });
});

describe('an ended unit', () => {
  test('stays readable until it is released, also over a daemon-reload', async () => {
    const attempt = rig.attempt('exit 0');
    await rig.start(executor, attempt);
    const ended = await rig.ended(executor, attempt.unit);
    await systemctl('daemon-reload');
    expect(await executor.read(attempt.unit)).toEqual(ended);
    await executor.release(attempt.unit);
    expect(await executor.read(attempt.unit)).toBeNull();
  });

  test('that failed is gone once released', async () => {
    const attempt = rig.attempt('exit 3');
    await rig.start(executor, attempt);
    await rig.ended(executor, attempt.unit);
    await executor.release(attempt.unit);
    expect(await executor.read(attempt.unit)).toBeNull();
  });

  test('is held by a second executor after the first one is gone', async () => {
    const first = await rig.connected();
    const attempt = rig.attempt('ready; gate');
    await rig.start(first, attempt);
    expect(await executor.hold(attempt.unit)).toBe(true);
    expect(await executor.hold(attempt.unit)).toBe(true);
    await first.close();
    attempt.open();
    const facts = await rig.ended(executor, attempt.unit);
    expect(facts.exit).toMatchObject({ how: 'exited', status: 0 });
    await executor.release(attempt.unit);
    expect(await executor.read(attempt.unit)).toBeNull();
  });

  test('and a missing one can be released, stopped and killed; holding it is false', async () => {
    const missing = `outlive-${rig.workspace}-missing-1.service`;
    await executor.release(missing);
    await executor.stop(missing);
    await executor.kill(missing, 15);
    expect(await executor.hold(missing)).toBe(false);
    expect(await executor.read(missing)).toBeNull();
  });

  test('leaves a record when nobody is connected', async () => {
    const only = await rig.connected();
    const attempt = rig.attempt('ready; gate; exit 3');
    await rig.start(only, attempt);
    await only.close();
    attempt.open();
    expect(await attempt.record()).toMatchObject({
      nonce: attempt.request.nonce,
      serviceResult: 'exit-code',
      exitCode: 'exited',
      exitStatus: '3',
    });
  });
});

describe('the host', () => {
  test('is described alike by the executor and by a record', async () => {
    const host = await executor.host();
    const attempt = rig.attempt('exit 0');
    await rig.start(executor, attempt);
    const record = await attempt.record();
    expect(record.bootId).toBe(host.bootId);
    expect(record.manager).toEqual(host.manager);
    expect(host.manager?.pid).toBeGreaterThan(1);
    expect(host.managerState).toMatch(/^(running|degraded)$/);
    expect(record.managerState).toMatch(/^(running|degraded)$/);
    expect(record.uptimeSeconds).toBeGreaterThan(0);
    expect(record.ts).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  });
});

describe('a list', () => {
  test('holds what is loaded under our names and nothing else', async () => {
    const attempt = rig.attempt('ready; gate');
    await rig.start(executor, attempt);
    const foreign = `outlive-${rig.workspace}-foreign-7.service`;
    const others = [
      `outlive-${rig.workspace}x-job-1.service`, // another workspace
      `outlive-${rig.workspace}-job-01.service`, // a counter we never write
      `outlive-${rig.workspace}-Job-1.service`, // a handle we never make
    ];
    for (const unit of [foreign, ...others]) strangers(unit, 'sleep', '100');
    const listed = await executor.list();
    const byUnit = new Map(listed.map((facts) => [facts.unit, facts.nonce]));
    expect(byUnit.get(attempt.unit)).toBe(attempt.request.nonce);
    expect(byUnit.get(foreign)).toBeNull();
    for (const unit of others) expect(byUnit.has(unit)).toBe(false);
    await systemctl('stop', foreign, ...others);
    attempt.open();
  });
});

describe('a frozen unit', () => {
  test('is told as frozen, and as running once thawed', async () => {
    const attempt = rig.attempt('ready; gate');
    await rig.start(executor, attempt);
    await systemctl('freeze', attempt.unit);
    expect(await executor.read(attempt.unit)).toMatchObject({ frozen: true, state: 'active' });
    await systemctl('thaw', attempt.unit);
    expect(await executor.read(attempt.unit)).toMatchObject({ frozen: false });
    attempt.open();
  });
});

describe('a hint', () => {
  test('names the unit that ended, and no unit of another workspace', async () => {
    const heard = new Set<string | null>();
    const stop = executor.onHint((unit) => heard.add(unit));
    strangers(`outlive-${rig.workspace}x-job-2.service`, 'true');
    const attempt = rig.attempt('exit 0');
    await rig.start(executor, attempt);
    await rig.ended(executor, attempt.unit);
    stop();
    expect(heard.has(attempt.unit)).toBe(true);
    expect(heard.has(`outlive-${rig.workspace}x-job-2.service`)).toBe(false);
  });

  test('whose listener throws costs no answer', async () => {
    const stop = executor.onHint(() => {
      throw new Error('a clumsy listener');
    });
    const attempt = rig.attempt('exit 0');
    const facts = await rig.start(executor, attempt);
    stop();
    expect(facts.nonce).toBe(attempt.request.nonce);
    expect(rig.reports).toContain('a hint listener failed: Error: a clumsy listener');
  });
});
