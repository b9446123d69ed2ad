/** Opens the store: WAL, synchronous=FULL, migrated, or refused with a reason. */
import { existsSync, linkSync, mkdirSync, rmSync, statfsSync, statSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { OutliveError } from '../domain/errors.ts';
import { migrate } from './migrate.ts';
import { syncDirectory } from './owner-file.ts';

export const STORE_FILE = 'outlive.db';

/** "outl" in ASCII: tells our files from other SQLite databases. */
export const APPLICATION_ID = 0x6f75746c;
/** Above this a full check at every start would cost seconds; damage then shows where it is read. */
const CHECK_UP_TO_BYTES = 64 * 1024 * 1024;

/** SHMSIZE: the file of the shared memory cannot grow. */
const DISK_FULL = new Set(['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE', 'ENOSPC', 'EDQUOT']);

/** What SQLite says, by the place where it happened to notice, when a write does not work. */
const isFailedWrite = (code: string): boolean =>
  code.startsWith('SQLITE_IOERR') || code.startsWith('SQLITE_CANTOPEN');

/** Less than this is no room for a transaction, bytes. */
const ROOM_BYTES = 64 * 1024;

function hasNoRoom(directory: string): boolean {
  try {
    const { bavail, bsize, ffree, files } = statfsSync(directory);
    return bavail * bsize < ROOM_BYTES || (files > 0 && ffree === 0);
  } catch {
    return false;
  }
}

const UNUSABLE = new Set(['SQLITE_CORRUPT', 'SQLITE_NOTADB', 'SQLITE_FORMAT']);

const damaged = (file: string, what: string, cause?: unknown): OutliveError =>
  new OutliveError(
    'store_damaged',
    `${file}: ${what}. Nothing is started over it; restore a backup or move the file away.`,
    { cause },
  );

/** Turns what SQLite throws into the error a person can act on; passes our own through. */
export function storeError(error: unknown, file: string): OutliveError {
  if (error instanceof OutliveError) return error;
  const code = (error as { code?: string }).code ?? '';
  const message = (error as Error).message;
  if (UNUSABLE.has(code.split('_').slice(0, 2).join('_'))) {
    return damaged(file, message, error);
  }
  if (DISK_FULL.has(code) || (isFailedWrite(code) && hasNoRoom(path.dirname(file)))) {
    return new OutliveError('disk_full', `${file}: ${message}. Free some space.`, { cause: error });
  }
  return new OutliveError('store_unavailable', `${file}: ${code || 'error'}: ${message}.`, {
    cause: error,
  });
}

/** A restored store, finished, that waits to take the place of `file`. */
export const restoredFile = (file: string): string => `${file}.restored`;

export interface OpenedDatabase {
  readonly db: Database.Database;
  readonly file: string;
  readonly schemaVersion: number;
}

function check(db: Database.Database, file: string): void {
  const tables = db.prepare('SELECT count(*) AS n FROM sqlite_schema').get() as { n: number };
  if (tables.n === 0) throw damaged(file, 'nothing is in it');
  if (db.pragma('application_id', { simple: true }) !== APPLICATION_ID)
    throw damaged(file, "it is a database of something else, not outlive's");
  const { size } = statSync(file);
  // With a log beside it the end of the file may still be in there (a crash in a checkpoint).
  const hasLog = (statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0;
  const pageSize = Number(db.pragma('page_size', { simple: true }));
  if (size % pageSize !== 0 && !hasLog) throw damaged(file, 'its last page was cut off');
  if (size > CHECK_UP_TO_BYTES) return;
  const result = db.pragma('quick_check(1)', { simple: true });
  if (result !== 'ok') throw damaged(file, String(result));
}

/**
 * Makes a new store beside its place and links it there when it is whole. So an empty
 * file of the store's name is never a beginning: it is what is left of a lost store.
 */
function make(file: string, at: string): void {
  const temporary = `${file}.new-${process.pid}`;
  rmSync(temporary, { force: true });
  try {
    const db = new Database(temporary);
    try {
      // Only possible before the first table: the file can give free pages back, step by step.
      db.pragma('auto_vacuum = INCREMENTAL');
      db.pragma('journal_mode = MEMORY');
      db.pragma('synchronous = FULL');
      db.pragma(`application_id = ${APPLICATION_ID}`);
      migrate(db, at);
      // Now, while nobody else has it open: a later switch could meet a reader's lock.
      db.pragma('journal_mode = WAL');
    } finally {
      db.close();
    }
    linkSync(temporary, file);
    syncDirectory(path.dirname(file));
  } catch (error) {
    // Another opener was faster: its store is as good as ours.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(temporary, { force: true });
  }
}

/**
 * Opens (or makes) the store in `directory`.
 * @param mayMake false after a try that found a store: one that has gone since is missed.
 * @throws OutliveError `store_newer`, `store_damaged`, `store_unavailable` or `disk_full`.
 */
export function openDatabase(directory: string, at: string, mayMake = true): OpenedDatabase {
  const file = path.join(directory, STORE_FILE);
  let db: Database.Database | undefined;
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    // In this order: another opener may just be making both.
    const hasLog = existsSync(`${file}-wal`);
    if (!existsSync(file)) {
      // SQLite would play the log of the lost store into the new one.
      if (hasLog) throw damaged(`${file}-wal`, 'the store it belongs to is gone');
      if (!mayMake) throw damaged(file, 'it was there a moment ago and is gone');
      if (existsSync(restoredFile(file)))
        throw damaged(restoredFile(file), 'a restore was cut off; run outlive restore again');
      make(file, at);
    }
    // Before SQLite looks: it would remove the log of an empty file.
    if (statSync(file).size === 0) throw damaged(file, 'it is empty');
    db = new Database(file, { timeout: 5_000 });
    check(db, file);
    db.pragma('journal_mode = WAL');
    db.pragma('synchronous = FULL');
    db.pragma('foreign_keys = ON');
    return { db, file, schemaVersion: migrate(db, at) };
  } catch (error) {
    db?.close();
    throw storeError(error, file);
  }
}
