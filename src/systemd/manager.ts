/**
 * The methods of systemd's manager that outlive uses, typed, each with a deadline
 * (man org.freedesktop.systemd1). Errors are BusError; what they mean is decided by
 * the executor.
 */
import type { Bus } from './bus.ts';
import { isNoSuchFile } from './bus-error.ts';
import { BUS_DRIVER, SYSTEMD } from './bus-names.ts';
import type { JobWatch } from './jobs.ts';
import type { UnitProperty } from './properties.ts';
import { unitPath } from './unit-path.ts';
import { integer, list, type PropertyMap, propertyMap, text, unwrap } from './values.ts';

const PROPERTIES = 'org.freedesktop.DBus.Properties';

/** Everything read about a unit at one moment. */
export interface UnitSnapshot {
  /** org.freedesktop.systemd1.Unit, read first. */
  readonly unit: PropertyMap;
  /** org.freedesktop.systemd1.Service, read second. */
  readonly service: PropertyMap;
}

/** The part of a {@link UnitSnapshot} that a list needs. */
export interface UnitSummary {
  readonly unit: PropertyMap;
  readonly environment: unknown;
}

/** Reads of a unit that is just being loaded or dropped are repeated, this often. */
const SNAPSHOT_TRIES = 3;

export interface ManagerDeadlines {
  /** One answer to a question. */
  readonly readMs: number;
  /** One change: its acceptance. */
  readonly changeMs: number;
  /** The end of a start's job after that; one that is held back for longer is watched on. */
  readonly jobMs: number;
}

export class Manager {
  readonly #bus: Bus;
  readonly #deadlines: ManagerDeadlines;
  readonly #jobs: JobWatch;

  constructor(bus: Bus, deadlines: ManagerDeadlines, jobs: JobWatch) {
    this.#bus = bus;
    this.#deadlines = deadlines;
    this.#jobs = jobs;
  }

  /**
   * StartTransientUnit in mode `fail`, then waits for its job to end: for Type=exec
   * that is after execve(2) worked or failed. Returns at the deadline too; only a
   * read says what became of it.
   * @returns the job's result, null when it was not seen to end.
   */
  async startTransientUnit(
    unit: string,
    properties: readonly UnitProperty[],
  ): Promise<string | null> {
    const body = [unit, 'fail', properties.map(([name, value]) => [name, value]), []];
    return this.#startJob(unit, 'StartTransientUnit', 'ssa(sv)a(sa(sv))', body);
  }

  /** StartUnit of a unit that has a file, over any job that is queued; waits like the above. */
  async startUnit(unit: string): Promise<void> {
    await this.#startJob(unit, 'StartUnit', 'ss', [unit, 'replace']);
  }

  /** RestartUnit, the same way: stopped and started in one job, started also when it was down. */
  async restartUnit(unit: string): Promise<void> {
    await this.#startJob(unit, 'RestartUnit', 'ss', [unit, 'replace']);
  }

  /**
   * What a unit's file is to systemd: `enabled`, `disabled`, `static`, …; null when it has
   * none. For an instance of a template `enabled` means that this very instance is.
   */
  async unitFileState(unit: string): Promise<string | null> {
    try {
      const [state] = await this.#read('GetUnitFileState', 's', [unit]);
      return text(state);
    } catch (error) {
      if (isNoSuchFile(error)) return null;
      throw error;
    }
  }

  /**
   * All properties of a unit in three messages. GetAll, though it brings 400 properties
   * of which 14 are used: 13 single Gets took as long (1.0 ms) and more processor time in
   * all (1.4 against 1.2 ms, measured on 252), and each would be another moment.
   *
   * Reading an unloaded unit by its path loads it for that moment, as `not-found`. A unit
   * that went away between the messages would be half there: LoadState is read again last,
   * and everything once more when it changed.
   */
  async snapshot(unit: string): Promise<UnitSnapshot> {
    for (let tries = 1; ; tries++) {
      // One sender's messages keep their order, so state is read before what it is the state of.
      const [general, service, loadState] = await Promise.all([
        this.#getAll(unit, 'Unit'),
        this.#getAll(unit, 'Service'),
        this.#get(unitPath(unit), 'Unit', 'LoadState'),
      ]);
      if (general['LoadState'] === loadState || tries === SNAPSHOT_TRIES) {
        return { unit: general, service };
      }
    }
  }

