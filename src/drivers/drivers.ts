/**
 * The drivers of a workspace: kept in the store, ticking by one timer to the earliest of them.
 * What runs is ordinary work; nothing here watches it.
 */
import { statSync } from 'node:fs';
import { canonicalJson } from '../domain/canonical-json.ts';
import { type DriverSource, type DriverSpec, HELD_BY_REQUEST } from '../domain/driver.ts';
import { untilTick } from '../domain/driver-clock.ts';
import { OutliveError } from '../domain/errors.ts';
import { TERMINAL_EVENT_TYPES } from '../domain/events.ts';
import type { DriverRow } from '../store/drivers.ts';
import { requireResultSchema } from '../supervisor/result-schema.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import { PromptProblem, promptText } from './prompt.ts';
import { channelOf, subjectRequest } from './requests.ts';
import { type Begun, type DriverContext, Ticks } from './ticks.ts';

/** What the store would not take is tried again after this long. */
const RETRY_MS = 5_000;
/** No timer is longer. */
const LOOK_AGAIN_MS = 60_000;

interface Timers {
  /** Runs `callback` once after `ms`; returns its cancellation, harmless afterwards. */
  after(ms: number, callback: () => void): () => void;
}

export interface DriverParts {
  readonly context: DriverContext;
  readonly supervisor: Pick<Supervisor, 'submit'>;
  readonly timers: Timers;
}

const conflict = (detail: string): OutliveError => new OutliveError('state_conflict', detail);

/** @throws OutliveError `cwd_missing`, naming the field. */
function requireCwd({ cwd }: DriverSpec): void {
  if (cwd === undefined) return;
  if (statSync(cwd, { throwIfNoEntry: false })?.isDirectory()) return;
  const message = 'it is no directory';
  throw new OutliveError('cwd_missing', `${cwd}: ${message}. Give an existing directory.`, {
    fields: [{ path: '/cwd', message }],
  });
}

/** @throws OutliveError `invalid_request` or `cwd_missing` for a spec that could never start anything. */
function requireUsable(name: string, spec: DriverSpec): void {
  requireCwd(spec);
  try {
    promptText(spec);
  } catch (error) {
    if (!(error instanceof PromptProblem)) throw error;
    const { message } = error;
    const path = '/run/promptFile';
    throw new OutliveError('invalid_request', `${path}: ${message}.`, {
      fields: [{ path, message }],
    });
  }
  const subject = { subject: 'any', handle: 'any', title: '', vars: {}, cwd: '/' };
  requireResultSchema(
    subjectRequest(
      { name, spec: { ...spec, run: { argv: ['true'] }, toolPolicy: undefined } },
      null,
      subject,
    ),
  );
}

/** Milliseconds until its tick. */
const waitOf = ({ spec, failures, nextAt }: DriverRow, now: number): number =>
  untilTick(spec, failures, { nextAt: Date.parse(nextAt ?? ''), now });

const sameSpec = (row: DriverRow, spec: DriverSpec): boolean =>
  canonicalJson(row.spec) === canonicalJson(spec);

export class Drivers {
  private readonly context: DriverContext;
  private readonly timers: Timers;
  private readonly ticks: Ticks;
  private closing = false;
  private started = false;
  private disarm: () => void = () => undefined;
  private forgetRetry: () => void = () => undefined;
  private unsubscribe: () => void = () => undefined;
  /** Drivers of config.json that are none, by name. */
  private refused: readonly string[] = [];

  constructor({ context, supervisor, timers }: DriverParts) {
    this.context = context;
    this.timers = timers;
    this.ticks = new Ticks(context, supervisor);
  }

  /** After recovery and barrier B: takes up ticks that were under way, then goes by the clock. */
  start(): void {
    this.started = true;
    this.unsubscribe = this.context.hub.subscribe((events) => {
      for (const { type, workUnitId } of events) {
        if (TERMINAL_EVENT_TYPES.has(type)) this.hear(workUnitId);
      }
    });
    this.takeUp();
  }

