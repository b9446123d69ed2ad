/**
 * The real API over a real store and the real supervisor, which is never started: nothing
 * is claimed or launched, so no systemd is needed and queued work stays queued.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import Database from 'better-sqlite3';
import pino from 'pino';
import { loadToken } from '../../src/api/auth.ts';
import type { ApiContext } from '../../src/api/context.ts';
import { FramePages } from '../../src/api/frames.ts';
import type { WebhookIngress } from '../../src/api/linear-webhook.ts';
import type { RuntimeView } from '../../src/api/schemas.ts';
import {
  type ApiLimits,
  type ApiOptions,
  type Listener,
  listenOnSocket,
  listenOnTcp,
} from '../../src/api/server.ts';
import type { Entropy } from '../../src/domain/ids.ts';
import { Drivers } from '../../src/drivers/drivers.ts';
import type { Executor } from '../../src/executor/port.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import type { Context } from '../../src/supervisor/context.ts';
import { noFaults } from '../../src/supervisor/faults.ts';
import { createHub } from '../../src/supervisor/hub.ts';
import { createMaintenance, type MaintenanceOptions } from '../../src/supervisor/maintenance.ts';
import { DEFAULT_POLICIES } from '../../src/supervisor/policies.ts';
import { createSupervisor } from '../../src/supervisor/supervisor.ts';
import { createWriter, type Writer } from '../../src/supervisor/writer.ts';
import { unitProperties } from '../../src/systemd/properties.ts';
import { systemTimers, type Timers } from '../../src/systemd/timers.ts';
import type { Target } from './api-http.ts';

const nobody = (): Promise<never> => Promise.reject(new Error('nobody executes in these tests'));

/** An executor that can do nothing: a test that reaches it has left its ground. */
export const executorOfNobody: Executor = {
  kind: 'systemd',
  healthy: true,
  connect: nobody,
  host: nobody,
  start: nobody,
  // Pure: the properties themselves are what a dry run is about.
  describeStart: (request) =>
    unitProperties('main', request).map(({ name, value }) => ({ name, value: String(value) })),
  read: nobody,
  list: nobody,
  hold: nobody,
  release: nobody,
  stop: nobody,
  kill: nobody,
  waitEmpty: nobody,
  onHint: () => () => undefined,
  close: nobody,
};

const entropy: Entropy = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  uptimeSeconds: () => os.uptime(),
  random: (size) => randomBytes(size),
};

export interface Rig {
  readonly directory: string;
  readonly context: ApiContext;
  readonly store: Store;
  readonly writer: Writer;
  /** The supervisor's own, for what a scheduler would do. */
  readonly inner: Context;
  readonly socketPath: string;
  readonly socket: Target;
  readonly tcp: Target & { readonly port: number; readonly token: string };
  readonly listeners: { readonly socket: Listener; readonly tcp: Listener };
  /** Rows of every table, for "nothing was written". */
  counts(): Readonly<Record<string, number>>;
}

const leftovers: (() => void | Promise<void>)[] = [];

/** To be called in afterEach (or afterAll): undoes what the tests made, newest first. */
export async function cleanUp(): Promise<void> {
  for (const undo of leftovers.splice(0).reverse()) await undo();
}

export const atTheEnd = (undo: () => void | Promise<void>): void => {
  leftovers.push(undo);
};

export function temporaryDirectory(): string {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-api-'));
  atTheEnd(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export const silent = pino({ level: 'silent' });

function makeContext(directory: string, store: Store): Context {
  const hub = createHub((error) => {
    throw error;
  });
  return {
    workspace: 'main',
    runtimeInstanceId: '018f0000-0000-7000-8000-000000000000',
    store,
    writer: createWriter(store, hub, entropy),
    executor: executorOfNobody,
    entropy,
    hub,
    log: silent,
    settings: {
      attemptsDirectory: path.join(directory, 'attempts'),
      sessionsDirectory: path.join(directory, 'sessions'),
      exitsDirectory: path.join(directory, 'exits'),
      decisionsDirectory: path.join(directory, 'decisions'),
      temporaryDirectory: path.join(directory, 'tmp'),
      runtimeDirectory: path.join(directory, 'run'),
      node: process.execPath,
      wrapper: '/nowhere/wrapper.js',
      piCommand: ['/nowhere/pi'],
      runnerEnvironment: {},
      keys: { SECRET_KEY: 'the-secret-itself' },
      captureBytes: 4096,
      umask: 0o022,
      limits: { runner: { pi: 2, command: 4 }, provider: {}, media_provider: {} },
      starvingMs: 60_000,
      policies: DEFAULT_POLICIES,
      home: directory,
    },
    fault: noFaults,
  };
}

const runtime = (socket: string): RuntimeView => ({
  runtimeInstanceId: '018f0000-0000-7000-8000-000000000000',
  workspaceId: 'main',
  status: 'ready',
  problems: [],
  startedAt: '2026-01-02T03:04:05.678Z',
  schemaVersion: 1,
  version: '0.1.0',
  pid: process.pid,
  executor: 'systemd',
  socket,
  host: null,
  port: null,
  activeAttempts: 0,
  tookOver: null,
});

function counter(file: string): Rig['counts'] {
  const db = new Database(file, { readonly: true });
  atTheEnd(() => {
    db.close();
  });
  const tables = db
    .prepare<[], { name: string }>(
      `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`,
    )
    .all()
    .map(({ name }) => name);
  return () =>
    Object.fromEntries(
      tables.map((table) => {
        const row = db.prepare<[], { n: number }>(`SELECT count(*) AS n FROM ${table}`).get();
        return [table, row?.n ?? -1];
      }),
    );
}

/** What the rig's daemon waits for a reader of a stream that takes nothing, milliseconds. */
export const STALL_MS = 60_000;

/** Boots the API on a unix socket and on TCP over one store. */
export async function bootApi(
  limits: Partial<ApiLimits> = {},
  upkeep: MaintenanceOptions = {
    policy: { maxAgeMs: null, budgetBytes: null },
    intervalMs: 3_600_000,
  },
  timers: Timers = systemTimers,
  linear?: (parts: { readonly store: Store; readonly entropy: Entropy }) => WebhookIngress,
): Promise<Rig> {
  const directory = temporaryDirectory();
  const store = openStore(path.join(directory, 'store'), 'main', new Date().toISOString());
  atTheEnd(() => store.close());
  const inner = makeContext(directory, store);
  const supervisor = createSupervisor(inner);
  const drivers = new Drivers({ context: inner, supervisor, timers });
  drivers.start();
  atTheEnd(() => drivers.close());
  const socketPath = path.join(directory, 'api', 'api.sock');
  const context: ApiContext = {
    store,
    supervisor,
    maintenance: createMaintenance(inner, upkeep),
    hub: inner.hub,
    drivers,
    streams: { pages: new FramePages(store), stallMs: STALL_MS, timers },
    runtime: () => runtime(socketPath),
    linearStatus: () => null,
  };
  const options: ApiOptions = {
    log: silent,
    version: '0.1.0',
    context,
    gate: () => null,
    limits,
    linear: linear?.({ store, entropy }),
  };
  const token = loadToken(path.join(directory, 'token'));
  const tcp = await listenOnTcp(options, 0, token);
  atTheEnd(() => tcp.close());
  const socket = await listenOnSocket(options, socketPath);
  atTheEnd(() => socket.close());
  return {
    directory,
    context,
    store,
    writer: inner.writer,
    inner,
    socketPath,
    socket: { socketPath },
    tcp: { port: tcp.port, token },
    listeners: { socket, tcp },
    counts: counter(store.file),
  };
}
