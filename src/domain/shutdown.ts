/**
 * How long an orderly end of the daemon may take: its own steps keep to these, and whoever
 * waits for it (its unit, the command line) waits for their sum. Milliseconds.
 */

/**
 * After the grace, how long the ends of suspended attempts are waited for.
 * What is not over by then is over later: the order is stored, and the next daemon reads it.
 */
export const SHUTDOWN_MARGIN_MS = 25_000;

/** A start or a look that is under way may take this long to end, with the bus and again without. */
export const REST_MS = 5_000;

/** Answers that are under way at the end may take this long. */
export const DRAIN_MS = 10_000;

/** For closing the rest, on a machine that is busy. */
const SPARE_MS = 15_000;

/** After this a daemon that was told to stop is not stopping but hanging. */
export const stopDeadlineMs = (graceMs: number): number =>
  graceMs + SHUTDOWN_MARGIN_MS + 2 * REST_MS + DRAIN_MS + SPARE_MS;
