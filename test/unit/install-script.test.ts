/** ops/scripts/install and uninstall where nothing can be installed: what they would do, and what they refuse. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

const SCRIPTS = path.resolve(import.meta.dirname, '../../ops/scripts');

const TOOLS = ['sh', 'readlink', 'dirname', 'id', 'sed', 'timeout', 'cat', 'find', 'grep', 'sort'];

/** A PATH with these tools and no other: no loginctl, which would tell of the person who runs the tests. */
function pathOf(tools: readonly string[]): string {
  const bin = mkdtempSync(path.join(os.tmpdir(), 'outlive-bin-'));
  for (const tool of tools) {
    const found = spawnSync('sh', ['-c', `command -v ${tool}`], { encoding: 'utf8' });
    symlinkSync(found.stdout.trim(), path.join(bin, tool));
  }
  return bin;
}

let home: string;
let bin: string;
beforeAll(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'outlive-install-'));
  bin = pathOf([...TOOLS, 'systemctl']);
});
afterAll(() => {
  for (const directory of [home, bin]) rmSync(directory, { recursive: true, force: true });
});

/** In a home and a runtime directory of its own: no user manager answers there. */
function run(script: 'install' | 'uninstall', args: readonly string[], env = {}) {
  const { status, stdout, stderr } = spawnSync(path.join(SCRIPTS, script), args, {
    encoding: 'utf8',
    env: { PATH: bin, HOME: home, XDG_RUNTIME_DIR: home, ...env },
  });
  return { status, stdout, stderr };
}

/** The text of one file that a dry run shows. */
const shown = (stdout: string, file: string): string =>
  stdout.split(/^--- /m).find((part) => part.split('\n')[0]?.endsWith(file)) ?? '';

describe('install --dry-run', () => {
  it('turns lingering on only for who said so', () => {
    const unasked = run('install', ['--dry-run']);
    expect(unasked.status, unasked.stderr).toBe(0);
    expect(unasked.stdout).not.toContain('enable-linger');
    expect(unasked.stderr).toContain('To change that: loginctl enable-linger');
    expect(run('install', ['--dry-run', '--no-linger']).stdout).not.toContain('enable-linger');
    expect(run('install', ['--dry-run', '--linger']).stdout).toContain('+ loginctl enable-linger');
  });

  it('names this checkout by absolute paths, and leaves no placeholder', () => {
    const { stdout } = run('install', ['--dry-run']);
    const root = path.resolve(SCRIPTS, '../..');
    expect(shown(stdout, 'outlived@.service')).toContain(
      `ExecStart=${root}/node_modules/.bin/node ${root}/dist/main.js --workspace %i\n`,
    );
    expect(shown(stdout, 'outlive-driver@.service')).toContain(
      `ExecStart=${root}/node_modules/.bin/node ${root}/dist/cli.js driver tick %i\n`,
    );
    expect(stdout).not.toMatch(/@[A-Z]+@/);
    expect(readdirSync(home)).toEqual([]);
  });

  it('has a clock for drivers, and enables none', () => {
    const { stdout } = run('install', ['--dry-run']);
    const timer = shown(stdout, 'outlive-driver@.timer');
    expect(timer).toContain('OnCalendar=hourly\n');
    expect(timer).toContain('WantedBy=timers.target\n');
    expect(stdout).not.toMatch(/^\+ .*outlive-driver/m);
  });

  it('carries a value literally: quotes, backslashes, specifiers and blanks', () => {
    const PI_CODING_AGENT_DIR = '/a b/"c"\\d/%h/$e';
    const { stdout } = run('install', ['--dry-run'], { PI_CODING_AGENT_DIR });
    expect(shown(stdout, 'outlived@main.service.d/50-outlive.conf')).toContain(
      'Environment="PI_CODING_AGENT_DIR=/a b/\\"c\\"\\\\d/%%h/$e"\n',
    );
  });

  it('gives the port 5187 to main alone; another workspace has one when it is named', () => {
    expect(run('install', ['--dry-run']).stdout).toContain('outlived-http@main.socket');
    const lab = run('install', ['--dry-run', '--workspace', 'lab']).stdout;
    expect(lab).not.toMatch(/enable .*outlived-http@lab/);
    expect(shown(lab, 'outlived@lab.service.d/50-outlive.conf')).toContain('OUTLIVE_PORT=none');
    const named = run('install', ['--dry-run', '--workspace=lab', '--port=5188']).stdout;
    expect(shown(named, 'outlived-http@lab.socket.d/50-outlive.conf')).toContain(
      'ListenStream=\nListenStream=127.0.0.1:5188\n',
    );
  });
});

describe('what is missing is named', () => {
  it.each([
    ['a user manager', 'install', [], 69, 'no systemd user manager answers'],
    ['an option that exists', 'uninstall', ['--all'], 2, 'unknown argument: --all'],
    ['a workspace', 'uninstall', ['--workspace', '../x'], 2, '"../x" is no workspace'],
  ] as const)('%s', (_what, script, args, code, said) => {
    const { status, stderr } = run(script, args);
    expect(status).toBe(code);
    expect(stderr).toContain(said);
  });

  it('systemctl itself', () => {
    const without = pathOf(TOOLS);
    const { status, stderr } = run('install', [], { PATH: without });
    rmSync(without, { recursive: true });
    expect(status).toBe(69);
    expect(stderr).toContain('there is no systemctl here');
  });
});

describe('uninstall of the last workspace', () => {
  it('also takes back the clocks of drivers that somebody enabled', () => {
    const other = mkdtempSync(path.join(os.tmpdir(), 'outlive-clocks-'));
    onTestFinished(() => rmSync(other, { recursive: true, force: true }));
    const wants = path.join(other, '.config/systemd/user/timers.target.wants');
    mkdirSync(wants, { recursive: true });
    for (const name of ['outlive-driver@nightly.timer', 'mine.timer']) {
      symlinkSync('/nowhere', path.join(wants, name));
    }
    const { status, stdout, stderr } = run('uninstall', ['--dry-run'], { HOME: other });
    expect(status, stderr).toBe(0);
    expect(stdout).toContain('+ systemctl --user disable -q --now outlive-driver@nightly.timer\n');
    expect(stdout).not.toContain('mine.timer');
  });
});

describe.each(['install', 'uninstall'] as const)('%s --help', (script) => {
  it('prints how it is used, exit 0', () => {
    const { status, stdout, stderr } = run(script, ['--help']);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    for (const option of ['--workspace', '--dry-run', '--help']) expect(stdout).toContain(option);
  });
});
