/** The key proxy against real HTTP servers. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestListener,
  request,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { describe, expect, onTestFinished, test } from 'vitest';
import { openKeyProxy } from '../../src/attempt/key-proxy.ts';
import type { ProxiedKey } from '../../src/attempt/proxied-keys.ts';

const KEY = 'the-real-key-0123456789';
const TOKEN = 'outlive-token-of-this-run';
const BEARER = { authorization: `Bearer ${TOKEN}` };

interface Seen {
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: string;
}

/** A server on loopback; gone after the test. */
async function upstream(
  listener: RequestListener,
): Promise<{ origin: string; port: number; connections: () => Promise<number> }> {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const connections = (): Promise<number> =>
    new Promise((resolve, reject) => {
      server.getConnections((error, count) => (error ? reject(error) : resolve(count)));
    });
  return { origin: `http://127.0.0.1:${port}`, port, connections };
}

/** One that answers every request alike and tells what it was sent. */
async function recorder(
  status = 200,
  headers: Record<string, string | string[]> = {},
  answer: string | Buffer = 'ok',
): Promise<{ origin: string; seen: Seen[] }> {
  const seen: Seen[] = [];
  const { origin } = await upstream((incoming, response) => {
    void text(incoming).then((body) => {
      const { method, url, headers: sent, rawHeaders } = incoming;
      seen.push({ method, url, headers: sent, rawHeaders, body });
      response.writeHead(status, headers).end(Buffer.from(answer));
    });
  });
  return { origin, seen };
}

const keyTo = (baseUrl: string, changes: Partial<ProxiedKey> = {}): ProxiedKey => ({
  provider: 'acme',
  keyVariable: 'ACME_KEY',
  baseUrl,
  header: 'authorization',
  scheme: 'Bearer',
  token: TOKEN,
  key: { value: KEY },
  ...changes,
});

/** A proxy for these keys; what it warned of; gone after the test. */
async function proxyFor(
  keys: readonly ProxiedKey[],
  environment: Record<string, string> = {},
): Promise<{ bases: string[]; warned: string[] }> {
  const warned: string[] = [];
  const warn = (sentence: string): number => warned.push(sentence);
  const proxy = await openKeyProxy(keys, { environment, warn });
  onTestFinished(() => proxy.close());
  return { bases: proxy.providers.map(({ baseUrl }) => baseUrl), warned };
}

async function baseFor(key: ProxiedKey): Promise<string> {
  const { bases } = await proxyFor([key]);
  return bases[0] ?? '';
}

/** Sends a request; resolves with the answer once its head is there. */
async function ask(
  url: string,
  options: {
    method?: string;
    headers?: Record<string, string | string[]>;
    body?: string;
    path?: string;
  } = {},
): Promise<IncomingMessage> {
  const { body, ...rest } = options;
  const sent = request(url, { agent: false, ...rest });
  sent.end(body);
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  return answer;
}

