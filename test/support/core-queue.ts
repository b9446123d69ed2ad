/**
 * A supervisor's context over a real store, with a clock the test moves and an executor
 * that refuses everything: for what must be decided without asking systemd.
 */
import pino from 'pino';
import type { Intent } from '../../src/domain/evidence.ts';
import type { Entropy } from '../../src/domain/ids.ts';
import { type StartWorkUnitInput, startWorkUnitSchema } from '../../src/domain/request.ts';
import type { Executor } from '../../src/executor/port.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import type { Store } from '../../src/store/store.ts';
import { releaseResources } from '../../src/supervisor/admission.ts';
import { type ClaimResult, createClaimer } from '../../src/supervisor/claim.ts';
import type { Context, Settings } from '../../src/supervisor/context.ts';
import { cancel } from '../../src/supervisor/end.ts';
import { noFaults } from '../../src/supervisor/faults.ts';
import { createHub } from '../../src/supervisor/hub.ts';
import { DEFAULT_POLICIES, type Policies } from '../../src/supervisor/policies.ts';
import { type Submission, submit } from '../../src/supervisor/submit.ts';
import { createWriter } from '../../src/supervisor/writer.ts';

const refuse = (what: string) => (): Promise<never> =>
  Promise.reject(new Error(`the executor that rejects everything was asked to ${what}`));

/** Whoever asks it anything has left the store's ground. */
export const executorThatRejectsEverything: Executor = {
  kind: 'systemd',
  describeStart: () => {
    throw new Error('the executor that rejects everything was asked to describe a start');
  },
  connect: refuse('connect'),
  host: refuse('tell its host'),
  start: refuse('start'),
  read: refuse('read'),
  list: refuse('list'),
  hold: refuse('hold'),
  release: refuse('release'),
  stop: refuse('stop'),
  kill: refuse('kill'),
  waitEmpty: refuse('wait for an empty group'),
  onHint: () => () => undefined,
  healthy: false,
  close: refuse('close'),
};

export interface FakeEntropy extends Entropy {
  /** Lets both clocks go on. */
  advance(ms: number): void;
}

/** Clocks that stand until told, and bytes that count up: ids sort as they are made. */
export function fakeEntropy(): FakeEntropy {
  let elapsed = 0;
  let drawn = 0;
  const epoch = Date.parse('2026-01-02T03:04:05.678Z');
  return {
    now: () => epoch + elapsed,
    monotonic: () => elapsed,
    uptimeSeconds: () => elapsed / 1_000,
    random: (size) => {
      const bytes = Buffer.alloc(Math.max(size, 8));
      bytes.writeBigUInt64BE((BigInt(++drawn) * 0x9e3779b97f4a7c15n) % 0xffffffffffffffffn, 0);
      return bytes.subarray(0, size);
    },
    advance: (ms) => {
      elapsed += ms;
    },
  };
}

export const STARVING_MS = 300_000;

const settings: Settings = {
  attemptsDirectory: '/nowhere',
  sessionsDirectory: '/nowhere',
  exitsDirectory: '/nowhere',
  decisionsDirectory: '/nowhere',
  temporaryDirectory: '/nowhere',
  runtimeDirectory: '/nowhere',
  node: '/nowhere',
  wrapper: '/nowhere',
  piCommand: [],
  runnerEnvironment: {},
  keys: {},
  captureBytes: 4096,
  umask: 0o077,
  limits: { provider: {}, runner: {}, media_provider: {} },
  starvingMs: STARVING_MS,
  policies: DEFAULT_POLICIES,
  home: '/',
};

export type Limits = Partial<
  Record<'provider' | 'runner' | 'media_provider', Record<string, number>>
>;

/** What a test says of a request; the rest is a command that runs nowhere. */
export type Wanted = Partial<
  Omit<Extract<StartWorkUnitInput, { runnerId: 'command' }>, 'runnerId'>
> & { readonly runnerId?: 'pi' | 'command'; readonly prompt?: string; readonly model?: string };

/** The queue of a real store, driven by hand: one claim at a time, ends as conclude commits them. */
export class QueueRig {
  readonly store: Store;
  readonly entropy: FakeEntropy;
  readonly context: Context;
  readonly #limits: Record<'provider' | 'runner' | 'media_provider', Record<string, number>>;
  readonly #claim: () => ClaimResult;
  #submitted = 0;

