/** Statements about what is removed, and about the pages that become free by it. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { COMPACTION_REASONS, type CompactionReason } from '../domain/retention.ts';
import { WORK_UNIT_STATUSES } from '../domain/work-unit.ts';

const compactableSchema = z.object({
  id: z.string(),
  status: z.enum(WORK_UNIT_STATUSES),
  endedAt: z.string(),
  /** Events that would go. */
  events: z.int(),
});
export type CompactableRow = z.infer<typeof compactableSchema>;

const compactionSchema = z.object({
  workUnitId: z.string(),
  lastAttempt: z.int(),
  reason: z.enum(COMPACTION_REASONS),
});
/** A compaction that was begun and is not finished. */
export type CompactionRow = z.infer<typeof compactionSchema>;

/** What the store knows of the owner of a file: nobody, somebody, or somebody whose files are to be gone. */
export type Owner = 'unknown' | 'kept' | 'compacted';

export type Retention = ReturnType<typeof retentionStatements>;

const TERMINAL = "status IN ('succeeded', 'failed', 'cancelled')";
const ACTIVE_ATTEMPT = "status IN ('created', 'started', 'waiting_for_approval', 'cancelling')";
/** No work that has not ended waits, or waited, for it. */
const NOT_AWAITED = (id: string): string => `NOT EXISTS (SELECT 1
  FROM work_unit_dependencies AS dependency
  JOIN work_units AS waiting ON waiting.id = dependency.work_unit_id
  WHERE dependency.depends_on_id = ${id} AND waiting.status NOT IN ('succeeded', 'failed', 'cancelled'))`;
/** The attempts a compaction means. */
const MEANT = `SELECT id FROM work_unit_attempts
  WHERE work_unit_id = @workUnitId AND attempt_number <= @lastAttempt`;

/** What is still to be judged, what judges it, and a census that is still to be read are needed whole. */
const JUDGED = `AND NOT EXISTS (SELECT 1 FROM outcomes AS outcome
       WHERE outcome.work_unit_id = work_units.id AND outcome.state = 'pending')
     AND NOT EXISTS (SELECT 1 FROM outcomes AS outcome
       WHERE outcome.verify_id = work_units.id AND outcome.state = 'pending')
     AND NOT EXISTS (SELECT 1 FROM drivers WHERE drivers.census_id = work_units.id)`;

/** What is removed of the meant attempts, the intent last. */
function remains(db: Database) {
  return [
    `DELETE FROM runtime_heartbeats WHERE work_unit_id = @workUnitId AND attempt_id IN (${MEANT})`,
    `DELETE FROM resource_leases
     WHERE work_unit_id = @workUnitId AND released_at IS NOT NULL AND attempt_id IN (${MEANT})`,
    `DELETE FROM runtime_semaphore_slots
     WHERE work_unit_id = @workUnitId AND released_at IS NOT NULL AND attempt_id IN (${MEANT})`,
    // Arguments and diffs go with the events that told of them.
    `DELETE FROM approvals WHERE work_unit_id = @workUnitId AND attempt_id IN (${MEANT})`,
    `DELETE FROM artifacts WHERE work_unit_id = @workUnitId AND attempt_id IN (${MEANT})`,
    `UPDATE work_unit_attempts SET compacted_at = @at
     WHERE work_unit_id = @workUnitId AND attempt_number <= @lastAttempt`,
    'DELETE FROM compactions WHERE work_unit_id = @workUnitId',
  ].map((sql) => db.prepare<CompactionRow & { at: string }>(sql));
}

