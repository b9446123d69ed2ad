/** Statements about work units. Rows are parsed on the way out. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { LEFTOVER_POLICIES, outcomeContractSchema } from '../domain/outcome.ts';
import { providerRetrySchema } from '../domain/provider-retry.ts';
import type { ResumeNote } from '../domain/resume.ts';
import { LOST_POLICIES, resumeNoteSchema } from '../domain/resume.ts';
import { SANDBOX_MODES } from '../domain/sandbox.ts';
import { spendCeilingSchema } from '../domain/spend.ts';
import { toolPolicySchema } from '../domain/tool-policy-schema.ts';
import type { Maker, WorkUnitStatus } from '../domain/work-unit.ts';
import {
  MAKERS,
  RUNNERS,
  timeoutPolicySchema,
  WORK_UNIT_KINDS,
  WORK_UNIT_STATUSES,
} from '../domain/work-unit.ts';
import { statementCache } from './statement-cache.ts';

const json = <Schema extends z.ZodType>(schema: Schema) =>
  z
    .string()
    .transform((text) => JSON.parse(text) as unknown)
    .pipe(schema);

/** The stored request: what the runner is to do, after defaults. */
export const storedRequestSchema = z.looseObject({
  runnerId: z.enum(RUNNERS),
  prompt: z.string().optional(),
  argv: z.array(z.string()).optional(),
  onLost: z.enum(LOST_POLICIES).optional(),
  toolPolicy: toolPolicySchema.optional(),
  providerRetry: providerRetrySchema.partial().optional(),
  spendCeiling: spendCeilingSchema.optional(),
  sandbox: z.enum(SANDBOX_MODES).optional(),
  exclusive: z.boolean().optional(),
  outcome: outcomeContractSchema.optional(),
  leftovers: z.enum(LEFTOVER_POLICIES).optional(),
  environment: z.record(z.string(), z.string()).optional(),
  environmentFiles: z.array(z.string()).optional(),
});
export type StoredRequest = z.infer<typeof storedRequestSchema>;

const rowSchema = z.object({
  id: z.string(),
  workspaceId: z.string(),
  handle: z.string(),
  kind: z.enum(WORK_UNIT_KINDS),
  ownerType: z.string(),
  ownerId: z.string(),
  channelId: z.string().nullable(),
  taskId: z.string().nullable(),
  teammateId: z.string().nullable(),
  providerPresetId: z.string().nullable(),
  externalSubject: z.string().nullable(),
  runnerId: z.enum(RUNNERS),
  idempotencyKey: z.string(),
  status: z.enum(WORK_UNIT_STATUSES),
  priority: z.int(),
  attemptCount: z.int(),
  activeAttemptId: z.string().nullable(),
  createdByClientId: z.string().nullable(),
  createdByActor: z.enum(MAKERS),
  request: json(storedRequestSchema),
  timeoutPolicy: json(timeoutPolicySchema),
  cwd: z.string(),
  model: z.string().nullable(),
  neverStartedCount: z.int(),
  neverStartedAt: z.string().nullable(),
  lastSeq: z.int(),
  createdAt: z.string(),
  updatedAt: z.string(),
  startedAt: z.string().nullable(),
  endedAt: z.string().nullable(),
  lastEventAt: z.string().nullable(),
  lastHeartbeatAt: z.string().nullable(),
  errorCode: z.string().nullable(),
  errorMessage: z.string().nullable(),
  /** What the next attempt is told of the one that was lost. */
  resume: json(resumeNoteSchema).nullable(),
  /** What a suspension left of the hard timeout, for the next attempt. */
  hardLeftMs: z.int().nullable(),
  /** The conversation it goes on with; its own when null. */
  conversation: z.string().nullable(),
});
export type WorkUnitRow = z.output<typeof rowSchema>;

/** As lists have it: without the request, which holds the prompt and may have megabytes. */
const listedSchema = rowSchema.omit({ request: true });
export type ListedWorkUnit = z.output<typeof listedSchema>;

const COLUMNS = `id, workspace_id AS workspaceId, handle, kind, owner_type AS ownerType,
  owner_id AS ownerId, channel_id AS channelId, task_id AS taskId, teammate_id AS teammateId,
  provider_preset_id AS providerPresetId, external_subject AS externalSubject, runner_id AS runnerId, idempotency_key AS idempotencyKey,
  status, priority, attempt_count AS attemptCount, active_attempt_id AS activeAttemptId,
  created_by_client_id AS createdByClientId, created_by_actor AS createdByActor,
  request_json AS request, timeout_policy_json AS timeoutPolicy, cwd, model,
  never_started_count AS neverStartedCount, never_started_at AS neverStartedAt, last_seq AS lastSeq, created_at AS createdAt,
  updated_at AS updatedAt, started_at AS startedAt, ended_at AS endedAt,
  last_event_at AS lastEventAt, last_heartbeat_at AS lastHeartbeatAt,
  error_code AS errorCode, error_message AS errorMessage, resume_json AS resume, hard_left_ms AS hardLeftMs, conversation`;

