/**
 * WatchdogSec= of the daemon's unit. It is fed only after the event loop has gone once through
 * its phases and the daemon has looked at itself (which reads the store): a timer alone would
 * also run in a daemon that answers nobody.
 *
 * An answer that says "the disk is full" or "the bus is away" is an answer: killing the
 * daemon mends neither, so the unit's status says degraded and the watchdog is fed.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { OutliveError } from '../domain/errors.ts';
import type { Notifier } from './notify.ts';
import type { Timers } from './timers.ts';

export interface WatchdogOptions {
  /** WatchdogSec= in milliseconds. */
  readonly deadlineMs: number;
  readonly notifier: Pick<Notifier, 'watchdog'>;
  /** Reads through everything that has to answer; returns the unit's status in one line. */
  readonly look: () => string;
  readonly timers: Timers;
  /** Told why it was not fed. */
  readonly report: (problem: string) => void;
}

/** A beat may be late by one interval and lost once. */
const BEATS_PER_DEADLINE = 3;

/** What only the world can mend. */
const FAULTS_OF_THE_WORLD: ReadonlySet<string> = new Set([
  'disk_full',
  'store_unavailable',
  'store_damaged',
  'bus_unavailable',
]);

function statusOf(look: () => string): string {
  try {
    return look();
  } catch (error) {
    if (!(error instanceof OutliveError) || !FAULTS_OF_THE_WORLD.has(error.code)) throw error;
    return `degraded: ${error.code}: ${error.message}`;
  }
}

/** Begins to feed; returns how to stop. */
export function startWatchdog(options: WatchdogOptions): () => void {
  const { deadlineMs, notifier, look, timers, report } = options;
  let stopped = false;
  let cancel = (): void => {};
  const beat = async (): Promise<void> => {
    try {
      await nextTurn();
      const status = statusOf(look);
      await notifier.watchdog(status);
    } catch (error) {
      report(`the watchdog is not fed: ${String(error)}`);
    }
    next();
  };
  const next = (): void => {
    if (!stopped) cancel = timers.after(deadlineMs / BEATS_PER_DEADLINE, () => void beat());
  };
  next();
  return () => {
    stopped = true;
    cancel();
  };
}