  constructor(
    store: Store,
    limits: Limits = {},
    executor: Partial<Executor> = {},
    policies: Partial<Policies> = {},
    /** Of the daemon before it on the same store: what it drew must not come again. */
    entropy: FakeEntropy = fakeEntropy(),
  ) {
    this.store = store;
    this.entropy = entropy;
    this.#limits = { provider: {}, runner: {}, media_provider: {}, ...limits };
    const hub = createHub((error) => {
      throw error;
    });
    this.context = {
      workspace: 'main',
      runtimeInstanceId: 'instance',
      store,
      writer: createWriter(store, hub, this.entropy),
      executor: { ...executorThatRejectsEverything, ...executor },
      entropy: this.entropy,
      hub,
      log: pino({ level: 'silent' }),
      settings: {
        ...settings,
        limits: this.#limits,
        policies: { ...DEFAULT_POLICIES, ...policies },
      },
      fault: noFaults,
    };
    this.#claim = createClaimer(this.context);
  }

  submitFully(input: Wanted = {}): Submission {
    this.entropy.advance(1);
    const request = startWorkUnitSchema.parse({
      ownerId: 'ada',
      ...(input.runnerId === 'pi' ? {} : { runnerId: 'command', argv: ['true'] }),
      cwd: '/',
      handle: `h${++this.#submitted}`,
      ...input,
    });
    return submit(this.context, request, { actor: 'user' });
  }

  /** Submits and returns the id. */
  submit(input: Wanted = {}): string {
    return this.submitFully(input).workUnit.id;
  }

  /** One call of the claimer. */
  claimOnce(): ClaimResult {
    this.entropy.advance(1);
    return this.#claim();
  }

  /** Claims until nothing can start, as the scheduler does. @returns ids of work units, in order. */
  claimAll(): string[] {
    const claimed: string[] = [];
    for (;;) {
      const { claim, more } = this.claimOnce();
      if (claim) claimed.push(claim.workUnit.id);
      else if (!more) return claimed;
    }
  }

  active(id: string): AttemptRow {
    const attemptId = this.store.workUnits.get(id)?.activeAttemptId;
    const attempt = attemptId ? this.store.attempts.get(attemptId) : null;
    if (!attempt) throw new Error(`${id} has no active attempt`);
    return attempt;
  }

  /** Ends the active attempt and gives back what it held, in one transaction as conclude does. */
  end(id: string, how: 'succeeded' | 'failed' = 'succeeded'): void {
    this.entropy.advance(1);
    this.context.writer.commit((transaction) => {
      const attempt = transaction.attempt(this.active(id).id);
      transaction.moveAttempt(attempt, how, { endedAt: transaction.at });
      releaseResources(this.context, transaction, attempt, how);
      transaction.moveWorkUnit(transaction.workUnit(id), `runner_${how}`, {
        actor: 'system',
        attemptId: attempt.id,
        patch: { endedAt: transaction.at, activeAttemptId: null },
      });
    });
  }

  /** The claimed unit was seen to run. */
  run(id: string): void {
    this.context.writer.commit((transaction) => {
      const attempt = this.active(id);
      transaction.moveAttempt(attempt, 'started', { controlGroup: `/group/${attempt.id}` });
      const fields = { actor: 'system', attemptId: attempt.id } as const;
      transaction.moveWorkUnit(transaction.workUnit(id), 'runner_started', fields);
    });
  }

  /** It was cancelled, and is still alive after everything that should have ended it. */
  makeStale(id: string): void {
    this.cancel(id);
    this.context.writer.commit((transaction) =>
      transaction.moveWorkUnit(transaction.workUnit(id), 'cancel_timeout', { actor: 'system' }),
    );
  }

  cancel(id: string): void {
    this.entropy.advance(1);
    cancel(this.context, id, { actor: 'user', reason: null });
  }

  /** Another limit in config.json; nobody is told. */
  configure(type: keyof Limits, key: string, limit: number): void {
    this.#limits[type][key] = limit;
  }

  /** What a restart with another config.json does: limits change, then everything is looked at again. */
  setLimit(type: keyof Limits, key: string, limit: number): void {
    this.configure(type, key, limit);
    this.store.write(() => this.store.queue.wakeAll());
  }

  intent(attemptId: string): Intent | null {
    return this.store.attempts.get(attemptId)?.intent ?? null;
  }

  queued(): string[] {
    const filter = { activeOnly: true, status: 'queued' as const, beforeId: null, limit: 100_000 };
    return this.store.workUnits.list(filter).map(({ id }) => id);
  }
}
