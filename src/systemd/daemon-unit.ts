/**
 * The unit the daemon itself runs in: the installed `outlived@<workspace>.service` where
 * ops/scripts/install enabled one, else a transient service of the user manager, so that it
 * has a log, a stop with a deadline, and no terminal it could die with. For the command
 * line; the daemon never needs it.
 */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { OutliveError } from '../domain/errors.ts';
import { daemonUnitName, installedUnits } from '../domain/names.ts';
import { Bus } from './bus.ts';
import { asUnavailable, BusError, refusedAs } from './bus-error.ts';
import { JobWatch } from './jobs.ts';
import { Manager } from './manager.ts';
import { probeUnitName, probeUnitProperties } from './probe-unit.ts';
import { type PlainProperty, toBus } from './properties.ts';
import { hintOf } from './signals.ts';
import { systemTimers } from './timers.ts';
import { text } from './values.ts';

/** READY=1 comes after recovery, milliseconds. */
const START_MS = 90_000;
/** Our patience with a start; with either systemd's deadline and this, so that its verdict comes first. */
const VERDICT_MS = 10_000;
const CHANGE_MS = START_MS + VERDICT_MS;
const READ_MS = 5_000;
const REREAD_MS = 1_000; // Signals may be missed.

export interface DaemonUnitSpec {
  readonly workspace: string;
  /** Absolute program and its arguments. */
  readonly argv: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** Each becomes `$CREDENTIALS_DIRECTORY/<name>`; `path` is absolute. */
  readonly credentials: readonly { readonly name: string; readonly path: string }[];
  readonly umask: number;
  /** How long its orderly end may take, milliseconds. */
  readonly stopMs: number;
}

export interface DaemonUnitState {
  /** The one that is loaded, else the one that a start would use. */
  readonly unit: string;
  /**
   * systemd's ActiveState, `inactive` also when no such unit is loaded; `auto-restart` while
   * systemd waits to start a failed one again.
   */
  readonly active: string;
  /** systemd's Result. */
  readonly result: string;
}

