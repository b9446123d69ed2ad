/** Joins the routes to an HTTP server: one for the unix socket, one for TCP. */
import { chmodSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import fastify, { LogController } from 'fastify';
import { validatorCompiler } from 'fastify-type-provider-zod';
import type { Logger } from 'pino';
import { OutliveError } from '../domain/errors.ts';
import { attemptRoutes } from './attempts.ts';
import { guardTcp } from './auth.ts';
import { channelRoutes } from './channels.ts';
import type { ApiContext } from './context.ts';
import { collectRoutes, documentRoutes } from './document.ts';
import { eventRoutes } from './events.ts';
import { noSuchRoute, refuseConnection, sendProblem, useProblems } from './problem.ts';
import { runRoutes } from './runs.ts';
import { runtimeRoutes } from './runtime.ts';
import { BODY_MAX_BYTES } from './schemas.ts';
import { workUnitRoutes } from './work-units.ts';
import { workspaceEventRoutes } from './workspace-events.ts';

export interface Listener {
  readonly app: FastifyInstance;
  close(): Promise<void>;
}

export interface ApiOptions {
  readonly log: Logger;
  /** Null while the store cannot be used: then every request is answered with `refusal`. */
  readonly context: ApiContext | null;
  readonly refusal: OutliveError | null;
}

export function createApp(
  { log, context, refusal }: ApiOptions,
  stopping: AbortSignal,
): FastifyInstance {
  const unusable = refusal ?? new OutliveError('store_unavailable', 'The store is not open.');
  const app = fastify({
    loggerInstance: log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    // A path that cannot be decoded, or with a name too long to be one, is nobody's.
    frameworkErrors: (_error, request, reply) =>
      void sendProblem(reply, context ? noSuchRoute(request) : unusable),
    clientErrorHandler: refuseConnection,
    bodyLimit: BODY_MAX_BYTES,
    // A slow or silent sender must not hold a connection for ever.
    requestTimeout: 30_000,
    // A channel's id has 256 characters, each up to twelve in a URL.
    routerOptions: { maxParamLength: 4_096 },
    forceCloseConnections: true,
  });
  app.setValidatorCompiler(validatorCompiler);
  // Answers are checked against their schemas by the compiler and the tests, not once more here.
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
  useProblems(app);
  app.removeContentTypeParser('text/plain'); // Fastify takes it by default, as a string.
  if (!context) {
    app.addHook('onRequest', (_request, reply) => sendProblem(reply, unusable));
    return app;
  }
  const routes = collectRoutes(app);
  for (const plugin of [workUnitRoutes, runtimeRoutes, attemptRoutes, channelRoutes]) {
    void app.register(plugin, { context });
  }
  for (const plugin of [eventRoutes, workspaceEventRoutes, runRoutes]) {
    void app.register(plugin, { context, stopping });
  }
  void app.register(documentRoutes, { routes, version: context.runtime().version });
  return app;
}

function listener(app: FastifyInstance, stop: AbortController): Listener {
  return {
    app,
    close: async () => {
      stop.abort(); // Streams end by themselves, with everything written so far.
      await app.close();
    },
  };
}

/**
 * Serves local clients on a unix socket, 0600 in a directory 0700. The caller owns the
 * workspace's lock, so a socket file that is already there is a dead daemon's.
 */
export async function listenOnSocket(options: ApiOptions, socketPath: string): Promise<Listener> {
  const stop = new AbortController();
  const app = createApp(options, stop.signal);
  const directory = path.dirname(socketPath);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  chmodSync(directory, 0o700); // It may have been there; it guards the socket until its own chmod.
  rmSync(socketPath, { force: true });
  await app.listen({ path: socketPath });
  chmodSync(socketPath, 0o600);
  return listener(app, stop);
}

/**
 * Serves 127.0.0.1 with a bearer token.
 * @returns the listener and the port it got.
 * @throws OutliveError `port_taken`.
 */
export async function listenOnTcp(
  options: ApiOptions,
  port: number,
  token: string,
): Promise<Listener & { readonly port: number }> {
  const stop = new AbortController();
  const app = createApp(options, stop.signal);
  let actual = port;
  guardTcp(app, token, () => actual);
  try {
    await app.listen({ host: '127.0.0.1', port });
  } catch (error) {
    await app.close();
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    throw new OutliveError(
      'port_taken',
      `127.0.0.1:${port} is in use. Set api.port in config.json or OUTLIVE_PORT to another port, 0 for any free one.`,
      { cause: error },
    );
  }
  const address = app.server.address();
  actual = typeof address === 'object' && address ? address.port : port;
  return { ...listener(app, stop), port: actual };
}