const LISTED_COLUMNS = COLUMNS.replace('request_json AS request, ', '');

/** What a new row needs; the rest has defaults or comes later. */
export interface NewWorkUnit {
  readonly id: string;
  readonly workspaceId: string;
  readonly handle: string;
  readonly kind: string;
  readonly ownerType: string;
  readonly ownerId: string;
  readonly runnerId: string;
  readonly idempotencyKey: string;
  readonly priority: number;
  readonly createdByClientId: string | null;
  readonly createdByActor: Maker;
  readonly requestJson: string;
  readonly timeoutPolicyJson: string;
  readonly cwd: string;
  readonly model: string | null;
  readonly channelId: string | null;
  readonly taskId: string | null;
  readonly teammateId: string | null;
  readonly providerPresetId: string | null;
  readonly externalSubject: string | null;
  readonly conversation: string | null;
  readonly at: string;
}

/** What makes a request the same request. */
export interface IdempotencyKey {
  readonly workspaceId: string;
  readonly kind: string;
  readonly ownerType: string;
  readonly ownerId: string;
  readonly idempotencyKey: string;
}

/** Columns a transition may set; undefined leaves a column as it is. */
export interface WorkUnitPatch {
  readonly activeAttemptId?: string | null;
  readonly attemptCount?: number;
  readonly neverStartedCount?: number;
  readonly neverStartedAt?: string;
  readonly startedAt?: string;
  readonly endedAt?: string | null;
  readonly errorCode?: string | null;
  readonly errorMessage?: string | null;
  readonly resume?: ResumeNote | null;
  readonly hardLeftMs?: number | null;
}

const PATCH_COLUMNS: Readonly<Record<keyof WorkUnitPatch, string>> = {
  activeAttemptId: 'active_attempt_id',
  attemptCount: 'attempt_count',
  neverStartedCount: 'never_started_count',
  neverStartedAt: 'never_started_at',
  startedAt: 'started_at',
  endedAt: 'ended_at',
  errorCode: 'error_code',
  errorMessage: 'error_message',
  resume: 'resume_json',
  hardLeftMs: 'hard_left_ms',
};

export interface ListFilter {
  readonly activeOnly: boolean;
  readonly status: WorkUnitStatus | null;
  /** Rows created before this id (ids sort by time), newest first. */
  readonly beforeId: string | null;
  readonly limit: number;
}

export type WorkUnits = ReturnType<typeof workUnitStatements>;

function reads(db: Database, workspace: string) {
  const byId = db.prepare<[string]>(`SELECT ${COLUMNS} FROM work_units WHERE id = ?`);
  const statusOf = db.prepare<[string], { status: WorkUnitStatus }>(
    'SELECT status FROM work_units WHERE id = ?',
  );
  const byHandle = db.prepare<[string, string]>(`SELECT ${COLUMNS} FROM work_units
    WHERE workspace_id = ? AND handle = ?
    ORDER BY status IN ('succeeded', 'failed', 'cancelled'), created_at DESC, id DESC LIMIT 1`);
  const byKey = db.prepare<IdempotencyKey>(`SELECT ${COLUMNS} FROM work_units
    WHERE workspace_id = @workspaceId AND kind = @kind AND owner_type = @ownerType
      AND owner_id = @ownerId AND idempotency_key = @idempotencyKey`);
  const nextQueued = db.prepare<[string]>(`SELECT ${COLUMNS} FROM work_units
    WHERE workspace_id = ? AND status = 'queued' ORDER BY priority DESC, created_at, rowid LIMIT 1`);
  const active = db.prepare<[string]>(`SELECT ${LISTED_COLUMNS} FROM work_units
    WHERE workspace_id = ? AND status IN
      ('claimed', 'running', 'waiting_for_approval', 'cancelling', 'stale') ORDER BY id`);
  const bySubject = db.prepare<[string, string]>(`SELECT ${COLUMNS} FROM work_units
    WHERE workspace_id = ? AND external_subject = ?
      AND status NOT IN ('succeeded', 'failed', 'cancelled') ORDER BY created_at, id`);
  const spoken = db.prepare<[string, string]>(`SELECT 1 FROM work_units
    WHERE workspace_id = ? AND conversation = ? AND status = 'succeeded' LIMIT 1`);
  const list = db.prepare<
    Record<string, string | number | null>
  >(`SELECT ${LISTED_COLUMNS} FROM work_units
    WHERE workspace_id = @workspace
      AND (@beforeId IS NULL OR id < @beforeId)
      AND (@status IS NULL OR status = @status)
      AND (@activeOnly = 0 OR status NOT IN ('succeeded', 'failed', 'cancelled'))
    ORDER BY id DESC LIMIT @limit`);
  const one = (row: unknown): WorkUnitRow | null =>
    row === undefined ? null : rowSchema.parse(row);
  const many = (rows: readonly unknown[]): WorkUnitRow[] => rows.map((row) => rowSchema.parse(row));
  const listed = (rows: readonly unknown[]): ListedWorkUnit[] =>
    rows.map((row) => listedSchema.parse(row));

  return {
    get: (id: string): WorkUnitRow | null => one(byId.get(id)),
    statusOf: (id: string): WorkUnitStatus | null => statusOf.get(id)?.status ?? null,
    /** The live one of this handle, else the newest. */
    getByHandle: (handle: string): WorkUnitRow | null => one(byHandle.get(workspace, handle)),
    getByKey: (key: IdempotencyKey): WorkUnitRow | null => one(byKey.get(key)),
    /** Whether work that shares a conversation has left something in it. */
    hasSpoken: (conversation: string): boolean => spoken.get(workspace, conversation) !== undefined,
    /** By priority, then age. */
    nextQueued: (): WorkUnitRow | null => one(nextQueued.get(workspace)),
    /** Live work about an external subject, oldest first. */
    listBySubject: (subject: string): WorkUnitRow[] => many(bySubject.all(workspace, subject)),
    /** All that is neither queued nor ended, oldest first. */
    listActive: (): ListedWorkUnit[] => listed(active.all(workspace)),
    list: ({ activeOnly, ...filter }: ListFilter): ListedWorkUnit[] =>
      listed(list.all({ workspace, activeOnly: activeOnly ? 1 : 0, ...filter })),
  };
}

