/**
 * The supervisor: takes work in, starts it, follows every attempt to its committed end.
 * Holds no truth of its own; all of this may die at any instruction.
 */
import type { Readable } from 'node:stream';
import type { LiveState } from '../domain/attempt-files.ts';
import { movesDependents } from '../domain/dependencies.ts';
import { OutliveError } from '../domain/errors.ts';
import type { StartWorkUnit } from '../domain/request.ts';
import type { Admission, SlotType } from '../domain/resources.ts';
import type { Ceiling } from '../domain/spend.ts';
import type { Actor, Maker } from '../domain/work-unit.ts';
import type { ArtifactRow } from '../store/artifacts.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { ChannelPolicy } from '../store/channels.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { type Answers, createAnswers } from './answers.ts';
import { openArtifact } from './artifacts.ts';
import type { Context } from './context.ts';
import type { EndRequest } from './end.ts';
import { cancel, interrupt } from './end.ts';
import { type Explained, explain, type Preview, preview } from './explain.ts';
import { current, keyed, unlessRepeated } from './idempotent.ts';
import { slotLimit } from './kept-slots.ts';
import { releaseLateStarts } from './late-starts.ts';
import { createJudge } from './outcomes.ts';
import { type ProviderState, providerStates, resumeProvider } from './provider-gate.ts';
import { type ReconcileReport, reconcile } from './reconcile.ts';
import { retry } from './retry.ts';
import { createScheduler, type Scheduler } from './scheduler.ts';
import { DETACH, letGo, type ShutdownPolicy } from './shutdown.ts';
import {
  type DaySpend,
  type SpendState,
  spendOfChannel,
  spendOfDay,
  spendOfUnit,
  unitCeilingReached,
} from './spend-gate.ts';
import type { Submission, SubmitOptions } from './submit.ts';
import { submit } from './submit.ts';
import type { AttemptWatch } from './watch.ts';
import { watchAttempt } from './watch.ts';

export interface Supervisor {
  /** Begins to take queued work. */
  start(): void;
  submit(input: StartWorkUnit, options: SubmitOptions): Submission;
  /** What {@link submit} would do; stores nothing. */
  preview(
    input: StartWorkUnit,
    options: { idempotencyKey?: string | undefined; actor: Maker },
  ): Preview;
  /** With a key that was used for this very command before it changes nothing. */
  cancel(id: string, request: EndRequest, key?: string): WorkUnitRow;
  /** Ends a running work unit to go on with another prompt. */
  interrupt(id: string, request: EndRequest): WorkUnitRow;
  /** Queues another attempt of failed work; see retry.ts for what it may refuse. */
  retry(id: string, actor: Actor, key?: string): Promise<WorkUnitRow>;
  /** Why it is where it is. @throws OutliveError `not_found`. */
  explain(id: string): Explained;
  /** Every counted resource that has a limit, used or not. */
  slotLimits(): readonly SlotLimit[];
  slotLimit(type: SlotType, key: string): number | null;
  /** The wall clock all stored times are made by, milliseconds since the epoch. */
  now(): number;
  /** Whether queued work is taken; durable. */
  setAdmission(admission: Admission): void;
  putChannel(id: string, policy: ChannelPolicy, ceiling: Ceiling): void;
  /** Every provider or preset, with its breaker. */
  providers(): readonly ProviderState[];
  /** What waits for it may start. @throws OutliveError `not_found`. */
  resumeProvider(name: string): void;
  /** What a work unit, a channel today, the workspace today have spent of what they may. */
  readonly spend: {
    unit(workUnit: Pick<WorkUnitRow, 'id' | 'kind'>): SpendState;
    channel(id: string): SpendState;
    day(): DaySpend;
  };
  /** Stores a person's answer to a question; see approval-decide.ts for what it may refuse. */
  decide: Answers['decide'];
  /** Looks afresh at one active work unit or all, and acts on what it finds. */
  reconcile(ids: readonly string[] | null): Promise<ReconcileReport>;
  /** Takes up an attempt that a daemon before this one had started (or meant to start). */
  attach(attempt: AttemptRow): void;
  live(attemptId: string): LiveState | null;
  /** What an artifact holds. @throws OutliveError `artifact_gone`. */
  openArtifact(artifact: ArtifactRow): Promise<Readable>;
  readonly watching: number;
  /** Attempts that are launched or followed. */
  readonly watched: ReadonlySet<string>;
  /** Takes no more work and lets go of what runs; see shutdown.ts. */
  close(policy?: ShutdownPolicy): Promise<void>;
}

export interface SlotLimit {
  readonly type: SlotType;
  readonly key: string;
  readonly limit: number;
}

function limits(context: Context): readonly SlotLimit[] {
  const configured = Object.entries(context.settings.limits).flatMap(([type, keys]) =>
    Object.entries(keys).map(([key, limit]) => ({ type: type as SlotType, key, limit })),
  );
  const channels = context.store.channels.list().map(({ id, maxConcurrentRuns }) => ({
    type: 'channel_parallel' as const,
    key: id,
    limit: maxConcurrentRuns,
  }));
  return [...configured, ...channels];
}

/** What changes nothing. */
function questions(
  context: Context,
): Pick<
  Supervisor,
  | 'preview'
  | 'explain'
  | 'slotLimits'
  | 'slotLimit'
  | 'now'
  | 'openArtifact'
  | 'providers'
  | 'spend'
> {
  return {
    preview: (input, options) => preview(context, input, options),
    explain: (id) => explain(context, current(context, id)),
    slotLimits: () => limits(context),
    slotLimit: (type, key) => slotLimit(context, { type, key }),
    now: () => context.entropy.now(),
    openArtifact: (artifact) => openArtifact(context.settings, artifact),
    providers: () => providerStates(context),
    spend: {
      unit: (workUnit) => spendOfUnit(context, workUnit),
      channel: (id) => spendOfChannel(context, id),
      day: () => spendOfDay(context),
    },
  };
}

