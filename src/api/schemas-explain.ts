/** What the API says about one work unit beyond its state: why, what would be, and runs as streams. */
import { z } from 'zod';
import { startWorkUnitSchema } from '../domain/request.ts';
import { ATTEMPT_STATUSES, WORK_UNIT_STATUSES } from '../domain/work-unit.ts';
import { workUnitViewSchema } from './schemas.ts';
import { spendViewSchema } from './schemas-provider.ts';

const time = z.iso.datetime();
const namedValueSchema = z.object({ name: z.string(), value: z.string() });

export const WAITING_REASONS = ['admission', 'delayed', 'blocked', 'in_line'] as const;

const waitingSchema = z.object({
  why: z.enum(WAITING_REASONS),
  /** A sentence for a person. */
  reason: z.string(),
  since: time,
  /** The resource whose release it waits for. */
  resource: z.string().nullable(),
  /** Handle of the work unit in the way, where there is one. */
  heldBy: z.string().nullable(),
  /** Earliest start, when it is delayed. */
  nextStartAt: time.nullable(),
});

const attemptReasonSchema = z.object({
  attemptId: z.string(),
  attemptNumber: z.int(),
  unit: z.string(),
  status: z.enum(ATTEMPT_STATUSES),
  startedAt: time.nullable(),
  endedAt: time.nullable(),
  errorCode: z.string().nullable(),
  errorMessage: z.string().nullable(),
  /** The rule that decided its outcome, null while it lives. */
  rule: z.object({ number: z.int(), when: z.string() }).nullable(),
  /** What was known when it was decided; for one that lives, what is known now. */
  evidence: z.array(namedValueSchema),
});

export const explanationSchema = z.object({
  workUnitId: z.string(),
  handle: z.string(),
  status: z.enum(WORK_UNIT_STATUSES),
  /** One sentence. */
  summary: z.string(),
  /** Null unless it is queued. */
  waiting: waitingSchema.nullable(),
  /** Spent by all attempts together, of what they may. */
  spend: spendViewSchema,
  attempts: z.array(attemptReasonSchema),
  canCancel: z.boolean(),
  canRetry: z.boolean(),
});
export type Explanation = z.infer<typeof explanationSchema>;

/** Query of POST /work-units. */
export const startQuerySchema = z.strictObject({
  /** Validates as a real submit does, stores nothing, and answers what would be started. */
  dryRun: z.enum(['true', 'false']).default('false'),
});

export const dryRunSchema = z.object({
  dryRun: z.literal(true),
  /** As it would be; its ids are made anew by the real submit. */
  workUnit: workUnitViewSchema,
  /** False when the idempotency key already stands for this very work unit. */
  created: z.boolean(),
  /** What it would wait for; null when it would start at once. */
  waiting: waitingSchema.nullable(),
  /** Handles of live work that would be cancelled for it. */
  supersedes: z.array(z.string()),
  /** Everything systemd would be given for its unit. */
  unit: z.object({ name: z.string(), properties: z.array(namedValueSchema) }),
});
export type DryRun = z.infer<typeof dryRunSchema>;

const [piSchema, commandSchema] = startWorkUnitSchema.options;
const runFields = {
  kind: z.literal('task_run').default('task_run'),
  ownerId: piSchema.shape.ownerId.default('local'),
};
/** Body of POST /runs: as for POST /work-units, but a prompt alone is enough. */
export const runSchema = z.discriminatedUnion('runnerId', [
  piSchema.extend({ ...runFields, runnerId: z.literal('pi').optional() }),
  commandSchema.extend(runFields),
]);
export type RunInput = z.input<typeof runSchema>;

/** Data of the first frame of POST /runs (`event: run`). */
export const runStartedSchema = z.object({
  runId: z.string(),
  workUnitId: z.string(),
  handle: z.string(),
  created: z.boolean(),
});
export type RunStarted = z.infer<typeof runStartedSchema>;
