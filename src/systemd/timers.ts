/** Deadlines as an argument, so that tests decide when they pass. */

export interface Timers {
  /** Runs `callback` once after `ms`; returns its cancellation, harmless afterwards. */
  after(ms: number, callback: () => void): () => void;
}

/** setTimeout's longest delay; anything longer would fire at once. */
const LONGEST_MS = 2 ** 31 - 1;

export const systemTimers: Timers = {
  after(ms, callback) {
    const timer = setTimeout(callback, Math.min(Math.max(0, ms), LONGEST_MS));
    return () => clearTimeout(timer);
  },
};
