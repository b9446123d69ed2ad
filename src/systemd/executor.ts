/** The executor port over transient units of `systemd --user`. */
import { OutliveError } from '../domain/errors.ts';
import type { Entropy } from '../domain/ids.ts';
import { parseUnitName, unitPattern } from '../domain/names.ts';
import type {
  Executor,
  HostFacts,
  ListedUnit,
  StartRequest,
  StartResult,
  UnitFacts,
} from '../executor/port.ts';
import { Bus } from './bus.ts';
import { asUnavailable } from './bus-error.ts';
import { Cgroups } from './cgroup.ts';
import { ExitRecordDropIn } from './drop-in.ts';
import { hostFacts } from './host-facts.ts';
import { JobWatch } from './jobs.ts';
import { Manager } from './manager.ts';
import { toBus, unitProperties } from './properties.ts';
import { References, unlessMissing } from './references.ts';
import { hintOf } from './signals.ts';
import { systemTimers, type Timers } from './timers.ts';
import { listedUnit, unitFacts } from './unit-facts.ts';
import type { BusSignal } from './wire.ts';

export interface SystemdExecutorOptions {
  readonly workspace: string;
  /** DBUS_SESSION_BUS_ADDRESS, or `unix:path=$XDG_RUNTIME_DIR/bus`. */
  readonly busAddress: string;
  /** $XDG_RUNTIME_DIR. */
  readonly userRuntime: string;
  /** Absolute directory of the exit records; it must exist. */
  readonly exits: string;
  /** Text of ops/units/exit-record.sh, read at the daemon's start: a deploy may replace the file. */
  readonly exitRecordScript: string;
  readonly entropy: Pick<Entropy, 'random'>;
  readonly timers?: Timers;
  /** Told of what nobody waits for: lost connections, throwing listeners. */
  readonly report?: (problem: string) => void;
  readonly deadlines?: Partial<SystemdDeadlines>;
}

export interface SystemdDeadlines {
  readonly connectMs: number;
  /** One question to the manager. */
  readonly readMs: number;
  /** One change: accepted. */
  readonly changeMs: number;
  /** A start's job ended; see {@link ManagerDeadlines}. */
  readonly jobMs: number;
}

/** A manager that reloads hundreds of units is busy for seconds, not for minutes. */
const DEADLINES: SystemdDeadlines = {
  connectMs: 5_000,
  readMs: 10_000,
  changeMs: 30_000,
  jobMs: 2_000,
};

const MAX_IN_FLIGHT = 32;

type HintListener = (unit: string | null) => void;

class SystemdExecutor implements Executor {
  readonly kind = 'systemd';
  readonly #workspace: string;
  readonly #report: (problem: string) => void;
  readonly #timers: Timers;
  readonly #bus: Bus;
  readonly #jobs: JobWatch;
  readonly #manager: Manager;
  readonly #dropIn: ExitRecordDropIn;
  readonly #hintListeners = new Set<HintListener>();
  readonly #references: References;
  #cgroups: Cgroups | null = null;