describe('the key', () => {
  test.each([
    ['Bearer in authorization', 'authorization', 'Bearer', `Bearer ${KEY}`, BEARER],
    ['bare in x-api-key', 'x-api-key', null, KEY, { 'x-api-key': TOKEN }],
    ['in another header than the token came in', 'x-api-key', null, KEY, BEARER],
    ['of a provider with a word of its own', 'authorization', 'Key', `Key ${KEY}`, BEARER],
    ['whatever the case of the header', 'X-Goog-Api-Key', null, KEY, { 'x-GOOG-api-KEY': TOKEN }],
    [
      'where Pi sends its token twice',
      'x-api-key',
      null,
      KEY,
      { 'x-api-key': TOKEN, ...BEARER, 'x-mine': 'kept' },
    ],
  ])('takes the place of the token: %s', async (_, header, scheme, value, headers) => {
    const { origin, seen } = await recorder();
    const base = await baseFor(keyTo(`${origin}/v1`, { header, scheme }));
    expect((await ask(`${base}/chat`, { headers })).statusCode).toBe(200);
    const raw = seen[0]?.rawHeaders ?? [];
    expect(seen[0]?.headers[header.toLowerCase()]).toBe(value);
    expect(
      raw.filter((each) => each.includes(KEY)),
      'once',
    ).toHaveLength(1);
    expect(raw.join('\n'), 'the token goes nowhere').not.toContain(TOKEN);
  });

  test('is chosen by the token where there are several, also of one host', async () => {
    const { origin, seen } = await recorder();
    const keys = ['a', 'b'].map((name) =>
      keyTo(origin, { provider: name, token: `token-${name}`, key: { value: `key-${name}` } }),
    );
    const { bases } = await proxyFor(keys);
    for (const name of ['b', 'a']) {
      await ask(`${bases[0]}/x`, { headers: { authorization: `Bearer token-${name}` } });
    }
    expect(seen.map(({ headers }) => headers.authorization)).toEqual([
      'Bearer key-b',
      'Bearer key-a',
    ]);
  });

  test.each<[string, Record<string, string>]>([
    ['no token', {}],
    ['a wrong token', { authorization: `Bearer ${TOKEN}x` }],
    ['the beginning of the token', { authorization: `Bearer ${TOKEN.slice(0, -1)}` }],
    ['the key itself', { authorization: `Bearer ${KEY}` }],
    ['an empty header', { authorization: '' }],
  ])('is not lent to a request with %s: 401, and nothing is sent', async (_, headers) => {
    const { origin, seen } = await recorder();
    const base = await baseFor(keyTo(origin));
    const answer = await ask(`${base}/x`, { method: 'POST', headers, body: 'a'.repeat(1 << 20) });
    expect(answer.statusCode).toBe(401);
    const said = await text(answer);
    expect(JSON.parse(said)).toMatchObject({ error: { type: 'authentication_error' } });
    expect(said).toContain('auth.json');
    expect(said).not.toContain(KEY);
    expect(seen).toEqual([]);
  });

  test('that is not there is said by name, to who wanted it: 401', async () => {
    const { origin, seen } = await recorder();
    const base = await baseFor(keyTo(origin, { key: { missing: 'ACME_KEY: ENOENT' } }));
    const answer = await ask(`${base}/x`, { headers: BEARER });
    expect(answer.statusCode).toBe(401);
    expect(await text(answer)).toContain('there is no key: ACME_KEY: ENOENT');
    expect(seen).toEqual([]);
  });

  test.each([
    '/elsewhere',
    '/v10/chat',
    '/v1/../admin',
    '/v1/%2e%2e/admin',
    '/v1\\..\\admin',
    '//evil.example/v1/chat',
    '@evil.example/v1',
  ])('goes nowhere but below its base URL: %s is refused', async (tail) => {
    const { origin, seen } = await recorder();
    const base = await baseFor(keyTo(`${origin}/v1`));
    const { host } = new URL(origin);
    for (const path of [tail, `/${host}${tail}`]) {
      const answer = await ask(base, { path, headers: BEARER });
      expect([400, 404], path).toContain(answer.statusCode);
    }
    expect(seen).toEqual([]);
  });
});