  /** Nothing begins any more; what is under way is the next daemon's. */
  close(): void {
    this.closing = true;
    this.unsubscribe();
    this.disarm();
    this.forgetRetry();
  }

  list(): DriverRow[] {
    return this.context.store.drivers.list();
  }

  /** @throws OutliveError `not_found`. */
  get(name: string): DriverRow {
    const row = this.context.store.drivers.get(name);
    if (row && row.state !== 'removed') return row;
    throw new OutliveError('not_found', `There is no driver "${name}". See: outlive driver list.`);
  }

  /** The same spec again changes nothing. @throws OutliveError, see requireUsable; `state_conflict`. */
  put(name: string, spec: DriverSpec, replace: boolean): DriverRow {
    const known = this.head(name);
    if (known?.source === 'file')
      throw conflict(`The driver "${name}" is in config.json. Change it there.`);
    const row = known && this.readable(name);
    if (row && sameSpec(row, spec)) return row;
    if (known && !replace)
      throw conflict(
        `There is a driver "${name}" with another specification. Replace it (outlive driver add --replace), or choose another name.`,
      );
    requireUsable(name, spec);
    this.store(name, spec, 'cli');
    this.arm();
    return this.get(name);
  }

  /** Of the driver, or of one subject. @throws OutliveError `not_found`. */
  pause(name: string, subject?: string): DriverRow {
    const row = this.get(name);
    const { store, writer } = this.context;
    writer.commit(({ at }) => {
      if (subject === undefined) store.drivers.setState(name, 'paused', at);
      else if (!store.drivers.holdOn(subject)) {
        const code = HELD_BY_REQUEST;
        store.drivers.hold({ subject, driver: row.name, workUnitId: null, code, heldAt: at });
      }
    });
    this.arm();
    return this.get(name);
  }

  /** The driver with all that is held for it, or one subject. @throws OutliveError `not_found`. */
  resume(name: string, subject?: string): { row: DriverRow; released: string[] } {
    this.get(name);
    const { store, writer } = this.context;
    const released = writer.commit(({ at }) => {
      if (subject === undefined) store.drivers.setState(name, 'active', at);
      const held =
        subject === undefined ? store.drivers.holdsOf(name).map((hold) => hold.subject) : [subject];
      return held.filter((one) => store.drivers.release(one));
    });
    if (subject !== undefined && released.length === 0)
      throw new OutliveError(
        'not_found',
        `Nothing holds "${subject}". See: outlive driver show ${name}.`,
      );
    this.arm();
    return { row: this.get(name), released };
  }

  /** What runs goes on. @throws OutliveError `not_found`, `state_conflict` for one of config.json. */
  remove(name: string): void {
    const known = this.head(name);
    if (known?.source === 'file')
      throw conflict(
        `The driver "${name}" is in config.json. Take it out there and restart the daemon.`,
      );
    const { store, writer } = this.context;
    if (known === null) this.get(name);
    writer.commit(({ at }) => store.drivers.setState(name, 'removed', at));
    this.arm();
  }

  /** One tick now. @throws OutliveError `not_found`, `state_conflict` where none may begin. */
  tick(name: string): Begun {
    const row = this.get(name);
    const admission = this.context.store.channels.admission();
    if (this.closing || !this.started)
      throw new OutliveError('shutting_down', 'No tick can begin now.');
    if (row.state === 'paused')
      throw conflict(
        `The driver "${name}" is paused. Resume it first: outlive driver resume ${name}.`,
      );
    if (admission !== 'open')
      throw conflict(`The workspace is ${admission}. Resume it first: outlive resume.`);
    const begun = this.ticks.begin(row, 'user');
    this.arm();
    return begun;
  }

  /** The workspace takes work again, or no more. */
  wake(): void {
    this.arm();
  }

  /** What a person should look at. */
  problems(): readonly string[] {
    const failing = this.list().filter(({ failures }) => failures > 0);
    return [
      ...this.refused,
      ...this.context.store.drivers
        .unreadable()
        .map((name) => `driver_unreadable: ${name}: it was stored by another outlive`),
      ...failing.map(({ name, report }) => `driver_failing: ${name}: ${report?.message ?? ''}`),
    ];
  }

