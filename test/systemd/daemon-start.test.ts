/** How a daemon begins: what it looks at first, what it refuses, and what it leaves alone when it fails. */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startDaemon } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import { dropInDirectoryName } from '../../src/domain/names.ts';
import { attemptPaths } from '../../src/supervisor/attempt-directory.ts';
import { type FaultPoint, noFaults } from '../../src/supervisor/faults.ts';
import { send } from '../support/api-http.ts';
import { cli } from '../support/cli.ts';
import { InProcessDaemon } from '../support/core-daemon.ts';
import { type DaemonProcess, Rig, said, systemctl, within } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

const left: (() => void)[] = [];
afterEach(() => {
  for (const undo of left.splice(0)) undo();
});

/** A server of somebody else's, which takes connections and says nothing. */
async function stranger(at: net.ListenOptions): Promise<net.Server> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => sockets.add(socket.on('error', () => undefined)));
  await new Promise<void>((resolve) => server.listen(at, resolve));
  left.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return server;
}

const portOf = (server: net.Server): number => (server.address() as net.AddressInfo).port;

async function freePort(): Promise<number> {
  const server = net.createServer();
  await new Promise<void>((resolve) => server.listen({ host: '127.0.0.1', port: 0 }, resolve));
  const port = portOf(server);
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const token = (): string =>
  readFileSync(path.join(rig.config.directories.token, 'api-token'), 'utf8').trim();

const ended = (daemon: DaemonProcess): Promise<number | NodeJS.Signals> =>
  within('the daemon to end', daemon.exited);

/** A running command, and the daemon that had started it dead. */
async function orphan(): Promise<{ id: string; unit: string; invocation: string }> {
  const daemon = await rig.startDaemon();
  const { id } = await rig.submit({ argv: ['sh', '-c', 'echo up; exec sleep 600'] });
  await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its output');
  const [attempt] = (await rig.client.getWorkUnit(id)).attempts;
  daemon.kill('SIGKILL');
  await ended(daemon);
  return { id, unit: attempt?.unit ?? '', invocation: attempt?.invocationId ?? '' };
}

async function runsOn({ id, unit, invocation }: Awaited<ReturnType<typeof orphan>>) {
  expect(await systemctl('show', '-P', 'ActiveState', unit)).toBe('active');
  expect(await systemctl('show', '-P', 'InvocationID', unit)).toBe(invocation);
  await rig.startDaemon();
  await rig.waitForEvent(id, ({ type }) => type === 'attempt.reattached', 'it to be taken up');
  const workUnit = await rig.client.getWorkUnit(id);
  expect(workUnit.status).toBe('running');
  expect(workUnit.attempts).toHaveLength(1);
}

describe('a start that fails', () => {
  it('over a taken port takes nothing up: the process ends, what runs runs on, the next start has it', async () => {
    const run = await orphan();
    const other = await stranger({ host: '127.0.0.1', port: 0 });
    const daemon = rig.spawnDaemon({ env: { OUTLIVE_PORT: String(portOf(other)) } });
    expect(await ended(daemon)).toBe(1);
    expect(daemon.output()).toContain('port_taken');
    expect(daemon.output(), 'the port is looked at first').not.toContain('"msg":"recovery"');
    await runsOn(run);
  });

  it('after recovery ends as well, and what runs runs on', async () => {
    const run = await orphan();
    const inTheWay = path.dirname(rig.config.directories.apiSocket);
    rmSync(inTheWay, { recursive: true });
    writeFileSync(inTheWay, 'a file where the directory of the socket belongs');
    const port = await freePort();
    const daemon = rig.spawnDaemon({ env: { OUTLIVE_PORT: String(port) } });
    expect(await ended(daemon)).toBe(1);
    expect(daemon.output()).toContain('"msg":"recovery"');
    rmSync(inTheWay);
    await runsOn(run);
  });

  it('leaves nothing open: neither port nor locks', async () => {
    const inTheWay = path.dirname(rig.config.directories.apiSocket);
    mkdirSync(path.dirname(inTheWay), { recursive: true, mode: 0o700 });
    writeFileSync(inTheWay, 'a file where the directory of the socket belongs');
    const port = await freePort();
    const config = loadConfig({ ...rig.env, OUTLIVE_PORT: String(port) });
    const options = { config, log: pino({ level: 'silent' }), fault: noFaults };
    await expect(startDaemon(options)).rejects.toThrow(inTheWay);
    await stranger({ host: '127.0.0.1', port });
    rmSync(inTheWay);
    const next = await startDaemon({ ...options, config: rig.config });
    expect(next.refusal).toBeNull();
    await next.close();
  });

  it('for want of a user manager ends by its own code, whatever is still open', async () => {
    const env = {
      OUTLIVE_EXECUTOR: 'systemd',
      OUTLIVE_PORT: '0',
      DBUS_SESSION_BUS_ADDRESS: `unix:path=${rig.base}/no-bus`,
    };
    const daemon = rig.spawnDaemon({ env });
    expect(await ended(daemon)).toBe(4);
    expect(daemon.output()).toContain('no_user_manager');
  });
});

describe('before recovery is done', () => {
  it('the port answers nothing but 503 "starting", and that to holders of the token only', async () => {
    const bus = path.join(rig.base, 'mute-bus');
    await stranger({ path: bus });
    const port = await freePort();
    const daemon = rig.spawnDaemon({
      env: {
        OUTLIVE_EXECUTOR: 'systemd',
        OUTLIVE_PORT: String(port),
        DBUS_SESSION_BUS_ADDRESS: `unix:path=${bus}`,
      },
    });
    await said(daemon, `127.0.0.1:${port}`);
    const answer = await send({ port, token: token() }, { path: '/runtime' });
    expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1']);
    expect(answer.text).toContain('"code":"starting"');
    expect((await send({ port }, { path: '/runtime' })).status).toBe(401);
    expect(existsSync(rig.config.directories.apiSocket)).toBe(false);
    expect(await ended(daemon)).toBe(4);
  });
});

describe('a claimed work unit that is cancelled before its start', () => {
  it('starts nothing', async () => {
    const cancelAt: { point: FaultPoint; act: () => void } = {
      point: 'prepared',
      act: () => undefined,
    };
    const daemon = await InProcessDaemon.start(rig, (point) => {
      if (point === cancelAt.point) cancelAt.act();
    });
    try {
      cancelAt.act = () => {
        const [row] = daemon.store.attempts.listActive();
        if (row) daemon.supervisor.cancel(row.workUnitId, { actor: 'user', reason: null });
      };
      const id = daemon.submit({ argv: ['sleep', '600'] });
      expect((await daemon.end(id)).status).toBe('cancelled');
      const [attempt] = daemon.attempts(id);
      if (!attempt) throw new Error('it had no attempt');
      expect(attempt.invocationId).toBeNull();
      expect(existsSync(attemptPaths(daemon.context.settings, attempt).spool)).toBe(false);
      await rig.unitsAreGone();
    } finally {
      await daemon.close();
    }
  });
});

describe('the same workspace under two state directories', () => {
  it('the second daemon refuses by the name of the first state, and takes neither socket nor drop-in', async () => {
    const first = await rig.startDaemon();
    const dropIn = path.join(
      rig.config.directories.userRuntime,
      'systemd/user',
      dropInDirectoryName(rig.workspace),
      '50-exit.conf',
    );
    const before = readFileSync(dropIn, 'utf8');
    const elsewhere = path.join(rig.base, 'state-of-another');
    const second = rig.spawnDaemon({ env: { XDG_STATE_HOME: elsewhere } });
    expect(await ended(second)).toBe(5);
    expect(second.output()).toContain('workspace_owned');
    expect(second.output()).toContain(rig.config.directories.state);
    expect(second.output()).toContain(`pid ${first.pid}`);
    expect((await rig.client.runtime()).pid).toBe(first.pid);
    expect(readFileSync(dropIn, 'utf8')).toBe(before);
  });
});

describe('twenty daemons at once', () => {
  it('leave exactly one owner, and the others name it or say that it has no name yet; row 001, row 005', async () => {
    const daemons = Array.from({ length: 20 }, () => rig.spawnDaemon());
    const fates = await within(
      'all but one to end',
      new Promise<(number | NodeJS.Signals)[]>((resolve) => {
        const codes: (number | NodeJS.Signals)[] = [];
        for (const daemon of daemons) {
          void daemon.exited.then((code) => {
            codes.push(code);
            if (codes.length === daemons.length - 1) resolve(codes);
          });
        }
      }),
    );
    expect(new Set(fates)).toEqual(new Set([5]));
    const owner = daemons.find(({ output }) => !output().includes('workspace_owned'));
    if (!owner) throw new Error('nobody owns the workspace');
    await said(owner, '"msg":"ready"');
    expect((await rig.client.runtime()).pid).toBe(owner.pid);
  });
});

describe('a takeover', () => {
  it('from a daemon that was killed is told by the API and by daemon status; row 004, row 289', async () => {
    const first = await rig.startDaemon();
    const { runtimeInstanceId, startedAt } = await rig.client.runtime();
    first.kill('SIGKILL');
    await ended(first);
    await rig.startDaemon();
    const second = await rig.client.runtime();
    expect(second.runtimeInstanceId, 'row 005').not.toBe(runtimeInstanceId);
    const expected = {
      previousInstanceId: runtimeInstanceId,
      previousPid: first.pid,
      previousStartedAt: startedAt,
      runtimeInstanceId: second.runtimeInstanceId,
      evidence: 'kernel_lock_free',
    };
    expect(second.tookOver).toMatchObject(expected);
    expect((await rig.client.supervisor()).takeovers).toMatchObject([expected]);
    expect((await cli(rig, ['daemon', 'status'])).stdout).toContain(runtimeInstanceId);
  });

  it('is not what follows an orderly end; the one before stays in the record', async () => {
    const first = await rig.startDaemon();
    first.kill('SIGKILL');
    await ended(first);
    const second = await rig.startDaemon();
    second.kill('SIGTERM');
    expect(await ended(second)).toBe(0);
    await rig.startDaemon();
    expect((await rig.client.runtime()).tookOver).toBeNull();
    expect((await rig.client.supervisor()).takeovers).toHaveLength(1);
  });
});