  /**
   * What tells whose a unit is and whether it is dead, for lists: a start reads two hundred
   * units, and needs one property of each service. Repeated like {@link snapshot}.
   */
  async summary(unit: string): Promise<UnitSummary> {
    for (let tries = 1; ; tries++) {
      const [general, environment, loadState] = await Promise.all([
        this.#getAll(unit, 'Unit'),
        this.#get(unitPath(unit), 'Service', 'Environment'),
        this.#get(unitPath(unit), 'Unit', 'LoadState'),
      ]);
      if (general['LoadState'] === loadState || tries === SNAPSHOT_TRIES) {
        return { unit: general, environment };
      }
    }
  }

  /** Names of all loaded units that match one of the globs, in one of the ActiveStates if given. */
  async listUnits(
    patterns: readonly string[],
    states: readonly string[] = [],
  ): Promise<readonly string[]> {
    const [units] = await this.#read('ListUnitsByPatterns', 'asas', [states, patterns]);
    return list(units).map((row) => text(list(row)[0]));
  }

  /** Queues a stop, over any job that is already queued. */
  async stopUnit(unit: string): Promise<void> {
    await this.#change('StopUnit', 'ss', [unit, 'replace']);
  }

  /** Signals every process of the unit. */
  async killUnit(unit: string, signal: number): Promise<void> {
    await this.#change('KillUnit', 'ssi', [unit, 'all', signal]);
  }

  /** Keeps the unit loaded while this connection lives; counted, one Unref for each. */
  async refUnit(unit: string): Promise<void> {
    await this.#change('RefUnit', 's', [unit]);
  }

  async unrefUnit(unit: string): Promise<void> {
    await this.#change('UnrefUnit', 's', [unit]);
  }

  async resetFailed(unit: string): Promise<void> {
    await this.#change('ResetFailedUnit', 's', [unit]);
  }

  /** `running`, `degraded`, `stopping`, …: what `systemctl --user is-system-running` prints. */
  async systemState(): Promise<string> {
    return text(await this.#get(SYSTEMD.path, 'Manager', 'SystemState'));
  }

  /** The manager's own group, below which all its units are. */
  async controlGroup(): Promise<string> {
    return text(await this.#get(SYSTEMD.path, 'Manager', 'ControlGroup'));
  }

  /** The manager's pid, as the bus knows it from the socket. */
  async pid(): Promise<number> {
    const body = [SYSTEMD.destination];
    const request = { ...BUS_DRIVER, member: 'GetConnectionUnixProcessID', signature: 's', body };
    const [pid] = await this.#bus.call(request, this.#deadlines.readMs);
    return Number(integer(pid));
  }

  async #startJob(
    unit: string,
    member: string,
    signature: string,
    body: readonly unknown[],
  ): Promise<string | null> {
    const watch = this.#jobs.watch(unit, this.#deadlines.jobMs);
    try {
      const [job] = await this.#change(member, signature, body);
      return await watch.ended(text(job));
    } finally {
      watch.stop();
    }
  }

  async #getAll(unit: string, kind: 'Unit' | 'Service'): Promise<PropertyMap> {
    const body = [`${SYSTEMD.destination}.${kind}`];
    const target = {
      destination: SYSTEMD.destination,
      path: unitPath(unit),
      interface: PROPERTIES,
    };
    const request = { ...target, member: 'GetAll', signature: 's', body };
    const [properties] = await this.#bus.call(request, this.#deadlines.readMs);
    return propertyMap(properties);
  }

  async #get(path: string, kind: 'Unit' | 'Service' | 'Manager', name: string): Promise<unknown> {
    const body = [`${SYSTEMD.destination}.${kind}`, name];
    const target = { destination: SYSTEMD.destination, path, interface: PROPERTIES };
    const request = { ...target, member: 'Get', signature: 'ss', body };
    const [value] = await this.#bus.call(request, this.#deadlines.readMs);
    return unwrap(value);
  }

  #read(member: string, signature: string, body: readonly unknown[]): Promise<readonly unknown[]> {
    return this.#manager(member, signature, body, this.#deadlines.readMs);
  }

  #change(
    member: string,
    signature: string,
    body: readonly unknown[],
  ): Promise<readonly unknown[]> {
    return this.#manager(member, signature, body, this.#deadlines.changeMs);
  }

  #manager(
    member: string,
    signature: string,
    body: readonly unknown[],
    deadlineMs: number,
  ): Promise<readonly unknown[]> {
    const request = {
      ...SYSTEMD,
      interface: `${SYSTEMD.destination}.Manager`,
      member,
      signature,
      body,
    };
    return this.#bus.call(request, deadlineMs);
  }
}
