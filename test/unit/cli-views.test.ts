import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { AttemptView } from '../../src/api/schemas.ts';
import { unreachable } from '../../src/client/transport.ts';
import { daemonEnvironment, writeCredentials } from '../../src/commands/daemon-environment.ts';
import { statusLines } from '../../src/commands/daemon-status.ts';
import { errorText } from '../../src/commands/error-text.ts';
import { outcomeText } from '../../src/commands/outcome-text.ts';
import { psTable } from '../../src/commands/ps.ts';
import { showLines } from '../../src/commands/show.ts';
import { configFileSchema } from '../../src/config.ts';
import { OutliveError } from '../../src/domain/errors.ts';
import { daemonUnitProperties } from '../../src/systemd/daemon-unit.ts';
import { aRuntime, aWorkUnit } from '../cli/fake-daemon.ts';

const NOW = Date.parse('2026-11-29T20:03:00.000Z');

const ATTEMPT: AttemptView = {
  id: 'attempt-1',
  workUnitId: 'unit-1',
  attemptNumber: 1,
  runtimeInstanceId: 'runtime-1',
  runnerId: 'pi',
  providerPresetId: null,
  resumesAttemptId: null,
  status: 'failed',
  createdAt: '2026-11-29T20:00:00.000Z',
  startedAt: '2026-11-29T20:00:01.000Z',
  endedAt: null,
  lastEventAt: null,
  lastHeartbeatAt: null,
  abortRequestedAt: null,
  errorCode: 'exit_code',
  errorMessage: null,
  unit: 'outlive-main-issue42-1.service',
  invocationId: 'abc',
  bootId: null,
  controlGroup: null,
  executor: 'systemd',
  reattached: 2,
  exit: {
    v: 1,
    nonce: 'n',
    invocationId: 'abc',
    serviceResult: 'exit-code',
    exitCode: 'exited',
    exitStatus: '3',
    bootId: null,
    uptimeSeconds: null,
    ts: null,
    manager: null,
    managerState: null,
  },
  result: null,
  decidedByRule: 12,
};

describe('psTable', () => {
  it('shows what each one is at', () => {
    const lines = psTable(
      [
        aWorkUnit({ live: { currentTool: 'bash\u001b[2J', costUsd: 1.5, totalTokens: 1 } }),
        aWorkUnit({ handle: 'pr7', status: 'queued', startedAt: null, runnerId: 'command' }),
      ],
      NOW,
    );
    expect(lines).toEqual([
      'HANDLE   STATUS   RUNNER   AGE  RAN     COST   NOW',
      'issue42  running  pi       3m   2m 59s  $1.50  bash\\x1b[2J',
      'pr7      queued   command  3m   -       -',
    ]);
  });
});

describe('work that waits for other work', () => {
  const on = (handle: string, state: 'pending' | 'satisfied' | 'failed') => ({
    workUnitId: `unit of ${handle}`,
    handle,
    state,
  });
  const lastCell = (known: Parameters<typeof aWorkUnit>[0]): string | undefined =>
    psTable([aWorkUnit({ status: 'queued', startedAt: null, ...known })], NOW)[1]?.split(
      / {2,}/,
    )[6];

  it('shows in ps what is missing, or what failed it', () => {
    const after = [on('a', 'satisfied'), on('b', 'pending'), on('c', 'failed')];
    expect(lastCell({ after, afterNeeded: 2 })).toBe('after b');
    expect(lastCell({ after, afterNeeded: 3 })).toBe('stuck: failed c');
    expect(lastCell({ after, afterNeeded: 1 })).toBeUndefined();
    expect(lastCell({ after, afterNeeded: 3, status: 'cancelled' })).toBeUndefined();
  });

  it('shows in show all it named, and how many are enough', () => {
    const after = [on('a', 'satisfied'), on('b', 'failed')];
    const text = (afterNeeded: number): string =>
      showLines(aWorkUnit({ after, afterNeeded })).join('\n');
    expect(text(2)).toMatch(/ {2}after +a \(satisfied\), b \(failed\)$/m);
    expect(text(1)).toMatch(/ {2}after +1 of a \(satisfied\), b \(failed\)$/m);
  });
});

describe('showLines', () => {
  it('shows outcome and attempts, and how to look oneself', () => {
    const text = showLines(
      aWorkUnit({
        status: 'failed',
        errorCode: 'exit_code',
        errorMessage: 'exit status 3',
        cwd: '/repo\u001b[2J',
        attempts: [ATTEMPT],
      }),
    ).join('\n');
    expect(text).toContain('issue42  failed');
    expect(text).toContain('exit_code: It exited with a status other than 0 (exit status 3)');
    expect(text).toMatch(/ {2}1 +failed +outlive-main-issue42-1\.service +exited 3 +2×/);
    expect(text).toContain('systemctl --user status outlive-main-issue42-1.service');
    expect(text).toContain('journalctl --user _SYSTEMD_INVOCATION_ID=abc');
    expect(text).not.toContain('\u001b');
  });
});

describe('statusLines', () => {
  it('shows every fact of the runtime, problems included', () => {
    const text = statusLines(aRuntime({ status: 'degraded', problems: ['bus away'] }), NOW).join(
      '\n',
    );
    for (const fact of ['degraded', 'bus away', '4242', '3m', 'runtime-1', '127.0.0.1:5187']) {
      expect(text).toContain(fact);
    }
    expect(statusLines(aRuntime({ port: null }), NOW).join('\n')).toMatch(/port +none/);
    const report = { reattached: ['a', 'b'], settled: [], foreignUnits: ['c'], failed: [] };
    expect(statusLines(aRuntime({}), NOW, report).join('\n')).toMatch(
      /recovery +2 re-attached, 1 foreign units/,
    );
  });
});

