/** The command line end to end: against the real daemon, real systemd, real Pi. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EventView, RuntimeView, WorkUnitView } from '../../src/api/schemas.ts';
import { cli, startCli } from '../support/cli.ts';
import { Rig, script, systemctl } from '../support/rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await Rig.create();
  await rig.startDaemon();
});
afterAll(async () => {
  await rig.end();
});

const PI = ['--model', 'lab/scripted'];
const show = async (handle: string): Promise<WorkUnitView> =>
  JSON.parse((await cli(rig, ['show', handle, '--json'])).stdout) as WorkUnitView;

describe('outlive run', () => {
  it('prints the final text on stdout, everything else on stderr, and exits 0', async () => {
    const result = await cli(rig, ['run', ...PI, '--', script('bash echo hi', 'say The answer')]);
    expect(result).toMatchObject({ status: 0, stdout: 'The answer\n' });
    expect(result.stderr).toContain('succeeded');
  });

  it('--json prints NDJSON events and nothing else on stdout', async () => {
    const result = await cli(rig, ['run', ...PI, '--json', '--', script('say Hi')]);
    const events = result.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as EventView);
    expect(events.map((event) => event.seq)).toEqual(events.map((_, index) => index + 1));
    expect(events.at(-1)?.type).toBe('work_unit.succeeded');
  });

  it('of a command passes its output through and exits 1 when it fails', async () => {
    const result = await cli(rig, [
      'run',
      '--runner',
      'command',
      '--',
      'sh',
      '-c',
      'echo out; echo err >&2; exit 3',
    ]);
    expect(result).toMatchObject({ status: 1, stdout: 'out\n' });
    expect(result.stderr).toContain('err\n');
    expect(result.stderr).toContain('exit_code');
  });

  it('exits 124 at its hard timeout', async () => {
    const result = await cli(rig, [
      'run',
      '--runner',
      'command',
      '--hard-timeout',
      '2s',
      '--',
      'sleep',
      '600',
    ]);
    expect(result.status).toBe(124);
    expect(result.stderr).toContain('hard_timeout');
  });

  it('exits 130 when somebody cancels it', async () => {
    const running = startCli(rig, [
      'run',
      '--runner',
      'command',
      '--handle',
      'victim',
      '--',
      'sh',
      '-c',
      'echo up; exec sleep 600',
    ]);
    await running.until(/up\n/);
    expect(await cli(rig, ['cancel', 'victim', '--reason', 'enough'])).toMatchObject({ status: 0 });
    expect((await running.ended).status).toBe(130);
    expect(await show('victim')).toMatchObject({
      status: 'cancelled',
      errorCode: 'cancelled_by_request',
    });
  });

  it('detaches on Ctrl-C: says how to cancel, and the run goes on', async () => {
    const running = startCli(rig, [
      'run',
      '--runner',
      'command',
      '--handle',
      'detached',
      '--',
      'sh',
      '-c',
      'echo up; until [ -e go ]; do sleep 0.1; done',
    ]);
    await running.until(/up\n/);
    running.kill('SIGINT');
    const { stderr } = await running.ended;
    expect(stderr).toContain('outlive cancel detached');
    expect((await show('detached')).status).toBe('running');
    writeFileSync(path.join(rig.tree, 'go'), '');
    expect((await rig.outcome('detached')).workUnit.status).toBe('succeeded');
  });

  it('--cancel-on-interrupt cancels on Ctrl-C and waits for the end', async () => {
    const running = startCli(rig, [
      'run',
      '--cancel-on-interrupt',
      '--runner',
      'command',
      '--handle',
      'cancelme',
      '--',
      'sh',
      '-c',
      'echo up; exec sleep 600',
    ]);
    await running.until(/up\n/);
    running.kill('SIGINT');
    expect((await running.ended).status).toBe(130);
    expect((await show('cancelme')).status).toBe('cancelled');
  });

  it('with the same idempotency key is the same run; row 076', async () => {
    const args = [
      'run',
      '--detach',
      '--json',
      '--idempotency-key',
      'k1',
      '--runner',
      'command',
      '--',
      'true',
    ];
    const [first, second] = [await cli(rig, args), await cli(rig, args)].map(
      ({ stdout }) => JSON.parse(stdout) as WorkUnitView,
    );
    expect(second?.id).toBe(first?.id);
    const other = await cli(rig, [...args.slice(0, -1), 'false']);
    expect(other).toMatchObject({ status: 5 });
    expect(other.stderr).toContain('idempotency_mismatch');
  });
});

describe('a prompt', () => {
  const last = (): string => rig.model.requests().at(-1)?.lastUserText ?? '';

  it.each(['@README.md is a file name elsewhere', '- a list item', '--help me'])(
    '%j is a prompt, not a file or a flag',
    async (prompt) => {
      expect((await cli(rig, ['run', ...PI, '--', prompt])).status).toBe(0);
      expect(last()).toBe(prompt);
    },
  );

  it('of 1 MB works by file, by stdin and by the API', async () => {
    const prompt = `${'x'.repeat(1024 * 1024)}\n${script('say Got it')}`;
    writeFileSync(path.join(rig.tree, 'big.txt'), prompt);
    const byFile = await cli(rig, ['run', ...PI, '--prompt-file', 'big.txt']);
    const byStdin = await cli(rig, ['run', ...PI, '--prompt-file', '-'], { stdin: prompt });
    const byApi = await rig.runToEnd({ prompt });
    expect([byFile.stdout, byStdin.stdout]).toEqual(['Got it\n', 'Got it\n']);
    expect(byApi.workUnit.status).toBe('succeeded');
  });

  it.each([[['--', '']], [['--', '  ']], [[]]])(
    'that is empty (%j) is a usage error',
    async (words) => {
      const result = await cli(rig, ['run', ...PI, ...words]);
      expect(result).toMatchObject({ status: 2, stdout: '' });
      expect(result.stderr).toMatch(/prompt/i);
    },
  );
});

describe('bad input gets a clear error and changes nothing', () => {
  const countAll = async (): Promise<number> =>
    (await rig.client.listWorkUnits({ limit: 1000 })).items.length;

  it.each([
    [
      'an unknown working directory',
      ['run', '--cwd', '/no/such/place', '--', 'x'],
      2,
      /cwd_missing.*\/no\/such\/place|\/no\/such\/place.*does not exist/s,
    ],
    ['a bad handle', ['run', '--handle', 'Not_A_Handle', '--', 'x'], 2, /handle/],
    ['a bad duration', ['run', '--hard-timeout', 'soon', '--', 'x'], 2, /soon/],
    ['an unknown command', ['frobnicate'], 2, /frobnicate/],
    ['an unknown option', ['run', '--frob', '--', 'x'], 2, /--frob/],
    ['a missing prompt file', ['run', '--prompt-file', 'nowhere.txt'], 2, /nowhere\.txt/],
    ['an unknown work unit', ['show', 'nobody'], 3, /nobody/],
    ['cancelling an unknown work unit', ['cancel', 'nobody'], 3, /nobody/],
    ['a bad workspace name', ['--workspace', 'Bad-Name', 'ps'], 2, /Bad-Name/],
  ] as const)('%s', async (_name, args, status, pattern) => {
    const before = await countAll();
    const result = await cli(rig, args);
    expect(result.status).toBe(status);
    expect(result.stderr).toMatch(pattern);
    expect(result.stdout).toBe('');
    expect(await countAll()).toBe(before);
  });

  it('a handle that is taken exits 5 and names who has it', async () => {
    const { id } = await rig.submit({ handle: 'taken', argv: ['sleep', '600'] });
    const result = await cli(rig, [
      'run',
      '--handle',
      'taken',
      '--runner',
      'command',
      '--',
      'true',
    ]);
    expect(result.status).toBe(5);
    expect(result.stderr).toContain('handle_taken');
    await rig.client.cancelWorkUnit(id);
    await rig.outcome(id);
  });

  it('a config file that cannot be read names file, key and reason, exit 2', async () => {
    const home = path.join(rig.base, 'badconfig');
    mkdirSync(path.join(home, 'outlive'), { recursive: true });
    writeFileSync(path.join(home, 'outlive/config.json'), '{"api":{"port":"many"}}');
    const result = await cli(rig, ['ps'], { env: { XDG_CONFIG_HOME: home } });
    expect(result.status).toBe(2);
    expect(result.stderr).toMatch(/config\.json.*api\.port/s);
    const daemon = rig.spawnDaemon({ env: { XDG_CONFIG_HOME: home } });
    expect(await daemon.exited).toBe(2);
    expect(daemon.output()).toMatch(/config_unreadable.*api\.port/s);
  });

  it('a runtime directory too long for a socket is named before anything starts', async () => {
    const daemon = rig.spawnDaemon({
      env: { XDG_RUNTIME_DIR: `/tmp/${'long'.repeat(30)}`, OUTLIVE_WORKSPACE: 'elsewhere' },
    });
    expect(await daemon.exited).not.toBe(0);
    expect(daemon.output()).toMatch(/socket_path_too_long.*api\.sock/s);
  });

  it('a state directory that cannot be written is named', async () => {
    const daemon = rig.spawnDaemon({
      env: { XDG_STATE_HOME: '/proc/nope', OUTLIVE_WORKSPACE: 'elsewhere' },
    });
    expect(await daemon.exited).not.toBe(0);
    expect(daemon.output()).toMatch(/state_dir_unwritable.*\/proc\/nope/s);
  });

  it('a taken port is named, with what to set', async () => {
    const { port } = rig.model;
    const daemon = rig.spawnDaemon({
      env: { OUTLIVE_PORT: String(port), OUTLIVE_WORKSPACE: 'elsewhere' },
    });
    expect(await daemon.exited).not.toBe(0);
    expect(daemon.output()).toMatch(new RegExp(`port_taken.*${port}.*OUTLIVE_PORT`, 's'));
  });

  it('without a daemon every command exits 4 and says how to start one', async () => {
    const result = await cli(rig, ['--workspace', 'nobodyhere', 'ps']);
    expect(result.status).toBe(4);
    expect(result.stderr).toContain('outlive daemon start --workspace nobodyhere');
  });
});

describe('reading', () => {
  it('ps --json is a page; ps shows live work, ps --all everything', async () => {
    const { id, handle } = await rig.submit({ argv: ['sleep', '600'] });
    await rig.waitForEvent(id, (event) => event.type === 'started', 'its start');
    const page = JSON.parse((await cli(rig, ['ps', '--json'])).stdout) as {
      items: WorkUnitView[];
      nextCursor: string | null;
    };
    expect(page.items.map((item) => item.handle)).toEqual([handle]);
    expect(page.nextCursor).toBeNull();
    await rig.client.cancelWorkUnit(id);
    await rig.outcome(id);
    expect(JSON.parse((await cli(rig, ['ps', '--json'])).stdout)).toEqual({
      items: [],
      nextCursor: null,
    });
    expect((await cli(rig, ['ps', '--all'])).stdout).toContain(handle);
  });

  it('events --json is NDJSON to the end, --after skips, --follow ends with the work', async () => {
    const { id, handle } = await rig.submit({ argv: ['echo', 'one'] });
    const followed = await cli(rig, ['events', handle, '--follow', '--json']);
    const stored = await cli(rig, ['events', handle, '--json']);
    expect(stored.stdout).toBe(followed.stdout);
    const after = await cli(rig, ['events', id, '--json', '--after', '3']);
    expect(stored.stdout.split('\n').slice(3).join('\n')).toBe(after.stdout);
    const first = JSON.parse(stored.stdout.split('\n')[0] ?? '') as EventView;
    expect(first).toMatchObject({
      workUnitId: id,
      seq: 1,
      type: 'work_unit.created',
      data: { handle },
    });
  });

  it('logs of a command is its output, read the moment it has ended; T02 systemd#28650', async () => {
    const { handle, id } = await rig.submit({ argv: ['sh', '-c', 'echo one; echo two'] });
    await rig.outcome(id);
    expect((await cli(rig, ['logs', handle])).stdout).toBe('one\ntwo\n');
  });
});

describe('outlive daemon', () => {
  const unit = (): string => `outlived-${rig.workspace}x.service`;
  const daemon = (...args: string[]) =>
    cli(rig, ['--workspace', `${rig.workspace}x`, 'daemon', ...args]);

  it('start, status, restart, logs and stop, with the unit to show for it; row 010', async () => {
    expect(await daemon('status')).toMatchObject({ status: 4 });
    const started = await daemon('start');
    expect(started.status, started.stderr).toBe(0);
    const status = JSON.parse((await daemon('status', '--json')).stdout) as RuntimeView;
    expect(status).toMatchObject({ workspace: `${rig.workspace}x`, port: null });
    expect(status.socket).toContain(`${rig.workspace}x/api/api.sock`);
    expect(await systemctl('show', unit(), '-p', 'MainPID')).toBe(`MainPID=${status.pid}`);
    expect((await daemon('start')).status).toBe(0);
    expect((await daemon('restart')).status).toBe(0);
    const again = JSON.parse((await daemon('status', '--json')).stdout) as RuntimeView;
    expect(again.pid).not.toBe(status.pid);
    expect(again.runtimeInstanceId).not.toBe(status.runtimeInstanceId);
    expect((await daemon('logs', '-n', '50')).stdout).toContain('"msg":"ready"');
    expect((await daemon('stop')).status).toBe(0);
    expect(await systemctl('show', unit(), '-p', 'ActiveState')).toBe('ActiveState=inactive');
    expect(await daemon('status')).toMatchObject({ status: 4 });
  });
});