/** Another attempt would only be stopped again. @throws OutliveError `state_conflict`. */
function requireMoney(context: Context, id: string): void {
  const workUnit = current(context, id);
  const why = workUnit.status === 'failed' ? unitCeilingReached(context, workUnit) : null;
  if (why === null) return;
  throw new OutliveError(
    'state_conflict',
    `${workUnit.handle} may spend no more: ${why}. Submit it anew with a higher ceiling.`,
    { extra: { id, status: workUnit.status } },
  );
}

/** What ends work or starts it over; `hintOwner` tells the watch of a work unit's attempt. */
function endings(
  context: Context,
  hintOwner: (workUnitId: string) => void,
  wake: () => void,
): Pick<Supervisor, 'cancel' | 'interrupt' | 'retry'> {
  return {
    cancel: (id, request, key) => {
      const workUnit = unlessRepeated(context, id, () =>
        cancel(keyed(context, key, 'cancel', id), id, request),
      );
      hintOwner(id);
      wake(); // Who was kept waiting for it may go on.
      return workUnit;
    },
    interrupt: (id, request) => {
      const workUnit = interrupt(context, id, request);
      hintOwner(id);
      return workUnit;
    },
    retry: async (id, actor, key) => {
      const queue = async () => {
        const inside = keyed(context, key, 'retry', id);
        requireMoney(context, id);
        return retry(inside, id, actor);
      };
      const workUnit = await queue().catch((error: unknown) =>
        unlessRepeated(context, id, () => {
          throw error;
        }),
      );
      wake();
      return workUnit;
    },
  };
}

/** What opens and closes the way for queued work. */
function levers(
  context: Context,
  wake: () => void,
): Pick<Supervisor, 'resumeProvider' | 'setAdmission' | 'putChannel'> {
  return {
    resumeProvider: (name) => {
      resumeProvider(context, name);
      wake();
    },
    setAdmission: (admission) => {
      context.writer.commit(({ at }) => context.store.channels.setAdmission(admission, at));
      wake();
    },
    putChannel: (id, policy, ceiling) => {
      context.writer.commit(({ at }) => {
        context.store.channels.put(id, policy, at);
        context.store.spend.setChannelCeiling(id, ceiling);
        context.store.queue.wakeAll(); // A higher limit may let several start at once.
      });
      wake();
    },
  };
}

/** Takes work in, and tells whoever has to act on that. */
function intake(
  context: Context,
  scheduler: Scheduler,
  hint: (attemptId: string) => void,
): Supervisor['submit'] {
  return (input, options) => {
    const submission = submit(context, input, options);
    for (const attemptId of submission.superseded) hint(attemptId);
    if (submission.claim) scheduler.launch(submission.claim);
    else if (submission.created) scheduler.wake();
    return submission;
  };
}

const shuttingDown = (): OutliveError =>
  new OutliveError('shutting_down', 'The daemon is shutting down. Try again in a moment.');

export function createSupervisor(context: Context): Supervisor {
  const watches = new Map<string, AttemptWatch>();
  let closing = false;

  const watch = (attempt: AttemptRow, reattach: boolean): void => {
    if (closing) return; // The next daemon takes it up.
    const watched = watchAttempt(context, attempt, {
      reattach,
      onAttached: (row) => answers.attached(row),
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
  const watched = (unit: string): boolean =>
    [...watches.values()].some((watch) => watch.unit === unit);
  const stopReleasing = releaseLateStarts(context, watched);
  // A ceiling is crossed where events are stored; whoever ends the run has to hear of it.
  const unsubscribe = context.hub.subscribe((events) => {
    for (const { type, workUnitId } of events) {
      if (type === 'work_unit.cancelling') hintOwner(workUnitId);
      if (movesDependents(type)) scheduler.wake(); // Work that waits for it may go on.
    }
  });
  const scheduler = createScheduler(context, (attempt) => watch(attempt, false), hintOwner);

  const answers = createAnswers(context, {
    hintOwner,
    look: (attemptId) => watches.get(attemptId)?.tellDecision(),
    wake: () => scheduler.wake(),
  });

  const take = intake(context, scheduler, (attemptId) => watches.get(attemptId)?.hint());
  const judge = createJudge(context, take);

  return {
    start: () => {
      judge.start(); // Before the queue: what verifies goes before what waits.
      scheduler.start();
      answers.start();
    },
    decide: (id, request, key) => {
      if (closing) throw shuttingDown();
      return answers.decide(id, request, key);
    },
    submit: (input, options) => {
      if (closing) throw shuttingDown();
      return take(input, options);
    },
    ...questions(context),
    ...endings(context, hintOwner, () => scheduler.wake()),
    ...levers(context, () => scheduler.wake()),
    reconcile: (ids) =>
      reconcile(context, ids, { watches, attach: (attempt) => watch(attempt, true) }),
    attach: (attempt) => watch(attempt, true),
    live: (attemptId) => watches.get(attemptId)?.live ?? null,
    get watched() {
      return new Set([...watches.keys(), ...scheduler.launchingIds]);
    },
    get watching() {
      return watches.size + scheduler.launching;
    },
    close: async (policy = DETACH) => {
      closing = true;
      await Promise.all([judge.close(), answers.close()]);
      stopReleasing();
      unsubscribe();
      const resting = scheduler.close();
      // Who is being started is suspended like the others.
      if (policy.mode === 'suspend') await resting;
      await Promise.all([resting, letGo(context, watches, policy)]);
      await letGo(context, watches, DETACH);
    },
  };
}
