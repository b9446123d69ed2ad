/** What decides whether a subject may be worked on: read in the transaction that makes the work. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { OUTCOME_STATES } from '../domain/outcome.ts';
import { WORK_UNIT_STATUSES } from '../domain/work-unit.ts';

const holdSchema = z.object({
  subject: z.string(),
  driver: z.string(),
  workUnitId: z.string().nullable(),
  /** How the work ended; `held_by_request` where nobody stopped any. */
  code: z.string(),
  heldAt: z.string(),
});
export type DriverHold = z.output<typeof holdSchema>;

const factsSchema = z.object({
  id: z.string(),
  handle: z.string(),
  live: z.int().transform((value) => value === 1),
  verifying: z.int().transform((value) => value === 1),
  /** Of the newest thing that is known of it; null once retention has taken its events. */
  position: z.int().nullable(),
  endedAt: z.string().nullable(),
});
/** One work unit of a subject. */
export type SubjectWork = z.output<typeof factsSchema>;

const drivenSchema = z.object({
  id: z.string(),
  handle: z.string(),
  subject: z.string(),
  status: z.enum(WORK_UNIT_STATUSES),
  errorCode: z.string().nullable(),
  outcome: z.enum(OUTCOME_STATES).nullable(),
  attempts: z.int(),
  createdAt: z.string(),
  endedAt: z.string().nullable(),
});
/** The newest work of a driver on one subject. */
export type DrivenSubject = z.output<typeof drivenSchema>;

/** Of ended work on a subject that many are looked at: each was begun after the ones before. */
const NEWEST = 50;
const TERMINAL = "('succeeded', 'failed', 'cancelled')";
const PENDING = (id: string): string =>
  `EXISTS (SELECT 1 FROM outcomes WHERE work_unit_id = ${id} AND state = 'pending')`;

function facts(db: Database, workspace: string) {
  const ofSubject = db.prepare<Record<string, string | number>>(
    `SELECT w.id, w.handle, w.status NOT IN ${TERMINAL} AS live, ${PENDING('w.id')} AS verifying,
       (SELECT position FROM runtime_events WHERE work_unit_id = w.id ORDER BY seq DESC LIMIT 1)
         AS position, w.ended_at AS endedAt
     FROM work_units AS w
     WHERE w.id <> @except AND w.id IN (
       SELECT id FROM (SELECT id FROM work_units
         WHERE workspace_id = @workspace AND external_subject = @subject ORDER BY id DESC LIMIT ${NEWEST})
       UNION SELECT id FROM work_units WHERE workspace_id = @workspace
         AND external_subject = @subject AND status NOT IN ${TERMINAL}
       UNION SELECT o.work_unit_id FROM outcomes AS o JOIN work_units AS judged
         ON judged.id = o.work_unit_id WHERE o.state = 'pending'
         AND judged.workspace_id = @workspace AND judged.external_subject = @subject)
     ORDER BY w.id DESC`,
  );
  const working = db
    .prepare<Record<string, string>, number>(
      `SELECT (SELECT count(*) FROM work_units AS w WHERE w.workspace_id = @workspace
           AND w.owner_type = 'driver' AND w.owner_id = @driver AND w.id <> @except
           AND w.status NOT IN ${TERMINAL})
         + (SELECT count(DISTINCT w.id) FROM outcomes AS o JOIN work_units AS w ON w.id = o.work_unit_id
           WHERE o.state = 'pending' AND w.workspace_id = @workspace AND w.owner_type = 'driver'
             AND w.owner_id = @driver AND w.id <> @except AND w.status IN ${TERMINAL})`,
    )
    .pluck();
  const claimed = db.prepare<[string], { position: number; ts: string }>(
    `SELECT position, ts FROM runtime_events
     WHERE work_unit_id = ? AND type = 'work_unit.claimed' ORDER BY seq DESC LIMIT 1`,
  );
  const driven = db.prepare<[string, string, number]>(
    `SELECT w.id, w.handle, w.external_subject AS subject, w.status, w.error_code AS errorCode,
       (SELECT state FROM outcomes WHERE work_unit_id = w.id ORDER BY attempt_number DESC LIMIT 1)
         AS outcome,
       w.attempt_count AS attempts, w.created_at AS createdAt, w.ended_at AS endedAt
     FROM work_units AS w JOIN (SELECT max(id) AS id FROM work_units
       WHERE workspace_id = ? AND owner_type = 'driver' AND owner_id = ?
       GROUP BY external_subject) AS newest ON newest.id = w.id
     ORDER BY w.id DESC LIMIT ?`,
  );
  return {
    /** What lives, what is judged and the newest of a subject, whosever it is, but for this one; newest first. */
    workOn: (subject: string, except = ''): SubjectWork[] =>
      ofSubject.all({ workspace, subject, except }).map((row) => factsSchema.parse(row)),
    /** Subjects that are worked on or verified for a driver, but for this work unit. */
    working: (driver: string, except = ''): number =>
      working.get({ workspace, driver, except }) ?? 0,
    /** Where and when work was given to an attempt last; null for none, or long ago. */
    claimedAt: (workUnitId: string): { readonly position: number; readonly ts: string } | null =>
      claimed.get(workUnitId) ?? null,
    /** Newest first. */
    driven: (driver: string, limit: number): DrivenSubject[] =>
      driven.all(workspace, driver, limit).map((row) => drivenSchema.parse(row)),
  };
}

function holds(db: Database, workspace: string) {
  const columns = 'subject, driver, work_unit_id AS workUnitId, code, held_at AS heldAt';
  const of = db.prepare<[string, string]>(
    `SELECT ${columns} FROM driver_holds WHERE workspace_id = ? AND subject = ?`,
  );
  const list = db.prepare<[string, string]>(
    `SELECT ${columns} FROM driver_holds WHERE workspace_id = ? AND driver = ? ORDER BY subject`,
  );
  const put = db.prepare<DriverHold & { workspace: string }>(
    `INSERT INTO driver_holds (workspace_id, subject, driver, work_unit_id, code, held_at)
     VALUES (@workspace, @subject, @driver, @workUnitId, @code, @heldAt)
     ON CONFLICT (workspace_id, subject) DO UPDATE SET driver = excluded.driver,
       work_unit_id = excluded.work_unit_id, code = excluded.code, held_at = excluded.held_at`,
  );
  const release = db.prepare<[string, string]>(
    'DELETE FROM driver_holds WHERE workspace_id = ? AND subject = ?',
  );
  return {
    holdOn: (subject: string): DriverHold | null => {
      const row = of.get(workspace, subject);
      return row === undefined ? null : holdSchema.parse(row);
    },
    /** By subject. */
    holdsOf: (driver: string): DriverHold[] =>
      list.all(workspace, driver).map((row) => holdSchema.parse(row)),
    hold: (row: DriverHold): void => {
      put.run({ workspace, ...row });
    },
    /** @returns false when it was not held. */
    release: (subject: string): boolean => release.run(workspace, subject).changes === 1,
  };
}

export function guardStatements(db: Database, workspace: string) {
  return { ...facts(db, workspace), ...holds(db, workspace) };
}
