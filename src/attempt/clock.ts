/** Bounded waiting, on monotonic time. */

/** A span of time that runs out, to be shared out among several steps. */
export class Budget {
  readonly #end: number;
  readonly #total: number;

  constructor(totalMs: number) {
    this.#total = totalMs;
    this.#end = performance.now() + totalMs;
  }

  /** Milliseconds until the given share (0 to 1) of the whole budget is used up. */
  until(share: number): number {
    return Math.max(0, this.#end - this.#total * (1 - share) - performance.now());
  }
}

/** What the promise resolves to, or `late` after `ms`. */
export async function within<T>(promise: Promise<T>, ms: number): Promise<T | 'late'> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<'late'>((resolve) => {
    timer = setTimeout(() => resolve('late'), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
