/** What the API says of the workspace as a whole: diagnostics, resources, admission, reconcile. */
import { z } from 'zod';
import { EVENT_DOMAINS } from '../domain/events.ts';
import { shortText } from '../domain/request.ts';
import {
  ADMISSIONS,
  CHANNEL_STATUSES,
  LEASE_TYPES,
  SLOT_TYPES,
  SUBJECT_POLICIES,
} from '../domain/resources.ts';
import { spendCeilingSchema } from '../domain/spend.ts';
import { MAKERS, RUNNERS, WORK_UNIT_KINDS, WORK_UNIT_STATUSES } from '../domain/work-unit.ts';
import {
  eventViewSchema,
  liveSchema,
  page,
  runtimeViewSchema,
  takeoverViewSchema,
  whole,
} from './schemas.ts';
import { spendViewSchema } from './schemas-provider.ts';

const time = z.iso.datetime();
/** Milliseconds, by the daemon's clock. */
const age = z.int().min(0);

const activeFields = {
  workUnitId: z.string(),
  handle: z.string(),
  kind: z.enum(WORK_UNIT_KINDS),
  status: z.enum(WORK_UNIT_STATUSES),
  ownerType: z.string(),
  ownerId: z.string(),
  createdByActor: z.enum(MAKERS),
  /** The client that asked for it, as it named itself. */
  createdByClientId: z.string().nullable(),
  channelId: z.string().nullable(),
  runnerId: z.enum(RUNNERS),
  providerPresetId: z.string().nullable(),
  attemptId: z.string().nullable(),
  attemptNumber: z.int().nullable(),
  unit: z.string().nullable(),
  runtimeInstanceId: z.string().nullable(),
  startedAt: time.nullable(),
  /** Since it was created. */
  ageMs: age,
  lastEventAgeMs: age.nullable(),
  lastHeartbeatAgeMs: age.nullable(),
  idleTimeoutMs: z.int(),
  /** Held now, each as `type key`. */
  leases: z.array(z.string()),
  slots: z.array(z.string()),
  canCancel: z.boolean(),
  /** A stale one is first proved to run no more. */
  canRetry: z.boolean(),
  /** It has an attempt whose unit can be looked at afresh. */
  canReconcile: z.boolean(),
  live: liveSchema.nullable(),
};

export const activeViewSchema = z.object(activeFields);
export type ActiveView = z.infer<typeof activeViewSchema>;
export const activePageSchema = page(activeViewSchema);
export type ActivePage = z.infer<typeof activePageSchema>;

export const STUCK_REASONS = ['silent', 'stale', 'cancel_overdue'] as const;
export const stuckViewSchema = z.object({
  ...activeFields,
  why: z.enum(STUCK_REASONS),
  reason: z.string(),
});
export type StuckView = z.infer<typeof stuckViewSchema>;
export const stuckPageSchema = page(stuckViewSchema);
export type StuckPage = z.infer<typeof stuckPageSchema>;

export const leaseViewSchema = z.object({
  id: z.string(),
  resourceType: z.enum(LEASE_TYPES),
  resourceKey: z.string(),
  /** `suspect`: not renewed in time; its owner is looked at before anybody else gets it. */
  status: z.string(),
  workUnitId: z.string(),
  handle: z.string(),
  attemptId: z.string(),
  acquiredAt: time,
  lastRenewedAt: time,
  expiresAt: time,
  heldMs: age,
  expired: z.boolean(),
});
export type LeaseView = z.infer<typeof leaseViewSchema>;
export const leasePageSchema = page(leaseViewSchema);
export type LeasePage = z.infer<typeof leasePageSchema>;

export const semaphoreViewSchema = z.object({
  resourceType: z.enum(SLOT_TYPES),
  resourceKey: z.string(),
  /** Null for any number. */
  limit: z.int().nullable(),
  used: z.int(),
  holders: z.array(
    z.object({
      id: z.string(),
      workUnitId: z.string(),
      handle: z.string(),
      attemptId: z.string(),
      acquiredAt: time,
      lastRenewedAt: time,
    }),
  ),
});
export type SemaphoreView = z.infer<typeof semaphoreViewSchema>;
export const semaphorePageSchema = page(semaphoreViewSchema);
export type SemaphorePage = z.infer<typeof semaphorePageSchema>;

