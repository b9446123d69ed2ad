/**
 * What is left of Linear's budget, shared by all calls. Every answer tells it; who asks before
 * a call is refused here while Linear would refuse, and earlier the less urgent it is.
 * Times are milliseconds since the epoch.
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
  readonly #entropy: Pick<Entropy, 'now'>;
  #requests: Pool | null = null;
  #complexity: Pool | null = null;
  /** Limits of single operations, by our name of the operation. */
  readonly #endpoints = new Map<string, Pool>();
  #inFlight = 0;
  #closedUntil = 0;
  #untold = 0;

  constructor(entropy: Pick<Entropy, 'now'>) {
    this.#entropy = entropy;
  }

  /**
   * Lets a call begin; `ended` must follow.
   * @throws LinearError `rate_limited` where it has to wait.
   */
  begin(operation: string, priority: Priority): void {
    const now = this.#entropy.now();
    const retryAt = Math.max(
      this.#closedUntil,
      this.#shut(this.#requests, priority, now, this.#inFlight),
      this.#shut(this.#complexity, priority, now, 0),
      this.#shut(this.#endpoints.get(operation) ?? null, 0, now, 0),
    );
    if (retryAt > now) throw new LinearError({ kind: 'rate_limited', retryAt });
    this.#inFlight++;
  }

  /** A call is over, whatever came of it. */
  ended(): void {
    this.#inFlight--;
  }

  /** Takes what an answer tells of the budget. */
  observe(operation: string, headers: Headers): void {
    this.#requests = poolIn(headers, 'x-ratelimit-requests') ?? this.#requests;
    this.#complexity = poolIn(headers, 'x-ratelimit-complexity') ?? this.#complexity;
    const endpoint = poolIn(headers, 'x-ratelimit-endpoint-requests');
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
    const wait = told ?? Math.min(UNTOLD_MAX_MS, UNTOLD_MS * 2 ** this.#untold++);
    this.#closedUntil = now + Math.min(LONGEST_MS, wait);
    return this.#closedUntil;
  }

  view(): BudgetView {
    const isClosed = this.#closedUntil > this.#entropy.now();
    return {
      requests: this.#requests,
      complexity: this.#complexity,
      closedUntil: isClosed ? this.#closedUntil : null,
    };
  }

  /** Milliseconds until a call makes sense, by what the refusal says; null when it does not. */
  #told(operation: string, headers: Headers, now: number): number | null {
    const seconds = numberIn(headers, 'retry-after');
    if (seconds !== null && seconds > 0) return seconds * 1_000;
    const endpoint = this.#endpoints.get(operation) ?? null;
    const resets = [this.#requests, this.#complexity, endpoint]
      .filter((pool): pool is Pool => pool !== null && pool.remaining <= 0)
      .map(({ resetAt }) => resetAt - now)
      // A time that has passed is a clock that is set otherwise.
      .filter((wait) => wait > 0);
    return resets.length === 0 ? null : Math.max(...resets);
  }

  /** Until when this pool lets no call of the priority through; a time that has passed when it does. */
  #shut(pool: Pool | null, priority: Priority, now: number, spoken: number): number {
    if (pool === null) return 0;
    const left = pool.remaining - spoken;
    return left > pool.limit * KEPT[priority] ? 0 : Math.min(pool.resetAt, now + LONGEST_MS);
  }
}
