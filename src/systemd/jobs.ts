/** Waiting for a unit's job to end. The signal is a hint that it is time to read. */
import type { Timers } from './timers.ts';

/** One wait; begun before the call that queues the job, so that no signal is too early. */
export interface JobWait {
  /** Resolves when the job has ended, when signals may have been missed, or at the deadline. */
  ended(job: string): Promise<void>;
  stop(): void;
}

interface Waiter {
  readonly unit: string;
  readonly jobs: Set<string>;
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
  onEnded(unit: string, job: string): void {
    for (const waiter of this.#waiters) {
      if (waiter.unit !== unit) continue;
      waiter.jobs.add(job);
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
    const waiter: Waiter = { unit, jobs: new Set(), missed: false, check: () => {} };
    this.#waiters.add(waiter);
    const cancel = this.#timers.after(deadlineMs, () => {
      waiter.missed = true;
      waiter.check();
    });
    return {
      ended: (job) =>
        new Promise((resolve) => {
          waiter.check = () => {
            if (waiter.missed || waiter.jobs.has(job)) resolve();
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
