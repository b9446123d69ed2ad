/**
 * Stands between Pi and its providers and has the keys that Pi has not. It lives in the wrapper,
 * so a run goes on while no daemon does. Requests that carry the token of a provider go to that
 * provider's base URL with the key in the token's place; nothing else of them is changed, and
 * nothing of them is kept or logged.
 *
 * Whatever Pi does with a provider's answers it must be able to do here: bodies stream both ways
 * with their back-pressure, who gives up here gives up there, and a provider that cannot be
 * reached or breaks off is a connection that breaks off, not an answer that nobody gave.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Agent, ClientRequest, IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { errorCode } from './files.ts';
import type { ProxiedKey } from './proxied-keys.ts';
import type { ProxiedProvider } from './runner.ts';

type Environment = Readonly<Record<string, string>>;

export interface KeyProxy {
  /** As Pi is told of them. */
  readonly providers: readonly ProxiedProvider[];
  /** Ends all connections. */
  close(): void;
}

export interface KeyProxyOptions {
  /** Where HTTPS_PROXY, NO_PROXY and NODE_EXTRA_CA_CERTS are looked up: what would have held for Pi. */
  readonly environment: Environment;
  readonly warn: (sentence: string) => void;
}

/** Of one connection only (RFC 9110, 7.6.1), or made anew for the next. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'host',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);
/** Longer than Pi is ever idle: it must not use a connection at the moment we give it up. */
const KEEP_ALIVE_MS = 3_600_000;
/** The wrapper has files to write; a program that only connects must not take all descriptors. */
const MAX_CONNECTIONS = 128;

type Headers = readonly (readonly [name: string, value: string])[];

interface Route {
  readonly key: ProxiedKey;
  readonly url: URL;
  /** Where requests for it begin: its host, then its path. Pi tells some providers by their base URL. */
  readonly mount: string;
  readonly tokenDigest: Buffer;
  call(path: string, method: string | undefined, headers: Headers): ClientRequest;
}

/** Listens on a free port of 127.0.0.1. Rejects when it cannot. */
export async function openKeyProxy(
  keys: readonly ProxiedKey[],
  options: KeyProxyOptions,
): Promise<KeyProxy> {
  // Only now: an attempt without a proxy does not pay for these.
  const http = await import('node:http');
  const routes = await Promise.all(keys.map((key) => routeOf(key, options)));
  const server = http.createServer({ keepAliveTimeout: KEEP_ALIVE_MS, requestTimeout: 0 });
  server.maxConnections = MAX_CONNECTIONS;
  server.on('request', (request, response) => serve(routes, options, request, response));
  const { port } = await listen(server);
  server.on('error', (error) => options.warn(`The key proxy: ${errorCode(error)}`));
  return {
    providers: routes.map(({ key, mount }) => ({
      name: key.provider,
      baseUrl: `http://127.0.0.1:${port}${mount}`,
      token: key.token,
    })),
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

async function listen(server: Server): Promise<AddressInfo> {
  const listening = once(server, 'listening');
  server.listen(0, '127.0.0.1');
  await listening;
  return server.address() as AddressInfo;
}

async function routeOf(key: ProxiedKey, { environment }: KeyProxyOptions): Promise<Route> {
  const url = new URL(key.baseUrl);
  const isTls = url.protocol === 'https:';
  const { request, Agent } = isTls ? await import('node:https') : await import('node:http');
  // No connection is used twice: one that the provider has given up meanwhile would be a failure
  // that Pi did not have without us, and its request cannot be sent again.
  const trust = isTls ? await trusted(environment) : {};
  const settings = { keepAlive: false, proxyEnv: environment, ...trust };
  const agent: Agent = new Agent(settings);
  return {
    key,
    url,
    mount: `/${url.host}${url.pathname.replace(/\/+$/, '')}`,
    tokenDigest: digest(key.token),
    call: (path, method = 'GET', headers) =>
      request(new URL(`${url.origin}${path}`), { method, agent, headers: gathered(headers) }),
  };
}

/** Node reads this variable when it starts, and then only for itself. */
async function trusted(environment: Environment): Promise<{ ca?: string[] }> {
  const file = environment['NODE_EXTRA_CA_CERTS'];
  if (!file) return {};
  const { rootCertificates } = await import('node:tls');
  try {
    return { ca: [...rootCertificates, readFileSync(file, 'utf8')] };
  } catch {
    return {}; // As Node does: it warns and goes on without.
  }
}

function serve(
  routes: readonly Route[],
  options: KeyProxyOptions,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  // A client that breaks off is told by `close` of the response.
  request.on('error', () => {});
  response.on('error', () => {});
  const headers = endToEnd(request.rawHeaders);
  const way = wayOf(routes, headers, request.url ?? '');
  if ('refused' in way) refuse(request, response, way.status, way.refused);
  else {
    const { route, path, key } = way;
    const upstream = route.call(path, request.method, withKey(headers, route, key));
    forward(upstream, options, route, request, response);
  }
}

type Way =
  | { readonly route: Route; readonly path: string; readonly key: string }
  | { readonly status: 401 | 404; readonly refused: string };

function wayOf(routes: readonly Route[], headers: Headers, asked: string): Way {
  const route = routes.find((each) => headers.some(([, value]) => carries(value, each)));
  if (route === undefined) return { status: 401, refused: NO_TOKEN };
  const path = pathBelow(route, asked);
  if (path === null) return { status: 404, refused: `not below ${route.url.href}` };
  const { key } = route.key;
  if ('missing' in key) return { status: 401, refused: `there is no key: ${key.missing}` };
  return { route, path, key: key.value };
}

const NO_TOKEN =
  "the request has no token of this run. A key in Pi's own auth.json goes before it: take that away";

function refuse(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  why: string,
): void {
  // Read to its end: a client that still writes might not see the answer.
  request.resume();
  const message = `outlive's key proxy: ${why}`;
  const type = status === 401 ? 'authentication_error' : 'invalid_request_error';
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ type: 'error', error: { type, message } }));
}