export const supervisorViewSchema = z.object({
  runtime: runtimeViewSchema,
  /** Position of the newest event: follow /events from here to miss nothing after this answer. */
  position: z.int(),
  admission: z.enum(ADMISSIONS),
  /** Work units by status. */
  counts: z.record(z.enum(WORK_UNIT_STATUSES), z.int()),
  queue: z.object({
    queued: z.int(),
    blocked: z.int(),
    /** When the earliest delayed work may start, null when none is delayed. */
    nextDueAt: time.nullable(),
  }),
  /** Attempts this daemon watches or launches. */
  watching: z.int(),
  /** What queued work waits for, longest first; at most 100. */
  blockers: z.array(
    z.object({ resource: z.string(), waiting: z.int(), since: time, waitedMs: age }),
  ),
  /** Queued work whose last starts ran nothing, soonest first; at most 100. */
  backingOff: z.array(
    z.object({
      workUnitId: z.string(),
      handle: z.string(),
      /** Starts in a row that ran nothing; at `limit` the work fails. */
      starts: z.int(),
      limit: z.int(),
      until: time,
    }),
  ),
  /** The report of the last recovery, as it was stored. */
  recovery: z.record(z.string(), z.unknown()).nullable(),
  /** The newest takeovers from dead daemons, newest first; at most 10. */
  takeovers: z.array(takeoverViewSchema).default([]),
});
export type SupervisorView = z.infer<typeof supervisorViewSchema>;

export const admissionViewSchema = z.object({
  admission: z.enum(ADMISSIONS),
  activeAttempts: z.int(),
  queued: z.int(),
});
export type AdmissionView = z.infer<typeof admissionViewSchema>;

export const reconcileReportSchema = z.object({
  at: time,
  runtimeInstanceId: z.string(),
  items: z.array(
    z.object({
      workUnitId: z.string(),
      handle: z.string(),
      unit: z.string().nullable(),
      before: z.enum(WORK_UNIT_STATUSES),
      after: z.enum(WORK_UNIT_STATUSES),
      /** `looked`: its unit was read; `taken_up`: nobody watched it, now somebody does; `nothing_runs`: it has no attempt. */
      action: z.enum(['looked', 'taken_up', 'nothing_runs']),
    }),
  ),
  nextCursor: z.null(),
});
export type ReconcileView = z.infer<typeof reconcileReportSchema>;

/** A command without any input: no body, or an empty object. */
export const nothingSchema = z.strictObject({}).nullish();

export const attemptParamsSchema = z.strictObject({ id: z.string().min(1).max(128) });
export const channelParamsSchema = z.strictObject({ id: shortText });

/** Body of PUT /channels/:id. What is left out stays as it is; a new channel gets the defaults. */
export const channelPolicySchema = z.strictObject({
  status: z.enum(CHANNEL_STATUSES).optional(),
  maxConcurrentRuns: z.int().min(1).max(1000).optional(),
  onNewerSubject: z.enum(SUBJECT_POLICIES).optional(),
  /** Ceilings for one local calendar day; null takes one away. */
  maxCostUsdPerDay: spendCeilingSchema.shape.maxCostUsd.nullable(),
  maxTokensPerDay: spendCeilingSchema.shape.maxTokens.nullable(),
});
export type ChannelPolicyInput = z.input<typeof channelPolicySchema>;

export const channelViewSchema = z.object({
  id: z.string(),
  status: z.enum(CHANNEL_STATUSES),
  maxConcurrentRuns: z.int(),
  onNewerSubject: z.enum(SUBJECT_POLICIES),
  running: z.int(),
  queued: z.int(),
  /** Today. */
  spend: spendViewSchema,
  createdAt: time,
  updatedAt: time,
});
export type ChannelView = z.infer<typeof channelViewSchema>;
export const channelPageSchema = page(channelViewSchema);
export type ChannelPage = z.infer<typeof channelPageSchema>;

const domainsSchema = z
  .string()
  .max(500)
  .transform((text) => text.split(','))
  .pipe(z.array(z.enum(EVENT_DOMAINS)).min(1));

/** Query of GET /events. `domains` leaves the events of all others out. With Accept: text/event-stream it streams instead of paging. */
export const workspaceEventsQuerySchema = z.strictObject({
  afterPosition: whole(0, Number.MAX_SAFE_INTEGER).default(0),
  limit: whole(1, 5000).default(1000),
  domains: domainsSchema.optional(),
});

/** What a replay covers: every event after `afterPosition` up to `upTo`, none left out. */
export const replayWindowSchema = z.object({
  runtimeInstanceId: z.string(),
  afterPosition: z.int(),
  upTo: z.int(),
  /** The oldest cursor that can still be replayed from. */
  floor: z.int(),
  /** Events in the window. */
  events: z.int(),
});
export type ReplayWindow = z.infer<typeof replayWindowSchema>;

export const workspaceEventPageSchema = z.object({
  items: z.array(eventViewSchema),
  nextCursor: z.string().nullable(),
  window: replayWindowSchema,
});
export type WorkspaceEventPage = z.infer<typeof workspaceEventPageSchema>;
