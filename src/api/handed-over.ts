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
import { guardTcp } from './auth.ts';
import { type ApiOptions, createApp, type Listener } from './server.ts';

/** Descriptors of listening sockets, by who is meant to come. */
export interface HandedOverSockets {
  /** Unix sockets for local clients; their modes are the socket unit's. */
  readonly api: readonly number[];
  /** TCP sockets, for holders of the token. */
  readonly http: readonly number[];
}

interface Served {
  readonly listeners: Listener[];
  /** Of the first TCP socket. */
  readonly port: number | null;
}

/** Time for the request of a connection that was accepted in the last moment to arrive. */
const ARRIVAL_MS = 50;
/** Time for what is being answered; then it is cut off, and its sender asks the next daemon. */
const ANSWER_MS = 2_000;

/** As in the socket units: listening on a socket sets its backlog anew, also for the time after us. */
const BACKLOG = 4_096;

/** Resolves when the server listens. Not by fastify's own listen, which expects a path or a port. */
async function listenOn(app: FastifyInstance, fd: number): Promise<void> {
  await app.ready();
  const listening = once(app.server, 'listening'); // Rejects with its error.
  app.server.listen({ fd, backlog: BACKLOG });
  await listening;
}

/** Takes no more connections, answers what came, and lets go: nobody is cut off by a restart. */
async function drain(server: HttpServer, stop: AbortController): Promise<void> {
  const ended = once(server, 'close').then(() => {});
  // Of net, not of http: that one also drops connections whose request is still on its way.
  NetServer.prototype.close.call(server);
  stop.abort(); // Streams end by themselves, with everything written so far.
  const late = new AbortController();
  await Promise.race([ended, pause(ARRIVAL_MS, undefined, { signal: late.signal })]);
  server.closeIdleConnections();
  await Promise.race([ended, pause(ANSWER_MS, undefined, { signal: late.signal })]);
  late.abort();
  server.closeAllConnections();
}

async function serve(
  options: ApiOptions,
  fd: number,
  token: string | null,
): Promise<{ listener: Listener; port: number | null }> {
  const stop = new AbortController();
  const app = createApp(options, stop.signal);
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (stop.signal.aborted) reply.header('connection', 'close');
    done(null, payload);
  });
  let port = 0;
  if (token !== null) guardTcp(app, token, () => port);
  await listenOn(app, fd);
  const address = app.server.address();
  if (typeof address === 'object' && address) port = address.port;
  const close = async (): Promise<void> => {
    await drain(app.server, stop);
    await app.close();
  };
  return { listener: { app, close }, port };
}

/**
 * Serves all of them, the unix sockets last: whoever reaches one finds all else in place.
 * @param token asked for when there is a TCP socket and work to be guarded.
 */
export async function listenOnHandedOver(
  options: ApiOptions,
  { api, http }: HandedOverSockets,
  token: () => string,
): Promise<Served> {
  const listeners: Listener[] = [];
  let port: number | null = null;
  for (const fd of http) {
    // A refusal needs no guard: there is nothing behind it.
    const served = await serve(options, fd, options.context ? token() : null);
    port ??= served.port;
    listeners.push(served.listener);
  }
  for (const fd of api) listeners.push((await serve(options, fd, null)).listener);
  return { listeners, port };
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
  const options: ApiOptions = { log, context: null, refusal };
  const { listeners } = await listenOnHandedOver(options, handedOver, () => '');
  await pause(ARRIVAL_MS);
  await Promise.all(listeners.map((listener) => listener.close()));
}
