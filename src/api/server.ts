/** Joins the routes to an HTTP server: one for the unix socket, one for TCP. */
import { once } from 'node:events';
import { chmodSync, mkdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import fastify, { LogController } from 'fastify';
import { validatorCompiler } from 'fastify-type-provider-zod';
import type { Logger } from 'pino';
import { OutliveError } from '../domain/errors.ts';
import { approvalRoutes } from './approvals.ts';
import { artifactRoutes } from './artifacts.ts';
import { attemptRoutes } from './attempts.ts';
import { guardTcp, isSignedRoute } from './auth.ts';
import { channelRoutes } from './channels.ts';
import type { ApiContext } from './context.ts';
import { collectRoutes, documentRoutes } from './document.ts';
import { driverRoutes } from './drivers.ts';
import { eventRoutes } from './events.ts';
import { useJsonBodies } from './json-body.ts';
import { ledgerRoutes } from './ledger.ts';
import { linearStatusRoutes } from './linear.ts';
import { linearRoutes, type WebhookIngress } from './linear-webhook.ts';
import { maintenanceRoutes } from './maintenance.ts';
import { noSuchRoute, refuseConnection, sendProblem, useProblems } from './problem.ts';
import { providerRoutes } from './providers.ts';
import { runRoutes } from './runs.ts';
import { runtimeRoutes } from './runtime.ts';
import { BODY_MAX_BYTES } from './schemas.ts';
import { workUnitRoutes } from './work-units.ts';
import { workspaceEventRoutes } from './workspace-events.ts';

export interface Listener {
  readonly app: FastifyInstance;
  close(): Promise<void>;
}

export interface SocketListener extends Listener {
  /** Binds the path again where its socket is gone. @returns false when it is in place. */
  rebind(): Promise<boolean>;
}

/** What a client may cost, however slow or many it is; times in milliseconds. */
export interface ApiLimits {
  /** Open at once, per listener; more are hung up on. */
  readonly connections: number;
  /** From the first byte of a request to the last of its head. */
  readonly headersMs: number;
  /** From the first byte of a request to the last of its body. */
  readonly requestMs: number;
  /** How often both are looked at. */
  readonly checkMs: number;
  readonly headerBytes: number;
  readonly bodyBytes: number;
}

export const API_LIMITS: ApiLimits = {
  connections: 1_024,
  headersMs: 10_000,
  requestMs: 30_000,
  checkMs: 5_000,
  headerBytes: 16 * 1024,
  bodyBytes: BODY_MAX_BYTES,
};

export interface ApiOptions {
  readonly log: Logger;
  readonly version: string;
  /** Used only while {@link gate} is open. */
  readonly context: ApiContext;
  /** Why nothing can be done right now; every request is answered with it. Null: all is well. */
  readonly gate: () => OutliveError | null;
  readonly limits?: Partial<ApiLimits>;
  /** Takes Linear's webhooks; there is no such route without it. */
  readonly linear?: WebhookIngress | undefined;
}

/** What a server without routes needs. */
type GateOptions = Pick<ApiOptions, 'log' | 'gate' | 'limits'>;

export type Guard = (app: FastifyInstance) => void;

function createServer({ log, gate, ...options }: GateOptions): FastifyInstance {
  const limits = { ...API_LIMITS, ...options.limits };
  const app = fastify({
    loggerInstance: log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    // A path that cannot be decoded, or with a name too long to be one, is nobody's.
    frameworkErrors: (_error, request, reply) =>
      void sendProblem(reply, gate() ?? noSuchRoute(request)),
    clientErrorHandler: refuseConnection,
    bodyLimit: limits.bodyBytes,
    // A slow or silent sender must not hold a connection for ever.
    requestTimeout: limits.requestMs,
    http: {
      headersTimeout: limits.headersMs,
      connectionsCheckingInterval: limits.checkMs,
      maxHeaderSize: limits.headerBytes,
    },
    // A channel's id has 256 characters, each up to twelve in a URL.
    routerOptions: { maxParamLength: 4_096 },
    forceCloseConnections: true,
  });
  app.server.maxConnections = limits.connections;
  return app;
}

/** A server that has no routes yet, behind `guard` and then the gate. */
export function createGated(options: GateOptions, guard: Guard): FastifyInstance {
  const app = createServer(options);
  app.setValidatorCompiler(validatorCompiler);
  // Answers are checked against their schemas by the compiler and the tests, not once more here.
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
  useProblems(app);
  useJsonBodies(app);
  guard(app);
  app.addHook('onRequest', (request, reply, done) => {
    const refusal = isSignedRoute(request) ? null : options.gate();
    if (refusal) sendProblem(reply, refusal);
    else done();
  });
  return app;
}

export function createApp(
  options: ApiOptions,
  stopping: AbortSignal,
  guard: Guard,
): FastifyInstance {
  const { context, version } = options;
  const app = createGated(options, guard);
  const routes = collectRoutes(app);
  for (const plugin of [
    workUnitRoutes,
    runtimeRoutes,
    attemptRoutes,
    approvalRoutes,
    artifactRoutes,
    ledgerRoutes,
    channelRoutes,
    providerRoutes,
    driverRoutes,
    linearStatusRoutes,
  ]) {
    void app.register(plugin, { context });
  }
  void app.register(maintenanceRoutes, { context });
  for (const plugin of [eventRoutes, workspaceEventRoutes, runRoutes]) {
    void app.register(plugin, { context, stopping });
  }
  if (options.linear) void app.register(linearRoutes, { ingress: options.linear });
  void app.register(documentRoutes, { routes, version });
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

/** True when the path leads to the socket that was bound there. */
function isInPlace(socketPath: string, inode: number): boolean {
  return statSync(socketPath, { throwIfNoEntry: false })?.ino === inode;
}

/** Makes the way free for a socket; whatever lies there is a dead daemon's. */
function makeWay(socketPath: string): void {
  const directory = path.dirname(socketPath);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  chmodSync(directory, 0o700); // It may have been there; it guards the socket until its own chmod.
  rmSync(socketPath, { force: true });
}

function bound(socketPath: string): number {
  chmodSync(socketPath, 0o600);
  return statSync(socketPath).ino;
}

/**
 * Serves local clients on a unix socket, 0600 in a directory 0700. The caller owns the
 * workspace's locks, so a socket file that is already there is a dead daemon's.
 */
export async function listenOnSocket(
  options: ApiOptions,
  socketPath: string,
): Promise<SocketListener> {
  const stop = new AbortController();
  const app = createApp(options, stop.signal, () => undefined);
  makeWay(socketPath);
  await app.listen({ path: socketPath });
  let inode = bound(socketPath);
  return {
    ...listener(app, stop),
    rebind: async () => {
      if (isInPlace(socketPath, inode)) return false;
      makeWay(socketPath);
      // Connections that are open stay so; only the listening socket is another one.
      app.server.close();
      const listening = once(app.server, 'listening');
      app.server.listen(socketPath);
      await listening;
      inode = bound(socketPath);
      return true;
    },
  };
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
  let actual = port;
  const app = createApp(options, stop.signal, (guarded) =>
    guardTcp(
      guarded,
      () => token,
      () => actual,
    ),
  );
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
