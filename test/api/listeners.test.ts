import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { loadToken, TOKEN_FILE } from '../../src/api/auth.ts';
import type { ApiContext } from '../../src/api/context.ts';
import { type ApiOptions, listenOnSocket, listenOnTcp } from '../../src/api/server.ts';
import { OutliveError } from '../../src/domain/errors.ts';
import { refused, send, start } from '../support/api-http.ts';
import { atTheEnd, bootApi, cleanUp, silent, temporaryDirectory } from '../support/api-rig.ts';

afterEach(cleanUp);

const modeOf = (file: string): number => statSync(file).mode & 0o777;

const UNUSABLE = new OutliveError('store_unavailable', 'The store is not open.');

/** Nothing behind the gate: whoever looks there, while routes are made too, makes our mistake. */
const nothingYet = new Proxy({} as ApiContext, {
  get: (_, name) => {
    throw new Error(`context.${String(name)} was read, and there is no daemon behind it`);
  },
});

const refusedOptions = (refusal: OutliveError = UNUSABLE): ApiOptions => ({
  log: silent,
  version: '0.0.0',
  context: nothingYet,
  gate: () => refusal,
});

describe('the unix socket', () => {
  it('is of its user only: file 0600 in a directory 0700', async () => {
    const { socketPath } = await bootApi();
    expect(statSync(socketPath).isSocket()).toBe(true);
    expect(modeOf(socketPath)).toBe(0o600);
    expect(modeOf(path.dirname(socketPath))).toBe(0o700);
  });

  it('is so also in a directory that was there before, and open to others', async () => {
    const directory = path.join(temporaryDirectory(), 'api');
    mkdirSync(directory);
    chmodSync(directory, 0o755);
    const listener = await listenOnSocket(refusedOptions(), path.join(directory, 'api.sock'));
    atTheEnd(() => listener.close());
    expect(modeOf(directory)).toBe(0o700);
    expect(modeOf(path.join(directory, 'api.sock'))).toBe(0o600);
  });

  it('takes the place of one that a dead daemon left, or of any file', async () => {
    const socketPath = path.join(temporaryDirectory(), 'api.sock');
    writeFileSync(socketPath, 'left over');
    const listener = await listenOnSocket(refusedOptions(), socketPath);
    atTheEnd(() => listener.close());
    expect((await send({ socketPath }, { path: '/runtime' })).status).toBe(503);
  });

  it('is gone when the listener has closed', async () => {
    const { socketPath, listeners } = await bootApi();
    await listeners.socket.close();
    expect(existsSync(socketPath)).toBe(false);
  });
});

describe('the token file', () => {
  it('is made once, 0600 in a directory 0700, and read the next time', () => {
    const directory = path.join(temporaryDirectory(), 'token');
    const token = loadToken(directory);
    expect(token).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(modeOf(directory)).toBe(0o700);
    expect(modeOf(path.join(directory, TOKEN_FILE))).toBe(0o600);
    expect(loadToken(directory)).toBe(token);
    expect(readFileSync(path.join(directory, TOKEN_FILE), 'utf8').trim()).toBe(token);
  });

  it('of one workspace is another than that of another', () => {
    expect(loadToken(temporaryDirectory())).not.toBe(loadToken(temporaryDirectory()));
  });

  it.each([
    ['empty', ''],
    ['cut off', 'short'],
  ])('that is %s is made anew: no token is never a token', (_what, content) => {
    const directory = temporaryDirectory();
    writeFileSync(path.join(directory, TOKEN_FILE), content);
    expect(loadToken(directory)).toHaveLength(43);
    expect(modeOf(path.join(directory, TOKEN_FILE))).toBe(0o600);
  });

  it('that others could read is closed to them', () => {
    const directory = temporaryDirectory();
    const token = loadToken(directory);
    chmodSync(path.join(directory, TOKEN_FILE), 0o644);
    expect(loadToken(directory)).toBe(token);
    expect(modeOf(path.join(directory, TOKEN_FILE))).toBe(0o600);
  });
});

