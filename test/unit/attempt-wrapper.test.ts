import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { parseCommand } from '../../src/attempt/control-command.ts';
import { armDeadline, planDeadline, processAge } from '../../src/attempt/deadline.ts';
import { LaunchFileError } from '../../src/attempt/field-reader.ts';
import { lastWord } from '../../src/attempt/last-word.ts';
import { parseLaunchFile } from '../../src/attempt/launch-file.ts';
import { readLeftovers } from '../../src/attempt/leftovers.ts';
import { runPi } from '../../src/attempt/pi-runner.ts';
import { redactor } from '../../src/attempt/redact.ts';
import { type RunnerContext, success } from '../../src/attempt/runner.ts';
import { SpoolWriter } from '../../src/attempt/spool-writer.ts';
import { StopSwitch } from '../../src/attempt/stop.ts';
import { lastWordSchema } from '../../src/domain/spool.ts';

afterEach(() => {
  vi.useRealTimers();
});

function scratch(): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'outlive-unit-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  return directory;
}

test.each([
  [1_000, 900, 75],
  [10_000, 9_000, 750],
  [3_600_000, 3_598_000, 1_500],
])('a hard timeout of %i ms is met after %i ms, with %i ms to end', (hard, afterMs, graceMs) => {
  expect(planDeadline(hard)).toEqual({ afterMs, graceMs });
});

const NOTHING = redactor({});

test('a deadline beyond the longest timer of Node does not fire early', () => {
  vi.useFakeTimers();
  const fire = vi.fn<() => void>();
  const start = Date.now();
  const month = 2_591_998_000;
  armDeadline(month, () => Date.now() - start, fire);
  vi.advanceTimersByTime(month - 1);
  expect(fire).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(fire).toHaveBeenCalledOnce();
});

test('a deadline that is disarmed never fires; one in the past fires at once', () => {
  vi.useFakeTimers();
  const fire = vi.fn<() => void>();
  armDeadline(10, () => 0, fire)();
  vi.advanceTimersByTime(100);
  expect(fire).not.toHaveBeenCalled();
  armDeadline(10, () => 11, fire);
  expect(fire).toHaveBeenCalledOnce();
});

test('the age of a process counts from its fork: it is never less than what Node knows', () => {
  expect(processAge()()).toBeGreaterThanOrEqual(performance.now() - 1);
});

test('the first who turns the switch decides, and his record is written before the runner hears', () => {
  const stop = new StopSwitch();
  const order: string[] = [];
  stop.signal.addEventListener('abort', () => order.push('runner'));
  const request = { by: 'SIGTERM', graceMs: 1, code: null, message: 'first' } as const;
  expect(stop.turn(request, () => order.push('record'))).toBe(true);
  expect(stop.turn({ ...request, by: 'deadline', message: 'second' }, () => order.push('no'))).toBe(
    false,
  );
  expect(order).toEqual(['record', 'runner']);
  expect(stop.request).toBe(request);
});

test('a stop that was recorded outweighs a result, and long texts fit a line of the spool', () => {
  const result = success({ text: '\u0001'.repeat(100_000), exitCode: 0 });
  const stop = { by: 'control', graceMs: 1, code: null, message: 'cancel' } as const;
  const word = lastWordSchema.parse(lastWord(result, stop, [{ pid: 1, name: 'x' }], NOTHING));
  expect(word).toMatchObject({ verdict: 'stopped', code: null, message: 'cancel', exitCode: 0 });
  expect(
    lastWord(result, { ...stop, by: 'deadline', code: 'hard_timeout' }, [], NOTHING),
  ).toMatchObject({
    verdict: 'error',
    code: 'hard_timeout',
  });
  expect(lastWord(result, null, [], NOTHING).verdict).toBe('ok');
});

test('a line that would be too long keeps its shape; its long fields are cut and say so', () => {
  const directory = scratch();
  const file = path.join(directory, 'events.jsonl');
  const onBroken = vi.fn<(error: unknown) => void>();
  const spool = new SpoolWriter(file, { redact: redactor({}), onBroken });
  spool.append('started', { runner: 'command', pid: 7, argv: ['sh', '\u0001'.repeat(100_000)] });
  spool.append('stdout_delta', { text: 'after' });
  expect(spool.finish(lastWord(success({ text: 'end' }), null, [], NOTHING))).toBe(true);
  const lines = readFileSync(file, 'utf8').split('\n');
  expect(spool.bytes).toBe(Buffer.byteLength(lines.join('\n')));
  expect(lines[0]?.length).toBeLessThan(64 * 1024);
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({
    n: 1,
    type: 'started',
    data: { pid: 7, argv: ['sh', expect.stringMatching(/bytes cut/)] },
  });
  expect(JSON.parse(lines[1] ?? '')).toMatchObject({ n: 2, data: { text: 'after' } });
  expect(JSON.parse(lines[2] ?? '')).toMatchObject({ n: 3, data: { verdict: 'ok', text: 'end' } });
  expect(onBroken).not.toHaveBeenCalled();
  expect(readdirSync(directory), 'the reserve is gone').toEqual(['events.jsonl']);
});

