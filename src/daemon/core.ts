/** The inside of a daemon: store, bus, supervisor, recovered. Opened in order, closed in reverse. */
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import type { Entropy } from '../domain/ids.ts';
import type { ChosenExecutor } from '../executor/routed.ts';
import { bundledPi, WRAPPER } from '../layout.ts';
import { recover } from '../recovery/recover.ts';
import type { Store } from '../store/store.ts';
import { STARVING_MS } from '../supervisor/admission.ts';
import type { Context, Settings } from '../supervisor/context.ts';
import type { Faults } from '../supervisor/faults.ts';
import { createHub } from '../supervisor/hub.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import { createSupervisor } from '../supervisor/supervisor.ts';
import { createWriter } from '../supervisor/writer.ts';
import { connectExecutor } from './executor.ts';

export interface CoreOptions {
  readonly config: Config;
  readonly log: Logger;
  readonly fault: Faults;
  readonly entropy: Entropy;
  readonly runtimeInstanceId: string;
}

export interface Core {
  readonly store: Store;
  readonly executor: ChosenExecutor;
  readonly supervisor: Supervisor;
  readonly hub: Context['hub'];
  /** Takes no more work and lets go of what runs; the store and the bus stay open. */
  rest(): Promise<void>;
  /** After {@link rest}: nothing of it is left. */
  close(): Promise<void>;
}

/** Attempts end by themselves; a start or a look that is under way may take this long to end, milliseconds. */
const REST_MS = 5_000;

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

/** @returns false when `work` was not done in time. */
async function within(ms: number, work: Promise<void>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

function makeCore(store: Store, executor: ChosenExecutor, context: Context): Core {
  const supervisor = createSupervisor(context);
  const { log, hub } = context;
  const rest = async (): Promise<void> => {
    const resting = supervisor.close();
    if (await within(REST_MS, resting)) return;
    // A job that systemd holds back answers nobody. Whoever waits for it is told that the bus
    // is gone; the next daemon finds what became of it.
    log.warn('something is still under way; the bus is left without its answer');
    await executor.close();
    if (!(await within(REST_MS, resting))) log.error('something does not end; it is left behind');
  };
  return {
    store,
    executor,
    supervisor,
    hub,
    rest,
    close: async () => {
      await executor.close();
      store.close();
    },
  };
}

/**
 * Connects the executor and takes up what runs, over a store that is open. When it
 * rejects, all it had opened is closed; the store is the caller's.
 */
export async function openCore(options: CoreOptions, store: Store): Promise<Core> {
  const { config, log, entropy, fault, runtimeInstanceId } = options;
  const executor = await connectExecutor(options, entropy, store);
  const hub = createHub((error) => log.error({ err: error }, 'a listener failed'));
  const context: Context = {
    workspace: config.workspace,
    runtimeInstanceId,
    store,
    writer: createWriter(store, hub, entropy),
    executor,
    entropy,
    hub,
    log,
    settings: settingsOf(config),
    fault,
  };
  const core = makeCore(store, executor, context);
  try {
    await recover(context, core.supervisor);
    return core;
  } catch (error) {
    // Attempts may have been taken up already: nobody may go on watching them without a store.
    await core.rest();
    await executor.close();
    throw error;
  }
}
