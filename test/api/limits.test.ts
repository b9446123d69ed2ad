/** What a client may cost, on both listeners of the real server. */
import { once } from 'node:events';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { API_LIMITS } from '../../src/api/server.ts';
import { refused, send, type Target } from '../support/api-http.ts';
import { atTheEnd, bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

afterEach(cleanUp);

const listeners = [
  ['the unix socket', (rig: Rig) => rig.socket],
  ['TCP', (rig: Rig) => rig.tcp],
] as const satisfies readonly (readonly [string, (rig: Rig) => Target])[];

async function connect(target: Target): Promise<net.Socket> {
  const socket =
    'port' in target
      ? net.connect(target.port, '127.0.0.1')
      : net.connect({ path: target.socketPath });
  socket.on('error', () => undefined);
  atTheEnd(() => {
    socket.destroy();
  });
  await once(socket, 'connect');
  return socket;
}

/** The status line and the code of a refusal that came as plain bytes. */
const told = (answer: string) => ({
  status: Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1]),
  code: /"code":"(\w+)"/.exec(answer)?.[1],
});

describe.each(listeners)('%s', (_name, targetOf) => {
  it('hangs up on connections beyond its limit, and takes new ones when others have gone', async () => {
    const rig = await bootApi({ connections: 3 });
    const target = targetOf(rig);
    const open = [await connect(target), await connect(target), await connect(target)];
    const beyond = await connect(target);
    await once(beyond, 'close');
    open[0]?.destroy();
    await expect
      .poll(async () => (await send(target, { path: '/runtime' }).catch(() => null))?.status)
      .toBe(200);
  });

  it('refuses a head that does not come to its end in time', async () => {
    const rig = await bootApi({ headersMs: 200, requestMs: 400, checkMs: 50 });
    const socket = await connect(targetOf(rig));
    socket.write('GET /runtime HTTP/1.1\r\nHost: localhost\r\nX-Slow: ');
    expect(told(await text(socket))).toEqual({ status: 400, code: 'bad_request' });
  });

  it('refuses a body that does not come to its end in time', async () => {
    const rig = await bootApi({ headersMs: 200, requestMs: 400, checkMs: 50 });
    const target = targetOf(rig);
    const socket = await connect(target);
    const token = 'token' in target ? `Authorization: Bearer ${target.token}\r\n` : '';
    const host = 'port' in target ? `127.0.0.1:${target.port}` : 'localhost';
    socket.write(
      `POST /work-units HTTP/1.1\r\nHost: ${host}\r\n${token}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"a":`,
    );
    expect(told(await text(socket)).status).toBe(400);
  });

  it('refuses a head that is too large', async () => {
    const rig = await bootApi();
    const headers = { 'x-large': 'x'.repeat(API_LIMITS.headerBytes) };
    const answer = await send(targetOf(rig), { path: '/runtime', headers });
    expect(refused(answer)).toMatchObject({ status: 400, code: 'bad_request' });
  });

  it('refuses a body that is too large, whether it says so or not', async () => {
    const rig = await bootApi({ bodyBytes: 1_000 });
    const body = JSON.stringify({ text: 'x'.repeat(2_000) });
    for (const headers of [{}, { 'transfer-encoding': 'chunked' }]) {
      const answer = await send(targetOf(rig), {
        path: '/work-units',
        headers: { 'content-type': 'application/json', ...headers },
        body,
      });
      expect(refused(answer)).toMatchObject({ status: 413, code: 'body_too_large' });
    }
  });
});

it('the daemon itself has these limits', async () => {
  const { listeners: running } = await bootApi();
  for (const { app } of [running.socket, running.tcp]) {
    const { maxConnections, headersTimeout, requestTimeout } = app.server;
    expect({ maxConnections, headersTimeout, requestTimeout }).toEqual({
      maxConnections: API_LIMITS.connections,
      headersTimeout: API_LIMITS.headersMs,
      requestTimeout: API_LIMITS.requestMs,
    });
    expect(app.initialConfig.bodyLimit).toBe(API_LIMITS.bodyBytes);
  }
});