describe('what is sent', () => {
  test('arrives as it was: method, path, query, headers, body', async () => {
    const { origin, seen } = await recorder();
    const base = await baseFor(keyTo(`${origin}/v1/`));
    const headers = {
      ...BEARER,
      'content-type': 'application/json',
      'x-twice': ['a', 'b'],
      'x-hop': 'for the proxy only',
      connection: 'close, x-hop',
    };
    const body = JSON.stringify({ text: 'wörds' });
    await ask(`${base}/chat/a%20b?beta=true&x=%2F`, { method: 'PUT', headers, body });
    const [{ rawHeaders, headers: got, ...rest } = seen[0] as Seen] = seen;
    expect(rest).toEqual({ method: 'PUT', url: '/v1/chat/a%20b?beta=true&x=%2F', body });
    expect(got).toMatchObject({
      host: new URL(origin).host,
      'content-type': 'application/json',
      'x-twice': 'a, b',
    });
    expect(rawHeaders.filter((each) => each.toLowerCase() === 'x-twice')).toHaveLength(2);
    expect(got).not.toHaveProperty('x-hop');
    expect(JSON.stringify(got), 'the provider sees no proxy').not.toMatch(/via|forwarded/i);
  });

  test('streams: the provider has the first part before the last one is sent', async () => {
    const first = Promise.withResolvers<string>();
    const { origin } = await upstream((incoming, response) => {
      incoming.once('data', (chunk: Buffer) => first.resolve(chunk.toString()));
      void text(incoming).then((body) => response.end(body));
    });
    const base = await baseFor(keyTo(origin));
    const sent = request(`${base}/x`, { method: 'POST', headers: BEARER, agent: false });
    sent.write('one ');
    expect(await first.promise).toBe('one ');
    sent.end('two');
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    expect(await text(answer)).toBe('one two');
  });
});

describe('an answer', () => {
  test.each<[number, Record<string, string | string[]>]>([
    [401, { 'www-authenticate': 'Bearer realm="acme"' }],
    [429, { 'retry-after': '77', 'x-ratelimit-reset': '5' }],
    [500, { 'content-type': 'text/plain' }],
    [307, { location: 'https://elsewhere.example/v1' }],
    [200, { 'set-cookie': ['a=1', 'b=2'], 'x-odd': 'ÿ' }],
  ])('of %i comes through as it was, headers and body', async (status, headers) => {
    const body = `{"error":{"message":"scripted ${status}"}}`;
    const { origin } = await recorder(status, { ...headers, 'content-length': '36' }, body);
    const base = await baseFor(keyTo(origin));
    const answer = await ask(`${base}/x`, { headers: BEARER });
    expect(answer.statusCode).toBe(status);
    expect(answer.headers).toMatchObject({ ...headers, 'content-length': '36' });
    expect(await text(answer)).toBe(body);
  });

  test('that is compressed stays so', async () => {
    const packed = gzipSync('packed');
    const { origin } = await recorder(200, { 'content-encoding': 'gzip' }, packed);
    const base = await baseFor(keyTo(origin));
    const answer = await ask(`${base}/x`, { headers: BEARER });
    const chunks = (await answer.toArray()) as Buffer[];
    expect(answer.headers['content-encoding']).toBe('gzip');
    expect(Buffer.concat(chunks).equals(packed)).toBe(true);
  });

  test('to HEAD and one without a body end', async () => {
    const { origin } = await recorder(204, {}, '');
    const base = await baseFor(keyTo(origin));
    for (const method of ['HEAD', 'GET']) {
      const answer = await ask(`${base}/x`, { method, headers: BEARER });
      expect([answer.statusCode, await text(answer)]).toEqual([204, '']);
    }
  });

  test('keeps its pace: head and each part arrive before the provider goes on', async () => {
    const steps: (() => void)[] = [];
    const step = (): Promise<void> => new Promise((resolve) => steps.push(resolve));
    const { origin } = await upstream((_, response) => {
      void (async () => {
        response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
        for (const part of ['data: 1\n\n', 'data: 2\n\n']) {
          await step();
          response.write(part);
        }
        await step();
        response.end();
      })();
    });
    const base = await baseFor(keyTo(origin));
    const answer = await ask(`${base}/x`, { headers: BEARER });
    const arrived: string[] = [];
    const ended = once(answer, 'end');
    for (const part of ['data: 1\n\n', 'data: 2\n\n']) {
      const [chunk] = await Promise.all([once(answer, 'data'), Promise.resolve(steps.shift()?.())]);
      arrived.push(String(chunk[0]));
      expect(arrived.at(-1)).toBe(part);
    }
    steps.shift()?.();
    await ended;
  });

  test('that nobody takes is not gathered here: the provider feels it', async () => {
    const stalled = Promise.withResolvers<number>();
    let sent = 0;
    const { origin } = await upstream((_, response) => {
      const part = Buffer.alloc(64 * 1024);
      const fill = (): void => {
        while (response.write(part)) sent += part.length;
        // Nothing has drained for as long as a loopback needs many times over.
        const timer = setTimeout(() => stalled.resolve(sent), 500);
        response.once('drain', () => {
          clearTimeout(timer);
          if (sent < 64 * 1024 * 1024) fill();
          else stalled.resolve(sent);
        });
      };
      fill();
    });
    const base = await baseFor(keyTo(origin));
    const answer = await ask(`${base}/x`, { headers: BEARER });
    answer.pause();
    expect(await stalled.promise).toBeLessThan(32 * 1024 * 1024);
    answer.destroy();
  });
});

