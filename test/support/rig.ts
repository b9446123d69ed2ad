/**
 * A workspace of its own for a real-systemd test: real daemon process, real user manager,
 * real Pi, a scripted model. Everything it started is gone after `end()`.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, rmSync, watch } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { EventView, StartWorkUnitInput, WorkUnitView } from '../../src/api/schemas.ts';
import { type Client, createClient } from '../../src/client/client.ts';
import { type Config, loadConfig } from '../../src/config.ts';
import { dropInDirectoryName, sliceName } from '../../src/domain/names.ts';
import { DAEMON_NODE_FLAGS } from '../../src/layout.ts';
import type { FaultPoint } from '../../src/supervisor/faults.ts';
import { writePiLab } from './scripted-model/lab.ts';
import { type ScriptedModel, startScriptedModel } from './scripted-model/server.ts';
import { killDirectAttempts, pathWithoutSystemd } from './without-systemd.ts';

export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const run = promisify(execFile);

/** Far above what anything here takes: reaching it is a failure, never a measurement. */
const PATIENCE_MS = 60_000;

/** Rejects, naming `what`, when the promise takes longer than anything here may. */
export async function within<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited in vain for ${what}`)), PATIENCE_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Resolves once the file exists, told by inotify. */
export async function appears(file: string): Promise<void> {
  mkdirSync(path.dirname(file), { recursive: true });
  const { promise, resolve } = Promise.withResolvers<void>();
  const watcher = watch(path.dirname(file), () => existsSync(file) && resolve());
  try {
    if (existsSync(file)) resolve();
    await within(file, promise);
  } finally {
    watcher.close();
  }
}

/** `systemctl --user …`, its stdout. */
export async function systemctl(...args: readonly string[]): Promise<string> {
  return (await run('systemctl', ['--user', ...args])).stdout.trim();
}

export interface DaemonProcess {
  readonly pid: number;
  /** All it wrote to stdout and stderr so far. */
  output(): string;
  kill(signal: NodeJS.Signals): void;
  /** Exit status, or the signal that ended it. */
  readonly exited: Promise<number | NodeJS.Signals>;
}

export interface Outcome {
  readonly workUnit: WorkUnitView;
  readonly events: readonly EventView[];
}

/** The model's script as a prompt: one turn a line. */
export const script = (...lines: readonly string[]): string =>
  ['Do as the script says.', '#script', ...lines, '#end'].join('\n');

export class Rig {
  readonly workspace: string;
  readonly base: string;
  readonly tree: string;
  readonly config: Config;
  readonly env: Record<string, string>;
  readonly client: Client;
  readonly model: ScriptedModel;
  private readonly daemons: DaemonProcess[] = [];

  private constructor(
    base: string,
    workspace: string,
    env: Record<string, string>,
    model: ScriptedModel,
  ) {
    this.base = base;
    this.workspace = workspace;
    this.env = env;
    this.model = model;
    this.tree = path.join(base, 'tree');
    mkdirSync(this.tree, { recursive: true });
    this.config = loadConfig(env);
    this.client = createClient({ socketPath: this.config.directories.apiSocket });
  }

  static async create(
    options: {
      apiKey?: string;
      modelKey?: string;
      stateHome?: string;
      /** A machine without systemd: no tools of it on PATH, no bus. */
      withoutSystemd?: boolean;
    } = {},
  ): Promise<Rig> {
    const base = mkdtempSync(path.join(os.homedir(), 'rig-'));
    const runtime = options.withoutSystemd
      ? path.join(base, 'run')
      : process.env['XDG_RUNTIME_DIR'];
    if (!runtime) throw new Error('XDG_RUNTIME_DIR is not set: run this through ops/scripts/host');
    const workspace = `t${randomBytes(4).toString('hex')}`;
    const modelKey = options.modelKey ?? 'test-key';
    const model = await startScriptedModel({ apiKey: modelKey });
    const agent = path.join(base, 'agent');
    mkdirSync(agent, { recursive: true });
    await writePiLab(agent, {
      baseUrl: model.baseUrl,
      apiKey: options.apiKey ?? modelKey,
      retries: 'off',
    });
    const env = {
      PATH: options.withoutSystemd ? pathWithoutSystemd(base) : (process.env['PATH'] ?? ''),
      // Not the person's where it need not be: Pi's nest makes what must not be written later.
      HOME: options.withoutSystemd ? base : os.homedir(),
      LANG: 'C.UTF-8',
      XDG_RUNTIME_DIR: runtime,
      ...(options.withoutSystemd
        ? {}
        : {
            DBUS_SESSION_BUS_ADDRESS:
              process.env['DBUS_SESSION_BUS_ADDRESS'] ?? `unix:path=${runtime}/bus`,
          }),
      XDG_STATE_HOME: options.stateHome ?? path.join(base, 'state'),
      XDG_CONFIG_HOME: path.join(base, 'config'),
      XDG_CACHE_HOME: path.join(base, 'cache'),
      PI_CODING_AGENT_DIR: agent,
      PI_OFFLINE: '1',
      OUTLIVE_WORKSPACE: workspace,
      OUTLIVE_PORT: 'none',
    };
    return new Rig(base, workspace, env, model);
  }

  /** Starts a daemon and waits until it answers; with a fault armed only until it is started. */
  async startDaemon(
    options: { fault?: FaultPoint; env?: Record<string, string> } = {},
  ): Promise<DaemonProcess> {
    const daemon = this.spawnDaemon(options);
    const ready = this.ready(daemon);
    await within(
      'the daemon to be ready',
      options.fault ? Promise.race([ready.catch(() => undefined), daemon.exited]) : ready,
    );
    return daemon;
  }

  /** Only spawns it: for daemons that are expected to refuse. */
  spawnDaemon(options: { fault?: FaultPoint; env?: Record<string, string> } = {}): DaemonProcess {
    const env = {
      ...this.env,
      ...options.env,
      ...(options.fault ? { OUTLIVE_FAULT: options.fault } : {}),
    };
    const child = spawn(process.execPath, [...DAEMON_NODE_FLAGS, path.join(ROOT, 'dist/main.js')], {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const daemon = daemonProcess(child);
    this.daemons.push(daemon);
    return daemon;
  }

  private ready(daemon: DaemonProcess): Promise<void> {
    return said(daemon, '"msg":"ready"');
  }

  /** Submits and returns at once. */
  async submit(
    input: Partial<StartWorkUnitInput> & { prompt?: string; argv?: string[] },
  ): Promise<WorkUnitView> {
    const request = {
      ownerId: 'test',
      cwd: this.tree,
      ...(input.argv ? { runnerId: 'command' } : { runnerId: 'pi', model: 'lab/scripted' }),
      ...input,
    } as StartWorkUnitInput;
    return (await this.client.startWorkUnit(request)).workUnit;
  }

  /** Follows a work unit until an event passes; across daemon restarts. */
  async waitForEvent(
    id: string,
    passes: (event: EventView) => boolean,
    what: string,
  ): Promise<EventView> {
    const stop = new AbortController();
    const find = async (): Promise<EventView> => {
      for await (const event of this.client.followEvents(id, { signal: stop.signal })) {
        if (passes(event)) return event;
      }
      throw new Error(`the events of ${id} ended without ${what}`);
    };
    return within(what, find()).finally(() => stop.abort());
  }

  /** Follows a work unit to its end. */
  async outcome(id: string): Promise<Outcome> {
    const events: EventView[] = [];
    const collect = async (): Promise<void> => {
      for await (const event of this.client.followEvents(id)) events.push(event);
    };
    await within(`the end of ${id}`, collect());
    return { workUnit: await this.client.getWorkUnit(id), events };
  }

  async runToEnd(input: Parameters<Rig['submit']>[0]): Promise<Outcome> {
    return this.outcome((await this.submit(input)).id);
  }

  /** Path of the exit record an attempt leaves, once its spool told the nonce. */
  exitRecords(): string {
    return this.config.directories.exits;
  }

  /** Units of this workspace that systemd still has loaded. */
  async loadedUnits(): Promise<string> {
    return systemctl(
      'list-units',
      '--all',
      '--plain',
      '--no-legend',
      `outlive-${this.workspace}-*`,
    );
  }

  /**
   * Resolves once no unit of this workspace is loaded. The daemon lets a unit go after it
   * committed the end, and no event of its own tells when: so systemd is asked again.
   */
  async unitsAreGone(): Promise<void> {
    const gone = async (): Promise<void> => {
      while ((await this.loadedUnits()) !== '') await pause(50);
    };
    await within('the units to be let go', gone());
  }

  /** Resolves once no unit of this workspace runs, whether it was let go or not. */
  async unitsAreDead(): Promise<void> {
    const states = ['active', 'activating', 'deactivating'].map((state) => `--state=${state}`);
    const dead = async (): Promise<void> => {
      const pattern = `outlive-${this.workspace}-*`;
      while ((await systemctl('list-units', '--plain', '--no-legend', ...states, pattern)) !== '')
        await pause(50);
    };
    await within('the units to end', dead());
  }

  async end(): Promise<void> {
    for (const daemon of this.daemons) daemon.kill('SIGKILL');
    await Promise.all(this.daemons.map((daemon) => daemon.exited));
    await killDirectAttempts(this.config.directories.direct);
    await systemctl('stop', sliceName(this.workspace)).catch(() => undefined);
    await systemctl('reset-failed', `outlive-${this.workspace}-*`).catch(() => undefined);
    await this.model.close();
    const { userRuntime, runtime } = this.config.directories;
    rmSync(path.join(userRuntime, 'systemd/user', dropInDirectoryName(this.workspace)), {
      recursive: true,
      force: true,
    });
    rmSync(runtime, { recursive: true, force: true });
    rmSync(this.base, { recursive: true, force: true, maxRetries: 5 });
  }
}

type OutputListener = (text: string) => void;
const listeners = new WeakMap<DaemonProcess, Set<OutputListener>>();

function onOutput(daemon: DaemonProcess, listener: OutputListener): () => void {
  const set = listeners.get(daemon) ?? new Set();
  listeners.set(daemon, set.add(listener));
  listener(daemon.output());
  return () => set.delete(listener);
}

/** Resolves once the daemon has written `words`; rejects when it ends before. */
export async function said(daemon: DaemonProcess, words: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const stop = onOutput(daemon, () => {
    if (daemon.output().includes(words)) resolve();
  });
  void daemon.exited.then((how) =>
    reject(new Error(`the daemon ended (${how}): ${daemon.output()}`)),
  );
  await promise.finally(stop);
}

function daemonProcess(child: ChildProcess): DaemonProcess {
  let text = '';
  const exited = new Promise<number | NodeJS.Signals>((resolve) => {
    child.on('exit', (code, signal) => resolve(signal ?? code ?? -1));
  });
  const daemon: DaemonProcess = {
    pid: child.pid ?? -1,
    output: () => text,
    kill: (signal) => child.kill(signal),
    exited,
  };
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      for (const listener of listeners.get(daemon) ?? []) listener(text);
    });
  }
  return daemon;
}

/** Sequence numbers are 1, 2, 3, … without gap. */
export function sequenceIsWhole(events: readonly EventView[]): boolean {
  return events.every((event, index) => event.seq === index + 1);
}