  constructor(options: SystemdExecutorOptions) {
    const deadlines = { ...DEADLINES, ...options.deadlines };
    this.#workspace = options.workspace;
    this.#report = options.report ?? (() => {});
    this.#timers = options.timers ?? systemTimers;
    this.#bus = new Bus({
      address: options.busAddress,
      connectDeadlineMs: deadlines.connectMs,
      maxInFlight: MAX_IN_FLIGHT,
      timers: this.#timers,
      entropy: options.entropy,
      report: this.#report,
    });
    this.#jobs = new JobWatch(this.#timers);
    this.#manager = new Manager(this.#bus, deadlines, this.#jobs);
    this.#references = new References(this.#manager);
    this.#dropIn = new ExitRecordDropIn({ ...options, script: options.exitRecordScript });
    this.#bus.onSignal((signal) => this.#onSignal(signal));
    this.#bus.onUp(() => void this.#afterUp());
  }

  get healthy(): boolean {
    return this.#bus.ready;
  }

  /** Also puts the exit-record drop-in in place; each start makes sure of it again. */
  async connect(): Promise<void> {
    await this.#bus.connect();
    const managerGroup = await this.#manager.controlGroup().catch((error: unknown) => {
      throw asUnavailable(error);
    });
    this.#cgroups = await Cgroups.detect(managerGroup, this.#timers);
    // What runs already can be watched without it, and a start says what is wrong with it.
    await this.#dropIn.ensure().catch((error: unknown) => this.#report(String(error)));
  }

  async host(): Promise<HostFacts> {
    return await hostFacts(this.#manager);
  }

  /**
   * Rejects only before anything was sent: `path_unsupported`, or `disk_full` /
   * `state_dir_unwritable` for the drop-in. After that every outcome is a result.
   */
  async start(request: StartRequest): Promise<StartResult> {
    if (!this.#isOurs(request.unit)) {
      throw new OutliveError('internal', `${request.unit} is no unit of ${this.#workspace}.`);
    }
    const properties = toBus(unitProperties(this.#workspace, request));
    await this.#dropIn.ensure();
    // A failed unit of this name would refuse the start. Not waited for: one sender's calls
    // keep their order, and its answer changes nothing.
    this.#manager.resetFailed(request.unit).catch(() => {});
    let problem: string | null = null;
    try {
      const job = await this.#manager.startTransientUnit(request.unit, properties);
      if (job !== null && job !== 'done') problem = `its start job ended as "${job}"`;
    } catch (error) {
      problem = error instanceof Error ? error.message : String(error);
    }
    return await this.#afterStart(request, problem);
  }

  describeStart(request: StartRequest): readonly { name: string; value: string }[] {
    return unitProperties(this.#workspace, request).map(({ name, value }) => ({
      name,
      value: plainText(value),
    }));
  }

  async read(unit: string): Promise<UnitFacts | null> {
    try {
      return unitFacts(unit, await this.#manager.snapshot(unit), this.#dropIn);
    } catch (error) {
      throw asUnavailable(error);
    }
  }

  async list(): Promise<readonly ListedUnit[]> {
    try {
      const names = await this.#manager.listUnits([unitPattern(this.#workspace)]);
      const listed = await Promise.all(
        names
          .filter((name) => this.#isOurs(name))
          .map(async (name) => listedUnit(name, await this.#manager.summary(name))),
      );
      return listed.filter((unit) => unit !== null);
    } catch (error) {
      throw asUnavailable(error);
    }
  }

  async hold(unit: string): Promise<boolean> {
    // References are counted: a second one would need a second release.
    if (this.#references.has(unit)) return (await this.read(unit)) !== null;
    return await this.#references.take(unit);
  }

  async release(unit: string): Promise<void> {
    await this.#references.drop(unit);
    await unlessMissing(this.#manager.resetFailed(unit));
  }

  async stop(unit: string): Promise<void> {
    await unlessMissing(this.#manager.stopUnit(unit));
  }

  async kill(unit: string, signal: number): Promise<void> {
    await unlessMissing(this.#manager.killUnit(unit, signal));
  }

  async waitEmpty(controlGroup: string, deadlineMs: number): Promise<boolean> {
    if (this.#cgroups === null) throw new OutliveError('internal', 'waitEmpty before connect.');
    return await this.#cgroups.waitEmpty(controlGroup, deadlineMs);
  }

  onHint(listener: HintListener): () => void {
    this.#hintListeners.add(listener);
    return () => this.#hintListeners.delete(listener);
  }

  /** The units run on; ended ones that were held here may now be dropped by systemd. */
  async close(): Promise<void> {
    this.#bus.close();
    this.#jobs.onMissed(); // Nobody tells of their end any more.
  }

  async #afterStart(request: StartRequest, problem: string | null): Promise<StartResult> {
    const reason = problem ?? 'the start was accepted, yet no such unit is loaded';
    let facts: UnitFacts | null;
    try {
      facts = await this.read(request.unit);
    } catch (error) {
      return { kind: 'unknown', reason: `${reason}; ${(error as Error).message}` };
    }
    if (facts === null) return { kind: 'absent', reason };
    if (facts.nonce !== request.nonce) return { kind: 'foreign', facts };
    this.#references.note(request.unit); // AddRef=true
    return { kind: 'present', facts, problem };
  }

  #onSignal(signal: BusSignal): void {
    const hint = hintOf(signal);
    if (hint === null) return;
    if (hint.kind === 'everything') {
      // A manager that has just come back says so twice; the second time it can be listened to.
      if (this.#bus.ready) this.#hint(null);
      return;
    }
    if (hint.kind === 'job') this.#jobs.onEnded(hint.unit, hint.job, hint.result);
    if (this.#isOurs(hint.unit)) this.#hint(hint.unit);
  }

  /** Whoever hears the hint finds the references back in place. */
  async #afterUp(): Promise<void> {
    await this.#references.takeAgain();
    this.#jobs.onMissed();
    this.#hint(null);
  }

  #isOurs(unit: string): boolean {
    return parseUnitName(unit)?.workspace === this.#workspace;
  }

  #hint(unit: string | null): void {
    for (const listener of [...this.#hintListeners]) {
      try {
        listener(unit);
      } catch (error) {
        this.#report(`a hint listener failed: ${String(error)}`);
      }
    }
  }
}

/** A property's value in words: text as it is, everything else as JSON. */
function plainText(value: unknown): string {
  if (typeof value === 'string') return value;
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === 'bigint' ? Number(inner) : inner,
  );
}

/** The systemd executor; nothing is connected before {@link Executor.connect}. */
export function createSystemdExecutor(options: SystemdExecutorOptions): Executor {
  return new SystemdExecutor(options);
}