describe('the end of one side', () => {
  test.each([
    ['before', false],
    ['within', true],
  ])(
    'a client that gives up %s the answer ends the request to the provider',
    async (_, answers) => {
      const come = Promise.withResolvers<void>();
      const gone = Promise.withResolvers<boolean>();
      const { origin } = await upstream((_request, response) => {
        response.once('close', () => gone.resolve(response.writableFinished));
        if (answers) response.write('a part');
        come.resolve();
      });
      const base = await baseFor(keyTo(origin));
      const sent = request(`${base}/x`, { method: 'POST', headers: BEARER, agent: false });
      sent.on('error', () => {});
      sent.end('body');
      await come.promise;
      if (answers) await once(sent, 'response');
      sent.destroy();
      expect(await gone.promise).toBe(false);
    },
  );

  test('a client that gives up in the middle of its body does, too', async () => {
    const come = Promise.withResolvers<IncomingMessage>();
    const { origin } = await upstream((incoming) => {
      incoming.on('error', () => {});
      incoming.once('data', () => come.resolve(incoming));
    });
    const base = await baseFor(keyTo(origin));
    const sent = request(`${base}/x`, { method: 'POST', headers: BEARER, agent: false });
    sent.on('error', () => {});
    sent.write('half');
    const incoming = await come.promise;
    const closed = new Promise((resolve) => incoming.once('close', resolve));
    sent.destroy();
    await closed;
    expect(incoming.complete).toBe(false);
  });

  test('a provider that cannot be reached is a connection that breaks off, and is said', async () => {
    const { bases, warned } = await proxyFor([keyTo(`http://127.0.0.1:${await closedPort()}`)]);
    await expect(ask(`${bases[0]}/x`, { headers: BEARER })).rejects.toThrow('socket hang up');
    expect(warned).toEqual([expect.stringMatching(/^127\.0\.0\.1:\d+ could not .*ECONNREFUSED$/)]);
  });

  test('a name that does not resolve is said as well', async () => {
    const { bases, warned } = await proxyFor([keyTo('http://nowhere.invalid/v1')]);
    await expect(ask(`${bases[0]}/x`, { headers: BEARER })).rejects.toThrow('socket hang up');
    expect(warned).toEqual([
      expect.stringMatching(/^nowhere\.invalid could not be reached .*(ENOTFOUND|EAI_AGAIN)$/),
    ]);
  });

  test('an answer that is cut is cut for Pi', async () => {
    const { origin } = await upstream((_, response) => {
      response.write('a part', () => response.destroy());
    });
    const { bases, warned } = await proxyFor([keyTo(origin)]);
    const answer = await ask(`${bases[0]}/x`, { headers: BEARER });
    await expect(text(answer)).rejects.toThrow('aborted');
    expect(warned).toEqual([]);
  });

  test('a provider that speaks no HTTP breaks off', async () => {
    const server = createTcpServer((socket) => socket.end('SSH-2.0-nothing\r\n'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const { bases, warned } = await proxyFor([keyTo(`http://127.0.0.1:${port}`)]);
    await expect(ask(`${bases[0]}/x`, { headers: BEARER })).rejects.toThrow('socket hang up');
    expect(warned).toHaveLength(1);
  });

  test('a provider that answers before it has read all is heard', async () => {
    const { origin } = await upstream((_, response) => {
      response.writeHead(413, { connection: 'close' }).end('too large');
    });
    const base = await baseFor(keyTo(origin));
    const answer = await ask(`${base}/x`, { method: 'POST', headers: BEARER, body: 'a' });
    expect([answer.statusCode, await text(answer)]).toEqual([413, 'too large']);
  });

  test('closing ends every connection, of one that hangs as well', async () => {
    const come = Promise.withResolvers<void>();
    const gone = Promise.withResolvers<void>();
    const { origin } = await upstream((_, response) => {
      response.once('close', () => gone.resolve());
      come.resolve();
    });
    const proxy = await openKeyProxy([keyTo(origin)], { environment: {}, warn: () => {} });
    const base = proxy.providers[0]?.baseUrl;
    const answer = ask(`${base}/x`, { headers: BEARER }).catch((error: Error) => error.message);
    await come.promise;
    proxy.close();
    expect(await answer).toBe('socket hang up');
    await gone.promise;
  });
});

test('no connection to a provider is kept, one with Pi is', async () => {
  const { origin, seen } = await recorder();
  const base = await baseFor(keyTo(origin));
  const answer = await ask(`${base}/x`, { headers: { ...BEARER, connection: 'keep-alive' } });
  expect(seen[0]?.headers.connection).toBe('close');
  expect(answer.headers.connection).toBe('keep-alive');
});

test("HTTP_PROXY and NO_PROXY of the run hold for the proxy's own way out", async () => {
  const { origin, seen } = await recorder();
  const other = await recorder(200, {}, 'through the other');
  const environment = { HTTP_PROXY: other.origin };
  const { bases } = await proxyFor([keyTo(`${origin}/v1`)], environment);
  const answer = await ask(`${bases[0]}/x`, { headers: BEARER });
  expect(await text(answer)).toBe('through the other');
  expect(other.seen[0]?.url).toBe(`${origin}/v1/x`);
  expect(seen).toEqual([]);
  const past = await proxyFor([keyTo(origin)], { ...environment, NO_PROXY: '127.0.0.1' });
  await ask(`${past.bases[0]}/x`, { headers: BEARER });
  expect(seen).toHaveLength(1);
});

test("TLS is checked as Pi would: an authority of one's own counts by NODE_EXTRA_CA_CERTS, and only so", async () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'outlive-tls-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const [key, cert] = ['key.pem', 'cert.pem'].map((name) => path.join(directory, name));
  const what = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-days', '2'];
  const made = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'];
  const files = ['-nodes', '-keyout', key ?? '', '-out', cert ?? ''];
  execFileSync('openssl', [...made, ...what, ...files], { stdio: 'pipe' });
  const tls = { key: readFileSync(key ?? ''), cert: readFileSync(cert ?? '') };
  const server = createTlsServer(tls, (incoming, response) => {
    response.end(incoming.headers.authorization);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const acme = keyTo(`https://localhost:${(server.address() as AddressInfo).port}/v1`);
  const trusting = await proxyFor([acme], { NODE_EXTRA_CA_CERTS: cert ?? '' });
  const answer = await ask(`${trusting.bases[0]}/x`, { headers: BEARER });
  expect(await text(answer)).toBe(`Bearer ${KEY}`);
  const strict = await proxyFor([acme], { NODE_EXTRA_CA_CERTS: '/nonexistent' });
  await expect(ask(`${strict.bases[0]}/x`, { headers: BEARER })).rejects.toThrow('socket hang up');
  expect(strict.warned).toEqual([expect.stringContaining('DEPTH_ZERO_SELF_SIGNED_CERT')]);
});

async function closedPort(): Promise<number> {
  const server = createTcpServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
