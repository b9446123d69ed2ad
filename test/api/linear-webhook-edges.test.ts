/** Linear's webhooks at the edges: what is no delivery, a ledger that fails, the end of the server. */
import { once } from 'node:events';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { refused, send } from '../support/api-http.ts';
import { atTheEnd, bootApi, cleanUp } from '../support/api-rig.ts';
import { bootIngress as boot, expectStored, onlyRow, rows } from '../support/linear-ingress.ts';
import { createdBody, delivery } from '../support/linear-webhooks.ts';

afterEach(cleanUp);

describe('X03: what is no delivery', () => {
  it('a body above 1 MiB is 413, one of just 1 MiB is stored', async () => {
    const ingress = await boot();
    const body = createdBody('s', { promptContext: '' });
    const room = 1024 * 1024 - Buffer.byteLength(JSON.stringify(body));
    const full = { ...body, promptContext: 'x'.repeat(room) };
    for (const headers of [{}, { 'transfer-encoding': 'chunked' }]) {
      const over = delivery({ ...full, promptContext: `${full.promptContext}x` }, { headers });
      const answer = await send(ingress.tcp, over);
      expect(refused(answer)).toMatchObject({ status: 413, code: 'body_too_large' });
      expect(answer.text).toContain('1 MiB');
    }
    expect(rows(ingress)).toBe(0);
    expectStored(await send(ingress.tcp, delivery(full)));
    expect(rows(ingress)).toBe(1);
  });

  it.each(['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])(
    '%s is 405 and says what is offered',
    async (method) => {
      const ingress = await boot();
      const { path, headers } = delivery(createdBody('s'));
      const answer = await send(ingress.tcp, { path, headers, method });
      expect(refused(answer)).toMatchObject({ status: 405, code: 'method_not_allowed' });
      expect(answer.headers['allow']).toBe('POST');
      expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-'))).toEqual([]);
      expect(rows(ingress)).toBe(0);
    },
  );

  it('HEAD is 405 too', async () => {
    const ingress = await boot();
    expect((await send(ingress.tcp, { method: 'HEAD', path: '/linear/webhook' })).status).toBe(405);
  });

  it('a body that comes a byte at a time is cut off, and holds nobody else up', async () => {
    const ingress = await boot({ limits: { headersMs: 200, requestMs: 500, checkMs: 50 } });
    const call = delivery(createdBody('slow'));
    const socket = net.connect(ingress.rig.tcp.port, '127.0.0.1');
    atTheEnd(() => {
      socket.destroy();
    });
    await once(socket, 'connect');
    const signature = String(call.headers['linear-signature']);
    socket.write(
      `POST /linear/webhook HTTP/1.1\r\nHost: x\r\nLinear-Signature: ${signature}\r\nContent-Length: ${Buffer.byteLength(call.body)}\r\n\r\n`,
    );
    const bytes = String(call.body);
    let sent = 0;
    const slowly = setInterval(() => socket.write(bytes.slice(sent, ++sent)), 10);
    atTheEnd(() => clearInterval(slowly));
    expectStored(await send(ingress.tcp, delivery(createdBody('quick'))));
    const [answer] = (await once(socket, 'data')) as [Buffer];
    clearInterval(slowly);
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 400/);
    expect(onlyRow(ingress).sessionId).toBe('quick');
  });

  it('where Linear is not configured there is no such route', async () => {
    const rig = await bootApi();
    const anonymous = await send({ port: rig.tcp.port }, delivery(createdBody('s')));
    expect(refused(anonymous).code).toBe('unauthorized');
    expect(refused(await send(rig.socket, delivery(createdBody('s')))).code).toBe('not_found');
  });
});

describe('a ledger that cannot be written', () => {
  it('bug 23: is 503 with Retry-After, and the same delivery is stored as new when it can', async () => {
    let isFull = true;
    const ingress = await boot({
      store: (real) => ({
        ...real,
        write: (work) => {
          if (!isFull) return real.write(work);
          throw new Error('database or disk is full');
        },
      }),
    });
    const call = delivery(createdBody('s'));
    const answer = await send(ingress.tcp, call);
    expect(refused(answer)).toMatchObject({ status: 503, code: 'store_unavailable' });
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
    expect([rows(ingress), ingress.hints()]).toEqual([0, 0]);
    isFull = false;
    expectStored(await send(ingress.tcp, call));
    expect(onlyRow(ingress).repeats).toBe(0);
  });

  it('fails alone: what cannot be stored takes none of its burst with it', async () => {
    const ingress = await boot({
      store: (real) => ({
        ...real,
        linearDeliveries: {
          ...real.linearDeliveries,
          record: (row) => {
            if (row.sessionId === 'bad') throw new Error('no');
            return real.linearDeliveries.record(row);
          },
        },
      }),
    });
    const sessions = ['a', 'bad', 'b', 'c'];
    const answers = await Promise.all(
      sessions.map((session) => send(ingress.tcp, delivery(createdBody(session)))),
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 503, 200, 200]);
    expect(rows(ingress)).toBe(3);
  });

  it('is 503 while no store is open', async () => {
    const ingress = await boot({ store: () => null });
    const answer = await send(ingress.tcp, delivery(createdBody('s')));
    expect(refused(answer)).toMatchObject({ status: 503, code: 'store_unavailable' });
    expect(rows(ingress)).toBe(0);
  });
});

describe('the end of the server', () => {
  it('answers what is under way before it hangs up', async () => {
    const ingress = await boot();
    const { server } = ingress.rig.listeners.tcp.app;
    const arrived = once(server, 'request');
    const socket = net.connect(ingress.rig.tcp.port, '127.0.0.1');
    atTheEnd(() => {
      socket.destroy();
    });
    const call = delivery(createdBody('late'));
    const signature = String(call.headers['linear-signature']);
    const bytes = String(call.body);
    socket.write(
      `POST /linear/webhook HTTP/1.1\r\nHost: x\r\nLinear-Signature: ${signature}\r\nContent-Length: ${Buffer.byteLength(bytes)}\r\n\r\n${bytes.slice(0, 20)}`,
    );
    await arrived;
    const closed = ingress.rig.listeners.tcp.close();
    socket.write(bytes.slice(20));
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 200/);
    await closed;
    expect(rows(ingress)).toBe(1);
  });
});

it('is in the document of the API once, as POST', async () => {
  const { rig } = await boot();
  const answer = await send(rig.socket, { path: '/openapi.json' });
  const { paths } = JSON.parse(answer.text) as { paths: Record<string, object> };
  expect(Object.keys(paths['/linear/webhook'] ?? {})).toEqual(['post']);
});