describe('outcomeText', () => {
  it('says the sentence once and lets an unknown code stand alone', () => {
    expect(outcomeText('oom', null)).toBe('oom: The kernel ended it for want of memory');
    expect(outcomeText('oom', 'The kernel ended it for want of memory')).toBe(
      outcomeText('oom', null),
    );
    expect(outcomeText('oom', 'The kernel ended it for want of memory: 2 GB')).toBe(
      'oom: The kernel ended it for want of memory: 2 GB',
    );
    expect(outcomeText('newer_code', 'why')).toBe('newer_code: why');
  });
});

describe('errorText', () => {
  it('names the command that starts the daemon, for the workspace asked for', () => {
    const error = unreachable('/run/x.sock', 'absent');
    expect(errorText(error, 'main')).toBe(
      'outlive: daemon_unreachable: No daemon listens (/run/x.sock).\nStart it with: outlive daemon start',
    );
    expect(errorText(error, 'lab')).toContain('outlive daemon start --workspace lab');
    expect(errorText(unreachable('/x', 'timeout'), 'main')).toContain('outlive daemon restart');
    expect(errorText(unreachable('/x', 'denied'), 'main')).not.toContain('start');
  });

  it('lists the fields that the sentence leaves out', () => {
    const fields = [
      { path: '/a', message: 'said before' },
      { path: '/b', message: 'is bad' },
    ];
    expect(
      errorText(new OutliveError('invalid_request', 'It was said before.', { fields }), null),
    ).toBe('outlive: invalid_request: It was said before.\n  /b: is bad');
  });

  it('spares a person who mistyped the code of it', () => {
    expect(errorText(new OutliveError('usage', 'Not so.'), 'main')).toBe('outlive: Not so.');
  });

  it('keeps the stack of what is no refusal, and never a control character', () => {
    expect(errorText(new TypeError('x\u001b[2J'), null)).toMatch(/mistake in outlive.*cli-views/s);
    expect(errorText(new OutliveError('internal', '\u001b[2J'), null)).not.toContain('\u001b');
  });
});

describe('the unit of the daemon', () => {
  const file = configFileSchema.parse({ keyVariables: ['OUTLIVE_KEY', 'LAB_KEY'] });

  it('gets what it needs of the environment, and no key', () => {
    const env = {
      XDG_CONFIG_HOME: '/c',
      OUTLIVE_LOG_LEVEL: 'debug',
      PI_OFFLINE: '1',
      OUTLIVE_KEY: 'secret',
      LAB_KEY: 'secret',
      OUTLIVE_NONCE: 'an attempt',
      PI_BROKEN: 'a\u0001b',
      SSH_AUTH_SOCK: '/s',
    };
    const runnerEnvironment = { PATH: '/bin', LAB_KEY: 'secret' };
    expect(daemonEnvironment({ runnerEnvironment, file }, env)).toEqual({
      PATH: '/bin',
      XDG_CONFIG_HOME: '/c',
      OUTLIVE_LOG_LEVEL: 'debug',
      PI_OFFLINE: '1',
    });
  });

  const spec = {
    workspace: 'main',
    argv: ['/bin/node', '/repo/dist/main.js', '--workspace', 'main'],
    environment: { PATH: '/bin' },
    credentials: [{ name: 'LAB_KEY', path: '/run/LAB_KEY' }],
    umask: 0o027,
    stopMs: 120_000,
  };

  it('is ready when the daemon says so, and goes with everything in it', () => {
    const properties = Object.fromEntries(
      daemonUnitProperties(spec).map(({ name, value }) => [name, value]),
    );
    expect(properties).toMatchObject({
      Type: 'notify',
      NotifyAccess: 'all',
      KillMode: 'control-group',
      UMask: 0o027,
      TimeoutStopUSec: 120_000_000n,
      ExecStart: [['/bin/node', spec.argv, false]],
      Environment: ['PATH=/bin'],
      LoadCredential: [['LAB_KEY', '/run/LAB_KEY']],
    });
    expect(properties).not.toHaveProperty('Restart');
  });

  it('has no LoadCredential without keys: an empty list is no list to systemd', () => {
    const names = daemonUnitProperties({ ...spec, credentials: [] }).map(({ name }) => name);
    expect(names).not.toContain('LoadCredential');
  });

  it('refuses paths that systemd would change', () => {
    for (const argv of [
      ['/a%b/node', 'x'],
      ['/node', '/a$b'],
      ['node', 'x'],
    ]) {
      expect(() => daemonUnitProperties({ ...spec, argv })).toThrow(
        expect.objectContaining({ code: 'path_unsupported' }),
      );
    }
  });
});

describe('writeCredentials', () => {
  it('gives each key a file of its own that only this user can read, and takes it back', async () => {
    const runtime = mkdtempSync(path.join(os.tmpdir(), 'outlive-keys-'));
    const config = {
      keys: { LAB_KEY: 'secret', OTHER: 's2' },
      directories: { runtime: path.join(runtime, 'main') },
    };
    const files = await writeCredentials(config);
    const [first, second] = files.credentials;
    expect([first?.name, second?.name]).toEqual(['LAB_KEY', 'OTHER']);
    const file = first?.path ?? '';
    expect(readFileSync(file, 'utf8')).toBe('secret');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(path.dirname(file)).mode & 0o777).toBe(0o700);
    await files.remove();
    expect(readdirSync(path.join(runtime, 'main'))).toEqual([]);
    rmSync(runtime, { recursive: true });
  });

  it('says what it could not write', async () => {
    const config = { keys: { A: 'x' }, directories: { runtime: '/dev/null/main' } };
    await expect(writeCredentials(config)).rejects.toMatchObject({ code: 'state_dir_unwritable' });
  });
});
