/** Statements about attempts, their heartbeats and the unit counters. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import type { Intent, ManagerInstance, StartProblem } from '../domain/evidence.ts';
import { exitRecordSchema, managerInstanceSchema, startProblemSchema } from '../domain/evidence.ts';
import { lastWordSchema, openedSchema } from '../domain/spool.ts';
import type { AttemptStatus } from '../domain/work-unit.ts';
import { ATTEMPT_STATUSES, RUNNERS } from '../domain/work-unit.ts';
import { statementCache } from './statement-cache.ts';

const json = <Schema extends z.ZodType>(schema: Schema) =>
  z
    .string()
    .nullable()
    .transform((text) => (text === null ? null : (JSON.parse(text) as unknown)))
    .pipe(schema.nullable());

const rowSchema = z.object({
  id: z.string(),
  workUnitId: z.string(),
  attemptNumber: z.int(),
  runtimeInstanceId: z.string(),
  runnerId: z.enum(RUNNERS),
  providerPresetId: z.string().nullable(),
  status: z.enum(ATTEMPT_STATUSES),
  unit: z.string(),
  nonce: z.string(),
  executor: z.enum(['systemd', 'direct']),
  invocationId: z.string().nullable(),
  controlGroup: z.string().nullable(),
  bootId: z.string().nullable(),
  manager: json(managerInstanceSchema),
  reattached: z.int(),
  spoolOffset: z.int(),
  spoolLines: z.int(),
  opened: json(openedSchema),
  saidDeadline: z.int().transform((value) => value === 1),
  toldToStop: z.int().transform((value) => value === 1),
  lastWord: json(lastWordSchema),
  intent: json(z.custom<Intent>()),
  startProblem: json(startProblemSchema),
  exit: json(exitRecordSchema),
  decidedByRule: z.int().nullable(),
  createdAt: z.string(),
  startedAt: z.string().nullable(),
  endedAt: z.string().nullable(),
  lastEventAt: z.string().nullable(),
  lastHeartbeatAt: z.string().nullable(),
  abortRequestedAt: z.string().nullable(),
  errorCode: z.string().nullable(),
  errorMessage: z.string().nullable(),
  /** The lost attempt this one goes on from. */
  resumesAttemptId: z.string().nullable(),
  /** Its own hard timeout, where it is not its work unit's: what an earlier one left. */
  hardTimeoutMs: z.int().nullable(),
  /** The conversation it goes on with, where that is not its work unit's own. */
  conversation: z.string().nullable(),
  /** How long it has waited for a person, the present wait not counted. */
  waitedMs: z.int(),
  waitingSince: z.string().nullable(),
  /** Whether its spool is gone, or shorter than what was read of it: what follows is not seen. */
  spoolCut: z.int().transform((value) => value === 1),
});
export type AttemptRow = z.output<typeof rowSchema>;

const COLUMNS = `id, work_unit_id AS workUnitId, attempt_number AS attemptNumber,
  runtime_instance_id AS runtimeInstanceId, runner_id AS runnerId,
  provider_preset_id AS providerPresetId, status, unit, nonce, executor,
  invocation_id AS invocationId, control_group AS controlGroup, boot_id AS bootId,
  manager_json AS manager, reattached, spool_offset AS spoolOffset, spool_lines AS spoolLines,
  opened_json AS opened, said_deadline AS saidDeadline, told_to_stop AS toldToStop,
  last_word_json AS lastWord, intent_json AS intent, start_problem_json AS startProblem, exit_json AS exit,
  decided_by_rule AS decidedByRule, created_at AS createdAt, started_at AS startedAt,
  ended_at AS endedAt, last_event_at AS lastEventAt, last_heartbeat_at AS lastHeartbeatAt,
  abort_requested_at AS abortRequestedAt, error_code AS errorCode, error_message AS errorMessage,
  resumes_attempt_id AS resumesAttemptId, hard_timeout_ms AS hardTimeoutMs,
  conversation,
  waited_ms AS waitedMs, waiting_since AS waitingSince,
  spool_cut AS spoolCut`;

/** How far the spool of an attempt is in the store; read for every few lines of it. */
export interface SpoolPosition {
  readonly id: string;
  readonly workUnitId: string;
  readonly spoolOffset: number;
  readonly spoolLines: number;
  readonly lastWordSeen: boolean;
}

export interface NewAttempt {
  readonly id: string;
  readonly workUnitId: string;
  readonly attemptNumber: number;
  readonly runtimeInstanceId: string;
  readonly runnerId: string;
  readonly providerPresetId: string | null;
  readonly unit: string;
  readonly nonce: string;
  readonly executor: string;
  readonly resumesAttemptId: string | null;
  readonly hardTimeoutMs: number | null;
  readonly conversation: string | null;
  readonly at: string;
}

