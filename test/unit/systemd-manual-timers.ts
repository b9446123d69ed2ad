import type { Timers } from '../../src/systemd/timers.ts';

/** Deadlines that pass only when told to. */
export class ManualTimers implements Timers {
  readonly #set = new Set<{ ms: number; callback: () => void }>();
  readonly #waiting = new Set<() => void>();

  after(ms: number, callback: () => void): () => void {
    const timer = { ms, callback };
    this.#set.add(timer);
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
    return () => this.#set.delete(timer);
  }

  /** Lets the first matching deadline pass, waiting for it to be set; returns its length. */
  async pass(matches: (ms: number) => boolean): Promise<number> {
    for (;;) {
      const found = [...this.#set].find((timer) => matches(timer.ms));
      if (found) {
        this.#set.delete(found);
        found.callback();
        return found.ms;
      }
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  get pending(): number {
    return this.#set.size;
  }
}
