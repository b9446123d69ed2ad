/**
 * The sweep for webhooks that never came: Linear gives up on one after six hours, and tells
 * nobody. Asks what changed lately, at the daemon's start, every few minutes, and when an
 * auth problem has gone; what it finds goes the way of webhooks.
 */
import type { Logger } from 'pino';
import type { Entropy } from '../domain/ids.ts';
import { type LinearApi, LinearError } from './port.ts';
import { eventsOf, type Known, type SweptBy, type SweptEvent } from './swept.ts';

/** Name of the fact that holds how far the last whole sweep came, milliseconds since the epoch. */
export const SWEEP_CURSOR = 'sweep_cursor';
/** Nobody waits for an answer for longer. */
export const SWEEP_WINDOW_MS = 24 * 60 * 60_000;
export const SWEEP_SESSIONS = 200;
const INTERVAL_MS = 5 * 60_000;
/** Of the interval, either way: daemons that started together part. */
const JITTER = 0.2;
/** Looked at again: clocks differ, and a webhook may be on its way. */
const OVERLAP_MS = 10 * 60_000;
const RETRY_FIRST_MS = 30_000;
const RETRY_MAX_MS = 30 * 60_000;

export interface SweepOptions {
  readonly api: Pick<LinearApi, 'recentSessions' | 'viewer'>;
  readonly facts: {
    /** Null when it was never put. */
    get(name: string): unknown;
    put(name: string, value: unknown): void;
  };
  readonly known: Known;
  /** Stores what is new of these, durably. */
  readonly deliver: (events: readonly SweptEvent[]) => number;
  readonly entropy: Entropy;
  readonly timers: {
    /** Runs `callback` once after `ms`; returns its cancellation, harmless afterwards. */
    after(ms: number, callback: () => void): () => void;
  };
  readonly log: Logger;
}

export interface SweepProblem {
  readonly kind: 'rate_limited' | 'auth' | 'rejected' | 'transient' | 'internal';
  readonly message: string;
  /** Of the first failure in a row, milliseconds since the epoch. */
  readonly since: number;
}

export interface Sweep {
  /** Sweeps at once, and from then on by itself. */
  start(): void;
  /** Sweeps at once: an auth problem has gone, say. Resolves when that is done; never rejects. */
  now(): Promise<void>;
  /** Why the last one failed; null when it did not. */
  problem(): SweepProblem | null;
  /** When the last whole one began, milliseconds since the epoch; null before the first. */
  lastAt(): number | null;
  /** Ends it; what is under way is waited for. */
  close(): Promise<void>;
}

/** How far back a sweep looks: to where the last one came, and never further than a day. */
export function sweepSince(cursor: unknown, now: number): number {
  const last = typeof cursor === 'number' && Number.isFinite(cursor) ? Math.min(cursor, now) : now;
  return Math.max(last - OVERLAP_MS, now - SWEEP_WINDOW_MS);
}

class Sweeper implements Sweep {
  readonly #options: SweepOptions;
  #by: SweptBy | null = null;
  #problem: SweepProblem | null = null;
  #lastAt: number | null = null;
  #failures = 0;
  #running: Promise<void> | null = null;
  #isWanted = false;
  #isClosed = false;
  #cancel: () => void = () => {};

  constructor(options: SweepOptions) {
    this.#options = options;
  }

  start(): void {
    void this.now();
  }

  now(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    // Who asks while one is under way wants what that one may have missed.
    this.#isWanted = true;
    this.#running ??= this.#run();
    return this.#running;
  }

  problem(): SweepProblem | null {
    return this.#problem;
  }

  lastAt(): number | null {
    return this.#lastAt;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancel();
    await this.#running;
  }

  async #run(): Promise<void> {
    this.#cancel();
    // Until here it runs within the assignment to #running, which its end must come after.
    await Promise.resolve();
    while (this.#isWanted && !this.#isClosed) {
      this.#isWanted = false;
      try {
        await this.#sweep();
        this.#succeeded();
      } catch (error) {
        this.#failed(error);
      }
    }
    // In the same turn in which it was seen that nobody wants another: no wish is lost.
    this.#running = null;
    if (this.#isClosed) return;
    this.#cancel = this.#options.timers.after(this.#delay(), () => void this.now());
  }

  async #sweep(): Promise<void> {
    const { api, facts, known, deliver, entropy, log } = this.#options;
    this.#by ??= await this.#whoWeAre();
    const by = this.#by;
    const now = entropy.now();
    const since = sweepSince(facts.get(SWEEP_CURSOR), now);
    const listed = await api.recentSessions(new Date(since).toISOString(), SWEEP_SESSIONS);
    // Whatever the API says: only what was active lately, and no more than that.
    const sessions = listed
      .filter(({ updatedAt }) => Date.parse(updatedAt) >= since)
      .slice(0, SWEEP_SESSIONS);
    const events = sessions
      .toSorted((a, b) => a.createdAt.localeCompare(b.createdAt))
      .flatMap((session) => eventsOf(session, by, known, since));
    if (this.#isClosed) return;
    const found = deliver(events);
    if (found > 0) log.warn({ found }, 'Linear: webhooks were missed, and found by a sweep');
    // With more than it may list nobody knows which are missing: the next one looks as far back.
    if (listed.length < SWEEP_SESSIONS) facts.put(SWEEP_CURSOR, now);
    this.#lastAt = now;
  }

  async #whoWeAre(): Promise<SweptBy> {
    const { id: appUserId, organizationId } = await this.#options.api.viewer();
    return { appUserId, organizationId };
  }

  #succeeded(): void {
    if (this.#problem) this.#options.log.info('Linear: sweeps work again');
    this.#problem = null;
    this.#failures = 0;
  }

  #failed(error: unknown): void {
    const isKnown = error instanceof LinearError;
    const kind = isKnown ? error.problem.kind : 'internal';
    const message = error instanceof Error ? error.message : String(error);
    const since = this.#problem?.since ?? this.#options.entropy.now();
    // Once for all failures in a row: they are one thing that does not work.
    if (!this.#problem) this.#options.log.warn({ kind }, `Linear: a sweep failed: ${message}`);
    this.#problem = { kind, message, since };
    this.#failures += 1;
    this.#retryAt = isKnown && error.problem.kind === 'rate_limited' ? error.problem.retryAt : 0;
  }

  /** Of a refused budget, milliseconds since the epoch. */
  #retryAt = 0;

  #delay(): number {
    const { entropy } = this.#options;
    const [byte = 0] = entropy.random(1);
    const spread = 1 + JITTER * (byte / 127.5 - 1);
    if (this.#failures === 0) return Math.round(INTERVAL_MS * spread);
    const backoff = Math.min(RETRY_FIRST_MS * 2 ** (this.#failures - 1), RETRY_MAX_MS);
    const budget = Math.max(0, this.#retryAt - entropy.now());
    return Math.max(Math.round(backoff * spread), budget);
  }
}

/** A sweep that has not begun. */
export function createSweep(options: SweepOptions): Sweep {
  return new Sweeper(options);
}
