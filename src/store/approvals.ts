/** Statements about approvals: questions, decisions and the checkpoints behind them. */
import { generateKeyPairSync } from 'node:crypto';
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import {
  APPROVAL_STATUSES,
  type ApprovalStatus,
  CHECKPOINT_FAILURES,
  CHECKPOINT_STATES,
  type CheckpointFailure,
} from '../domain/approval.ts';
import { ACTORS } from '../domain/work-unit.ts';
import { statementCache } from './statement-cache.ts';

const rowSchema = z.object({
  id: z.string(),
  workUnitId: z.string(),
  attemptId: z.string(),
  toolCallId: z.string(),
  tool: z.string(),
  arguments: z.string().transform((text) => JSON.parse(text) as unknown),
  fingerprint: z.string(),
  cwd: z.string(),
  diff: z.string().nullable(),
  reason: z.string().nullable(),
  status: z.enum(APPROVAL_STATUSES),
  requestedAt: z.string(),
  expiresAt: z.string(),
  decidedAt: z.string().nullable(),
  decidedBy: z.enum(ACTORS).nullable(),
  decisionReason: z.string().nullable(),
  checkpoint: z.enum(CHECKPOINT_STATES),
  revision: z.int(),
  boundAttemptId: z.string().nullable(),
  startAttemptId: z.string().nullable(),
  startCallId: z.string().nullable(),
  ended: z.int().transform((value) => value === 1),
  doubted: z.int().transform((value) => value === 1),
  failureCode: z
    .enum(Object.keys(CHECKPOINT_FAILURES) as [CheckpointFailure, ...CheckpointFailure[]])
    .nullable(),
});
export type ApprovalRow = z.output<typeof rowSchema>;

const COLUMNS = `id, work_unit_id AS workUnitId, attempt_id AS attemptId,
  tool_call_id AS toolCallId, tool, arguments_json AS arguments, fingerprint, cwd, diff, reason,
  status, requested_at AS requestedAt, expires_at AS expiresAt, decided_at AS decidedAt,
  decided_by AS decidedBy, decision_reason AS decisionReason, checkpoint, revision,
  bound_attempt_id AS boundAttemptId, start_attempt_id AS startAttemptId,
  start_call_id AS startCallId, ended, doubted, failure_code AS failureCode`;

/** What a question is stored with. */
export interface NewApproval {
  readonly id: string;
  readonly workUnitId: string;
  readonly attemptId: string;
  readonly toolCallId: string;
  readonly tool: string;
  readonly argumentsJson: string;
  readonly fingerprint: string;
  readonly cwd: string;
  readonly diff: string | null;
  readonly reason: string | null;
  readonly requestedAt: string;
  readonly expiresAt: string;
  readonly at: string;
}

/** Columns that a change may set; undefined leaves one as it is. */
export interface ApprovalPatch {
  readonly status?: ApprovalStatus;
  readonly decidedAt?: string;
  readonly decidedBy?: string;
  readonly decisionReason?: string | null;
  readonly checkpoint?: ApprovalRow['checkpoint'];
  readonly boundAttemptId?: string | null;
  readonly startAttemptId?: string;
  readonly startCallId?: string;
  readonly ended?: 1;
  readonly doubted?: 1;
  readonly failureCode?: CheckpointFailure;
}

const PATCH_COLUMNS: Readonly<Record<keyof ApprovalPatch, string>> = {
  status: 'status',
  decidedAt: 'decided_at',
  decidedBy: 'decided_by',
  decisionReason: 'decision_reason',
  checkpoint: 'checkpoint',
  boundAttemptId: 'bound_attempt_id',
  startAttemptId: 'start_attempt_id',
  startCallId: 'start_call_id',
  ended: 'ended',
  doubted: 'doubted',
  failureCode: 'failure_code',
};

export interface ApprovalFilter {
  readonly status: ApprovalStatus | null;
  readonly workUnitId: string | null;
  /** Rows asked before this id (ids sort by time), newest first. */
  readonly beforeId: string | null;
  readonly limit: number;
}

export interface SigningKey {
  /** PKCS #8, DER. */
  readonly privateDer: Buffer;
  /** SubjectPublicKeyInfo, DER. */
  readonly publicDer: Buffer;
}

export type Approvals = ReturnType<typeof approvalStatements>;

const OPEN = `checkpoint IN ('waiting', 'resume_pending')`;

