/**
 * Statements of the control plane: what a person is shown of the workspace as a whole,
 * and the keys of commands that were carried out.
 */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { WORK_UNIT_STATUSES, type WorkUnitStatus } from '../domain/work-unit.ts';

const countSchema = z.object({ status: z.enum(WORK_UNIT_STATUSES), n: z.int() });
const blockedSchema = z.object({ resource: z.string(), waiting: z.int(), since: z.string() });
/** Queued work that waits for one resource. */
export type BlockedGroup = z.infer<typeof blockedSchema>;
const backingOffSchema = z.object({
  workUnitId: z.string(),
  handle: z.string(),
  /** Starts in a row that ran nothing. */
  starts: z.int(),
  until: z.string(),
});
/** Queued work whose last starts ran nothing. */
export type BackingOff = z.infer<typeof backingOffSchema>;
const commandSchema = z.object({ command: z.string(), workUnitId: z.string() });
export type StoredCommand = z.infer<typeof commandSchema>;

export type Diagnostics = ReturnType<typeof diagnosticStatements>;

const fromJson = (text: string | null | undefined): unknown =>
  text == null ? null : (JSON.parse(text) as unknown);

/** All statements of one workspace. */
export function diagnosticStatements(db: Database, workspace: string) {
  const counts = db.prepare<[string]>(
    'SELECT status, count(*) AS n FROM work_units WHERE workspace_id = ? GROUP BY status',
  );
  const blocked = db.prepare<[string, number]>(
    `SELECT blocked_on AS resource, count(*) AS waiting, min(blocked_since) AS since
     FROM work_units WHERE workspace_id = ? AND status = 'queued' AND blocked_on IS NOT NULL
     GROUP BY blocked_on ORDER BY since, resource LIMIT ?`,
  );
  const backingOff = db.prepare<[string, string, number]>(
    `SELECT id AS workUnitId, handle, never_started_count AS starts, not_before AS until
     FROM work_units WHERE workspace_id = ? AND status = 'queued' AND not_before > ?
       AND never_started_count > 0 ORDER BY not_before, id LIMIT ?`,
  );
  const report = db.prepare<[], { report: string | null }>(
    `SELECT report_json AS report FROM runtime_instances WHERE report_json IS NOT NULL
     ORDER BY started_at DESC, id DESC LIMIT 1`,
  );
  const evidence = db.prepare<[string], { evidence: string | null }>(
    'SELECT evidence_json AS evidence FROM work_unit_attempts WHERE id = ?',
  );
  const queuedIn = db.prepare<[string, string], { n: number }>(
    `SELECT count(*) AS n FROM work_units
     WHERE workspace_id = ? AND channel_id = ? AND status = 'queued'`,
  );
  const ahead = db.prepare<Record<string, string>, { n: number }>(
    `SELECT count(*) AS n FROM work_units AS other, work_units AS mine
     WHERE mine.id = @id AND other.workspace_id = @workspace AND other.status = 'queued'
       AND other.blocked_on IS NULL
       AND (other.not_before IS NULL OR other.not_before <= @now)
       AND (other.priority > mine.priority OR (other.priority = mine.priority
         AND (other.created_at, other.id) < (mine.created_at, mine.id)))`,
  );
  const admitted = db.prepare<[string], { at: string }>(
    `SELECT updated_at AS at FROM workspace_settings
     WHERE workspace_id = ? AND name = 'admission'`,
  );
  const command = db.prepare<[string, string]>(
    `SELECT command, work_unit_id AS workUnitId FROM idempotent_commands
     WHERE workspace_id = ? AND idempotency_key = ?`,
  );
  const record = db.prepare<Record<string, string>>(
    `INSERT INTO idempotent_commands (workspace_id, idempotency_key, command, work_unit_id, created_at)
     VALUES (@workspace, @key, @command, @workUnitId, @at)`,
  );
  return {
    /** Every status, also those nothing is in. */
    countsByStatus: (): Record<WorkUnitStatus, number> => {
      const none = Object.fromEntries(WORK_UNIT_STATUSES.map((status) => [status, 0]));
      const found = counts.all(workspace).map((row) => countSchema.parse(row));
      return {
        ...(none as Record<WorkUnitStatus, number>),
        ...Object.fromEntries(found.map(({ status, n }) => [status, n])),
      };
    },
    /** Queued work by the resource it waits for, longest first. */
    blocked: (limit: number): BlockedGroup[] =>
      blocked.all(workspace, limit).map((row) => blockedSchema.parse(row)),
    /** Queued work that backs off from starts that ran nothing, soonest first. */
    backingOff: (now: string, limit: number): BackingOff[] =>
      backingOff.all(workspace, now, limit).map((row) => backingOffSchema.parse(row)),
    /** The newest stored report of a recovery, null when there is none. */
    lastReport: (): unknown => fromJson(report.get()?.report),
    /** What an attempt's outcome was decided from, null while it lives. */
    evidenceOf: (attemptId: string): unknown => fromJson(evidence.get(attemptId)?.evidence),
    queuedInChannel: (channelId: string): number => queuedIn.get(workspace, channelId)?.n ?? 0,
    /** Queued work that is ready and goes first. */
    aheadOf: (id: string, now: string): number => ahead.get({ workspace, id, now })?.n ?? 0,
    /** When the workspace was last paused, drained or resumed; null when it never was. */
    admissionSince: (): string | null => admitted.get(workspace)?.at ?? null,
    /** What an idempotency key was used for, null when it was not. */
    command: (key: string): StoredCommand | null => {
      const row = command.get(workspace, key);
      return row === undefined ? null : commandSchema.parse(row);
    },
    /** Must run in the transaction that carries the command out. */
    recordCommand: (key: string, stored: StoredCommand, at: string): void => {
      record.run({ workspace, key, at, ...stored });
    },
  };
}
