/**
 * Serves on sockets that systemd made and keeps: nothing is bound, unlinked or chmodded here,
 * and whoever connects while no daemon runs waits in the backlog for the next one.
 */
import type { FastifyListenOptions } from 'fastify';
import { guardTcp } from './auth.ts';
import { type ApiOptions, createApp, type Listener, listener } from './server.ts';

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

async function serve(
  options: ApiOptions,
  fd: number,
  token: string | null,
): Promise<{ listener: Listener; port: number | null }> {
  const stop = new AbortController();
  const app = createApp(options, stop.signal);
  let port = 0;
  if (token !== null) guardTcp(app, token, () => port);
  const where: FastifyListenOptions & { readonly fd: number } = { fd };
  await app.listen(where);
  const address = app.server.address();
  if (typeof address === 'object' && address) port = address.port;
  return { listener: listener(app, stop), port };
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
