/**
 * What holds the outbox back as a whole: a budget that is used up, or nobody who may call.
 * Pure but for its memory; times are milliseconds since the epoch.
 */

/** A try while nobody may call; a person is not waited for longer. */
const PROBE_FIRST_MS = 5_000;
const PROBE_MAX_MS = 60_000;
/** Linear counts by the hour; an answer that names a time in the past is not asked at once again. */
const BUDGET_MIN_MS = 1_000;
const BUDGET_MAX_MS = 3_600_000;

export interface AuthProblem {
  readonly message: string;
  /** RFC 3339. */
  readonly since: string;
}

export class Gates {
  /** By priority: not before this. */
  readonly #openAt: [number, number, number] = [0, 0, 0];
  #auth: AuthProblem | null = null;
  #probes = 0;
  #probeAt = 0;

  get auth(): AuthProblem | null {
    return this.#auth;
  }

  /** When the budget lets the most patient through again, null when it does now. */
  retryAt(now: number): number | null {
    const at = Math.max(...this.#openAt);
    return at > now ? at : null;
  }

  /** Milliseconds until a row of this priority may go. */
  wait(priority: number, now: number): number {
    const budget = this.#openAt[Math.min(2, Math.max(0, priority)) as 0 | 1 | 2];
    const probe = this.#auth === null ? 0 : Math.min(PROBE_MAX_MS, this.#probeAt - now);
    // Bounds: a clock that was set back must not hold anything up for longer.
    return Math.max(0, Math.min(BUDGET_MAX_MS, budget - now), probe);
  }

  /** The budget has nothing left for this priority, and so for none that is less urgent. */
  exhausted(priority: number, retryAt: number, now: number): void {
    const at = Math.min(now + BUDGET_MAX_MS, Math.max(now + BUDGET_MIN_MS, retryAt));
    for (const each of [0, 1, 2] as const) {
      if (each >= priority) this.#openAt[each] = Math.max(this.#openAt[each], at);
    }
  }

  /** Nobody may call. @returns true when that is news. */
  refused(problem: AuthProblem, now: number): boolean {
    const isNews = this.#auth === null;
    this.#auth ??= problem;
    this.#probeAt = now + Math.min(PROBE_MAX_MS, PROBE_FIRST_MS * 2 ** this.#probes);
    this.#probes = Math.min(this.#probes + 1, 10);
    return isNews;
  }

  /** A try that said nothing of credentials: the next one is due later all the same. */
  unclear(now: number): void {
    if (this.#auth !== null) this.#probeAt = now + PROBE_FIRST_MS;
  }

  /** Somebody may call again. @returns true when that is news. */
  accepted(): boolean {
    const isNews = this.#auth !== null;
    this.#auth = null;
    this.#probes = 0;
    return isNews;
  }

  /** A person did something: look at once. */
  probeNow(): void {
    this.#probes = 0;
    this.#probeAt = 0;
  }
}
