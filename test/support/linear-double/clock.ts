/**
 * The double's clock. It starts at the machine's time and stands until the test moves it, or
 * runs with the machine's (`runs`) for a daemon that has only that; `advance` moves both kinds.
 */
interface Due {
  readonly at: number;
  readonly run: () => Promise<unknown>;
}

export class DoubleClock {
  readonly #base: () => number;
  #moved = 0;
  #due: Due[] = [];

  constructor(options: { readonly runs?: boolean; readonly start?: number } = {}) {
    const start = options.start ?? Date.now();
    const began = performance.now();
    this.#base = options.runs ? () => start + Math.floor(performance.now() - began) : () => start;
  }

  /** Milliseconds since the epoch. */
  now(): number {
    return this.#base() + this.#moved;
  }

  /** RFC 3339, as all times on the wire. */
  text(): string {
    return new Date(this.now()).toISOString();
  }

  /** What is to happen in `ms`; it happens when `advance` reaches it, never by itself. */
  in(ms: number, run: () => Promise<unknown>): void {
    this.#due.push({ at: this.now() + ms, run });
  }

  /** Moves on by `ms`. Whatever falls due happens at its time, in order, and is waited for. */
  async advance(ms: number): Promise<void> {
    const until = this.now() + ms;
    for (let next = this.#next(until); next !== undefined; next = this.#next(until)) {
      this.#moved += Math.max(0, next.at - this.now());
      await next.run();
    }
    this.#moved += Math.max(0, until - this.now());
  }

  #next(until: number): Due | undefined {
    const first = this.#due.toSorted((a, b) => a.at - b.at)[0];
    if (first === undefined || first.at > until) return undefined;
    this.#due = this.#due.filter((due) => due !== first);
    return first;
  }
}
