/**
 * The supervisor: takes work in, starts it, follows every attempt to its committed end.
 * Holds no truth of its own; all of this may die at any instruction.
 */
import type { LiveState } from '../domain/attempt-files.ts';
import { OutliveError } from '../domain/errors.ts';
import type { StartWorkUnit } from '../domain/request.ts';
import type { Actor } from '../domain/work-unit.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { CancelRequest } from './cancel.ts';
import { cancel } from './cancel.ts';
import type { Claim } from './claim.ts';
import { claimNext } from './claim.ts';
import type { Context } from './context.ts';
import { launch } from './launch.ts';
import { createHint } from './signal.ts';
import type { Submission } from './submit.ts';
import { submit } from './submit.ts';
import type { AttemptWatch } from './watch.ts';
import { watchAttempt } from './watch.ts';

/** Starts under way at once. systemd starts about 50 units a second however many are asked for. */
const LAUNCHES_AT_ONCE = 8;
/** Without a wake-up the queue is looked at again after this long. */
const RESCAN_MS = 30_000;
const RETRY_MS = 2_000;

export interface Supervisor {
  /** Begins to take queued work. */
  start(): void;
  submit(
    input: StartWorkUnit,
    options: { idempotencyKey?: string | undefined; actor: Actor },
  ): Submission;
  cancel(id: string, request: CancelRequest): WorkUnitRow;
  /** Takes up an attempt that a daemon before this one had started (or meant to start). */
  attach(attempt: AttemptRow): void;
  live(attemptId: string): LiveState | null;
  readonly watching: number;
  /** Takes no more work; what runs goes on running without us. */
  close(): Promise<void>;
}

export function createSupervisor(context: Context): Supervisor {
  const watches = new Map<string, AttemptWatch>();
  const launches = new Set<Promise<void>>();
  const wake = createHint();
  let closing = false;
  let loop: Promise<void> = Promise.resolve();

  const watch = (attempt: AttemptRow, reattach: boolean): void => {
    const watched = watchAttempt(context, attempt, {
      reattach,
      onEnded: (id) => {
        watches.delete(id);
        wake.raise(); // A retry, a requeued start or a freed resource may be waiting.
      },
    });
    watches.set(attempt.id, watched);
    watched.ended.catch((error: unknown) => {
      context.log.error({ err: error, unit: attempt.unit }, 'a watch ended by mistake');
    });
  };

  const launchOne = (claim: Claim): void => {
    const launched = launch(context, claim)
      .catch((error: unknown) => {
        // The watch finds out what really happened; a launch has no truth of its own.
        context.log.error({ err: error, unit: claim.attempt.unit }, 'a launch failed');
      })
      .then(() => {
        launches.delete(launched);
        watch(claim.attempt, false);
        wake.raise();
      });
    launches.add(launched);
  };

  const fill = (): void => {
    while (!closing && launches.size < LAUNCHES_AT_ONCE) {
      const claim = claimNext(context);
      if (!claim) return;
      launchOne(claim);
    }
  };

  const run = async (): Promise<void> => {
    while (!closing) {
      try {
        fill();
        await wake.wait(RESCAN_MS);
      } catch (error) {
        context.log.error({ err: error }, 'cannot take queued work; trying again');
        await wake.wait(RETRY_MS);
      }
    }
  };

  return {
    start: () => {
      loop = run();
    },
    submit: (input, options) => {
      if (closing)
        throw new OutliveError(
          'shutting_down',
          'The daemon is shutting down. Try again in a moment.',
        );
      const submission = submit(context, input, options);
      if (submission.created) wake.raise();
      return submission;
    },
    cancel: (id, request) => {
      const workUnit = cancel(context, id, request);
      if (workUnit.activeAttemptId) watches.get(workUnit.activeAttemptId)?.hint();
      return workUnit;
    },
    attach: (attempt) => watch(attempt, true),
    live: (attemptId) => watches.get(attemptId)?.live ?? null,
    get watching() {
      return watches.size + launches.size;
    },
    close: async () => {
      closing = true;
      wake.raise();
      await loop;
      await Promise.allSettled(launches);
      for (const watched of watches.values()) watched.stop();
      await Promise.allSettled([...watches.values()].map((watched) => watched.ended));
    },
  };
}
