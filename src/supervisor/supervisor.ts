/**
 * The supervisor: takes work in, starts it, follows every attempt to its committed end.
 * Holds no truth of its own; all of this may die at any instruction.
 */
import type { LiveState } from '../domain/attempt-files.ts';
import { OutliveError } from '../domain/errors.ts';
import type { StartWorkUnit } from '../domain/request.ts';
import type { Admission } from '../domain/resources.ts';
import type { Actor } from '../domain/work-unit.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { ChannelPolicy } from '../store/channels.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';
import type { EndRequest } from './end.ts';
import { cancel, interrupt } from './end.ts';
import { type ReconcileReport, reconcile } from './reconcile.ts';
import { retry } from './retry.ts';
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
  /** Ends a running work unit to go on with another prompt. */
  interrupt(id: string, request: EndRequest): WorkUnitRow;
  /** Queues another attempt of failed work; see retry.ts for what it may refuse. */
  retry(id: string, actor: Actor): Promise<WorkUnitRow>;
  /** Whether queued work is taken; durable. */
  setAdmission(admission: Admission): void;
  putChannel(id: string, policy: ChannelPolicy): void;
  /** Looks afresh at one active work unit or all, and acts on what it finds. */
  reconcile(ids: readonly string[] | null): Promise<ReconcileReport>;
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
  const hintOwner = (workUnitId: string): void => {
    const attemptId = context.store.workUnits.get(workUnitId)?.activeAttemptId;
    if (attemptId) watches.get(attemptId)?.hint();
  };
  const scheduler = createScheduler(context, (attempt) => watch(attempt, false), hintOwner);

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
      for (const attemptId of submission.superseded) watches.get(attemptId)?.hint();
      if (submission.claim) scheduler.launch(submission.claim);
      else if (submission.created) scheduler.wake();
      return submission;
    },
    cancel: (id, request) => {
      const workUnit = cancel(context, id, request);
      hintOwner(id);
      scheduler.wake(); // Who was kept waiting for it may go on.
      return workUnit;
    },
    interrupt: (id, request) => {
      const workUnit = interrupt(context, id, request);
      hintOwner(id);
      return workUnit;
    },
    retry: async (id, actor) => {
      const workUnit = await retry(context, id, actor);
      scheduler.wake();
      return workUnit;
    },
    setAdmission: (admission) => {
      context.writer.commit(({ at }) => context.store.channels.setAdmission(admission, at));
      scheduler.wake();
    },
    putChannel: (id, policy) => {
      context.writer.commit(({ at }) => {
        context.store.channels.put(id, policy, at);
        context.store.queue.wakeAll(); // A higher limit may let several start at once.
      });
      scheduler.wake();
    },
    reconcile: (ids) =>
      reconcile(context, ids, { watches, attach: (attempt) => watch(attempt, true) }),
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
