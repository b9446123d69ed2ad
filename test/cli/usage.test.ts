import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { launch, outlive, root } from './outlive.ts';

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(path.join(os.tmpdir(), 'outlive-usage-'));
});
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const COMMANDS = [
  ['run'],
  ['ps'],
  ['show'],
  ['events'],
  ['logs'],
  ['cancel'],
  ['daemon'],
  ['daemon', 'start'],
  ['daemon', 'stop'],
  ['daemon', 'restart'],
  ['daemon', 'status'],
  ['daemon', 'logs'],
];

describe('help', () => {
  it.each(COMMANDS)('%s %s has one, with an example that calls it', async (...words) => {
    const command = words.filter((word) => typeof word === 'string');
    const { code, stdout, stderr } = await outlive([...command, '--help']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain(`Usage: outlive ${command.join(' ')}`);
    expect(stdout).toMatch(new RegExp(`Example:\\n  outlive ${command.join(' ')}\\b`));
    expect(stdout).toContain('--workspace <name>');
  });

  it('lists every command, and the version is the one of the package', async () => {
    const help = await outlive(['--help']);
    for (const [command] of COMMANDS)
      expect(help.stdout).toMatch(new RegExp(`^  ${command} `, 'm'));
    expect(await outlive(['--version'])).toMatchObject({ code: 0, stdout: '0.1.0\n' });
  });
});

describe('usage errors exit with 2, on stderr, saying what to do', () => {
  it.each<[string, string[], string]>([
    ['no command', [], 'Usage: outlive'],
    ['an unknown command', ['rum'], 'Did you mean run?'],
    ['an unknown option', ['ps', '--al'], 'Did you mean --all?'],
    ['a missing argument', ['show'], "missing required argument 'handle'"],
    ['one argument too many', ['show', 'a', 'b'], 'too many arguments'],
    ['daemon without a verb', ['daemon'], 'Usage: outlive daemon'],
    ['an unknown runner', ['run', '--runner', 'x', '--', 'y'], 'Allowed choices are pi, command'],
    ['a prompt like an option without "--"', ['run', '-x'], "unknown option '-x'"],
    ['no prompt', ['run'], '--prompt-file FILE'],
    ['an empty prompt', ['run', '--', ''], 'The prompt is empty'],
    ['X24: a missing prompt file', ['run', '--prompt-file', 'nowhere.txt'], 'nowhere.txt'],
    ['two prompts', ['run', '--prompt-file', 'f', '--', 'x'], 'Give only one'],
    ['a bad duration', ['run', '--hard-timeout', '90', '--', 'x'], '90m, 1h30m'],
    ['a bad handle', ['run', '--handle', 'A B', '--', 'x'], '--handle: a handle is'],
    ['a bad workspace', ['--workspace', 'a-b', 'ps'], '"a-b" is not a workspace name'],
    ['a bad sequence number', ['events', 'x', '--after', '-1'], '--after "-1"'],
    ['a bad number of lines', ['daemon', 'logs', '-n', 'x'], '-n "x"'],
  ])('%s', async (_what, args, said) => {
    const { code, stdout, stderr } = await outlive(args);
    expect(stderr).toContain(said);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  });

  it('an empty prompt on stdin', async () => {
    const { code, stderr } = await outlive(['run', '--prompt-file', '-'], { stdin: ' \n' });
    expect(stderr).toContain('The prompt is empty (stdin)');
    expect(code).toBe(2);
  });

  it('a configuration that cannot be used: file, key, reason', async () => {
    const file = path.join(scratch, 'outlive', 'config.json');
    mkdirSync(path.dirname(file), { recursive: true });
    const env = { XDG_CONFIG_HOME: scratch };
    for (const [text, ...said] of [
      ['{"api": {"port": "x"}}', 'api.port'],
      ['{"colour": 1}', 'colour'],
      ['{', 'not valid JSON'],
    ] as const) {
      writeFileSync(file, text);
      const { code, stderr } = await outlive(['ps'], { env });
      expect(code).toBe(2);
      for (const part of [file, ...said]) expect(stderr).toContain(part);
    }
  });
});

describe('without a daemon', () => {
  it.each([
    [['ps']],
    [['show', 'x']],
    [['events', 'x']],
    [['events', 'x', '--follow']],
    [['logs', 'x']],
    [['cancel', 'x']],
    [['run', '--', 'x']],
    [['daemon', 'status', '--json']],
  ])('%s exits with 4 at once and names the command that starts it', async (args) => {
    const { code, stdout, stderr } = await outlive(args);
    expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
    expect(stderr).toContain('Start it with: outlive daemon start\n');
  });

  it('names the workspace, wherever it was given', async () => {
    const said = 'outlive daemon start --workspace lab\n';
    expect((await outlive(['--workspace', 'lab', 'ps'])).stderr).toContain(said);
    expect((await outlive(['ps', '--workspace', 'lab'])).stderr).toContain(said);
    const env = { OUTLIVE_WORKSPACE: 'lab' };
    expect((await outlive(['ps'], { env })).stderr).toContain(said);
    expect((await outlive(['--workspace', 'main', 'ps'], { env })).stderr).not.toContain('lab');
  });

  it('and without a user manager that is wanted, daemon start and stop say what is needed', async () => {
    const env = { OUTLIVE_EXECUTOR: 'systemd' };
    for (const verb of ['start', 'stop', 'restart']) {
      const { code, stderr } = await outlive(['daemon', verb], { env });
      expect(stderr).toContain('loginctl enable-linger');
      expect(code).toBe(4);
    }
  });
});

describe('ops/scripts', () => {
  it('run the entries from any directory, also through a symlink', async () => {
    const link = path.join(scratch, 'my-outlive');
    symlinkSync(path.join(root, 'ops/scripts/outlive'), link);
    const run = (program: string, args: string[]) => launch(program, args, { cwd: '/' }).ended;
    expect(await run(link, ['--version'])).toMatchObject({ code: 0, stdout: '0.1.0\n' });
    expect(await run(link, ['run', '--', ''])).toMatchObject({ code: 2 });
    const daemon = path.join(root, 'ops/scripts/outlived');
    expect(await run(daemon, ['--version'])).toMatchObject({ code: 0, stdout: '0.1.0\n' });
  });

  it.each(['outlive', 'outlived'])('%s says what to do where nothing is set up', async (name) => {
    const copy = path.join(scratch, 'fresh', 'ops', 'scripts', name);
    mkdirSync(path.dirname(copy), { recursive: true });
    copyFileSync(path.join(root, 'ops/scripts', name), copy);
    const { code, stderr } = await launch(copy, ['--version'], { cwd: '/' }).ended;
    expect(stderr).toContain('ops/scripts/setup first');
    expect(code).toBe(69);
  });
});