/** Compare-and-set: only the row that is still in `from` under `activeAttemptId`. */
function move(
  prepared: ReturnType<typeof statementCache>,
  expected: Pick<WorkUnitRow, 'id' | 'status' | 'activeAttemptId'>,
  to: WorkUnitStatus,
  patch: WorkUnitPatch,
  at: string,
): boolean {
  const keys = (Object.keys(patch) as (keyof WorkUnitPatch)[]).filter(
    (key) => patch[key] !== undefined,
  );
  const sets = keys.map((key) => `, ${PATCH_COLUMNS[key]} = @${key}`).join('');
  const result = prepared(`UPDATE work_units SET status = @to, updated_at = @at${sets}
    WHERE id = @id AND status = @from AND active_attempt_id IS @expectedAttempt`).run({
    ...bound(patch),
    to,
    at,
    id: expected.id,
    from: expected.status,
    expectedAttempt: expected.activeAttemptId,
  });
  return result.changes === 1;
}

/** Sets columns that are no transition. */
function patchRow(
  prepared: ReturnType<typeof statementCache>,
  id: string,
  patch: WorkUnitPatch,
  at: string,
): void {
  const keys = (Object.keys(patch) as (keyof WorkUnitPatch)[]).filter(
    (key) => patch[key] !== undefined,
  );
  const sets = keys.map((key) => `, ${PATCH_COLUMNS[key]} = @${key}`).join('');
  prepared(`UPDATE work_units SET updated_at = @at${sets} WHERE id = @id`).run({
    ...bound(patch),
    at,
    id,
  });
}

/** Structured columns are stored as JSON. */
const bound = ({ resume, ...plain }: WorkUnitPatch): Record<string, string | number | null> => ({
  ...plain,
  ...(resume === undefined ? {} : { resume: resume && JSON.stringify(resume) }),
});

function writes(db: Database) {
  const prepared = statementCache(db);
  const insert = db.prepare<NewWorkUnit>(`INSERT INTO work_units
    (id, workspace_id, handle, kind, owner_type, owner_id, runner_id, idempotency_key, status,
     priority, created_by_client_id, created_by_actor, request_json, timeout_policy_json, cwd,
     model, channel_id, task_id, teammate_id, provider_preset_id, external_subject, conversation,
     created_at, updated_at)
    VALUES (@id, @workspaceId, @handle, @kind, @ownerType, @ownerId, @runnerId, @idempotencyKey,
     'queued', @priority, @createdByClientId, @createdByActor, @requestJson, @timeoutPolicyJson,
     @cwd, @model, @channelId, @taskId, @teammateId, @providerPresetId, @externalSubject, @conversation,
     @at, @at)`);
  const touchEvent = db.prepare<[string, string]>(
    'UPDATE work_units SET last_event_at = ? WHERE id = ?',
  );
  const touchHeartbeat = db.prepare<[string, string]>(
    'UPDATE work_units SET last_heartbeat_at = ? WHERE id = ?',
  );
  return {
    insert: (row: NewWorkUnit): void => {
      insert.run(row);
    },
    /** @returns false when the row is another one by now; then nothing was written. */
    move: (
      expected: Pick<WorkUnitRow, 'id' | 'status' | 'activeAttemptId'>,
      to: WorkUnitStatus,
      patch: WorkUnitPatch,
      at: string,
    ): boolean => move(prepared, expected, to, patch, at),
    patch: (id: string, patch: WorkUnitPatch, at: string): void =>
      patchRow(prepared, id, patch, at),
    touchEvent: (id: string, at: string): void => {
      touchEvent.run(at, id);
    },
    touchHeartbeat: (id: string, at: string): void => {
      touchHeartbeat.run(at, id);
    },
  };
}

/** All statements about work units of one workspace. */
export function workUnitStatements(db: Database, workspace: string) {
  return { ...reads(db, workspace), ...writes(db) };
}