function forward(
  upstream: ClientRequest,
  { warn }: KeyProxyOptions,
  { url }: Route,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  let isOver = false;
  response.once('close', () => {
    isOver = true;
    upstream.destroy();
  });
  upstream.on('error', (error) => {
    if (isOver || response.headersSent) return;
    warn(`${url.host} could not be reached by the key proxy: ${errorCode(error)}`);
    response.destroy();
  });
  upstream.once('response', (answer) => {
    try {
      const headers = endToEnd(answer.rawHeaders).flat();
      response.writeHead(answer.statusCode ?? 0, answer.statusMessage ?? '', headers);
      // Sends the head: a stream may be silent for long after it. As bytes, which is what it was read as.
      response.write('', 'latin1');
    } catch (error) {
      warn(`An answer of ${url.host} cannot be passed on: ${errorCode(error)}`);
      response.destroy();
      return;
    }
    // An end before the end breaks off on the other side as well.
    pipeline(answer, response, () => {});
  });
  request.pipe(upstream);
}

function endToEnd(raw: readonly string[]): Headers {
  const pairs = raw.flatMap((name, index) =>
    index % 2 === 0 ? [[name, raw[index + 1] ?? ''] as const] : [],
  );
  const named = pairs
    .filter(([name]) => name.toLowerCase() === 'connection')
    .flatMap(([, value]) => value.split(',').map((each) => each.trim().toLowerCase()));
  const dropped = new Set([...HOP_BY_HOP, ...named]);
  return pairs.filter(([name]) => !dropped.has(name.toLowerCase()));
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** The token alone, or after a word such as `Bearer`; which header it is depends on the provider. */
function carries(value: string, { tokenDigest }: Route): boolean {
  return timingSafeEqual(digest(value.slice(value.lastIndexOf(' ') + 1)), tokenDigest);
}

function withKey(headers: Headers, route: Route, key: string): Headers {
  const { header, scheme } = route.key;
  const rest = headers.filter(
    ([name, value]) => name.toLowerCase() !== header.toLowerCase() && !carries(value, route),
  );
  return [...rest, [header, scheme === null ? key : `${scheme} ${key}`]];
}

/** Values by name, as `request` takes them; one that is there twice goes out twice. */
function gathered(headers: Headers): Record<string, string[]> {
  const all: Record<string, string[]> = {};
  for (const [name, value] of headers) {
    const lower = name.toLowerCase();
    all[lower] = [...(all[lower] ?? []), value];
  }
  return all;
}

/** The path and query to ask for, null for one that leads out of the base URL. */
function pathBelow({ mount, url }: Route, asked: string): string | null {
  const [path = ''] = asked.split('?');
  // What a URL parser would change is what would be judged here as another than there.
  if (!asked.startsWith('/') || !isPlain(path)) return null;
  if (path !== mount && !path.startsWith(`${mount}/`)) return null;
  return asked.slice(`/${url.host}`.length) || '/';
}

function isPlain(path: string): boolean {
  return URL.parse(`http://127.0.0.1${path}`)?.pathname === path;
}
