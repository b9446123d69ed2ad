/**
 * The daemon's orderly end, as far as attempts go. `detach` lets them run on; `suspend`
 * gives them a grace, then ends what is left so that the next daemon goes on with it.
 */
import type { Context } from './context.ts';
import { suspend } from './end.ts';
import type { AttemptWatch } from './watch.ts';

export interface ShutdownPolicy {
  readonly mode: 'detach' | 'suspend';
  /** How long attempts may still work before they are suspended, milliseconds. */
  readonly graceMs: number;
}

export const DETACH: ShutdownPolicy = { mode: 'detach', graceMs: 0 };

/**
 * After the grace, how long the ends of suspended attempts are waited for, milliseconds.
 * What is not over by then is over later: the order is stored, and the next daemon reads it.
 */
export const SHUTDOWN_MARGIN_MS = 25_000;

/** False when `ms` passed first. */
async function within(ms: number, done: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  try {
    return await Promise.race([done.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

const unitsOf = (watches: ReadonlyMap<string, AttemptWatch>): string[] =>
  [...watches.values()].map(({ unit }) => unit);

const allEnded = (watches: ReadonlyMap<string, AttemptWatch>): Promise<unknown> =>
  Promise.allSettled([...watches.values()].map(({ ended }) => ended));

/** Ends every attempt that is still watched as suspended, bounded by grace and margin. */
async function suspendAll(
  context: Context,
  watches: ReadonlyMap<string, AttemptWatch>,
  graceMs: number,
): Promise<void> {
  const { log } = context;
  log.info({ units: unitsOf(watches), graceMs }, 'the shutdown waits for attempts to end');
  if (await within(graceMs, allEnded(watches))) return;
  log.info({ units: unitsOf(watches) }, 'the grace is over; attempts are suspended');
  for (const watched of watches.values()) {
    suspend(context, watched.attemptId, 'daemon_shutdown');
    watched.hint();
  }
  context.fault('suspended');
  if (await within(SHUTDOWN_MARGIN_MS, allEnded(watches))) return;
  log.warn({ units: unitsOf(watches) }, 'not over within the margin; the next daemon settles them');
}

/** Lets go of all attempts, by policy. Nothing is claimed any more when this is called. */
export async function letGo(
  context: Context,
  watches: ReadonlyMap<string, AttemptWatch>,
  { mode, graceMs }: ShutdownPolicy,
): Promise<void> {
  if (mode === 'suspend' && watches.size > 0) await suspendAll(context, watches, graceMs);
  for (const watched of watches.values()) watched.stop();
  await allEnded(watches);
}
