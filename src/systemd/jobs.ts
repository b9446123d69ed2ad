/** Waiting for a unit's job to end. The signal is a hint that it is time to read. */
import type { Timers } from './timers.ts';

/** One wait; begun before the call that queues the job, so that no signal is too early. */
export interface JobWait {
  /**
   * Resolves with the job's result when it has ended; with null when signals may have been
   * missed, or at the deadline.
   */
  ended(job: string): Promise<string | null>;
  stop(): void;
}

interface Waiter {
  readonly unit: string;
  /** Results by job. */
  readonly jobs: Map<string, string>;
  missed: boolean;
  check: () => void;
}

export class JobWatch {
  readonly #timers: Timers;
  readonly #waiters = new Set<Waiter>();

  constructor(timers: Timers) {
    this.#timers = timers;
  }

  /** Feed of every ended job. */
  onEnded(unit: string, job: string, result: string): void {
    for (const waiter of this.#waiters) {
      if (waiter.unit !== unit) continue;
      waiter.jobs.set(job, result);
      waiter.check();
    }
  }

  /** The connection was away: an end may have gone by unseen. */
  onMissed(): void {
    for (const waiter of this.#waiters) {
      waiter.missed = true;
      waiter.check();
    }
  }

  /** Begins to note the ended jobs of a unit; the deadline counts from here. */
  watch(unit: string, deadlineMs: number): JobWait {
    const waiter: Waiter = { unit, jobs: new Map(), missed: false, check: () => {} };
    this.#waiters.add(waiter);
    const cancel = this.#timers.after(deadlineMs, () => {
      waiter.missed = true;
      waiter.check();
    });
    return {
      ended: (job) =>
        new Promise((resolve) => {
          waiter.check = () => {
            const result = waiter.jobs.get(job);
            if (waiter.missed || result !== undefined) resolve(result ?? null);
          };
          waiter.check();
        }),
      stop: () => {
        cancel();
        this.#waiters.delete(waiter);
      },
    };
  }
}
