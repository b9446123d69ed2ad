/** The inside of a daemon: store, bus, supervisor, recovered. Opened in order, closed in reverse. */
import type { Logger } from 'pino';
import type { Config, ConfigFile } from '../config.ts';
import type { Entropy } from '../domain/ids.ts';
import { REST_MS, SHUTDOWN_MARGIN_MS } from '../domain/shutdown.ts';
import { Drivers } from '../drivers/drivers.ts';
import type { ChosenExecutor } from '../executor/routed.ts';
import { bundledPi, WRAPPER } from '../layout.ts';
import { createCensus, keepCensus, recover } from '../recovery/recover.ts';
import type { Store } from '../store/store.ts';
import { STARVING_MS } from '../supervisor/admission.ts';
import type { Context, Settings } from '../supervisor/context.ts';
import type { Faults } from '../supervisor/faults.ts';
import { createHub } from '../supervisor/hub.ts';
import {
  createMaintenance,
  type Maintenance,
  type MaintenanceOptions,
} from '../supervisor/maintenance.ts';
import type { Policies, Preset } from '../supervisor/policies.ts';
import type { SandboxSettings } from '../supervisor/sandbox-settings.ts';
import { DETACH, type ShutdownPolicy } from '../supervisor/shutdown.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import { createSupervisor } from '../supervisor/supervisor.ts';
import { createWriter } from '../supervisor/writer.ts';
import { createMemoryReader } from '../systemd/memory.ts';
import { systemTimers } from '../systemd/timers.ts';
import { connectExecutor } from './executor.ts';
import { openLinearAgent, type RunningLinear } from './linear-agent.ts';
import { sandboxSettings } from './sandbox.ts';

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
  readonly maintenance: Maintenance;
  readonly hub: Context['hub'];
  readonly drivers: Drivers;
  /** Null where there is none. */
  readonly linear: RunningLinear | null;
  /** Recovery at the start; from then on the census. */
  takeUp(): Promise<void>;
  /** Takes no more work and lets go of what runs; the store and the bus stay open. */
  rest(policy?: ShutdownPolicy): Promise<void>;
  /** After {@link rest}: nothing of it is left. */
  close(): Promise<void>;
}

/** A preset's slots are counted by its own name. */
const presetSlots = ({ presets }: ConfigFile): Record<string, number> =>
  Object.fromEntries(
    Object.entries(presets).flatMap(([name, { maxParallel }]) =>
      maxParallel === undefined ? [] : [[name, maxParallel]],
    ),
  );

/** Where nothing else is said, the header of HTTP itself has a word before the key. */
const schemeOf = (header: string): string =>
  header.toLowerCase() === 'authorization' ? 'Bearer' : '';

function policiesOf(file: ConfigFile): Policies {
  const { presets, providerRetry, breaker, spend, admission, approvals } = file;
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const named = Object.entries(presets).map(([name, preset]): [string, Preset] => [
    name,
    { ...preset, maxParallel: preset.maxParallel ?? null },
  ]);
  return {
    approvals,
    providerRetry,
    breaker,
    presets: Object.fromEntries(named),
    keyProxy: Object.entries(file.keyProxy).map(([provider, { scheme, ...proxy }]) => ({
      provider,
      ...proxy,
      scheme: (scheme ?? schemeOf(proxy.header)) || null,
    })),
    spend: { timeZone: spend.timeZone ?? timeZone, day: spend.day, kinds: spend.kinds },
    minFreeMemory: admission.minFreeMemory,
    freeMemory: createMemoryReader(),
  };
}

function settingsOf(config: Config, sandbox: SandboxSettings): Settings {
  const { directories, file } = config;
  const node = process.execPath;
  return {
    attemptsDirectory: directories.attempts,
    sessionsDirectory: directories.sessions,
    exitsDirectory: directories.exits,
    decisionsDirectory: directories.decisions,
    temporaryDirectory: directories.temporary,
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
    limits: { ...file.limits, provider: { ...file.limits.provider, ...presetSlots(file) } },
    starvingMs: STARVING_MS,
    policies: policiesOf(file),
    home: config.home,
    sandbox,
  };
}

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

function maintenanceOf({ file }: Config): MaintenanceOptions {
  const { days, diskBudgetBytes, intervalMinutes } = file.retention;
  return {
    policy: {
      maxAgeMs: days === null ? null : days * DAY_MS,
      budgetBytes: diskBudgetBytes,
    },
    intervalMs: intervalMinutes * MINUTE_MS,
  };
}

/** @returns false when `work` was not done in time. */
async function within(ms: number, work: Promise<unknown>): Promise<boolean> {
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

function makeCore(config: Config, executor: ChosenExecutor, context: Context): Core {
  const supervisor = createSupervisor(context);
  const maintenance = createMaintenance(context, maintenanceOf(config));
  const { log, hub, store } = context;
  const census = createCensus(context, supervisor);
  let endCensus = async (): Promise<void> => undefined;
  const linear = openLinearAgent({ config, context, supervisor });
  const drivers = new Drivers({ context, supervisor, timers: systemTimers });
  const rest = async (policy: ShutdownPolicy = DETACH): Promise<void> => {
    const ending = async (): Promise<void> => {
      // First, so that no tick and no turn begins what is refused.
      drivers.close();
      await linear?.close();
      await Promise.all([endCensus(), supervisor.close(policy), maintenance.close()]);
    };
    const resting = ending();
    const graceMs = policy.mode === 'suspend' ? policy.graceMs + SHUTDOWN_MARGIN_MS : 0;
    if (await within(graceMs + REST_MS, resting)) return;
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
    maintenance,
    hub,
    drivers,
    linear,
    takeUp: async () => {
      drivers.sync(config.file.drivers);
      await recover(context, census);
      endCensus = keepCensus(context, census);
    },
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
    settings: settingsOf(config, sandboxSettings(config, executor.kind, log)),
    fault,
  };
  const core = makeCore(config, executor, context);
  try {
    await core.takeUp();
    return core;
  } catch (error) {
    // Attempts may have been taken up already: nobody may go on watching them without a store.
    await core.rest();
    await executor.close();
    throw error;
  }
}