/** Columns that a transition, an ingest or a fresh read may set; undefined leaves one as it is. */
export interface AttemptPatch {
  readonly invocationId?: string | null;
  readonly controlGroup?: string | null;
  readonly bootId?: string | null;
  readonly manager?: ManagerInstance | null;
  readonly reattached?: number;
  readonly spoolOffset?: number;
  readonly spoolLines?: number;
  readonly opened?: unknown;
  readonly saidDeadline?: boolean;
  readonly toldToStop?: boolean;
  readonly lastWord?: unknown;
  readonly intent?: Intent;
  readonly startProblem?: StartProblem;
  readonly exit?: unknown;
  readonly evidence?: unknown;
  readonly decidedByRule?: number;
  readonly startedAt?: string;
  readonly endedAt?: string;
  readonly lastEventAt?: string;
  readonly lastHeartbeatAt?: string;
  readonly abortRequestedAt?: string;
  readonly errorCode?: string | null;
  readonly errorMessage?: string | null;
  readonly waitedMs?: number;
  readonly waitingSince?: string | null;
  readonly spoolCut?: true;
}

const PATCH_COLUMNS: Readonly<Record<keyof AttemptPatch, string>> = {
  invocationId: 'invocation_id',
  controlGroup: 'control_group',
  bootId: 'boot_id',
  manager: 'manager_json',
  reattached: 'reattached',
  spoolOffset: 'spool_offset',
  spoolLines: 'spool_lines',
  opened: 'opened_json',
  saidDeadline: 'said_deadline',
  toldToStop: 'told_to_stop',
  lastWord: 'last_word_json',
  intent: 'intent_json',
  startProblem: 'start_problem_json',
  exit: 'exit_json',
  evidence: 'evidence_json',
  decidedByRule: 'decided_by_rule',
  startedAt: 'started_at',
  endedAt: 'ended_at',
  lastEventAt: 'last_event_at',
  lastHeartbeatAt: 'last_heartbeat_at',
  abortRequestedAt: 'abort_requested_at',
  errorCode: 'error_code',
  errorMessage: 'error_message',
  waitedMs: 'waited_ms',
  waitingSince: 'waiting_since',
  spoolCut: 'spool_cut',
};

function bind(value: unknown): string | number | null {
  if (value === null || typeof value === 'string' || typeof value === 'number') return value;
  if (typeof value === 'boolean') return value ? 1 : 0;
  return JSON.stringify(value);
}

export type Attempts = ReturnType<typeof attemptStatements>;

function spools(db: Database) {
  const spool = db.prepare<[string], Omit<SpoolPosition, 'lastWordSeen'> & { seen: number }>(
    `SELECT id, work_unit_id AS workUnitId, spool_offset AS spoolOffset,
       spool_lines AS spoolLines, last_word_json IS NOT NULL AS seen
     FROM work_unit_attempts WHERE id = ?`,
  );
  return {
    spoolPosition: (id: string): SpoolPosition | null => {
      const row = spool.get(id);
      if (!row) return null;
      const { seen, ...position } = row;
      return { ...position, lastWordSeen: seen === 1 };
    },
  };
}

/** Heartbeats: one row per attempt and source, renewed in place. */
function heartbeats(db: Database) {
  const heartbeat = db.prepare<Record<string, string | null>>(`INSERT INTO runtime_heartbeats
    (id, work_unit_id, attempt_id, runtime_instance_id, ts, source, detail_json)
    VALUES (@id, @workUnitId, @attemptId, @runtimeInstanceId, @ts, @source, @detail)
    ON CONFLICT (attempt_id, source) DO UPDATE SET
      ts = excluded.ts, runtime_instance_id = excluded.runtime_instance_id, detail_json = excluded.detail_json`);
  return {
    heartbeat: (row: {
      id: string;
      workUnitId: string;
      attemptId: string;
      runtimeInstanceId: string;
      ts: string;
      source: string;
      detail: string | null;
    }): void => {
      heartbeat.run(row);
    },
  };
}

