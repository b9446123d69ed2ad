/** exit-record.sh run by hand, with the variables systemd would give it. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { exitRecordSchema } from '../../src/domain/evidence.ts';
import { startTicksOf } from '../../src/executor/process-table.ts';

const SCRIPT = fileURLToPath(new URL('../../ops/units/exit-record.sh', import.meta.url));
const NONCE = '0123456789abcdef0123456789abcdef';
const INVOCATION = 'fedcba98fedcba98fedcba98fedcba98';

const scratch = mkdtempSync(path.join(os.tmpdir(), 'outlive-exit-record-'));
let exits = '';
let count = 0;
beforeEach(() => {
  exits = path.join(scratch, `exits ${++count}`);
  mkdirSync(exits);
});
afterAll(() => rmSync(scratch, { recursive: true }));

const full = {
  OUTLIVE_NONCE: NONCE,
  SERVICE_RESULT: 'timeout',
  EXIT_CODE: 'killed',
  EXIT_STATUS: 'TERM',
  INVOCATION_ID: INVOCATION,
  MANAGERPID: String(process.pid),
};

/** Runs it with exactly these variables: PATH is not among them. */
function run(env: Record<string, string>, ...args: readonly string[]) {
  const { status, stderr, stdout } = spawnSync('/bin/sh', [SCRIPT, ...args], {
    env,
    encoding: 'utf8',
    timeout: 20_000,
  });
  return { status, stderr, stdout };
}

function written(name = `${NONCE}.json`) {
  return exitRecordSchema.parse(JSON.parse(readFileSync(path.join(exits, name), 'utf8')));
}

describe('the exit record', () => {
  test('holds what systemd said, who the manager is, and when it was', () => {
    const before = Date.now();
    expect(run(full, exits)).toEqual({ status: 0, stderr: '', stdout: '' });
    const record = written();
    expect(record).toMatchObject({
      v: 1,
      nonce: NONCE,
      invocationId: INVOCATION,
      serviceResult: 'timeout',
      exitCode: 'killed',
      exitStatus: 'TERM',
      bootId: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
      manager: {
        pid: process.pid,
        startTicks: startTicksOf(readFileSync(`/proc/${process.pid}/stat`, 'utf8')),
      },
    });
    const at = Date.parse(record.ts ?? '');
    expect(at).toBeGreaterThanOrEqual(before);
    expect(at).toBeLessThanOrEqual(Date.now());
    expect(record.ts).toMatch(/\.\d{3}Z$/);
    expect(record.uptimeSeconds).toBeGreaterThan(0);
  });

  test('is the only file left, and private', () => {
    run(full, exits);
    expect(readdirSync(exits)).toEqual([`${NONCE}.json`]);
    expect(statSync(path.join(exits, `${NONCE}.json`)).mode & 0o777).toBe(0o600);
  });

  test('has null for everything that was not said', () => {
    expect(run({ OUTLIVE_NONCE: NONCE }, exits).status).toBe(0);
    expect(written()).toMatchObject({
      invocationId: null,
      serviceResult: null,
      exitCode: null,
      exitStatus: null,
      manager: null,
    });
  });

  test.each(['"', '\\', 'a b', '$(id)', 'a\nb', 'ü', '{}'])(
    'has null for %j, which nothing of ours can be, and stays JSON',
    (odd) => {
      const env = { ...full, SERVICE_RESULT: odd, EXIT_CODE: odd, EXIT_STATUS: odd };
      expect(run({ ...env, INVOCATION_ID: odd, MANAGERPID: odd }, exits).status).toBe(0);
      expect(written()).toMatchObject({
        serviceResult: null,
        exitCode: null,
        exitStatus: null,
        invocationId: null,
        manager: null,
      });
    },
  );

  test('keeps a real-time signal as systemd names it', () => {
    run({ ...full, EXIT_STATUS: 'RTMIN+3' }, exits);
    expect(written().exitStatus).toBe('RTMIN+3');
  });

  test('finds the start time of a manager whose name holds blanks and parentheses', async () => {
    const odd = path.join(scratch, 'a) R (1 2');
    symlinkSync('/bin/sleep', odd);
    const sleeper = spawn(odd, ['60'], { stdio: 'ignore' });
    await once(sleeper, 'spawn');
    const pid = sleeper.pid ?? -1;
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    run({ ...full, MANAGERPID: String(pid) }, exits);
    sleeper.kill('SIGKILL');
    expect(stat).toContain('(a) R (1 2)');
    expect(written().manager).toEqual({ pid, startTicks: startTicksOf(stat) });
  });

  test('has no manager where that process is gone', () => {
    run({ ...full, MANAGERPID: '999999999' }, exits);
    expect(written().manager).toBeNull();
  });

  test('that exists stays as it is', () => {
    writeFileSync(path.join(exits, `${NONCE}.json`), 'the first');
    expect(run(full, exits)).toMatchObject({ status: 0, stderr: expect.stringContaining('first') });
    expect(readFileSync(path.join(exits, `${NONCE}.json`), 'utf8')).toBe('the first');
    expect(readdirSync(exits)).toEqual([`${NONCE}.json`]);
  });

  test('leaves a halt marker beside it alone', () => {
    writeFileSync(path.join(exits, `${NONCE}.halt`), 'by an operator');
    run(full, exits);
    expect(readFileSync(path.join(exits, `${NONCE}.halt`), 'utf8')).toBe('by an operator');
    expect(written().nonce).toBe(NONCE);
  });

  test('is right in a directory whose name holds what shells expand', () => {
    exits = path.join(scratch, `it's $HOME * "q" \\x`);
    mkdirSync(exits);
    expect(run(full, exits)).toMatchObject({ status: 0, stderr: '' });
    expect(written().nonce).toBe(NONCE);
  });
});

describe('nothing is written, and the exit is 0 with a line on stderr', () => {
  test.each([
    ['no nonce', ''],
    ['a short one', NONCE.slice(1)],
    ['a long one', `${NONCE}0`],
    ['capitals', NONCE.toUpperCase()],
    ['a path', `${'../'.repeat(10)}ab`],
    ['a line end', `${NONCE.slice(1)}\n`],
  ])('with %s', (_, nonce) => {
    const { status, stderr } = run({ ...full, OUTLIVE_NONCE: nonce }, exits);
    expect([status, stderr.trimEnd().split('\n').length]).toEqual([0, 1]);
    expect(readdirSync(exits)).toEqual([]);
  });

  test('without an argument, or with a directory that is none', () => {
    expect(run(full)).toMatchObject({ status: 0, stderr: expect.stringContaining('no record') });
    const missing = path.join(exits, 'missing');
    expect(run(full, missing)).toMatchObject({
      status: 0,
      stderr: expect.stringContaining('no record'),
    });
    expect(readdirSync(exits)).toEqual([]);
  });

  test('on a full disk', () => {
    // /dev/full as the temporary file: every write to it is ENOSPC.
    const shell = `mkdir -p "$1"; ln -s /dev/full "$1/.$OUTLIVE_NONCE.$$.tmp"; . "${SCRIPT}"`;
    const { status, stderr } = spawnSync('/bin/sh', ['-c', shell, 'sh', exits], {
      env: { ...full, PATH: '/usr/bin:/bin' },
      encoding: 'utf8',
    });
    expect([status, stderr]).toEqual([0, expect.stringContaining('no record')]);
    expect(readdirSync(exits)).toEqual([]);
  });
});
