/** The one place where the parts are joined: a daemon as a function, so that tests boot the real one. */
import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Logger } from 'pino';
import { loadToken } from './api/auth.ts';
import type { ApiContext } from './api/context.ts';
import { listenOnHandedOver } from './api/handed-over.ts';
import type { RuntimeView } from './api/schemas.ts';
import type { ApiOptions, Listener } from './api/server.ts';
import { listenOnSocket, listenOnTcp } from './api/server.ts';
import type { Config } from './config.ts';
import { ensureDirectory } from './directories.ts';
import { OutliveError } from './domain/errors.ts';
import type { Entropy } from './domain/ids.ts';
import { timestamp, uuidv7 } from './domain/ids.ts';
import type { Executor } from './executor/port.ts';
import { bundledPi, exitRecordScript, WRAPPER } from './layout.ts';
import { recover } from './recovery/recover.ts';
import type { RuntimeLock } from './store/runtime-lock.ts';
import { acquireRuntimeLock } from './store/runtime-lock.ts';
import type { Store } from './store/store.ts';
import { openStore } from './store/store.ts';
import { STARVING_MS } from './supervisor/admission.ts';
import type { Context, Settings } from './supervisor/context.ts';
import type { Faults } from './supervisor/faults.ts';
import { createHub } from './supervisor/hub.ts';
import type { Supervisor } from './supervisor/supervisor.ts';
import { createSupervisor } from './supervisor/supervisor.ts';
import { createWriter } from './supervisor/writer.ts';
import { createSystemdExecutor } from './systemd/executor.ts';
import { type HandedOver, NOTHING_HANDED_OVER } from './systemd/listen-fds.ts';
import { VERSION } from './version.ts';

export interface DaemonOptions {
  readonly config: Config;
  readonly log: Logger;
  readonly fault: Faults;
  readonly entropy?: Entropy;
  /** Sockets of socket units; what is not handed over the daemon opens itself. */
  readonly handedOver?: HandedOver;
}

export interface Daemon {
  runtime(): RuntimeView;
  /** Null unless the store cannot be used: then every request is answered with this. */
  readonly refusal: OutliveError | null;
  /** Takes no more work and lets go; attempts run on. */
  close(): Promise<void>;
}

/** The machine's own clocks and randomness. */
export const systemEntropy: Entropy = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  random: (size) => randomBytes(size),
};