function reads(db: Database, workspace: string) {
  const query = (where: string, order = 'ORDER BY id') =>
    db.prepare<unknown[]>(`SELECT ${COLUMNS} FROM approvals WHERE ${where} ${order}`);
  const byId = query('id = ?');
  const byCall = query('attempt_id = ? AND tool_call_id = ?');
  const ofWorkUnit = query('work_unit_id = ?');
  const openOf = query(`work_unit_id = ? AND ${OPEN}`);
  const allOpen = query(`workspace_id = ? AND ${OPEN}`);
  const boundTo = query(`bound_attempt_id = ? AND ${OPEN}`);
  const begunBy = query(`work_unit_id = ? AND start_attempt_id = ? AND start_call_id = ?`);
  const due = query(`workspace_id = ? AND status = 'pending' AND expires_at <= ?`);
  const next = db.prepare<[string], { at: string | null }>(
    `SELECT min(expires_at) AS at FROM approvals WHERE workspace_id = ? AND status = 'pending'`,
  );
  const list = db.prepare<Record<string, unknown>>(`SELECT ${COLUMNS} FROM approvals
    WHERE workspace_id = @workspace AND (@status IS NULL OR status = @status)
      AND (@workUnitId IS NULL OR work_unit_id = @workUnitId)
      AND (@beforeId IS NULL OR id < @beforeId) ORDER BY id DESC LIMIT @limit`);
  const many = (rows: readonly unknown[]): ApprovalRow[] => rows.map((row) => rowSchema.parse(row));
  const one = (row: unknown): ApprovalRow | null =>
    row === undefined ? null : rowSchema.parse(row);
  return {
    get: (id: string): ApprovalRow | null => one(byId.get(id)),
    getByCall: (attemptId: string, toolCallId: string): ApprovalRow | null =>
      one(byCall.get(attemptId, toolCallId)),
    listOfWorkUnit: (workUnitId: string): ApprovalRow[] => many(ofWorkUnit.all(workUnitId)),
    /** Those of a work unit that somebody still has to act on. */
    open: (workUnitId: string): ApprovalRow[] => many(openOf.all(workUnitId)),
    /** The same of the whole workspace. */
    listOpen: (): ApprovalRow[] => many(allOpen.all(workspace)),
    boundTo: (attemptId: string): ApprovalRow[] => many(boundTo.all(attemptId)),
    /** Those that this call of this attempt has begun. */
    begunBy: (workUnitId: string, attemptId: string, callId: string): ApprovalRow[] =>
      many(begunBy.all(workUnitId, attemptId, callId)),
    /** Pending ones whose time is over. */
    expired: (now: string): ApprovalRow[] => many(due.all(workspace, now)),
    nextExpiry: (): string | null => next.get(workspace)?.at ?? null,
    list: (filter: ApprovalFilter): ApprovalRow[] => many(list.all({ workspace, ...filter })),
  };
}

function signingKeys(db: Database, workspace: string) {
  const read = db.prepare<[string], { privateDer: Buffer; publicDer: Buffer }>(
    'SELECT private_der AS privateDer, public_der AS publicDer FROM signing_keys WHERE workspace_id = ?',
  );
  const insert = db.prepare(`INSERT OR IGNORE INTO signing_keys
    (workspace_id, private_der, public_der, created_at) VALUES (?, ?, ?, ?)`);
  return {
    /** The workspace's key, made when there is none. */
    signingKey: (at: string): SigningKey => {
      const known = read.get(workspace);
      if (known) return known;
      const { privateKey, publicKey } = generateKeyPairSync('ed25519');
      const privateDer = privateKey.export({ type: 'pkcs8', format: 'der' });
      const publicDer = publicKey.export({ type: 'spki', format: 'der' });
      insert.run(workspace, privateDer, publicDer, at);
      return read.get(workspace) ?? { privateDer, publicDer };
    },
  };
}

/** All statements about approvals of one workspace. */
export function approvalStatements(db: Database, workspace: string) {
  const prepared = statementCache(db);
  const insert = db.prepare<NewApproval & { workspace: string }>(`INSERT OR IGNORE INTO approvals
    (id, workspace_id, work_unit_id, attempt_id, tool_call_id, tool, arguments_json, fingerprint,
     cwd, diff, reason, status, requested_at, expires_at, checkpoint, revision, updated_at)
    VALUES (@id, @workspace, @workUnitId, @attemptId, @toolCallId, @tool, @argumentsJson,
     @fingerprint, @cwd, @diff, @reason, 'pending', @requestedAt, @expiresAt, 'waiting', 1, @at)`);
  return {
    ...reads(db, workspace),
    ...signingKeys(db, workspace),
    /** @returns false when this call of this attempt was asked for before. */
    insert: (row: NewApproval): boolean => insert.run({ ...row, workspace }).changes === 1,
    /** Compare-and-set on the revision; false when it is another one by now. */
    move: (
      expected: Pick<ApprovalRow, 'id' | 'revision'>,
      patch: ApprovalPatch,
      at: string,
    ): boolean => {
      const keys = (Object.keys(patch) as (keyof ApprovalPatch)[]).filter(
        (key) => patch[key] !== undefined,
      );
      const sets = keys.map((key) => `${PATCH_COLUMNS[key]} = @${key}, `).join('');
      const values = Object.fromEntries(keys.map((key) => [key, patch[key]]));
      const { changes } = prepared(`UPDATE approvals SET ${sets}revision = revision + 1,
        updated_at = @at WHERE id = @id AND revision = @revision`).run({
        ...values,
        at,
        id: expected.id,
        revision: expected.revision,
      });
      return changes === 1;
    },
  };
}
