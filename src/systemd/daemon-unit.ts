/**
 * The unit the daemon itself runs in where no unit files are installed: a transient
 * service of the user manager, so that it has a log, a stop with a deadline, and no
 * terminal it could die with. For the command line; the daemon never needs it.
 */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { OutliveError } from '../domain/errors.ts';
import { daemonUnitName } from '../domain/names.ts';
import { Bus } from './bus.ts';
import { asUnavailable, BusError, refusedAs } from './bus-error.ts';
import { JobWatch } from './jobs.ts';
import { Manager } from './manager.ts';
import { type PlainProperty, toBus } from './properties.ts';
import { hintOf } from './signals.ts';
import { systemTimers } from './timers.ts';
import { text } from './values.ts';

/** Microseconds: READY=1 comes after recovery, the end after the daemon's own grace of 60 s. */
const START_US = 90_000_000n;
const STOP_US = 90_000_000n;
/** Our patience with either: systemd's deadline and a margin, so that its verdict comes first. */
const CHANGE_MS = 100_000;
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
}

/** systemd's ActiveState (`inactive` also when no such unit is loaded) and its Result. */
export interface DaemonUnitState {
  readonly active: string;
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
    ['TimeoutStartUSec', 't', START_US],
    ['TimeoutStopUSec', 't', STOP_US],
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

  async state(workspace: string): Promise<DaemonUnitState> {
    const name = daemonUnitName(workspace);
    try {
      // Asked first: reading an unloaded unit makes systemd look for its file and log that it has none.
      const loaded = await this.#manager.listUnits([name]);
      if (loaded.length === 0) return { active: 'inactive', result: 'success' };
      const { unit, service } = await this.#manager.snapshot(name);
      return { active: text(unit['ActiveState']), result: text(service['Result']) };
    } catch (error) {
      throw readable(error);
    }
  }

  /**
   * Starts the unit, or joins a start that is under way, and returns its state once it
   * is active, failed or gone. An earlier failure of the same name is cleared first.
   */
  async start(spec: DaemonUnitSpec): Promise<DaemonUnitState> {
    const unit = daemonUnitName(spec.workspace);
    await this.#clearFailure(unit);
    const properties = toBus(daemonUnitProperties(spec));
    await this.#manager.startTransientUnit(unit, properties).catch(unless('UnitExists'));
    return this.#until(spec.workspace, ({ active }) => active !== 'activating');
  }

  /** Stops the unit and returns its last state, once nothing of it runs. */
  async stop(workspace: string): Promise<DaemonUnitState> {
    const unit = daemonUnitName(workspace);
    await this.#manager.stopUnit(unit).catch(unless('NoSuchUnit'));
    const state = await this.#until(workspace, ({ active }) => /^(inactive|failed)$/.test(active));
    await this.#clearFailure(unit);
    return state;
  }

  async #clearFailure(unit: string): Promise<void> {
    await this.#manager.resetFailed(unit).catch(unless('NoSuchUnit'));
  }

  /** Reads the state at each hint until it is as wanted, or for {@link CHANGE_MS}. */
  async #until(
    workspace: string,
    isWanted: (state: DaemonUnitState) => boolean,
  ): Promise<DaemonUnitState> {
    const end = performance.now() + CHANGE_MS;
    for (;;) {
      // Listening before reading, so that no change falls in between.
      const hint = this.#nextHint(daemonUnitName(workspace));
      try {
        const state = await this.state(workspace);
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