function compactions(db: Database, workspace: string) {
  const compactable = db.prepare<Record<string, string | number>>(
    `SELECT id, status, ended_at AS endedAt, last_seq - floor_seq AS events
     FROM work_units INDEXED BY idx_work_unit_compactable
     WHERE workspace_id = @workspace AND ${TERMINAL} AND last_seq > floor_seq
       AND ended_at IS NOT NULL AND (ended_at, id) > (@endedAt, @id)
       AND id NOT IN (SELECT work_unit_id FROM compactions)
       AND ${NOT_AWAITED('work_units.id')}
     ${JUDGED}
     ORDER BY ended_at, id LIMIT @limit`,
  );
  const begin = db.prepare<Record<string, string>>(
    `INSERT INTO compactions (work_unit_id, last_attempt, reason, at)
     SELECT id, coalesce((SELECT max(attempt_number) FROM work_unit_attempts
         WHERE work_unit_id = @id), 0), @reason, @at FROM work_units
     WHERE id = @id AND ${TERMINAL} AND ended_at = @endedAt AND active_attempt_id IS NULL
       AND ${NOT_AWAITED('work_units.id')}
       AND NOT EXISTS (SELECT 1 FROM work_unit_attempts AS attempt
         WHERE attempt.work_unit_id = @id AND attempt.${ACTIVE_ATTEMPT})
     ${JUDGED}
     ON CONFLICT DO NOTHING`,
  );
  const raiseFloor = db.prepare<Record<string, string>>(
    `UPDATE store_state SET floor_position = max(floor_position, coalesce(
       (SELECT position FROM runtime_events WHERE work_unit_id = @id ORDER BY seq DESC LIMIT 1), 0))`,
  );
  const raiseSeq = db.prepare<Record<string, string>>(
    'UPDATE work_units SET floor_seq = last_seq WHERE id = @id',
  );
  const pending = db.prepare<[]>(
    `SELECT work_unit_id AS workUnitId, last_attempt AS lastAttempt, reason
     FROM compactions ORDER BY at, work_unit_id`,
  );
  const attempts = db.prepare<CompactionRow, { id: string; nonce: string }>(
    `SELECT id, nonce FROM work_unit_attempts
     WHERE work_unit_id = @workUnitId AND attempt_number <= @lastAttempt ORDER BY attempt_number`,
  );
  const dropEvents = db.prepare<{ id: string; limit: number }>(
    `DELETE FROM runtime_events WHERE position IN (
       SELECT position FROM runtime_events WHERE work_unit_id = @id
         AND seq <= (SELECT floor_seq FROM work_units WHERE id = @id) ORDER BY seq LIMIT @limit)`,
  );
  const rest = remains(db);
  const values = (row: CompactionRow): CompactionRow => ({
    workUnitId: row.workUnitId,
    lastAttempt: row.lastAttempt,
    reason: row.reason,
  });

  return {
    /** Ended work of which there is something to remove, oldest end first, after one of it. */
    compactable: (
      limit: number,
      after: Pick<CompactableRow, 'id' | 'endedAt'> = { id: '', endedAt: '' },
    ): CompactableRow[] =>
      compactable
        .all({ workspace, limit, id: after.id, endedAt: after.endedAt })
        .map((row) => compactableSchema.parse(row)),
    /**
     * Stores the intent and raises both floors, before anything is removed. Must run in a
     * write transaction. @returns false when the work unit is another one by now.
     */
    begin: (seen: CompactableRow, reason: CompactionReason, at: string): boolean => {
      const { id, endedAt } = seen;
      if (begin.run({ id, endedAt, reason, at }).changes === 0) return false;
      raiseFloor.run({ id });
      raiseSeq.run({ id });
      return true;
    },
    pending: (): CompactionRow[] => pending.all().map((row) => compactionSchema.parse(row)),
    attemptsOf: (row: CompactionRow): { id: string; nonce: string }[] => attempts.all(values(row)),
    /** Removes at most `limit` events up to the floor. @returns how many there were. */
    dropEvents: (id: string, limit: number): number => dropEvents.run({ id, limit }).changes,
    /** Removes what is left of the meant attempts, and the intent with it. */
    finish: (row: CompactionRow, at: string): void => {
      for (const statement of rest) statement.run({ ...values(row), at });
    },
  };
}