// In arguments systemd would expand these, or has quoted them differently between versions.
const EXPANDED = /[$"\\%]/;

/** The properties of the daemon's unit in plain values. Pure. */
export function daemonUnitProperties(spec: DaemonUnitSpec): readonly PlainProperty[] {
  const [program = ''] = spec.argv;
  const bad = spec.argv.find((argument) => EXPANDED.test(argument));
  if (bad !== undefined || !path.isAbsolute(program)) {
    throw new OutliveError(
      'path_unsupported',
      `${bad ?? program} cannot be given to systemd: it must be absolute and hold none of $ " \\ %. Move the checkout elsewhere.`,
    );
  }
  const properties: (readonly [name: string, signature: string, value: unknown])[] = [
    // notify: the start job ends when the daemon says READY=1, through systemd-notify (all).
    ['Type', 's', 'notify'],
    ['NotifyAccess', 's', 'all'],
    ['ExecStart', 'a(sasb)', [[program, spec.argv, false]]],
    ['Description', 's', `outlive daemon, workspace ${spec.workspace}`],
    ['Environment', 'as', Object.entries(spec.environment).map((pair) => pair.join('='))],
    ['KillMode', 's', 'control-group'],
    ['TimeoutStartUSec', 't', BigInt(START_MS) * 1_000n],
    ['TimeoutStopUSec', 't', BigInt(spec.stopMs) * 1_000n],
    ['SyslogIdentifier', 's', `outlived-${spec.workspace}`],
    ['UMask', 'u', spec.umask],
  ];
  const credentials = spec.credentials.map((each) => [each.name, each.path]);
  if (credentials.length > 0) properties.push(['LoadCredential', 'a(ss)', credentials]);
  return properties.map(([name, signature, value]) => ({ name, signature, value }));
}

/** The daemon's unit in the user manager, over a connection of its own. Close it. */
export class DaemonUnits {
  readonly #bus: Bus;
  readonly #manager: Manager;
  private constructor(bus: Bus, manager: Manager) {
    this.#bus = bus;
    this.#manager = manager;
  }

  /** @throws OutliveError `no_user_manager`, saying what is needed. */
  static async connect(address: string): Promise<DaemonUnits> {
    const bus = new Bus({
      address,
      connectDeadlineMs: READ_MS,
      maxInFlight: 8,
      timers: systemTimers,
      entropy: { random: (size) => randomBytes(size) },
      report: () => {}, // Every call here has its own error.
    });
    const jobs = new JobWatch(systemTimers);
    bus.onSignal((signal) => {
      const hint = hintOf(signal);
      if (hint?.kind === 'job') jobs.onEnded(hint.unit, hint.job, hint.result);
    });
    bus.onUp(() => jobs.onMissed());
    await bus.connect().catch((error: unknown) => {
      bus.close();
      throw explained(error);
    });
    return new DaemonUnits(
      bus,
      new Manager(bus, { readMs: READ_MS, changeMs: CHANGE_MS, jobMs: CHANGE_MS }, jobs),
    );
  }

  close(): void {
    this.#bus.close();
  }

  /** True when ops/scripts/install (or a person) enabled the daemon's own unit files. */
  async isInstalled(workspace: string): Promise<boolean> {
    const { service, sockets } = installedUnits(workspace);
    for (const unit of [service, ...sockets]) {
      const state = await this.#manager.unitFileState(unit).catch(throwReadable);
      if (state?.startsWith('enabled')) return true;
    }
    return false;
  }

  /** Of whichever unit the daemon runs in, or ran in last. */
  async state(workspace: string): Promise<DaemonUnitState> {
    const { service } = installedUnits(workspace);
    const transient = await this.#stateOf(daemonUnitName(workspace));
    if (!isDown(transient)) return transient;
    const installed = await this.#stateOf(service);
    if (installed.active !== 'inactive') return installed;
    if (transient.active !== 'inactive') return transient;
    return (await this.isInstalled(workspace)) ? installed : transient;
  }

  async #stateOf(unit: string): Promise<DaemonUnitState> {
    try {
      // Asked first: reading an unloaded unit makes systemd look for its file and log that it has none.
      const loaded = await this.#manager.listUnits([unit]);
      if (loaded.length === 0) return { unit, active: 'inactive', result: 'success' };
      const facts = await this.#manager.snapshot(unit);
      const isWaiting = text(facts.unit['SubState']) === 'auto-restart';
      const active = isWaiting ? 'auto-restart' : text(facts.unit['ActiveState']);
      return { unit, active, result: text(facts.service['Result']) };
    } catch (error) {
      throw readable(error);
    }
  }

  /**
   * Starts the unit, or joins a start that is under way, and returns its state once it
   * is active, failed or gone. An earlier failure of the same name is cleared first.
   * An installed unit comes with its sockets, and takes nothing of `spec` but the workspace.
   */
  async start(spec: DaemonUnitSpec): Promise<DaemonUnitState> {
    const { unit } = await this.state(spec.workspace);
    await this.#clearFailure(unit);
    if (unit === daemonUnitName(spec.workspace)) {
      const properties = toBus(daemonUnitProperties(spec));
      await this.#manager.startTransientUnit(unit, properties).catch(unless('UnitExists'));
    } else {
      await this.#manager.startUnit(unit).catch(throwReadable);
    }
    return this.#until(unit, ({ active }) => active !== 'activating');
  }

  /**
   * Stops the daemon in whichever unit it runs, and returns its last state, once nothing of
   * it runs. Its sockets go first: the next connection would start it again.
   * @param stopMs how long its orderly end may take, milliseconds.
   */
  async stop(workspace: string, stopMs: number): Promise<DaemonUnitState> {
    const { unit } = await this.state(workspace);
    const patienceMs = stopMs + VERDICT_MS;
    const { sockets } = installedUnits(workspace);
    for (const socket of await this.#manager.listUnits(sockets).catch(throwReadable)) {
      await this.#manager.stopUnit(socket).catch(unless('NoSuchUnit'));
    }
    await this.#manager.stopUnit(unit).catch(unless('NoSuchUnit'));
    const state = await this.#until(unit, isDown, patienceMs);
    await this.#clearFailure(unit);
    return state;
  }

  /**
   * Restarts the installed unit, with its sockets left open, and returns its state once it
   * is active, failed or waits for another try.
   * @param stopMs how long its orderly end may take, milliseconds.
   */
  async restart(workspace: string, stopMs: number): Promise<DaemonUnitState> {
    const { service } = installedUnits(workspace);
    await this.#clearFailure(service);
    await this.#manager.restartUnit(service).catch(throwReadable);
    const isSettled = ({ active }: DaemonUnitState): boolean => !/^(de)?activating$/.test(active);
    return this.#until(service, isSettled, stopMs + CHANGE_MS);
  }

  /** True when a connection would start the daemon. */
  async isListening(workspace: string): Promise<boolean> {
    const { sockets } = installedUnits(workspace);
    return (await this.#manager.listUnits(sockets, ['active']).catch(throwReadable)).length > 0;
  }

  /**
   * Runs the probe of a sandbox in a unit of its own, to its end.
   * @returns how its start job ended when not well; null when well.
   */
  async runProbe(argv: readonly string[], hidden: string): Promise<string | null> {
    const bad = argv.find((argument) => EXPANDED.test(argument));
    if (bad !== undefined) return `${bad} cannot be given to systemd`;
    const unit = probeUnitName();
    const properties = toBus(probeUnitProperties(argv, hidden));
    const job = await this.#manager.startTransientUnit(unit, properties).catch(throwReadable);
    return job === 'done' ? null : `the probe's unit ended as ${job ?? 'nobody knows'}`;
  }

  async #clearFailure(unit: string): Promise<void> {
    await this.#manager.resetFailed(unit).catch(unless('NoSuchUnit'));
  }

  /** Reads the state at each hint until it is as wanted, or for `patienceMs`. */
  async #until(
    unit: string,
    isWanted: (state: DaemonUnitState) => boolean,
    patienceMs = CHANGE_MS,
  ): Promise<DaemonUnitState> {
    const end = performance.now() + patienceMs;
    for (;;) {
      // Listening before reading, so that no change falls in between.
      const hint = this.#nextHint(unit);
      try {
        const state = await this.#stateOf(unit);
        if (isWanted(state) || performance.now() > end) return state;
        await hint.came;
      } finally {
        hint.stop();
      }
    }
  }

  #nextHint(unit: string): { came: Promise<void>; stop: () => void } {
    const { promise: came, resolve } = Promise.withResolvers<void>();
    const cancel = systemTimers.after(REREAD_MS, resolve);
    const unsubscribe = this.#bus.onSignal((signal) => {
      const hint = hintOf(signal);
      if (hint?.kind === 'everything' || hint?.unit === unit) resolve();
    });
    const stop = (): void => {
      for (const end of [cancel, unsubscribe]) end();
    };
    return { came, stop };
  }
}

const isDown = ({ active }: DaemonUnitState): boolean =>
  active === 'inactive' || active === 'failed';

function throwReadable(error: unknown): never {
  throw readable(error);
}

/** Lets one refusal of the manager pass; any other failure becomes an error a person can read. */
function unless(refusal: string): (error: unknown) => void {
  return (error) => {
    if (!refusedAs(error, refusal)) throw readable(error);
  };
}

function readable(error: unknown): unknown {
  if (!(error instanceof BusError) || error.failure !== 'refused') return asUnavailable(error);
  return new OutliveError('internal', `systemd refused: ${error.message}.`, { cause: error });
}

function explained(error: unknown): unknown {
  if (!(error instanceof OutliveError) || error.code !== 'no_user_manager') return error;
  return new OutliveError(
    error.code,
    `${error.message} It is needed to run the daemon: log in as this user in a session of its own (ssh, console; not su or sudo), or as root: loginctl enable-linger USER. Then XDG_RUNTIME_DIR must be /run/user/UID.`,
    { cause: error },
  );
}