  /** Makes the drivers of config.json those of the store. The file wins over what it had said before. */
  sync(file: Readonly<Record<string, DriverSpec>>): void {
    const { store, writer, log } = this.context;
    for (const row of this.list()) {
      if (row.source !== 'file' || Object.hasOwn(file, row.name)) continue;
      writer.commit(({ at }) => store.drivers.setState(row.name, 'removed', at));
    }
    const refused: string[] = [];
    for (const [name, spec] of Object.entries(file)) {
      const known = this.head(name);
      const row = known && this.readable(name);
      if (known?.source === 'cli') {
        refused.push(
          `driver_refused: ${name} of config.json is not used: the command line made a driver of that name. Remove one of them (outlive driver remove ${name}).`,
        );
      } else if (!row || !sameSpec(row, spec)) this.store(name, spec, 'file');
    }
    for (const problem of refused) log.error({ problem }, 'a driver of config.json is refused');
    this.refused = refused;
  }

  /** Null for one that is not there, or not any more. */
  private head(name: string): ReturnType<DriverContext['store']['drivers']['head']> {
    const head = this.context.store.drivers.head(name);
    return head?.state === 'removed' ? null : head;
  }

  private readable(name: string): DriverRow | undefined {
    return this.list().find((row) => row.name === name);
  }

  private store(name: string, spec: DriverSpec, source: DriverSource): void {
    const { store, writer } = this.context;
    writer.commit(({ at }) => {
      const nextAt = spec.every === undefined ? null : at;
      store.drivers.put({ name, source, spec, nextAt, at });
      const channel = store.channels.get(channelOf(name));
      const status = channel?.status ?? 'active';
      const policy = {
        status,
        maxConcurrentRuns: spec.maxAtOnce,
        onNewerSubject: 'block',
      } as const;
      store.channels.put(channelOf(name), policy, at);
    });
  }

  /** All ticks whose census has ended; again later where the store does not let it. */
  private takeUp(): void {
    for (const row of this.context.store.drivers.open()) this.finish(row);
    this.arm();
  }

  private hear(workUnitId: string): void {
    if (this.closing) return;
    const row = this.context.store.drivers.byCensus(workUnitId);
    if (!row) return;
    this.finish(row);
    this.arm();
  }

  private finish(row: DriverRow): void {
    this.attempt(row, () => this.ticks.finish(row));
  }

  /** One driver that fails by the store or by our mistake must not keep the others. */
  private attempt(row: DriverRow, work: () => void): void {
    if (this.closing) return;
    try {
      work();
    } catch (error) {
      const isEnd = error instanceof OutliveError && error.code === 'shutting_down';
      if (isEnd) return;
      this.context.log.error({ err: error, driver: row.name }, 'a tick is put off');
      this.forgetRetry();
      this.forgetRetry = this.timers.after(RETRY_MS, () => {
        if (!this.closing) this.takeUp();
      });
    }
  }

  /** Sets the one timer anew. */
  private arm(): void {
    this.disarm();
    const { store, entropy } = this.context;
    if (this.closing || !this.started || store.channels.admission() !== 'open') return;
    const now = entropy.now();
    const waits = store.drivers.ready().map((row) => waitOf(row, now));
    if (waits.length === 0) return;
    // Clocks are set and machines sleep, and no timer is told.
    this.disarm = this.timers.after(Math.min(LOOK_AGAIN_MS, ...waits), () => this.fire());
  }

  private fire(): void {
    const { store, entropy } = this.context;
    let failed = false;
    const now = entropy.now();
    for (const row of store.drivers.ready()) {
      if (waitOf(row, now) > 0) continue;
      this.attempt(row, () => {
        failed = true;
        this.ticks.begin(row, 'scheduler');
        failed = false;
      });
      if (failed) return; // It would be due at once, again and again.
    }
    this.arm();
  }
}
