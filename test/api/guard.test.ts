import { once } from 'node:events';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { COMMAND, openStream, post, refused, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await bootApi();
});
afterAll(cleanUp);

const anonymous = () => ({ port: rig.tcp.port });
const own = () => `127.0.0.1:${rig.tcp.port}`;

const ROUTES = [
  ['GET', '/runtime'],
  ['GET', '/work-units'],
  ['POST', '/work-units'],
  ['GET', '/work-units/x'],
  ['POST', '/work-units/x/cancel'],
  ['GET', '/work-units/x/events'],
  ['GET', '/nothing'],
  ['DELETE', '/work-units/x'],
  ['OPTIONS', '/work-units'],
] as const;

describe('the TCP listener without a token', () => {
  it.each(ROUTES)('refuses %s %s, before it looks at anything else', async (method, path) => {
    const before = rig.counts();
    const answer = await send(anonymous(), { method, path });
    expect(answer.status).toBe(401);
    expect(refused(answer).code).toBe('unauthorized');
    expect(rig.counts()).toEqual(before);
  });

  it('refuses HEAD like GET', async () => {
    expect((await send(anonymous(), { method: 'HEAD', path: '/runtime' })).status).toBe(401);
  });

  it('refuses work that would have been good', async () => {
    const before = rig.counts();
    expect(refused(await post(anonymous(), COMMAND)).status).toBe(401);
    expect(rig.counts()).toEqual(before);
  });

  it('refuses a body that is too large without reading it', async () => {
    const answer = await post(anonymous(), Buffer.alloc(13 * 1024 * 1024, 0x20));
    expect(refused(answer).status).toBe(401);
  });
});

describe('the token', () => {
  it('opens every door', async () => {
    expect((await send(rig.tcp, { path: '/runtime' })).status).toBe(200);
    expect((await start(rig.tcp)).status).toBe('queued');
  });

  it('is taken whatever the case of the scheme', async () => {
    const headers = { authorization: `bearer ${rig.tcp.token}` };
    expect((await send(anonymous(), { path: '/runtime', headers })).status).toBe(200);
  });

  it.each<[string, (token: string) => string]>([
    ['another', () => `Bearer ${'x'.repeat(43)}`],
    ['one too short', (token) => `Bearer ${token.slice(0, -1)}`],
    ['one too long', (token) => `Bearer ${token}x`],
    ['the right one in another case', (token) => `Bearer ${swapCase(token)}`],
    ['none after the scheme', () => 'Bearer '],
    ['the right one without a scheme', (token) => token],
    ['the right one in another scheme', (token) => `Basic ${token}`],
    ['the right one and more', (token) => `Bearer ${token} x`],
    ['an empty header', () => ''],
  ])('is not %s', async (_what, authorization) => {
    const answer = await send(anonymous(), {
      path: '/runtime',
      headers: { authorization: authorization(rig.tcp.token) },
    });
    expect(refused(answer)).toMatchObject({ status: 401, code: 'unauthorized' });
  });

  it('is not taken from the query or a cookie', async () => {
    const { token } = rig.tcp;
    const byQuery = await send(anonymous(), { path: `/work-units?token=${token}` });
    const byCookie = await send(anonymous(), {
      path: '/runtime',
      headers: { cookie: `token=${token}` },
    });
    expect([byQuery.status, byCookie.status]).toEqual([401, 401]);
  });

  it('is asked for by nobody on the unix socket', async () => {
    expect((await send(rig.socket, { path: '/runtime' })).status).toBe(200);
  });

  it('is never part of an answer', async () => {
    for (const path of ['/runtime', '/work-units', '/nothing']) {
      const answer = await send(rig.tcp, { path });
      expect(JSON.stringify([answer.headers, answer.text])).not.toContain(rig.tcp.token);
    }
  });
});

describe('Host', () => {
  it.each<[string, (port: number) => string]>([
    ['of another name', () => 'evil.example'],
    ['of another name with our port', (port) => `evil.example:${port}`],
    ['that only begins like ours', (port) => `127.0.0.1.evil.example:${port}`],
    ['with another port', (port) => `127.0.0.1:${port === 80 ? 81 : 80}`],
    ['without a port', () => '127.0.0.1'],
    ['of every address', (port) => `0.0.0.0:${port}`],
  ])('%s is refused, whatever the token', async (_what, host) => {
    const answer = await send(rig.tcp, {
      path: '/runtime',
      headers: { host: host(rig.tcp.port) },
    });
    expect(refused(answer)).toMatchObject({ status: 403, code: 'forbidden_origin' });
  });

  it.each<[string, (port: number) => string]>([
    ['the address', (port) => `127.0.0.1:${port}`],
    ['the name', (port) => `localhost:${port}`],
    ['the name in capitals', (port) => `LocalHost:${port}`],
  ])('as %s of this machine is ours', async (_what, host) => {
    const headers = { host: host(rig.tcp.port) };
    expect((await send(rig.tcp, { path: '/runtime', headers })).status).toBe(200);
  });

  it('must be there', async () => {
    const socket = net.connect(rig.tcp.port, '127.0.0.1');
    await once(socket, 'connect');
    socket.end(`GET /runtime HTTP/1.0\r\nAuthorization: Bearer ${rig.tcp.token}\r\n\r\n`);
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 403 /);
  });
});

describe('Origin', () => {
  it.each<[string, (port: number) => string]>([
    ['of another site', () => 'https://evil.example'],
    ['of another port here', () => 'http://127.0.0.1:1'],
    ['of https here', (port) => `https://127.0.0.1:${port}`],
    ['null, as of a sandboxed page', () => 'null'],
    ['that only begins like ours', (port) => `http://localhost:${port}.evil.example`],
  ])('%s is refused, whatever the token', async (_what, origin) => {
    const before = rig.counts();
    const answer = await post(rig.tcp, COMMAND, { origin: origin(rig.tcp.port) });
    expect(refused(answer)).toMatchObject({ status: 403, code: 'forbidden_origin' });
    expect(rig.counts()).toEqual(before);
  });

  it('of a page of ours is taken', async () => {
    for (const origin of [`http://${own()}`, `http://localhost:${rig.tcp.port}`]) {
      expect((await post(rig.tcp, COMMAND, { origin })).status).toBe(201);
    }
  });

  it('and Host are checked before the token: a stranger learns nothing about it', async () => {
    const answer = await send(anonymous(), { path: '/runtime', headers: { host: 'evil.example' } });
    expect(refused(answer).status).toBe(403);
  });

  it('of another site gets no leave by CORS', async () => {
    const answer = await send(rig.tcp, {
      method: 'OPTIONS',
      path: '/work-units',
      headers: { origin: 'https://evil.example', 'access-control-request-method': 'POST' },
    });
    expect(answer.headers).not.toHaveProperty('access-control-allow-origin');
    expect(answer.status).toBe(403);
  });
});

describe('a stream over TCP', () => {
  it('needs the token as everything else', async () => {
    const { id } = await start(rig.socket);
    const answer = await send(anonymous(), {
      path: `/work-units/${id}/events`,
      headers: { accept: 'text/event-stream' },
    });
    expect(refused(answer).status).toBe(401);
    const stream = await openStream(rig.tcp, id);
    expect(await stream.next(2)).toHaveLength(2);
    stream.drop();
  });
});

function swapCase(token: string): string {
  return Array.from(token, (letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  ).join('');
}
