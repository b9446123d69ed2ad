/**
 * Reads a copy of a store and says what is in it. Everything it reports was read from the
 * copy itself. Runs on a thread of its own: a full check takes seconds for each gigabyte.
 */
import { statSync } from 'node:fs';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';
import Database from 'better-sqlite3';
import { readMigrations } from './migrate.ts';
import { APPLICATION_ID } from './open.ts';

export interface CopyFacts {
  readonly bytes: number;
  readonly schemaVersion: number;
  /** Null when nobody ever opened the store it is a copy of. */
  readonly workspaceId: string | null;
  readonly workUnits: number;
  readonly liveWorkUnits: number;
  readonly attempts: number;
  readonly events: number;
  /** Position of its newest event. */
  readonly position: number;
}

/** Why a copy cannot be used. */
export type CopyFault = 'foreign' | 'newer' | 'other_build' | 'damaged';

export type CopyCheck =
  | { readonly ok: true; readonly facts: CopyFacts }
  | { readonly ok: false; readonly fault: CopyFault; readonly reason: string };

const bad = (fault: CopyFault, reason: string): CopyCheck => ({ ok: false, fault, reason });

function readFacts(db: Database.Database, file: string): CopyFacts {
  const number = (sql: string): number => Number(db.prepare(sql).pluck().get() ?? 0);
  const text = (sql: string): string | null =>
    (db.prepare(sql).pluck().get() as string | null | undefined) ?? null;
  const hasState = number("SELECT count(*) FROM sqlite_schema WHERE name = 'store_state'") > 0;
  return {
    bytes: statSync(file).size,
    schemaVersion: number('SELECT max(id) FROM migrations'),
    workspaceId:
      (hasState ? text('SELECT workspace_id FROM store_state') : null) ??
      text('SELECT workspace_id FROM work_units LIMIT 1'),
    workUnits: number('SELECT count(*) FROM work_units'),
    liveWorkUnits: number(
      "SELECT count(*) FROM work_units WHERE status NOT IN ('succeeded', 'failed', 'cancelled')",
    ),
    attempts: number('SELECT count(*) FROM work_unit_attempts'),
    events: number('SELECT count(*) FROM runtime_events'),
    position: number("SELECT seq FROM sqlite_sequence WHERE name = 'runtime_events'"),
  };
}

function migrationFault(db: Database.Database): CopyCheck | null {
  const known = readMigrations();
  const rows = db
    .prepare<[], { id: number; name: string; checksum: string }>('SELECT * FROM migrations')
    .all();
  for (const { id, name, checksum } of rows) {
    const ours = known.find((candidate) => candidate.id === id);
    if (!ours) return bad('newer', `it has schema ${id} (${name}), this outlive knows no such`);
    if (ours.checksum !== checksum) return bad('other_build', `its ${name} is of another build`);
  }
  return null;
}

/**
 * Checks a copy, and leaves it as one file without a log beside it. The file must be the
 * caller's own: it is opened for writing.
 */
export function checkCopy(file: string): CopyCheck {
  let db: Database.Database | undefined;
  try {
    db = new Database(file, { fileMustExist: true });
    if (db.pragma('application_id', { simple: true }) !== APPLICATION_ID)
      return bad('foreign', 'it is no store of outlive');
    db.pragma('journal_mode = DELETE');
    const whole = db.pragma('integrity_check(1)', { simple: true });
    if (whole !== 'ok') return bad('damaged', String(whole));
    if ((db.pragma('foreign_key_check') as unknown[]).length > 0)
      return bad('damaged', 'rows in it name others that are not there');
    return migrationFault(db) ?? { ok: true, facts: readFacts(db, file) };
  } catch (error) {
    return bad('damaged', (error as Error).message);
  } finally {
    db?.close();
  }
}

if (!isMainThread) parentPort?.postMessage(checkCopy(workerData as string));
