/** Takes queued work and launches it: woken by events, bounded in what it starts at once. */
import type { AttemptRow } from '../store/attempts.ts';
import { type Claim, createClaimer } from './claim.ts';
import type { Context } from './context.ts';
import { createGates } from './gates.ts';
import { launch } from './launch.ts';
import { createHint } from './signal.ts';

/** Starts under way at once. systemd starts about 50 units a second however many are asked for. */
const LAUNCHES_AT_ONCE = 8;
/** Without a wake-up the queue is looked at again after this long. */
const RESCAN_MS = 30_000;
const RETRY_MS = 2_000;

export interface Scheduler {
  start(): void;
  /** Launches what was claimed elsewhere. */
  launch(claim: Claim): void;
  /** Something changed that queued work may have waited for. */
  wake(): void;
  readonly launching: number;
  /** Attempts whose start is under way. */
  readonly launchingIds: readonly string[];
  /** Claims nothing more and waits for the launches under way. */
  close(): Promise<void>;
}

/** `onLaunched` takes every attempt over, whether its start worked or not. */
export function createScheduler(
  context: Context,
  onLaunched: (attempt: AttemptRow) => void,
  onSuspect: (workUnitId: string) => void,
): Scheduler {
  const claimNext = createClaimer(context);
  const gates = createGates(context);
  const launches = new Map<string, Promise<void>>();
  const hint = createHint();
  let closing = false;
  let loop: Promise<void> = Promise.resolve();

  const launchOne = (claim: Claim): void => {
    const launched = launch(context, claim)
      .catch((error: unknown) => {
        // The watch finds out what really happened; a launch has no truth of its own.
        context.log.error({ err: error, unit: claim.attempt.unit }, 'a launch failed');
      })
      .then(() => {
        onLaunched(claim.attempt);
        launches.delete(claim.attempt.id);
        hint.raise();
      });
    launches.set(claim.attempt.id, launched);
  };

  const fill = (): void => {
    while (!closing && launches.size < LAUNCHES_AT_ONCE) {
      const { claim, suspects, more } = claimNext();
      for (const suspect of suspects) onSuspect(suspect);
      if (claim) launchOne(claim);
      else if (!more) return;
    }
  };

  /** A delayed unit is due at a known time; nobody else says when. */
  const untilDue = (): number => {
    const now = context.entropy.now();
    const due = context.store.queue.nextDue(new Date(now).toISOString());
    return due === null ? RESCAN_MS : Math.min(RESCAN_MS, Math.max(1, Date.parse(due) - now));
  };

  const run = async (): Promise<void> => {
    while (!closing) {
      try {
        gates.tend();
        fill();
        // After the look: what it set aside may wait for a gate that opens with time.
        await hint.wait(Math.min(untilDue(), gates.tend() ?? RESCAN_MS));
      } catch (error) {
        context.log.error({ err: error }, 'cannot take queued work; trying again');
        await hint.wait(RETRY_MS);
      }
    }
  };

  return {
    start: () => {
      // Limits may be others than when these were set aside.
      context.writer.commit(() => context.store.queue.wakeAll());
      loop = run();
    },
    launch: launchOne,
    wake: () => hint.raise(),
    get launching() {
      return launches.size;
    },
    get launchingIds() {
      return [...launches.keys()];
    },
    close: async () => {
      closing = true;
      hint.raise();
      await loop;
      await Promise.allSettled(launches.values());
    },
  };
}
