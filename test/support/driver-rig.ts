/** Drivers over a real store, with censuses that end as a test says and timers that it fires. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { type DriverSpecInput, driverSpecSchema } from '../../src/domain/driver.ts';
import { Drivers } from '../../src/drivers/drivers.ts';
import type { DriverRow } from '../../src/store/drivers.ts';
import type { Store } from '../../src/store/store.ts';
import { submit } from '../../src/supervisor/submit.ts';
import type { Supervisor } from '../../src/supervisor/supervisor.ts';
import { QueueRig } from './core-queue.ts';

/** Timers that fire when a test says so. */
export class HandTimers {
  readonly set: { readonly ms: number; readonly callback: () => void }[] = [];

  after(ms: number, callback: () => void): () => void {
    const timer = { ms, callback };
    this.set.push(timer);
    return () => {
      const index = this.set.indexOf(timer);
      if (index !== -1) this.set.splice(index, 1);
    };
  }

  /** The one timer there is; throws when there are none, or several. */
  get ms(): number {
    const [only, ...more] = this.set;
    if (!only || more.length > 0) throw new Error(`there are ${this.set.length} timers`);
    return only.ms;
  }

  fire(): void {
    const [first] = this.set.splice(0, 1);
    first?.callback();
  }
}

export const aSpec = (more: Partial<DriverSpecInput> = {}): DriverSpecInput => ({
  census: { argv: ['census'] },
  run: { argv: ['true'] },
  cwd: '/',
  maxAtOnce: 10,
  ...more,
});

/** A line of a census. */
export const line = (subject: string, more: object = {}): string =>
  JSON.stringify({ subject, handle: subject.replaceAll(/[^a-z0-9]/g, '-'), ...more });

export class DriverRig {
  readonly store: Store;
  readonly queue: QueueRig;
  readonly timers = new HandTimers();
  readonly #directory: string;
  /** What a daemon that started now would have. */
  drivers: Drivers;

  constructor(store: Store, directory: string) {
    this.store = store;
    this.queue = new QueueRig(store);
    this.#directory = path.join(directory, 'attempts');
    this.drivers = this.another();
    this.drivers.start();
  }

  /** Another daemon's drivers over the same store; not started. */
  another(
    submitOne: Supervisor['submit'] = (input, options) =>
      submit(this.queue.context, input, options),
  ): Drivers {
    const { context } = this.queue;
    const settings = { ...context.settings, attemptsDirectory: this.#directory };
    return new Drivers({
      context: { ...context, settings },
      supervisor: { submit: submitOne },
      timers: this.timers,
    });
  }

  /** The daemon dies, and another takes its place. */
  restart(): void {
    this.drivers.close();
    this.drivers = this.another();
    this.drivers.start();
  }

  put(name: string, more: Partial<DriverSpecInput> = {}): DriverRow {
    return this.drivers.put(name, driverSpecSchema.parse(aSpec(more)), false);
  }

  row(name: string): DriverRow {
    return this.drivers.get(name);
  }

  /** Begins a tick, and its census runs. @returns the census's id. */
  begin(name: string): string {
    this.drivers.tick(name);
    this.queue.claimAll();
    const { censusId } = this.row(name);
    if (censusId === null) throw new Error(`${name} has no census under way`);
    return censusId;
  }

  /** The census prints this and ends. */
  end(censusId: string, lines: readonly string[], how: 'succeeded' | 'failed' = 'succeeded'): void {
    this.prints(censusId, lines.map((text) => `${text}\n`).join(''));
    this.queue.run(censusId);
    this.queue.end(censusId, how);
  }

  /** Puts it where the wrapper does. */
  prints(censusId: string, text: string, truncated = false): void {
    if (text === '') return;
    const attempt = this.queue.active(censusId);
    const directory = path.join(this.#directory, censusId, attempt.id);
    mkdirSync(directory, { recursive: true });
    writeFileSync(path.join(directory, 'stdout.log'), text);
    this.store.write(() =>
      this.store.artifacts.insert({
        id: `stdout of ${attempt.id}`,
        workUnitId: censusId,
        attemptId: attempt.id,
        kind: 'stdout',
        fileName: 'stdout.log',
        bytes: Buffer.byteLength(text),
        truncated,
        sha256: '0',
        createdAt: attempt.createdAt,
      }),
    );
  }

  /** A whole tick. */
  tick(name: string, lines: readonly string[]): DriverRow {
    this.end(this.begin(name), lines);
    return this.row(name);
  }

  /** Of the last tick: `started` or why not, by subject. */
  said(name: string): Record<string, string> {
    const subjects = this.row(name).report?.subjects ?? [];
    return Object.fromEntries(subjects.map(({ subject, code }) => [subject, code ?? 'started']));
  }

  /** The newest work of a driver on a subject. */
  work(name: string, subject: string): string {
    const found = this.store.drivers.driven(name, 1_000).find((one) => one.subject === subject);
    if (!found) throw new Error(`${name} never worked on ${subject}`);
    return found.id;
  }

  /** The work of a subject runs. */
  run(name: string, subject: string): string {
    this.queue.claimAll();
    const id = this.work(name, subject);
    this.queue.run(id);
    return id;
  }
}
