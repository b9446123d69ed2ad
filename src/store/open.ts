/** Opens the store: WAL, synchronous=FULL, migrated, or refused with a reason. */
import { mkdirSync, statSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { OutliveError } from '../domain/errors.ts';
import { migrate } from './migrate.ts';

export const STORE_FILE = 'outlive.db';

/** "outl" in ASCII: tells our files from other SQLite databases. */
const APPLICATION_ID = 0x6f75746c;
/** Above this a full check at every start would cost seconds; damage then shows where it is read. */
const CHECK_UP_TO_BYTES = 64 * 1024 * 1024;

const UNUSABLE = new Set(['SQLITE_CORRUPT', 'SQLITE_NOTADB', 'SQLITE_FORMAT']);

/** Turns what SQLite throws into the error a person can act on; passes our own through. */
export function storeError(error: unknown, file: string): OutliveError {
  if (error instanceof OutliveError) return error;
  const code = (error as { code?: string }).code ?? '';
  const message = (error as Error).message;
  if (UNUSABLE.has(code.split('_').slice(0, 2).join('_'))) {
    return new OutliveError(
      'store_damaged',
      `${file}: ${message}. Nothing is started over it; restore a backup or move the file away.`,
      { cause: error },
    );
  }
  if (code === 'SQLITE_FULL') {
    return new OutliveError('disk_full', `${file}: ${message}. Free some space.`, { cause: error });
  }
  return new OutliveError('store_unavailable', `${file}: ${code || 'error'}: ${message}.`, {
    cause: error,
  });
}

export interface OpenedDatabase {
  readonly db: Database.Database;
  readonly file: string;
  readonly schemaVersion: number;
}

function check(db: Database.Database, file: string): void {
  const id = db.pragma('application_id', { simple: true });
  const tables = db.prepare('SELECT count(*) AS n FROM sqlite_schema').get() as { n: number };
  if (id !== APPLICATION_ID && tables.n > 0) {
    throw new OutliveError(
      'store_damaged',
      `${file} is a database of something else, not outlive's.`,
    );
  }
  if (tables.n === 0 || statSync(file).size > CHECK_UP_TO_BYTES) return;
  const result = db.pragma('quick_check(1)', { simple: true });
  if (result !== 'ok') {
    throw new OutliveError(
      'store_damaged',
      `${file}: ${String(result)}. Nothing is started over it; restore a backup or move the file away.`,
    );
  }
}

/**
 * Opens (or makes) the store in `directory`.
 * @throws OutliveError `store_newer`, `store_damaged`, `store_unavailable` or `disk_full`.
 */
export function openDatabase(directory: string, at: string): OpenedDatabase {
  const file = path.join(directory, STORE_FILE);
  let db: Database.Database | undefined;
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    db = new Database(file, { timeout: 5_000 });
    check(db, file);
    db.pragma('journal_mode = WAL');
    db.pragma('synchronous = FULL');
    db.pragma('foreign_keys = ON');
    db.pragma(`application_id = ${APPLICATION_ID}`);
    return { db, file, schemaVersion: migrate(db, at) };
  } catch (error) {
    db?.close();
    throw storeError(error, file);
  }
}
