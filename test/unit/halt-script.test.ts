/** ops/scripts/halt where there is nothing to talk to: help, arguments, and how it degrades. Row 153. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const HALT = path.resolve(import.meta.dirname, '../../ops/scripts/halt');
/** All it may use but systemctl. */
const TOOLS = [
  'sh',
  'readlink',
  'dirname',
  'id',
  'timeout',
  'cat',
  'date',
  'sync',
  'mv',
  'grep',
  'tr',
];

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(path.join(os.tmpdir(), 'outlive-halt-'));
  mkdirSync(path.join(scratch, 'bin'));
  for (const tool of TOOLS) {
    const found = spawnSync('sh', ['-c', `command -v ${tool}`], { encoding: 'utf8' });
    symlinkSync(found.stdout.trim(), path.join(scratch, 'bin', tool));
  }
});
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

/** PATH holds the tools above: no systemctl, and no Node. */
function halt(args: readonly string[], env: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync('sh', [HALT, ...args], {
    encoding: 'utf8',
    env: { PATH: path.join(scratch, 'bin'), HOME: scratch, XDG_RUNTIME_DIR: scratch, ...env },
  });
  return { status, stdout, stderr };
}

describe('help', () => {
  it.each([['--help'], ['-h'], ['--attempts --help'], ['issue42 -h']])(
    '%s prints it, exit 0',
    (line) => {
      const { status, stdout, stderr } = halt(line.split(' '));
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      for (const word of ['HANDLE', 'UNIT', '--attempts', '--drivers', '--all', '--list'])
        expect(stdout).toContain(word);
    },
  );
});

describe('arguments it cannot use: exit 2, and it says which; X27', () => {
  it.each([
    ['none', [], 'say what to stop'],
    ['an unknown option', ['--everything'], 'unknown option: --everything'],
    ['an empty handle', [''], 'the handle is empty'],
    ['a handle in capitals', ['Issue42'], '"Issue42" is no handle'],
    ['a handle that ends in a dash', ['issue-'], '"issue-" is no handle'],
    ['a pattern', ['issue*'], '"issue*" is no handle'],
    ['a path', ['../issue42'], 'is no handle'],
    ['a handle that is too long', ['x'.repeat(65)], 'is no handle'],
    ['a unit of something else', ['ssh.service'], 'is no unit of an attempt'],
    ['the daemon’s unit', ['outlived@main.service'], 'is no unit of an attempt'],
    ['a unit with a counter of 0', ['outlive-main-issue42-0.service'], 'is no unit of an attempt'],
    ['a unit without a counter', ['outlive-main-issue42.service'], 'is no unit of an attempt'],
    ['a unit pattern', ['outlive-main-*-1.service'], 'is no unit of an attempt'],
    ['two wishes', ['issue42', '--all'], 'one thing at a time'],
    ['two handles', ['issue42', 'issue43'], 'one thing at a time'],
    ['a workspace that is none', ['--workspace', 'a-b', 'issue42'], '"a-b" is no workspace'],
    ['a workspace without its name', ['--workspace'], '--workspace needs a value'],
    ['a wait that is no number', ['--wait', 'long', 'issue42'], '--wait needs a number'],
  ] as const)('%s', (_what, args, said) => {
    const { status, stdout, stderr } = halt(args);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toContain(said);
  });
});

it.each([
  ['--drivers', '--attempts'],
  ['--drivers', 'issue42'],
  ['--all', '--drivers'],
])('S2: halt arguments: %s and %s are two wishes, exit 2; row 308', (...args) => {
  const { status, stdout, stderr } = halt(args);
  expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
  expect(stderr).toContain(`one thing at a time: ${args[0]} or ${args[1]}`);
});

describe('row 152: without systemd', () => {
  const wishes = [
    ['issue42'],
    ['outlive-main-pr7-1.service'],
    ['--attempts'],
    ['--drivers'],
    ['--all'],
    ['--list'],
  ];

  it.each(wishes)('%s says that there is none, exit 0', (wish) => {
    const { status, stdout, stderr } = halt([wish]);
    expect({ status, stdout }).toEqual({ status: 0, stdout: '' });
    expect(stderr).toContain('there is no systemd here');
  });

  it('but with a bad argument it is the argument that it names, exit 2', () => {
    expect(halt(['Issue42']).status).toBe(2);
  });
});

describe('with systemctl, and no user manager', () => {
  const withSystemctl = (): Record<string, string> => ({
    PATH: `${path.join(scratch, 'bin')}:${path.dirname(spawnSync('sh', ['-c', 'command -v systemctl'], { encoding: 'utf8' }).stdout.trim())}`,
  });

  it('says so, exit 0', () => {
    const { status, stderr } = halt(['issue42'], withSystemctl());
    expect(status, stderr).toBe(0);
    expect(stderr).toContain('no systemd user manager runs');
  });

  it('whose socket is there does not claim that nothing runs, exit 1', async () => {
    mkdirSync(path.join(scratch, 'systemd'));
    const server = net.createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) =>
      server.listen(path.join(scratch, 'systemd/private'), resolve),
    );
    const { status, stderr } = halt(['issue42'], withSystemctl());
    server.close();
    expect(status).toBe(1);
    expect(stderr).toContain('does not answer');
  });
});

describe('the operations page', () => {
  const page = (): string =>
    readFileSync(path.resolve(import.meta.dirname, '../../docs/operations.md'), 'utf8');

  it('row 342: says that a restart is safe, and describes every way to stop', () => {
    expect(page()).toContain('A restart is safe for runs');
    const help = halt(['--help']).stdout;
    const wishes = help.match(/^ {2}(--[a-z]+)/gm)?.map((line) => line.trim()) ?? [];
    expect(wishes).toContain('--all');
    const shown = wishes.filter((wish) => !['--workspace', '--wait', '--help'].includes(wish));
    for (const wish of shown) expect(page()).toContain(`ops/scripts/halt ${wish}`);
    expect(page()).toContain('`systemctl --user stop UNIT`');
    expect(page()).toContain('`systemctl --user stop outlive-attempts-<workspace>.slice`');
  });

  it('row 343: says what a restart is not', () => {
    for (const other of ['a reboot', 'Sleep', 'a stopped VM (`wsl --shutdown`)'])
      expect(page()).toContain(other);
  });
});
