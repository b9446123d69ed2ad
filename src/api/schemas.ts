/**
 * The API's vocabulary: what goes over the wire, shared by server and clients.
 *
 * A client may import this file and the domain, and nothing else of the daemon.
 * Absent values are null, never missing, so that a reader sees what there could be.
 */
import { z } from 'zod';
import { DEPENDENCY_STATES } from '../domain/dependencies.ts';
import { eventTypeSchema } from '../domain/events.ts';
import { exitRecordSchema } from '../domain/evidence.ts';
import { handleSchema } from '../domain/names.ts';
import { OUTCOME_REASONS, OUTCOME_STATES, type OutcomeReason } from '../domain/outcome.ts';
import { lastWordSchema } from '../domain/spool.ts';
import {
  ACTORS,
  ATTEMPT_STATUSES,
  MAKERS,
  RUNNERS,
  timeoutPolicySchema,
  WORK_UNIT_KINDS,
  WORK_UNIT_STATUSES,
} from '../domain/work-unit.ts';

import { spendViewSchema } from './schemas-provider.ts';

const time = z.iso.datetime();

export type { StartWorkUnit, StartWorkUnitInput } from '../domain/request.ts';
export { startWorkUnitSchema } from '../domain/request.ts';

/** Largest body; leaves room above the largest prompt, escaped. */
export const BODY_MAX_BYTES = 25 * 1024 * 1024;

/** Header that carries an idempotency key; it wins over the one in the body. */
export const IDEMPOTENCY_HEADER = 'idempotency-key';
/** On answers with events: the epoch their numbers are of. */
export const EPOCH_HEADER = 'outlive-epoch';

/** Body of POST /work-units/:id/cancel. */
export const cancelSchema = z.strictObject({ reason: z.string().max(1000).optional() });
export type CancelInput = z.input<typeof cancelSchema>;

export const attemptViewSchema = z.object({
  id: z.string(),
  workUnitId: z.string(),
  attemptNumber: z.int(),
  runtimeInstanceId: z.string(),
  runnerId: z.enum(RUNNERS),
  providerPresetId: z.string().nullable(),
  status: z.enum(ATTEMPT_STATUSES),
  createdAt: time,
  startedAt: time.nullable(),
  endedAt: time.nullable(),
  lastEventAt: time.nullable(),
  lastHeartbeatAt: time.nullable(),
  abortRequestedAt: time.nullable(),
  errorCode: z.string().nullable(),
  errorMessage: z.string().nullable(),
  /** The lost attempt this one goes on from, null when it is none. */
  resumesAttemptId: z.string().nullable(),
  /** The systemd unit; `systemctl --user status <unit>` shows it while it lives. */
  unit: z.string(),
  invocationId: z.string().nullable(),
  bootId: z.string().nullable(),
  controlGroup: z.string().nullable(),
  executor: z.enum(['systemd', 'direct']),
  /** How often a new daemon found this attempt alive and took it up again. */
  reattached: z.int(),
  /** The exit record, once there is one. */
  exit: exitRecordSchema.nullable(),
  /** The runner's last word, once there is one. */
  result: lastWordSchema.nullable(),
  /** Number of the rule that decided the outcome (docs/concepts.md), null while it lives. */
  decidedByRule: z.int().nullable(),
});
export type AttemptView = z.infer<typeof attemptViewSchema>;

export const liveSchema = z.object({
  currentTool: z.string().nullable(),
  costUsd: z.number().nullable(),
  totalTokens: z.number().nullable(),
});

/** What a work unit waits for, or waited for. */
export const dependencyViewSchema = z.object({
  workUnitId: z.string(),
  handle: z.string(),
  /** `failed` is as it stands: another attempt of it may still satisfy. */
  state: z.enum(DEPENDENCY_STATES),
});
/** What was found of what it had to leave behind. */
export const outcomeViewSchema = z.object({
  /** `pending` until it was looked at; it says nothing of how the process ended. */
  state: z.enum(OUTCOME_STATES),
  /** Why it is not satisfied. */
  code: z.enum(Object.keys(OUTCOME_REASONS) as [OutcomeReason, ...OutcomeReason[]]).nullable(),
  message: z.string().nullable(),
  /** Id of the work unit that verifies, once there is one. */
  verify: z.string().nullable(),
  /** The JSON that was returned and that its schema accepted; null where there is none. */
  result: z.unknown(),
});
export type OutcomeView = z.infer<typeof outcomeViewSchema>;