test('leftovers are the other processes of the own cgroup, only within a unit', () => {
  const root = scratch();
  const write = (name: string, text: string): void => {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    writeFileSync(path.join(root, name), text);
  };
  write('proc/self/cgroup', '4:memory:/elsewhere\n0::/user.slice/outlive-main-a-1.service\n');
  write(
    'unified/user.slice/outlive-main-a-1.service/cgroup.procs',
    `${process.pid}\n71\n72\n0\n73\n`,
  );
  write('proc/71/comm', 'sleep\n');
  write('proc/73/comm', 'web server\n');
  const tree = {
    proc: path.join(root, 'proc'),
    cgroupRoots: [path.join(root, 'none'), path.join(root, 'unified')],
  };
  expect(readLeftovers('feedbeef', tree)).toEqual([
    { pid: 71, name: 'sleep' },
    { pid: 73, name: 'web server' },
  ]);
  expect(readLeftovers(undefined, tree)).toEqual([]);
});

const LAUNCH = {
  version: 1,
  workspace: 'main',
  workUnitId: 'w',
  attemptId: 'a',
  attemptNumber: 1,
  handle: 'h',
  unit: 'u',
  nonce: 'n',
  runnerId: 'pi',
  runner: {
    kind: 'pi',
    command: ['pi'],
    sessionFile: '/s.jsonl',
    prompt: 'p',
    continuation: null,
    model: null,
  },
  cwd: '/w',
  environment: { A: 'b' },
  credentialVariables: [],
  keyProxy: [],
  timeouts: {
    heartbeatIntervalMs: 1,
    heartbeatTimeoutMs: 1,
    idleTimeoutMs: 1,
    hardTimeoutMs: 1,
    cancelGraceMs: 0,
    toolTimeoutMs: 1,
  },
  ceiling: { microUsd: null, tokens: 5 },
  approvals: null,
  sandbox: null,
  controlSocket: '/c.sock',
  temporaryDirectory: '/t',
  captureBytes: 10,
  umask: 0o022,
};

test('a launch file is read as it is, and unknown fields are left out', () => {
  expect(parseLaunchFile(JSON.stringify({ ...LAUNCH, later: 1 }), 'f')).toEqual(LAUNCH);
});

test('a launch file of a daemon that knew no continuation, ceiling, approvals, sandbox or key proxy has none', () => {
  const { continuation: _none, ...runner } = LAUNCH.runner;
  const whole = { ...LAUNCH, runner };
  const {
    ceiling: _ceiling,
    approvals: _approvals,
    sandbox: _sandbox,
    keyProxy: _proxy,
    ...older
  } = whole;
  const ceiling = { microUsd: null, tokens: null };
  expect(parseLaunchFile(JSON.stringify(older), 'f')).toEqual({ ...LAUNCH, ceiling });
});

test('proxied keys of a launch file are read', () => {
  const spec = {
    provider: 'acme',
    keyVariable: 'K',
    baseUrl: 'https://a.example',
    header: 'x-key',
  };
  const keyProxy = [{ ...spec, scheme: null }];
  const text = JSON.stringify({ ...LAUNCH, keyProxy });
  expect(parseLaunchFile(text, 'f').keyProxy).toEqual(keyProxy);
});

test.each([
  [{ keyProxy: {} }, 'f: keyProxy is not a list'],
  [{ keyProxy: [{ provider: 'acme' }] }, 'f: keyProxy[0]: keyVariable is not a text'],
  [{ environment: { A: 1 } }, 'f: environment.A is not a text'],
  [{ captureBytes: -1 }, 'f: captureBytes is not a whole number'],
  [{ controlSocket: 'rel' }, 'f: controlSocket is not an absolute path'],
  [{ runner: { kind: 'other' } }, 'f: runner: kind other is unknown'],
  [
    { runner: { kind: 'command', argv: [] } },
    'f: runner: argv is not a list that begins with a program',
  ],
  [{ timeouts: {} }, 'f: timeouts: heartbeatIntervalMs is not a whole number'],
  [{ version: '1' }, 'f has version "1", this wrapper knows 1'],
])('a launch file with %j is refused with the field', (change, message) => {
  expect(() => parseLaunchFile(JSON.stringify({ ...LAUNCH, ...change }), 'f')).toThrow(
    new LaunchFileError(message),
  );
});

test('a launch file that is no JSON is refused', () => {
  expect(() => parseLaunchFile('{', 'f')).toThrow('f is not a JSON object');
});

test('commands of the control socket are read strictly', () => {
  expect(parseCommand('{"v":1,"type":"ping","id":"a","more":1}')).toEqual({
    v: 1,
    type: 'ping',
    id: 'a',
  });
  expect(parseCommand('{"v":1,"type":"ping"}')).toMatchObject({
    type: 'bad',
    message: 'id is not a text',
  });
  expect(
    parseCommand('{"v":1,"type":"abort","id":"a","reason":"cancel","graceMs":null}').type,
  ).toBe('bad');
});

test('a Pi that never answers is given up after 40 s, typed; T86 pi#4744', async () => {
  // Real processes, but the clock is ours.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const directory = scratch();
  const launch = parseLaunchFile(JSON.stringify({ ...LAUNCH, cwd: directory }), 'f');
  const context: RunnerContext = {
    launch,
    attemptDirectory: directory,
    environment: {},
    emit: () => true,
    onLook: () => {},
    providers: [],
    nest: null,
    live: () => {},
    stop: new StopSwitch(),
    redact: redactor({}),
    warn: () => {},
  };
  // Reads its input to the end and says nothing.
  const silent = {
    ...LAUNCH.runner,
    kind: 'pi' as const,
    command: ['/bin/sh', '-c', 'exec cat > /dev/null', 'pi'],
  };
  const result = runPi(context, silent);
  await vi.advanceTimersByTimeAsync(40_000);
  expect(await result).toMatchObject({
    verdict: 'error',
    code: 'runner_error',
    message: 'Pi did not answer within 40 s of its start',
    exitCode: 0,
  });
});
