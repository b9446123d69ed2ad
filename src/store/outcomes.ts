/** Statements about what success had to leave behind. A row moves once, out of `pending`. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { OUTCOME_REASONS, OUTCOME_STATES, type OutcomeReason } from '../domain/outcome.ts';
import type { Settled } from '../domain/outcome-verdict.ts';
import { LEASE_TYPES } from '../domain/resources.ts';

const rowSchema = z.object({
  workUnitId: z.string(),
  attemptNumber: z.int(),
  /** Null where nothing ever ran. */
  attemptId: z.string().nullable(),
  state: z.enum(OUTCOME_STATES),
  code: z.enum(Object.keys(OUTCOME_REASONS) as [OutcomeReason, ...OutcomeReason[]]).nullable(),
  message: z.string().nullable(),
  verifyId: z.string().nullable(),
  /** The JSON that was returned, as its text. */
  result: z.string().nullable(),
  createdAt: z.string(),
  settledAt: z.string().nullable(),
});
export type OutcomeRow = z.output<typeof rowSchema>;

export interface NewOutcome {
  readonly workUnitId: string;
  readonly attemptNumber: number;
  readonly attemptId: string | null;
  readonly state: 'pending' | 'skipped';
  readonly code: OutcomeReason | null;
  readonly message: string | null;
  readonly at: string;
}

const keptSchema = z.object({
  workUnitId: z.string(),
  verifyId: z.string().nullable(),
  type: z.enum(LEASE_TYPES),
  key: z.string(),
});
/** A lease that is kept for whoever judges, from the end of the judged work on. */
export type KeptLease = z.output<typeof keptSchema>;

/** Of a row; what a compare-and-set is about. */
export type OutcomeKey = Pick<OutcomeRow, 'workUnitId' | 'attemptNumber'>;

export type Outcomes = ReturnType<typeof outcomeStatements>;

const SELECT = `SELECT work_unit_id AS workUnitId, attempt_number AS attemptNumber,
  attempt_id AS attemptId, state, code, message, verify_id AS verifyId, result_json AS result,
  created_at AS createdAt, settled_at AS settledAt FROM outcomes`;

function reads(db: Database) {
  const get = db.prepare<[string, number]>(
    `${SELECT} WHERE work_unit_id = ? AND attempt_number = ?`,
  );
  const latest = db.prepare<[string]>(
    `${SELECT} WHERE work_unit_id = ? ORDER BY attempt_number DESC LIMIT 1`,
  );
  const before = db.prepare<[string, number], { number: number | null }>(
    `SELECT max(attempt_number) AS number FROM outcomes
     WHERE work_unit_id = ? AND attempt_number < ?`,
  );
  const pending = db.prepare<[]>(
    `${SELECT} WHERE state = 'pending' ORDER BY created_at, work_unit_id`,
  );
  const pendingOf = db.prepare<[string]>(`${SELECT} WHERE work_unit_id = ? AND state = 'pending'`);
  const byVerify = db.prepare<[string]>(`${SELECT} WHERE verify_id = ?`);
  const kept = db.prepare<[]>(
    `SELECT outcome.work_unit_id AS workUnitId, verify_id AS verifyId, resource_type AS type,
       resource_key AS key
     FROM outcomes AS outcome JOIN work_unit_needs AS need
       ON need.work_unit_id = outcome.work_unit_id AND need.form = 'lease'
     WHERE outcome.state = 'pending' ORDER BY outcome.created_at, outcome.work_unit_id`,
  );
  const one = (row: unknown): OutcomeRow | null =>
    row === undefined ? null : rowSchema.parse(row);
  const many = (rows: readonly unknown[]): OutcomeRow[] => rows.map((row) => rowSchema.parse(row));
  return {
    get: ({ workUnitId, attemptNumber }: OutcomeKey): OutcomeRow | null =>
      one(get.get(workUnitId, attemptNumber)),
    /** Of its newest end. */
    latest: (workUnitId: string): OutcomeRow | null => one(latest.get(workUnitId)),
    /** The attempt that the end before this one came with; 0 where this is the first. */
    endBefore: ({ workUnitId, attemptNumber }: OutcomeKey): number =>
      before.get(workUnitId, attemptNumber)?.number ?? 0,
    /** Oldest first. */
    pending: (): OutcomeRow[] => many(pending.all()),
    /** The leases of all ended work that is not judged yet. */
    kept: (): KeptLease[] => kept.all().map((row) => keptSchema.parse(row)),
    pendingOf: (workUnitId: string): OutcomeRow[] => many(pendingOf.all(workUnitId)),
    /** What this work unit verifies; null for one that verifies nothing. */
    byVerify: (verifyId: string): OutcomeRow | null => one(byVerify.get(verifyId)),
  };
}

export function outcomeStatements(db: Database) {
  const insert = db.prepare<NewOutcome & { settledAt: string | null }>(
    `INSERT INTO outcomes (work_unit_id, attempt_number, attempt_id, state, code, message,
       created_at, settled_at)
     VALUES (@workUnitId, @attemptNumber, @attemptId, @state, @code, @message, @at, @settledAt)
     ON CONFLICT DO NOTHING`,
  );
  const verifying = db.prepare<OutcomeKey & { verifyId: string; result: string | null }>(
    `UPDATE outcomes SET verify_id = @verifyId, result_json = @result
     WHERE work_unit_id = @workUnitId AND attempt_number = @attemptNumber
       AND state = 'pending' AND verify_id IS NULL`,
  );
  const settle = db.prepare<OutcomeKey & Settled & { at: string; result: string | null }>(
    `UPDATE outcomes SET state = @state, code = @code, message = @message, settled_at = @at,
       result_json = coalesce(@result, result_json)
     WHERE work_unit_id = @workUnitId AND attempt_number = @attemptNumber AND state = 'pending'`,
  );
  const key = ({ workUnitId, attemptNumber }: OutcomeKey): OutcomeKey => ({
    workUnitId,
    attemptNumber,
  });
  return {
    ...reads(db),
    /** Does nothing where this end has its row. */
    insert: (row: NewOutcome): void => {
      insert.run({ ...row, settledAt: row.state === 'pending' ? null : row.at });
    },
    /** @returns false when it is settled, or verified by another one already. */
    verifiedBy: (row: OutcomeKey, verifyId: string, result: string | null): boolean =>
      verifying.run({ ...key(row), verifyId, result }).changes === 1,
    /** @returns false when it was settled before; then nothing was written. */
    settle: (row: OutcomeKey, settled: Settled, result: string | null, at: string): boolean =>
      settle.run({ ...key(row), ...settled, result, at }).changes === 1,
  };
}
