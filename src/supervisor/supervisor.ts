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
import type { Context } from './context.ts';
import type { EndRequest } from './end.ts';
import { cancel } from './end.ts';
import { createScheduler } from './scheduler.ts';
import type { Submission } from './submit.ts';
import { submit } from './submit.ts';
import type { AttemptWatch } from './watch.ts';
import { watchAttempt } from './watch.ts';

export interface Supervisor {
  /** Begins to take queued work. */
  start(): void;
  submit(
    input: StartWorkUnit,
    options: { idempotencyKey?: string | undefined; actor: Actor },
  ): Submission;
  cancel(id: string, request: EndRequest): WorkUnitRow;
  /** Takes up an attempt that a daemon before this one had started (or meant to start). */
  attach(attempt: AttemptRow): void;
  live(attemptId: string): LiveState | null;
  readonly watching: number;
  /** Takes no more work; what runs goes on running without us. */
  close(): Promise<void>;
}

export function createSupervisor(context: Context): Supervisor {
  const watches = new Map<string, AttemptWatch>();
  let closing = false;

  const watch = (attempt: AttemptRow, reattach: boolean): void => {
    const watched = watchAttempt(context, attempt, {
      reattach,
      onEnded: (id) => {
        watches.delete(id);
        scheduler.wake(); // A requeued start or a freed resource may be waiting.
      },
    });
    watches.set(attempt.id, watched);
    watched.ended.catch((error: unknown) => {
      context.log.error({ err: error, unit: attempt.unit }, 'a watch ended by mistake');
    });
  };
  const scheduler = createScheduler(context, (attempt) => watch(attempt, false));

  return {
    start: () => scheduler.start(),
    submit: (input, options) => {
      if (closing) {
        throw new OutliveError(
          'shutting_down',
          'The daemon is shutting down. Try again in a moment.',
        );
      }
      const submission = submit(context, input, options);
      if (submission.created) scheduler.wake();
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
      return watches.size + scheduler.launching;
    },
    close: async () => {
      closing = true;
      await scheduler.close();
      for (const watched of watches.values()) watched.stop();
      await Promise.allSettled([...watches.values()].map((watched) => watched.ended));
    },
  };
}
