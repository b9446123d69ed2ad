/**
 * The hard deadline, kept by the wrapper a moment before systemd's RuntimeMaxSec,
 * so that the attempt can still say what happened and let its runner end well.
 */
import { readFileSync } from 'node:fs';

export interface DeadlinePlan {
  /** When the wrapper acts, milliseconds after the start of the process. */
  readonly afterMs: number;
  /** What the runner gets to end, so that all is done before systemd acts. */
  readonly graceMs: number;
}

/** The margin is the smaller of 2 s and a tenth; three quarters of it are the runner's. */
export function planDeadline(hardTimeoutMs: number): DeadlinePlan {
  const margin = Math.min(2_000, hardTimeoutMs / 10);
  return { afterMs: hardTimeoutMs - margin, graceMs: Math.round(margin * 0.75) };
}

// setTimeout takes no more (24.8 days) and would fire at once.
const LONGEST_TIMER_MS = 2_147_483_647;

/** Calls `fire` once the process is `afterMs` old. Returns the disarm. */
export function armDeadline(afterMs: number, ageMs: () => number, fire: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  const arm = (): void => {
    const left = afterMs - ageMs();
    if (left <= 0) fire();
    else timer = setTimeout(arm, Math.min(Math.ceil(left), LONGEST_TIMER_MS));
  };
  arm();
  return () => clearTimeout(timer);
}

/**
 * A monotonic clock that counts from the fork of this process: what systemd counts
 * from, and earlier than anything Node can remember.
 */
export function processAge(): () => number {
  const bootMs = bootDelayMs(performance.now());
  return () => bootMs + performance.now();
}

// Start-up can take seconds on a busy machine; more is a clock that means something else.
const CREDIBLE_MS = 60_000;
const TICKS_PER_SECOND = 100;

/** Milliseconds between the fork and Node's own zero, 0 where /proc cannot tell. */
function bootDelayMs(sinceNodeMs: number): number {
  try {
    const stat = readFileSync('/proc/self/stat', 'utf8');
    // Field 22 is the start; the name in field 2 may hold anything, also blanks.
    const start = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]) / TICKS_PER_SECOND;
    const uptime = Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]);
    const delay = (uptime - start) * 1000 - sinceNodeMs;
    return delay > 0 && delay < CREDIBLE_MS ? delay : 0;
  } catch {
    return 0;
  }
}