describe('the TCP port', () => {
  it('0 is any free one, which is told, on the loopback address only', async () => {
    const { tcp, listeners } = await bootApi();
    expect(tcp.port).toBeGreaterThan(0);
    expect(listeners.tcp.app.server.address()).toMatchObject({
      address: '127.0.0.1',
      port: tcp.port,
    });
  });

  it('that is taken is refused by its number and by what to do', async () => {
    const { tcp } = await bootApi();
    const second = listenOnTcp(refusedOptions(), tcp.port, 'token');
    const error = await second.then(
      () => expect.unreachable('it was free'),
      (reason: unknown) => reason as OutliveError,
    );
    expect(error).toBeInstanceOf(OutliveError);
    expect(error.code).toBe('port_taken');
    expect(error.message).toContain(`127.0.0.1:${tcp.port}`);
    expect(error.message).toContain('OUTLIVE_PORT');
  });

  it('that is taken takes nothing from who has it', async () => {
    const rig = await bootApi();
    await listenOnTcp(refusedOptions(), rig.tcp.port, 'token').catch(() => undefined);
    expect((await send(rig.tcp, { path: '/runtime' })).status).toBe(200);
  });
});

describe('a store that cannot be used', () => {
  const refusal = new OutliveError('store_newer', 'store.db has schema 9. Start the newer one.');

  async function serveRefusal(error: OutliveError) {
    const socketPath = path.join(temporaryDirectory(), 'api', 'api.sock');
    const listener = await listenOnSocket(refusedOptions(error), socketPath);
    atTheEnd(() => listener.close());
    return { socketPath };
  }

  const paths = ['/', '/runtime', '/work-units', '/work-units/x', '/work-units/x/cancel'];
  const strange = ['/work-units/x/events', '/nothing', '/%zz', `/${'a'.repeat(300)}`];

  it.each(http.METHODS.filter((method) => method !== 'CONNECT' && method !== 'HEAD'))(
    'is what every path is answered with by %s',
    async (method) => {
      const target = await serveRefusal(refusal);
      for (const each of [...paths, ...strange]) {
        const answer = await send(target, { method, path: each });
        expect(refused(answer), each).toMatchObject({ status: 503, code: 'store_newer' });
      }
    },
  );

  it('is what HEAD is answered with, too', async () => {
    const target = await serveRefusal(refusal);
    const answer = await send(target, { method: 'HEAD', path: '/runtime' });
    expect(answer.status).toBe(503);
  });

  it('is told with the reason', async () => {
    const target = await serveRefusal(refusal);
    const answer = await send(target, { path: '/runtime' });
    expect(answer.text).toContain('store.db has schema 9. Start the newer one.');
  });

  it('is answered also to a body that nobody would read', async () => {
    const target = await serveRefusal(refusal);
    const answer = await send(target, {
      method: 'POST',
      path: '/work-units',
      headers: { 'content-type': 'text/plain' },
      body: 'not json',
    });
    expect(refused(answer).status).toBe(503);
  });
});

describe('a daemon that is shutting down', () => {
  it('refuses new work and still answers reads', async () => {
    const rig = await bootApi();
    const { id } = await start(rig.socket);
    await rig.context.supervisor.close();
    const before = rig.counts();
    const body = { runnerId: 'command', ownerId: 'ada', argv: ['true'] };
    const answer = await send(rig.socket, { path: '/work-units', body });
    expect(refused(answer)).toMatchObject({ status: 503, code: 'shutting_down' });
    expect(rig.counts()).toEqual(before);
    expect((await send(rig.socket, { path: `/work-units/${id}` })).status).toBe(200);
  });

  it('does not wait for a connection that says nothing', async () => {
    const rig = await bootApi();
    const idle = net.connect(rig.socketPath);
    const closed = new Promise<void>((resolve) => idle.on('close', () => resolve()));
    await new Promise<void>((resolve) => idle.on('connect', () => resolve()));
    await send(rig.socket, { path: '/runtime' });
    await rig.listeners.socket.close();
    await expect(closed).resolves.toBeUndefined();
  });
});
