/** The one place where the parts are joined: a daemon as a function, so that tests boot the real one. */

import { randomBytes } from 'node:crypto';
import os from 'node:os';
import { performance } from 'node:perf_hooks';
import type { Logger } from 'pino';
import { loadToken } from './api/auth.ts';
import type { ApiContext } from './api/context.ts';
import { FramePages } from './api/frames.ts';
import { listenOnHandedOver, type Served } from './api/handed-over.ts';
import type { RuntimeView } from './api/schemas.ts';
import type { ApiOptions, Listener, SocketListener } from './api/server.ts';
import { listenOnSocket, listenOnTcp } from './api/server.ts';
import type { Config } from './config.ts';
import { type Core, openCore } from './daemon/core.ts';
import { requireLocal } from './daemon/file-system.ts';
import { linearIngress, webhookSecret } from './daemon/linear.ts';
import { type Ownership, takeOwnership } from './daemon/ownership.ts';
import { checkPaths, makeDirectories } from './daemon/preflight.ts';
import { guardSocket, type SocketGuard } from './daemon/socket-guard.ts';
import { ensureDirectory } from './directories.ts';
import { type ErrorCode, OutliveError } from './domain/errors.ts';
import type { Entropy } from './domain/ids.ts';
import { timestamp, uuidv7 } from './domain/ids.ts';
import { linearDetails } from './linear/status.ts';
import type { RuntimeOwner } from './store/owner-file.ts';
import type { Store } from './store/store.ts';
import { openStore } from './store/store.ts';
import type { Faults } from './supervisor/faults.ts';
import type { ShutdownPolicy } from './supervisor/shutdown.ts';
import { createHint } from './supervisor/signal.ts';
import { type HandedOver, NOTHING_HANDED_OVER } from './systemd/listen-fds.ts';
import { systemTimers } from './systemd/timers.ts';
import { VERSION } from './version.ts';

export interface DaemonOptions {
  readonly config: Config;
  readonly log: Logger;
  readonly fault: Faults;
  readonly entropy?: Entropy;
  /** Sockets of socket units; what is not handed over the daemon opens itself. */
  readonly handedOver?: HandedOver;
  /** Called when a daemon that had to refuse for a while does its work after all. */
  readonly onServing?: () => void;
}

export interface Daemon {
  runtime(): RuntimeView;
  /** Null unless nothing can be done: then every request is answered with this. */
  readonly refusal: OutliveError | null;
  /** Resolves when it cannot go on and has to be closed. */
  readonly lost: Promise<Error>;
  /** What {@link close} does to attempts. */
  readonly shutdown: ShutdownPolicy;
  /** Takes no more work and lets go. */
  close(): Promise<void>;
}

/** The machine's own clocks and randomness. */
export const systemEntropy: Entropy = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  uptimeSeconds: () => os.uptime(),
  random: (size) => randomBytes(size),
};

/** With these the daemon stays, and says so to everybody who asks (law 8). */
const REFUSES: ReadonlySet<ErrorCode> = new Set([
  'disk_full',
  'store_unavailable',
  'store_newer',
  'store_damaged',
]);
/** These need a person and a new start: a store that is being restored must not be found half there. */
const FINAL: ReadonlySet<ErrorCode> = new Set(['store_newer', 'store_damaged']);
/** No event tells of room on a disk. */
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 30_000;

const refuses = (error: unknown): error is OutliveError =>
  error instanceof OutliveError && REFUSES.has(error.code);