export const workUnitViewSchema = z.object({
  id: z.string(),
  workspaceId: z.string(),
  handle: handleSchema,
  kind: z.enum(WORK_UNIT_KINDS),
  ownerType: z.string(),
  ownerId: z.string(),
  channelId: z.string().nullable(),
  taskId: z.string().nullable(),
  teammateId: z.string().nullable(),
  providerPresetId: z.string().nullable(),
  /** What outside outlive it is about. */
  externalSubject: z.string().nullable(),
  runnerId: z.enum(RUNNERS),
  idempotencyKey: z.string(),
  status: z.enum(WORK_UNIT_STATUSES),
  priority: z.int(),
  attemptCount: z.int(),
  activeAttemptId: z.string().nullable(),
  createdByClientId: z.string().nullable(),
  createdByActor: z.enum(MAKERS),
  createdAt: time,
  updatedAt: time,
  startedAt: time.nullable(),
  endedAt: time.nullable(),
  lastEventAt: time.nullable(),
  lastHeartbeatAt: time.nullable(),
  idleTimeoutMs: z.int(),
  hardTimeoutMs: z.int(),
  timeoutPolicy: timeoutPolicySchema,
  errorCode: z.string().nullable(),
  errorMessage: z.string().nullable(),
  /** Of the newest end; null before there is one, and for work that declared none. */
  outcome: outcomeViewSchema.nullable().default(null),
  cwd: z.string(),
  model: z.string().nullable(),
  after: z.array(dependencyViewSchema).default([]),
  /** How many of them have to be satisfied before it starts; null when it waits for none. */
  afterNeeded: z.int().nullable().default(null),
  /** Of all attempts together, as far as their messages were stored. */
  spend: spendViewSchema,
  /** Live figures from the wrapper, null when nothing runs or nothing was heard. */
  live: liveSchema.nullable(),
  attempts: z.array(attemptViewSchema),
});
export type WorkUnitView = z.infer<typeof workUnitViewSchema>;

export const eventViewSchema = z.object({
  id: z.string(),
  workUnitId: z.string(),
  attemptId: z.string().nullable(),
  /** Rises by one within a work unit, without gap. */
  seq: z.int(),
  /** Rises over the whole workspace; not interchangeable with seq. */
  position: z.int(),
  ts: time,
  type: eventTypeSchema,
  actor: z.enum(ACTORS),
  data: z.record(z.string(), z.unknown()),
});
export type EventView = z.infer<typeof eventViewSchema>;

export const page = <Item extends z.ZodType>(item: Item) =>
  z.object({ items: z.array(item), nextCursor: z.string().nullable() });

export const workUnitPageSchema = page(workUnitViewSchema);
export type WorkUnitPage = z.infer<typeof workUnitPageSchema>;
export const eventPageSchema = page(eventViewSchema);
export type EventPage = z.infer<typeof eventPageSchema>;

/** A number in a query: digits only, where Number() would also take nothing, blanks and 0x1. */
export const whole = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.int().min(min).max(max));

/** Query of GET /work-units. `active=true` leaves out what has ended. */
export const listQuerySchema = z.strictObject({
  active: z.enum(['true', 'false']).default('false'),
  status: z.enum(WORK_UNIT_STATUSES).optional(),
  limit: whole(1, 1000).default(100),
  cursor: z.string().max(200).optional(),
});

/** Query of GET /work-units/:id/events. With Accept: text/event-stream it streams instead of paging. */
export const eventsQuerySchema = z.strictObject({
  afterSeq: whole(0, Number.MAX_SAFE_INTEGER).default(0),
  limit: whole(1, 5000).default(1000),
  /** The store epoch the cursor is of, when the client knows it. */
  epoch: z.string().max(64).optional(),
});

/** `:id` is a work unit's id or its handle (the live one, else the newest). */
export const workUnitParamsSchema = z.strictObject({ id: z.string().min(1).max(4096) });

/** A takeover from a daemon that died. */
export const takeoverViewSchema = z.object({
  at: time,
  /** Who took over. */
  runtimeInstanceId: z.string(),
  previousInstanceId: z.string(),
  previousPid: z.int(),
  previousStartedAt: z.string(),
  previousVersion: z.string(),
  /** How it was known to be dead: its kernel lock was free. */
  evidence: z.literal('kernel_lock_free'),
});

export const runtimeViewSchema = z.object({
  /** Another one after every restore of the store: cursors of an earlier one are void. */
  storeEpoch: z.string().optional(),
  runtimeInstanceId: z.string(),
  workspaceId: z.string(),
  /** `degraded` names what is away in `problems`; attempts are unaffected. */
  status: z.enum(['ready', 'degraded', 'stopping']),
  problems: z.array(z.string()),
  startedAt: time,
  schemaVersion: z.int(),
  version: z.string(),
  pid: z.int(),
  executor: z.enum(['systemd', 'direct']),
  /** Path of the unix socket. */
  socket: z.string(),
  host: z.string().nullable(),
  port: z.int().nullable(),
  activeAttempts: z.int(),
  /** The dead daemon this one took over from; null where the one before ended in order. */
  tookOver: takeoverViewSchema.nullable().default(null),
});
export type RuntimeView = z.infer<typeof runtimeViewSchema>;

/** application/problem+json (RFC 9457). */
export const problemSchema = z.object({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  code: z.string(),
  detail: z.string(),
  errors: z.array(z.object({ path: z.string(), message: z.string() })),
  extra: z.record(z.string(), z.unknown()).optional(),
});
export type Problem = z.infer<typeof problemSchema>;