export function attemptStatements(db: Database, workspace: string) {
  const prepared = statementCache(db);
  const insert = db.prepare<NewAttempt>(`INSERT INTO work_unit_attempts
    (id, work_unit_id, attempt_number, runtime_instance_id, runner_id, provider_preset_id, status,
     unit, nonce, executor, resumes_attempt_id, hard_timeout_ms,
     conversation, created_at)
    VALUES (@id, @workUnitId, @attemptNumber, @runtimeInstanceId, @runnerId, @providerPresetId,
     'created', @unit, @nonce, @executor, @resumesAttemptId, @hardTimeoutMs, @conversation, @at)`);
  const byId = db.prepare<[string]>(`SELECT ${COLUMNS} FROM work_unit_attempts WHERE id = ?`);
  const byUnit = db.prepare<[string]>(`SELECT ${COLUMNS} FROM work_unit_attempts WHERE unit = ?`);
  const byWorkUnit = db.prepare<[string]>(
    `SELECT ${COLUMNS} FROM work_unit_attempts WHERE work_unit_id = ? ORDER BY attempt_number`,
  );
  const active = db.prepare<[]>(`SELECT ${COLUMNS} FROM work_unit_attempts
    WHERE status IN ('created', 'started', 'waiting_for_approval', 'cancelling') ORDER BY id`);
  const waiting = db.prepare<[]>(`SELECT ${COLUMNS} FROM work_unit_attempts
    WHERE status = 'waiting_for_approval' ORDER BY id`);
  const countActive = db.prepare<[], { n: number }>(`SELECT count(*) AS n FROM work_unit_attempts
    WHERE status IN ('created', 'started', 'waiting_for_approval', 'cancelling')`);
  const ended = db.prepare<[string], { n: number }>(`SELECT count(*) AS n FROM work_unit_attempts
    WHERE nonce = ? AND status IN ('succeeded', 'failed', 'cancelled', 'lost')`);
  const losses = db.prepare<Record<string, string>, { n: number }>(`SELECT count(*) AS n
    FROM work_unit_attempts WHERE work_unit_id = @workUnitId AND status = 'lost'
      AND error_code IN ('host_shutdown', 'no_evidence') AND ended_at > @since`);
  const counter = db.prepare<[string, string], { last: number }>(`INSERT INTO unit_counters
    (workspace_id, handle, last) VALUES (?, ?, 1)
    ON CONFLICT (workspace_id, handle) DO UPDATE SET last = last + 1 RETURNING last`);
  const one = (row: unknown): AttemptRow | null =>
    row === undefined ? null : rowSchema.parse(row);

  const update = (
    id: string,
    from: AttemptStatus | null,
    to: AttemptStatus | null,
    patch: AttemptPatch,
  ): boolean => {
    const keys = (Object.keys(patch) as (keyof AttemptPatch)[]).filter(
      (key) => patch[key] !== undefined,
    );
    const sets = keys.map((key) => `${PATCH_COLUMNS[key]} = @${key}`);
    if (to !== null) sets.push('status = @to');
    if (sets.length === 0) return true;
    const values = Object.fromEntries(keys.map((key) => [key, bind(patch[key])]));
    const condition = from === null ? '' : ' AND status = @from';
    const result = prepared(
      `UPDATE work_unit_attempts SET ${sets.join(', ')} WHERE id = @id${condition}`,
    ).run({ ...values, id, ...(from === null ? {} : { from }), ...(to === null ? {} : { to }) });
    return result.changes === 1;
  };

  return {
    ...spools(db),
    insert: (row: NewAttempt): void => {
      insert.run(row);
    },
    get: (id: string): AttemptRow | null => one(byId.get(id)),
    /** Unit names are never used twice. */
    getByUnit: (unit: string): AttemptRow | null => one(byUnit.get(unit)),
    listByWorkUnit: (workUnitId: string): AttemptRow[] =>
      byWorkUnit.all(workUnitId).map((row) => rowSchema.parse(row)),
    listActive: (): AttemptRow[] => active.all().map((row) => rowSchema.parse(row)),
    /** Those that wait for a person. */
    listWaiting: (): AttemptRow[] => waiting.all().map((row) => rowSchema.parse(row)),
    /** True when the attempt of this nonce is ours and over. */
    hasEnded: (nonce: string): boolean => (ended.get(nonce)?.n ?? 0) > 0,
    /** Attempts of a work unit that were lost, other than by a suspension, after `since`. */
    countLosses: (workUnitId: string, since: string): number =>
      losses.get({ workUnitId, since })?.n ?? 0,
    countActive: (): number => countActive.get()?.n ?? 0,
    /** Compare-and-set on the status; false when it is another one by now. */
    move: (
      expected: Pick<AttemptRow, 'id' | 'status'>,
      to: AttemptStatus,
      patch: AttemptPatch,
    ): boolean => update(expected.id, expected.status, to, patch),
    /** Sets columns that are no transition. */
    patch: (id: string, patch: AttemptPatch): void => {
      update(id, null, null, patch);
    },
    /** The next counter of a handle: 1, 2, 3, … and never one again. */
    nextCounter: (handle: string): number => counter.get(workspace, handle)?.last ?? 1,
    ...heartbeats(db),
  };
}
