/** Budgets per hour, counted in requests and in complexity, as Linear's headers tell them. */
import type { DoubleClock } from './clock.ts';

export class Limits {
  requests = 5_000;
  complexity = 2_000_000;
  /** Milliseconds after which a budget is whole again; Linear's is an hour. */
  windowMs = 3_600_000;
  /** HTTP status of the refusal; the code inside is the same for all. */
  refusalStatus = 400;
  /** Calls that came although the budget was known to be used up. */
  refused = 0;
  readonly #clock: DoubleClock;
  #since: number;
  #usedRequests = 0;
  #usedComplexity = 0;

  constructor(clock: DoubleClock) {
    this.#clock = clock;
    this.#since = clock.now();
  }

  /** Only so many requests are left in this hour. */
  leave(requests: number): void {
    this.#renew();
    this.#usedRequests = this.requests - requests;
  }

  /** Only so much complexity is left in this hour. */
  leaveComplexity(points: number): void {
    this.#renew();
    this.#usedComplexity = this.complexity - points;
  }

  /** When the budget is whole again, ms since the epoch. */
  get resetAt(): number {
    return this.#since + this.windowMs;
  }

  /** Counts a call. False when there is no budget for it. */
  spend(complexity: number): boolean {
    this.#renew();
    const isOver =
      this.#usedRequests + 1 > this.requests || this.#usedComplexity + complexity > this.complexity;
    if (isOver) {
      this.refused++;
      return false;
    }
    this.#usedRequests++;
    this.#usedComplexity += complexity;
    return true;
  }

  headers(complexity: number): Record<string, string> {
    const reset = String(this.resetAt);
    return {
      'x-complexity': String(complexity),
      'x-ratelimit-requests-limit': String(this.requests),
      'x-ratelimit-requests-remaining': String(Math.max(0, this.requests - this.#usedRequests)),
      'x-ratelimit-requests-reset': reset,
      'x-ratelimit-complexity-limit': String(this.complexity),
      'x-ratelimit-complexity-remaining': String(
        Math.max(0, this.complexity - this.#usedComplexity),
      ),
      'x-ratelimit-complexity-reset': reset,
    };
  }

  #renew(): void {
    if (this.#clock.now() < this.resetAt) return;
    this.#since = this.#clock.now();
    this.#usedRequests = 0;
    this.#usedComplexity = 0;
  }
}