class RunningDaemon implements Daemon {
  readonly lost: Promise<Error>;
  readonly #options: DaemonOptions;
  readonly #config: Config;
  readonly #log: Logger;
  readonly #entropy: Entropy;
  readonly #ownership: Ownership;
  readonly #identity: { readonly runtimeInstanceId: string; readonly startedAt: string };
  readonly #handedOver: HandedOver;
  readonly #api: ApiOptions;
  readonly #wake = createHint();
  readonly #lose: (error: Error) => void;
  #gate: OutliveError | null = new OutliveError(
    'starting',
    'The daemon is taking up what runs. Try again in a moment.',
  );
  #store: Store | null = null;
  #pages: { readonly store: Store; readonly pages: FramePages } | null = null;
  #core: Core | null = null;
  #tcp: (Listener & { readonly port: number }) | null = null;
  #socket: SocketListener | null = null;
  #guard: SocketGuard | null = null;
  #served: Served | null = null;
  #retrying: Promise<void> = Promise.resolve();
  #recorded = false;
  #storeSeen = false;
  #stopping = false;

  constructor(options: DaemonOptions, ownership: Ownership, secret: string | null) {
    const entropy = options.entropy ?? systemEntropy;
    const { promise, resolve } = Promise.withResolvers<Error>();
    this.lost = promise;
    this.#lose = resolve;
    this.#options = options;
    this.#config = options.config;
    this.#log = options.log;
    this.#entropy = entropy;
    this.#handedOver = options.handedOver ?? NOTHING_HANDED_OVER;
    this.#ownership = ownership;
    this.#identity = { runtimeInstanceId: uuidv7(entropy), startedAt: timestamp(entropy) };
    this.#api = {
      log: options.log,
      version: VERSION,
      context: this.#lateContext(),
      gate: () => this.#gate,
      linear: linearIngress(options.config, secret, {
        store: () => this.#store,
        entropy,
        log: options.log,
        onDelivery: () => this.#core?.linear?.deliver(),
      }),
    };
  }

  get refusal(): OutliveError | null {
    return this.#gate;
  }

  /** @throws OutliveError for what a refusal cannot be about. */
  async start(): Promise<void> {
    this.#ownership.introduce(this.#description());
    try {
      await this.#bringUp();
    } catch (error) {
      if (!refuses(error)) throw error;
      await this.#refuse(error);
    }
  }

  runtime(): RuntimeView {
    if (this.#gate) throw this.#gate;
    const { store, executor, maintenance, drivers } = this.#inside();
    const problems = [...executor.problems, ...maintenance.problems(), ...drivers.problems()];
    const { directories, workspace } = this.#config;
    const newest = store.takeovers(1)[0];
    const { runtimeInstanceId } = this.#identity;
    return {
      ...this.#identity,
      workspaceId: workspace,
      status: this.#stopping ? 'stopping' : problems.length > 0 ? 'degraded' : 'ready',
      problems,
      schemaVersion: store.schemaVersion,
      storeEpoch: store.retention.epoch(),
      version: VERSION,
      pid: process.pid,
      executor: executor.kind,
      socket: directories.apiSocket,
      ...this.#address(),
      activeAttempts: store.attempts.countActive(),
      tookOver: newest?.runtimeInstanceId === runtimeInstanceId ? newest : null,
    };
  }

  async close(): Promise<void> {
    this.#stopping = true;
    this.#wake.raise();
    await this.#retrying;
    await this.#guard?.close();
    const { shutdown } = this;
    // On systemd's sockets nobody need be turned away: who comes from now on waits for the next
    // daemon. Not where attempts have a grace: that may be long.
    if (shutdown.mode === 'detach') await this.#letGoOfHandedOver();
    await this.#core?.rest(shutdown);
    // Ingress closes last: until here every request got an answer.
    await this.#closeListeners();
    await this.#letGo();
    this.#ownership.release();
  }

  /** Without a service manager nothing outlives an orderly end: what runs there is suspended. */
  get shutdown(): ShutdownPolicy {
    const { shutdown } = this.#config;
    return this.#core?.executor.kind === 'direct' ? { ...shutdown, mode: 'suspend' } : shutdown;
  }

  #inside(): Core {
    if (this.#core) return this.#core;
    throw new OutliveError('starting', 'The daemon is not ready.');
  }

  /** Routes are made before there is anything behind them; the gate keeps requests out until then. */
  #lateContext(): ApiContext {
    const inside = (): Core => this.#inside();
    const stallMs = this.#config.file.api.streamStallMs;
    const pages = (): FramePages => {
      // Another store is another run of pages: after a refusal it may be opened anew.
      if (this.#pages?.store !== inside().store) {
        const { store } = inside();
        this.#pages = { store, pages: new FramePages(store) };
      }
      return this.#pages.pages;
    };
    return {
      get store() {
        return inside().store;
      },
      get supervisor() {
        return inside().supervisor;
      },
      get maintenance() {
        return inside().maintenance;
      },
      get hub() {
        return inside().hub;
      },
      get drivers() {
        return inside().drivers;
      },
      get streams() {
        return { pages: pages(), stallMs, timers: systemTimers };
      },
      runtime: () => this.runtime(),
      linearStatus: () =>
        this.#config.linear === null
          ? null
          : linearDetails(inside().store, inside().linear?.live()),
    };
  }

  #address(): { host: string | null; port: number | null } {
    const port = this.#tcp?.port ?? this.#served?.port ?? null;
    return { host: port === null ? null : '127.0.0.1', port };
  }

  #description(): RuntimeOwner {
    const { workspace, directories } = this.#config;
    return {
      workspaceId: workspace,
      ...this.#identity,
      pid: process.pid,
      ...this.#address(),
      socket: directories.apiSocket,
      version: VERSION,
      schemaVersion: this.#store?.schemaVersion ?? null,
      stateDirectory: directories.state,
    };
  }

  /** From nothing to a daemon that serves; or back to nothing, with the reason. */
  async #bringUp(): Promise<void> {
    try {
      this.#store = this.#openStore();
      // Before anything that runs is taken up: a port that is taken ends the start here.
      await this.#listenOnTcp();
      const { runtimeInstanceId } = this.#identity;
      const options = { ...this.#options, entropy: this.#entropy, runtimeInstanceId };
      this.#core = await openCore(options, this.#store);
      // The socket last, so that whoever reaches it finds all else in place.
      await this.#listenOnSocket();
      this.#ownership.describe(this.#description());
      this.#core.supervisor.start();
      this.#core.maintenance.start();
      this.#core.linear?.start();
      this.#core.drivers.start();
      this.#gate = null;
      // Whoever waits there is to get an answer, not a refusal because we were just starting.
      await this.#serveHandedOver();
    } catch (error) {
      await this.#core?.rest();
      await this.#letGo();
      throw error;
    }
  }

  #openStore(): Store {
    const { config } = this.#options;
    makeDirectories(config);
    const { startedAt, runtimeInstanceId: id } = this.#identity;
    const { store: directory } = config.directories;
    const store = openStore(directory, config.workspace, startedAt, !this.#storeSeen);
    this.#storeSeen = true;
    try {
      this.#recordStart(store, { id, pid: process.pid, version: VERSION, startedAt });
      return store;
    } catch (error) {
      store.close();
      throw error;
    }
  }

  /** The first thing that is written: who took over from whom. */
  #recordStart(store: Store, instance: Parameters<Store['recordInstance']>[0]): void {
    if (this.#recorded) return;
    const { dead } = this.#ownership;
    store.recordInstance(instance, dead);
    this.#recorded = true;
    for (const { runtimeInstanceId, pid, startedAt } of dead) {
      const previous = { runtimeInstanceId, pid, startedAt };
      this.#log.warn({ previous, evidence: 'kernel_lock_free' }, 'took over from a dead daemon');
    }
    this.#ownership.forgetDead();
  }

  async #listenOnTcp(): Promise<void> {
    const { port, directories } = this.#config;
    if (this.#tcp || (port === null && this.#handedOver.http.length === 0)) return;
    // Made also where systemd has the port: its holders read it from the file, before they come.
    const token = loadToken(directories.token);
    if (port === null || this.#handedOver.http.length > 0) return;
    this.#tcp = await listenOnTcp(this.#api, port, token);
  }

  async #listenOnSocket(): Promise<void> {
    if (this.#socket || this.#handedOver.api.length > 0) return;
    const { apiSocket: socketPath, runtime } = this.#config.directories;
    const socket = await listenOnSocket(this.#api, socketPath);
    this.#socket = socket;
    this.#guard = guardSocket({
      socketPath,
      log: this.#log,
      putBack: async () => {
        ensureDirectory(runtime);
        this.#ownership.renew();
        return socket.rebind();
      },
      onLost: this.#lose,
    });
  }

  /** Not guarded and never moved: these are systemd's. */
  async #serveHandedOver(): Promise<void> {
    const { api, http } = this.#handedOver;
    if (this.#served || api.length + http.length === 0) return;
    const { token } = this.#config.directories;
    this.#served = await listenOnHandedOver(this.#api, this.#handedOver, () => loadToken(token));
    this.#ownership.introduce(this.#description()); // Once more: now the port is known.
  }

  async #closeListeners(): Promise<void> {
    await Promise.all([this.#tcp?.close(), this.#socket?.close(), this.#letGoOfHandedOver()]);
  }

  async #letGoOfHandedOver(): Promise<void> {
    const listeners = this.#served?.listeners ?? [];
    this.#served = null;
    await Promise.all(listeners.map((listener) => listener.close()));
  }

  async #letGo(): Promise<void> {
    const core = this.#core;
    this.#core = null;
    if (core) await core.close();
    else this.#store?.close();
    this.#store = null;
  }

  /** Answers everybody with the reason, and tries again where that can help. */
  async #refuse(error: OutliveError): Promise<void> {
    this.#gate = error;
    this.#log.fatal({ code: error.code }, error.message);
    ensureDirectory(this.#config.directories.runtime);
    await this.#listenOnSocket();
    await this.#serveHandedOver();
    if (!FINAL.has(error.code)) {
      this.#retrying = this.#retry().catch((mistake: Error) => this.#lose(mistake));
    }
  }

  async #retry(): Promise<void> {
    for (let ms = RETRY_FIRST_MS; ; ms = Math.min(ms * 2, RETRY_MAX_MS)) {
      await this.#wake.wait(ms);
      if (this.#stopping) return;
      try {
        await this.#bringUp();
        this.#log.info('what kept the daemon from its work is over');
        this.#options.onServing?.();
        return;
      } catch (error) {
        if (!(error instanceof OutliveError)) throw error;
        this.#log.warn({ code: error.code }, `still refusing: ${error.message}`);
        this.#gate = error;
        if (FINAL.has(error.code)) return;
      }
    }
  }

  /** After a start that failed: as if it had never been. */
  async abandon(): Promise<void> {
    await this.#guard?.close();
    await this.#closeListeners();
    this.#ownership.release();
  }
}

/**
 * Starts the daemon of a workspace: locks, store, port, bus, recovery, socket, in this order.
 * Resolves when it answers requests. When it rejects, all it had opened is closed.
 * @throws OutliveError `workspace_owned`, `no_user_manager`, `port_taken`, `config_unreadable`, and what the paths may have.
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { config, log } = options;
  checkPaths(config);
  ensureDirectory(config.directories.state);
  requireLocal(config.directories.state, (message) => log.warn(message));
  const secret = webhookSecret(config);
  const ownership = takeOwnership(config, log);
  const daemon = new RunningDaemon(options, ownership, secret);
  try {
    await daemon.start();
    return daemon;
  } catch (error) {
    await daemon.abandon();
    throw error;
  }
}
