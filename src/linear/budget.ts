/**
 * What is left of Linear's budget, shared by all calls. Every answer tells it; who asks before
 * a call is refused here while Linear would refuse, and earlier the less urgent it is.
 * Times are milliseconds since the epoch; each wait is also bounded by the monotonic clock, so
 * that a clock which is set back holds nothing up.
 */
import type { Entropy } from '../domain/ids.ts';
import { LinearError, type Priority } from './port.ts';

/** Of each limit, what is kept for more urgent calls. */
const KEPT: Readonly<Record<Priority, number>> = { 0: 0, 1: 0.05, 2: 0.2 };
/** Linear counts by the hour: nothing is closed for longer, whatever a clock says. */
const LONGEST_MS = 3_600_000;
/** Where a refusal does not say until when; doubled with each that follows. */
const UNTOLD_MS = 60_000;
const UNTOLD_MAX_MS = 900_000;

interface Pool {
  readonly limit: number;
  readonly remaining: number;
  readonly resetAt: number;
}
/** What is known of a pool, and when it was told by the monotonic clock. */
interface Told {
  readonly pool: Pool;
  readonly toldAt: number;
}

/** For a person to see. */
export interface BudgetView {
  readonly requests: Pool | null;
  readonly complexity: Pool | null;
  /** Nothing is called before; null when nothing is closed. */
  readonly closedUntil: number | null;
}

const numberIn = (headers: Headers, name: string): number | null => {
  const text = headers.get(name);
  const value = text === null || text.trim() === '' ? Number.NaN : Number(text);
  return Number.isFinite(value) ? value : null;
};

function poolIn(headers: Headers, prefix: string): Pool | null {
  const limit = numberIn(headers, `${prefix}-limit`);
  const remaining = numberIn(headers, `${prefix}-remaining`);
  const resetAt = numberIn(headers, `${prefix}-reset`);
  return limit === null || remaining === null || resetAt === null
    ? null
    : { limit, remaining, resetAt };
}

export class Budget {
  readonly #entropy: Pick<Entropy, 'now' | 'monotonic'>;
  #requests: Told | null = null;
  #complexity: Told | null = null;
  /** Limits of single operations, by our name of the operation. */
  readonly #endpoints = new Map<string, Told>();
  #inFlight = 0;
  #closed = { until: 0, monotonic: 0 };
  #untold = 0;

  constructor(entropy: Pick<Entropy, 'now' | 'monotonic'>) {
    this.#entropy = entropy;
  }

  /**
   * Lets a call begin; `ended` must follow.
   * @throws LinearError `rate_limited` where it has to wait.
   */
  begin(operation: string, priority: Priority): void {
    const wait = Math.max(
      this.#closedFor(),
      this.#shut(this.#requests, priority, this.#inFlight),
      this.#shut(this.#complexity, priority, 0),
      this.#shut(this.#endpoints.get(operation) ?? null, 0, 0),
    );
    if (wait > 0) {
      throw new LinearError({ kind: 'rate_limited', retryAt: this.#entropy.now() + wait });
    }
    this.#inFlight++;
  }

  /** A call is over, whatever came of it. */
  ended(): void {
    this.#inFlight--;
  }

  /** Takes what an answer tells of the budget. */
  observe(operation: string, headers: Headers): void {
    const toldAt = this.#entropy.monotonic();
    const told = (prefix: string): Told | null => {
      const pool = poolIn(headers, prefix);
      return pool && { pool, toldAt };
    };
    this.#requests = told('x-ratelimit-requests') ?? this.#requests;
    this.#complexity = told('x-ratelimit-complexity') ?? this.#complexity;
    const endpoint = told('x-ratelimit-endpoint-requests');
    if (endpoint) this.#endpoints.set(operation, endpoint);
  }

  /** A call went through: refusals that do not say until when begin anew. */
  accepted(): void {
    this.#untold = 0;
  }

  /** Linear refused: closes everything, and says until when. */
  refused(operation: string, headers: Headers): number {
    this.observe(operation, headers);
    const now = this.#entropy.now();
    const told = this.#told(operation, headers, now);
    const untold = Math.min(UNTOLD_MAX_MS, UNTOLD_MS * 2 ** this.#untold);
    if (told === null) this.#untold = Math.min(this.#untold + 1, 10);
    const wait = Math.min(LONGEST_MS, told ?? untold);
    this.#closed = { until: now + wait, monotonic: this.#entropy.monotonic() + wait };
    return this.#closed.until;
  }

  view(): BudgetView {
    const wait = this.#closedFor();
    return {
      requests: this.#requests?.pool ?? null,
      complexity: this.#complexity?.pool ?? null,
      closedUntil: wait > 0 ? this.#entropy.now() + wait : null,
    };
  }

  /** Milliseconds; by the clock that is through first, since one does not count suspend. */
  #closedFor(): number {
    const { until, monotonic } = this.#closed;
    return Math.min(until - this.#entropy.now(), monotonic - this.#entropy.monotonic());
  }

  /** Milliseconds until a call makes sense, by what the refusal says; null when it does not. */
  #told(operation: string, headers: Headers, now: number): number | null {
    const seconds = numberIn(headers, 'retry-after');
    if (seconds !== null && seconds > 0) return seconds * 1_000;
    const endpoint = this.#endpoints.get(operation) ?? null;
    const resets = [this.#requests, this.#complexity, endpoint]
      .filter((told): told is Told => told !== null && told.pool.remaining <= 0)
      .map(({ pool }) => pool.resetAt - now)
      // A time that has passed is a clock that is set otherwise.
      .filter((wait) => wait > 0);
    return resets.length === 0 ? null : Math.max(...resets);
  }

  /** Milliseconds until the pool lets a call of this priority through; 0 or less when it does. */
  #shut(told: Told | null, priority: Priority, spoken: number): number {
    if (told === null) return 0;
    const { pool, toldAt } = told;
    const left = pool.remaining - spoken;
    if (left > pool.limit * KEPT[priority]) return 0;
    const age = this.#entropy.monotonic() - toldAt;
    return Math.min(pool.resetAt - this.#entropy.now(), LONGEST_MS - age);
  }
}
