/** Statements about which executor started an attempt. */
import type { Database } from 'better-sqlite3';
import type { AttemptRow } from './attempts.ts';

type Kind = AttemptRow['executor'];

export type Executors = ReturnType<typeof executorStatements>;

export function executorStatements(db: Database) {
  const byUnit = db.prepare<[string], { executor: Kind }>(
    'SELECT executor FROM work_unit_attempts WHERE unit = ?',
  );
  const owed = db.prepare<[Kind], { n: number }>(`SELECT count(*) AS n FROM work_unit_attempts
    WHERE status IN ('created', 'started', 'waiting_for_approval', 'cancelling') AND executor = ?`);
  return {
    /** Which executor started the attempt of this unit; null for a unit of no attempt. */
    of: (unit: string): Kind | null => byUnit.get(unit)?.executor ?? null,
    /** True when attempts of this executor are not over. */
    isOwed: (kind: Kind): boolean => (owed.get(kind)?.n ?? 0) > 0,
  };
}
