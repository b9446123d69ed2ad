/**
 * Serves on sockets that systemd made and keeps: nothing is bound, unlinked or chmodded here,
 * and whoever connects while no daemon runs waits in the backlog for the next one.
 */
import { once } from 'node:events';
import type { Server as HttpServer } from 'node:http';
import { Server as NetServer } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import type { OutliveError } from '../domain/errors.ts';
import { DRAIN_MS } from '../domain/shutdown.ts';
import { guardTcp } from './auth.ts';
import { type ApiOptions, createApp, createGated, type Guard, type Listener } from './server.ts';

/** Descriptors of listening sockets, by who is meant to come. */
export interface HandedOverSockets {
  /** Unix sockets for local clients; their modes are the socket unit's. */
  readonly api: readonly number[];
  /** TCP sockets, for holders of the token. */
  readonly http: readonly number[];
}

export interface Served {
  readonly listeners: readonly Listener[];
  /** Of the first TCP socket. */
  readonly port: number | null;
}

/** Time for the request of a connection that was accepted in the last moment to arrive. */
const ARRIVAL_MS = 50;
/** When no answer was finished for this long, the others are cut off; their senders ask the next daemon. */
const ANSWER_MS = 2_000;

/** As in the socket units: listening on a socket sets its backlog anew, also for the time after us. */
const BACKLOG = 4_096;

type MakeApp = (stopping: AbortSignal, guard: Guard) => FastifyInstance;

/** Resolves when the server listens. Not by fastify's own listen, which expects a path or a port. */
async function listenOn(app: FastifyInstance, fd: number): Promise<void> {
  await app.ready();
  const listening = once(app.server, 'listening'); // Rejects with its error.
  // Beside the descriptor, not with it: there Node overlooks it and takes 511.
  app.server.listen({ fd }, BACKLOG);
  await listening;
}

/** Takes no more connections, answers what came, and lets go: nobody is cut off by a restart. */
async function drain(
  server: HttpServer,
  stop: AbortController,
  answers: () => number,
): Promise<void> {
  let isOpen = true;
  const ended = once(server, 'close').then(() => {
    isOpen = false;
  });
  // Of net, not of http: that one also drops connections whose request is still on its way.
  NetServer.prototype.close.call(server);
  stop.abort(); // Streams end by themselves, with everything written so far.
  const late = new AbortController();
  const orAfter = (ms: number): Promise<unknown> =>
    Promise.race([ended, pause(ms, undefined, { signal: late.signal }).catch(() => {})]);
  await orAfter(ARRIVAL_MS);
  server.closeIdleConnections();
  const end = performance.now() + DRAIN_MS - ANSWER_MS;
  for (let before = -1; isOpen && answers() > before && performance.now() < end; ) {
    before = answers();
    await orAfter(ANSWER_MS);
  }
  late.abort();
  server.closeAllConnections();
}

async function serve(
  make: MakeApp,
  fd: number,
  token: (() => string) | null,
): Promise<{ listener: Listener; port: number | null }> {
  const stop = new AbortController();
  let port = 0;
  let answers = 0;
  const app = make(stop.signal, (guarded) => {
    guarded.addHook('onSend', (_request, reply, payload, done) => {
      if (stop.signal.aborted) reply.header('connection', 'close');
      done(null, payload);
    });
    guarded.addHook('onResponse', (_request, _reply, done) => {
      answers += 1;
      done();
    });
    if (token !== null) guardTcp(guarded, token, () => port);
  });
  await listenOn(app, fd);
  const address = app.server.address();
  if (typeof address === 'object' && address) port = address.port;
  const close = async (): Promise<void> => {
    await drain(app.server, stop, () => answers);
    await app.close();
  };
  return { listener: { app, close }, port };
}

/** All of them, the unix sockets last: whoever reaches one finds all else in place. */
async function serveAll(
  make: MakeApp,
  { api, http }: HandedOverSockets,
  token: (() => string) | null,
): Promise<Served> {
  const listeners: Listener[] = [];
  let port: number | null = null;
  try {
    for (const fd of http) {
      const served = await serve(make, fd, token);
      port ??= served.port;
      listeners.push(served.listener);
    }
    for (const fd of api) listeners.push((await serve(make, fd, null)).listener);
    return { listeners, port };
  } catch (error) {
    await Promise.all(listeners.map((listener) => listener.close()));
    throw error;
  }
}

/**
 * Serves the API on all of them.
 * @param token read when the first TCP request comes; where there is none to be had, a
 *   refusal of the gate's is the answer.
 */
export function listenOnHandedOver(
  options: ApiOptions,
  handedOver: HandedOverSockets,
  token: () => string,
): Promise<Served> {
  let known: string | undefined;
  const tokenOrRefusal = (): string => {
    try {
      known ??= token();
      return known;
    } catch (error) {
      throw options.gate() ?? error;
    }
  };
  const make: MakeApp = (stopping, guard) => createApp(options, stopping, guard);
  return serveAll(make, handedOver, tokenOrRefusal);
}

/**
 * Tells whoever waits that there will be no daemon until a person has mended something. Left in
 * the backlog, a connection would have systemd start the next daemon at once, and for ever.
 */
export async function refuseWaiting(
  log: ApiOptions['log'],
  handedOver: HandedOverSockets,
  refusal: OutliveError,
): Promise<void> {
  // No guard: there is nothing behind it.
  const make: MakeApp = (_stopping, guard) => createGated({ log, gate: () => refusal }, guard);
  const { listeners } = await serveAll(make, handedOver, null);
  await pause(ARRIVAL_MS);
  await Promise.all(listeners.map((listener) => listener.close()));
}
