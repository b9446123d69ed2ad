/** Statements about work that waits for other work. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { type DependencyState, dependencyState } from '../domain/dependencies.ts';
import { OUTCOME_STATES } from '../domain/outcome.ts';
import { WORK_UNIT_STATUSES, type WorkUnitStatus } from '../domain/work-unit.ts';

const rowSchema = z.object({
  id: z.string(),
  handle: z.string(),
  status: z.enum(WORK_UNIT_STATUSES).nullable(),
  declared: z.int(),
  outcome: z.enum(OUTCOME_STATES).nullable(),
  needed: z.int(),
});

/** A work unit that is waited for. */
export interface DependencyRow {
  readonly id: string;
  readonly handle: string;
  readonly status: WorkUnitStatus | null;
  readonly outcome: z.infer<typeof rowSchema>['outcome'];
  readonly state: DependencyState;
}

/** What a work unit waits for, in the order in which it was named. */
export interface DependencyRows {
  /** How many have to be satisfied. */
  readonly needed: number;
  readonly on: readonly DependencyRow[];
}

export type Dependencies = ReturnType<typeof dependencyStatements>;

export function dependencyStatements(db: Database) {
  const insert = db.prepare<[string, number, string]>(
    'INSERT INTO work_unit_dependencies (work_unit_id, position, depends_on_id) VALUES (?, ?, ?)',
  );
  const setNeeded = db.prepare<[number, string]>(
    'UPDATE work_units SET after_needed = ? WHERE id = ?',
  );
  // The request may hold a prompt of megabytes: it is read only where the answer hangs on it.
  const of = db.prepare<[string]>(
    `WITH waited AS (
       SELECT dependency.position, dependency.depends_on_id AS id,
         coalesce(unit.handle, dependency.depends_on_id) AS handle, unit.status,
         unit.request_json AS request, waiting.after_needed AS needed,
         (SELECT state FROM outcomes WHERE work_unit_id = dependency.depends_on_id
          ORDER BY attempt_number DESC LIMIT 1) AS outcome
       FROM work_unit_dependencies AS dependency
       JOIN work_units AS waiting ON waiting.id = dependency.work_unit_id
       LEFT JOIN work_units AS unit ON unit.id = dependency.depends_on_id
       WHERE dependency.work_unit_id = ?)
     SELECT id, handle, status, outcome, needed,
       CASE WHEN status = 'succeeded' AND outcome IS NULL
         THEN json_type(request, '$.outcome') IS NOT NULL ELSE 0 END AS declared
     FROM waited ORDER BY position`,
  );
  const queuedDependents = db.prepare<[string], { id: string }>(
    `SELECT dependency.work_unit_id AS id FROM work_unit_dependencies AS dependency
     JOIN work_units AS unit ON unit.id = dependency.work_unit_id
     WHERE dependency.depends_on_id = ? AND unit.status = 'queued' ORDER BY id`,
  );
  return {
    /** Stores what a new work unit waits for. */
    insert: (workUnitId: string, on: readonly string[], needed: number): void => {
      for (const [position, id] of on.entries()) insert.run(workUnitId, position, id);
      setNeeded.run(needed, workUnitId);
    },
    /** Null for work that waits for no other. */
    of: (workUnitId: string): DependencyRows | null => {
      const rows = of.all(workUnitId).map((row) => rowSchema.parse(row));
      const [first] = rows;
      if (!first) return null;
      const on = rows.map(({ id, handle, status, outcome, declared }) => ({
        id,
        handle,
        status,
        outcome,
        state: dependencyState({ status, outcome, declared: declared === 1 }),
      }));
      return { needed: first.needed, on };
    },
    /** Queued work that waits for this one. */
    queuedDependents: (id: string): string[] => queuedDependents.all(id).map((row) => row.id),
  };
}