function owners(db: Database) {
  const owner = (sql: string) => {
    const statement = db.prepare<{ name: string }, { compacted: number }>(sql);
    return (name: string): Owner => {
      const row = statement.get({ name });
      if (row === undefined) return 'unknown';
      return row.compacted === 1 ? 'compacted' : 'kept';
    };
  };
  const attempt = (column: string): string =>
    `SELECT compacted_at IS NOT NULL AS compacted FROM work_unit_attempts WHERE ${column} = @name`;
  return {
    ownerOfAttempt: owner(attempt('id')),
    ownerOfNonce: owner(attempt('nonce')),
    ownerOfSession: owner(
      // Of a conversation: once all work that went on with it is gone.
      `SELECT min(${TERMINAL} AND floor_seq > 0 AND last_seq = floor_seq
         AND id NOT IN (SELECT work_unit_id FROM compactions)) AS compacted
       FROM work_units WHERE conversation = @name HAVING count(*) > 0
       UNION ALL
       SELECT ${TERMINAL} AND floor_seq > 0 AND last_seq = floor_seq
         AND id NOT IN (SELECT work_unit_id FROM compactions) AS compacted
       FROM work_units WHERE id = @name`,
    ),
  };
}

function leftovers(db: Database, workspace: string) {
  const commands = db.prepare<Record<string, string | number>>(
    `DELETE FROM idempotent_commands WHERE rowid IN (
       SELECT command.rowid FROM idempotent_commands AS command
       LEFT JOIN work_units AS unit ON unit.id = command.work_unit_id
       WHERE command.workspace_id = @workspace AND command.created_at <= @before
         AND (unit.id IS NULL OR unit.${TERMINAL})
       LIMIT @limit)`,
  );
  // The newest report stays: it is what `recovery` shows.
  const instances = db.prepare<Record<string, string | number>>(
    `DELETE FROM runtime_instances WHERE id IN (
       SELECT id FROM runtime_instances WHERE started_at <= @before AND id <> (
         SELECT id FROM runtime_instances ORDER BY started_at DESC, id DESC LIMIT 1)
       LIMIT @limit)`,
  );
  return {
    /** Removes keys of commands about work that has ended. @returns how many. */
    dropCommands: (before: string, limit: number): number =>
      commands.run({ workspace, before, limit }).changes,
    /** Removes earlier starts of the daemon. @returns how many. */
    dropInstances: (before: string, limit: number): number =>
      instances.run({ before, limit }).changes,
  };
}

function pages(db: Database) {
  const number = (pragma: string): number => Number(db.pragma(pragma, { simple: true }));
  return {
    /** Bytes of the store that hold something. */
    usedBytes: (): number =>
      (number('page_count') - number('freelist_count')) * number('page_size'),
    /** Bytes of the store's file, once its log is in it. */
    fileBytes: (): number => number('page_count') * number('page_size'),
    freePages: (): number => number('freelist_count'),
    /** False for a store that was made before it could shrink; a restore makes it one that can. */
    canShrink: (): boolean => number('auto_vacuum') === 2,
    /** Gives free pages at the end of the file back, at most `count`. */
    giveBack: (count: number): void => {
      db.pragma(`incremental_vacuum(${Math.floor(count)})`);
    },
    /** Brings the log into the file, which becomes as small as its pages; the log keeps its room. */
    settleLog: (): void => {
      db.pragma('wal_checkpoint(PASSIVE)');
    },
  };
}

/** All statements about retention of one workspace. */
export function retentionStatements(db: Database, workspace: string) {
  const epoch = db.prepare<[], { epoch: string }>('SELECT epoch FROM store_state');
  return {
    /** Changes with every restore. */
    epoch: (): string => epoch.get()?.epoch ?? '',
    ...compactions(db, workspace),
    ...owners(db),
    ...leftovers(db, workspace),
    ...pages(db),
  };
}
