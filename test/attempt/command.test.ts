import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { SpoolLine } from '../../src/domain/spool.ts';
import { isAlive, makeLab, makeShellLab } from './support/lab.ts';

const text = (lines: readonly SpoolLine[], type: SpoolLine['type']): string =>
  lines
    .filter((line) => line.type === type)
    .map((line) => line.data['text'])
    .join('');

const types = (lines: readonly SpoolLine[]): string[] => lines.map((line) => line.type);

test('a command that succeeds: its events in order, exit status 0, output kept', async () => {
  const lab = await makeShellLab('pwd; echo bad >&2; cat');
  const { code, lines, word } = await lab.run();
  expect(code).toBe(0);
  expect(types(lines)).toEqual([
    'attempt.opened',
    'started',
    'stdout_delta',
    'stderr_delta',
    'succeeded',
    'runner.finished',
  ]);
  expect(lines[1]?.data).toMatchObject({
    runner: 'command',
    argv: ['/bin/sh', '-c', 'pwd; echo bad >&2; cat'],
  });
  expect(word).toEqual({
    verdict: 'ok',
    code: null,
    message: null,
    text: `${lab.launch.cwd}\n`,
    exitCode: 0,
    signal: null,
    usage: null,
    costUsd: null,
    retryAt: null,
    leftovers: [],
  });
  expect(await lab.read('stdout')).toBe(`${lab.launch.cwd}\n`);
  expect(await lab.read('stderr')).toBe('bad\n');
});

test('exit status 3 is the code exit_code and the wrapper exits 1', async () => {
  const lab = await makeShellLab('echo why >&2; exit 3');
  const { code, lines, word } = await lab.run();
  expect(code).toBe(1);
  expect(word).toMatchObject({ verdict: 'error', code: 'exit_code', exitCode: 3, text: 'why\n' });
  expect(lines.at(-2)).toMatchObject({ type: 'failed', data: { code: 'exit_code', exitCode: 3 } });
});

test('a command that a signal kills is the code killed', async () => {
  const lab = await makeShellLab('kill -KILL $$');
  const { code, word } = await lab.run();
  expect(code).toBe(1);
  expect(word).toMatchObject({
    verdict: 'error',
    code: 'killed',
    exitCode: null,
    signal: 'SIGKILL',
  });
});

test.each([
  ['that does not exist', '/no/such/program', 127],
  ['that may not be executed', '/etc/passwd', 126],
])('X24: a program %s is the code spawn_error, and never started', async (_, program, exitCode) => {
  const lab = await makeLab(() => ({ kind: 'command', argv: [program] }));
  const { code, lines, word } = await lab.run();
  expect(code).toBe(1);
  expect(word).toMatchObject({ code: 'spawn_error', exitCode });
  expect(word.message).toContain(program);
  expect(types(lines)).toEqual(['attempt.opened', 'failed', 'runner.finished']);
});

test('a missing working directory is said by name', async () => {
  const lab = await makeShellLab('true', { cwd: '/no/such/tree' });
  const { code, lines, word } = await lab.run();
  expect(code).toBe(1);
  expect(word).toMatchObject({
    code: 'cwd_missing',
    message: expect.stringContaining('/no/such/tree'),
  });
  expect(types(lines)).toEqual(['attempt.opened', 'runner.finished']);
});

test('the command gets exactly the environment of launch.json, and no credential', async () => {
  const lab = await makeShellLab('env | sort', {
    environment: { PATH: '/usr/bin:/bin', MARK: 'x' },
    credentialVariables: ['KEY'],
  });
  const { word } = await lab.run({ CREDENTIALS_DIRECTORY: '/nowhere', SECRET_OF_UNIT: 'y' });
  const names = word.text
    .split('\n')
    .map((line) => line.split('=')[0])
    .filter((name) => name !== '');
  // sh adds PWD, and dash its OLDPWD.
  expect(names.filter((name) => !['PWD', 'OLDPWD', 'SHLVL', '_'].includes(name ?? ''))).toEqual([
    'MARK',
    'PATH',
  ]);
});

test('a thousand lines right before the exit: none is lost, in spool and log', async () => {
  const lab = await makeShellLab('seq 1 1000; exit 0');
  const { lines } = await lab.run();
  const all = Array.from({ length: 1000 }, (_, index) => `${index + 1}\n`).join('');
  expect(text(lines, 'stdout_delta')).toBe(all);
  expect(await lab.read('stdout')).toBe(all);
});

test('bytes that are no UTF-8 and characters across two writes', async () => {
  const lab = await makeShellLab(
    String.raw`printf 'a\377b\342\202'; sleep 0.05; printf '\254 \360\237\230\200'`,
  );
  const { lines } = await lab.run();
  expect(text(lines, 'stdout_delta')).toBe('a\uFFFDb€ 😀');
  expect(await readFile(path.join(lab.directory, 'stdout.log'))).toEqual(
    Buffer.from('61ff62e282ac20f09f9880', 'hex'),
  );
});

test('a process left behind that holds stdout does not hang the run', async () => {
  const lab = await makeShellLab('setsid sleep 300 & echo $!; echo done');
  const { code, lines, word } = await lab.run();
  const pid = Number(word.text.split('\n')[0]);
  onTestFinished(() => void process.kill(pid, 'SIGKILL'));
  expect(isAlive(pid), 'the sleep still lives').toBe(true);
  expect(code).toBe(0);
  expect(word.text).toBe(`${pid}\ndone\n`);
  expect(types(lines)).toContain('succeeded');
  expect(lines.find((line) => line.type === 'progress')?.data).toMatchObject({
    kind: 'output_held',
  });
});

test('100 MB of output: spool, log and memory stay small, the cut is named, the end is there; T67 pm2#6125', async () => {
  const lab = await makeShellLab(
    'head -c 100000000 /dev/zero | tr "\\0" x; echo; grep VmHWM "/proc/$PPID/status"',
  );
  const { code, lines, word } = await lab.run();
  expect(code).toBe(0);
  const notes = lines.filter((line) => line.type === 'progress');
  expect(notes.map((line) => line.data['kind'])).toEqual(['output_dropped']);
  expect(text(lines, 'stdout_delta').length).toBeLessThan(9_000_000);
  const log = await lab.read('stdout');
  const [, end = ''] = log.split(/\n\[… 9\d{7} bytes cut …\]\n/);
  expect(log.length).toBeLessThan(lab.launch.captureBytes + 100);
  expect(end).toMatch(/^x+\nVmHWM:\s+\d+ kB\n$/);
  const cut = Number(/\[… (\d+) bytes cut …\]/.exec(log)?.[1]);
  const printed = 100_000_001 + (end.length - end.indexOf('V'));
  expect(cut).toBe(printed - lab.launch.captureBytes);
  const peak = Number(/VmHWM:\s+(\d+)/.exec(word.text)?.[1]);
  expect(peak, 'peak memory of the wrapper in kB').toBeLessThan(250_000);
});