/** sockaddr_un holds 108 bytes with its final NUL. */
const SOCKET_PATH_MAX = 107;
const UUID_LENGTH = 36;
/** systemd would expand or split these in a command line. */
const UNSUPPORTED = /["$%'\\\s]/;

function checkPaths({ directories }: Config): void {
  const control = `${directories.runtime}/${'x'.repeat(UUID_LENGTH)}/control.sock`;
  for (const socket of [directories.apiSocket, control]) {
    const length = Buffer.byteLength(socket);
    if (length <= SOCKET_PATH_MAX) continue;
    throw new OutliveError(
      'socket_path_too_long',
      `${socket} has ${length} bytes, a unix socket path holds ${SOCKET_PATH_MAX}. Set XDG_RUNTIME_DIR to a shorter path.`,
    );
  }
  for (const place of [directories.state, directories.runtime, WRAPPER, process.execPath]) {
    const bad = UNSUPPORTED.exec(place);
    if (!bad) continue;
    throw new OutliveError(
      'path_unsupported',
      `${place} holds ${JSON.stringify(bad[0])}, which systemd would not take literally. Move it to a plain path.`,
    );
  }
}

function makeDirectories({ directories }: Config): void {
  const { state, attempts, sessions, exits, decisions, token, runtime, cache } = directories;
  for (const directory of [state, attempts, sessions, exits, decisions, token, runtime, cache]) {
    ensureDirectory(directory);
  }
}

function settingsOf(config: Config): Settings {
  const { directories, file } = config;
  const node = process.execPath;
  return {
    attemptsDirectory: directories.attempts,
    sessionsDirectory: directories.sessions,
    exitsDirectory: directories.exits,
    runtimeDirectory: directories.runtime,
    node,
    wrapper: WRAPPER,
    piCommand: file.pi.command ?? bundledPi(node),
    runnerEnvironment: {
      // Pi's own compile cache would lie in /tmp and be cold after every reboot.
      NODE_COMPILE_CACHE: `${directories.cache}/node`,
      PI_SKIP_VERSION_CHECK: '1',
      PI_TELEMETRY: '0',
      ...config.runnerEnvironment,
    },
    keys: config.keys,
    captureBytes: file.captureBytes,
    umask: config.umask,
    limits: file.limits,
    starvingMs: STARVING_MS,
    home: config.home,
  };
}

function systemdExecutor({ config, log }: DaemonOptions, entropy: Entropy): Executor {
  return createSystemdExecutor({
    workspace: config.workspace,
    busAddress: config.busAddress,
    userRuntime: config.directories.userRuntime,
    exits: config.directories.exits,
    exitRecordScript: exitRecordScript(),
    entropy,
    report: (problem) => log.warn({ problem }, 'systemd'),
  });
}

interface Identity {
  readonly runtimeInstanceId: string;
  readonly startedAt: string;
}

/** What a running daemon is made of; filled in order, taken apart in reverse. */
interface Parts {
  readonly options: DaemonOptions;
  readonly identity: Identity;
  readonly lock: RuntimeLock;
  readonly store: Store;
  readonly executor: Executor;
  readonly supervisor: Supervisor;
  readonly hub: Context['hub'];
}

function runtimeView(parts: Parts, state: { stopping: boolean; port: number | null }): RuntimeView {
  const { options, identity, store, executor } = parts;
  const problems = executor.healthy
    ? []
    : ['bus_unavailable: the user bus is away; attempts run on'];
  return {
    runtimeInstanceId: identity.runtimeInstanceId,
    workspaceId: options.config.workspace,
    status: state.stopping ? 'stopping' : problems.length > 0 ? 'degraded' : 'ready',
    problems,
    startedAt: identity.startedAt,
    schemaVersion: store.schemaVersion,
    version: VERSION,
    pid: process.pid,
    executor: executor.kind,
    socket: options.config.directories.apiSocket,
    host: state.port === null ? null : '127.0.0.1',
    port: state.port,
    activeAttempts: store.attempts.countActive(),
  };
}

/**
 * Serves the sockets that systemd handed over and opens those it did not; the socket of local
 * clients last, so that whoever reaches it finds all else in place.
 */
async function listen(
  { config, handedOver = NOTHING_HANDED_OVER }: DaemonOptions,
  api: ApiOptions,
): Promise<{ listeners: Listener[]; port: number | null }> {
  const token = (): string => loadToken(config.directories.token);
  const isTcpOurs = handedOver.http.length === 0 && config.port !== null && api.context !== null;
  const tcp = isTcpOurs ? await listenOnTcp(api, config.port, token()) : null;
  const served = await listenOnHandedOver(api, handedOver, token);
  const listeners = tcp ? [tcp, ...served.listeners] : served.listeners;
  if (handedOver.api.length === 0)
    listeners.push(await listenOnSocket(api, config.directories.apiSocket));
  return { listeners, port: tcp?.port ?? served.port };
}

async function serve(parts: Parts): Promise<Daemon> {
  const { options, identity, lock, store, executor, supervisor, hub } = parts;
  const state = { stopping: false, port: null as number | null };
  const context: ApiContext = { store, supervisor, hub, runtime: () => runtimeView(parts, state) };
  const { listeners, port } = await listen(options, { log: options.log, context, refusal: null });
  state.port = port;
  const { config } = options;
  lock.describe({
    workspaceId: config.workspace,
    ...identity,
    pid: process.pid,
    host: port === null ? null : '127.0.0.1',
    port,
    socket: config.directories.apiSocket,
    version: VERSION,
    schemaVersion: store.schemaVersion,
  });
  supervisor.start();
  return {
    runtime: context.runtime,
    refusal: null,
    close: async () => {
      state.stopping = true;
      await supervisor.close();
      // Ingress closes last: until here every request got an answer.
      await Promise.all(listeners.map((listener) => listener.close()));
      await executor.close();
      store.close();
      lock.release();
    },
  };
}

/** A store that cannot be used starts no work, but says so to everybody who asks (law 8). */
async function serveRefusal(
  options: DaemonOptions,
  lock: RuntimeLock,
  refusal: OutliveError,
): Promise<Daemon> {
  const { log } = options;
  log.fatal({ code: refusal.code }, refusal.message);
  const { listeners } = await listen(options, { log, context: null, refusal });
  return {
    runtime: () => {
      throw refusal;
    },
    refusal,
    close: async () => {
      await Promise.all(listeners.map((listener) => listener.close()));
      lock.release();
    },
  };
}

function openStoreOr(options: DaemonOptions, at: string): Store | OutliveError {
  const { config } = options;
  try {
    return openStore(config.directories.store, config.workspace, at);
  } catch (error) {
    if (error instanceof OutliveError) return error;
    throw error;
  }
}

/**
 * Starts the daemon of a workspace: lock, store, bus, recovery, listeners, in this order.
 * Resolves when it answers requests.
 * @throws OutliveError `workspace_owned`, `no_user_manager`, `port_taken`, and what the paths may have.
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { config, log } = options;
  const entropy = options.entropy ?? systemEntropy;
  checkPaths(config);
  makeDirectories(config);
  const lock = acquireRuntimeLock(config.directories.state, config.workspace);
  let executor: Executor | undefined;
  let store: Store | undefined;
  let supervisor: Supervisor | undefined;
  try {
    const identity = { runtimeInstanceId: uuidv7(entropy), startedAt: timestamp(entropy) };
    const opened = openStoreOr(options, identity.startedAt);
    if (opened instanceof OutliveError) return await serveRefusal(options, lock, opened);
    store = opened;
    const { runtimeInstanceId: id, startedAt } = identity;
    store.recordInstance({ id, pid: process.pid, version: VERSION, startedAt });
    executor = systemdExecutor(options, entropy);
    await executor.connect();
    const hub = createHub((error) => log.error({ err: error }, 'a listener failed'));
    const context: Context = {
      workspace: config.workspace,
      runtimeInstanceId: id,
      store,
      writer: createWriter(store, hub, entropy),
      executor,
      entropy,
      hub,
      log,
      settings: settingsOf(config),
      fault: options.fault,
    };
    supervisor = createSupervisor(context);
    await recover(context, supervisor);
    return await serve({ options, identity, lock, store, executor, supervisor, hub });
  } catch (error) {
    // Attempts may have been taken up already: nobody may go on watching them without a store.
    await supervisor?.close();
    await executor?.close();
    store?.close();
    lock.release();
    throw error;
  }
}
