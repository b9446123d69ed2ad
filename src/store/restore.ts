/**
 * Puts a copy of a store in the place of the store, while no daemon owns the workspace.
 *
 * The copy is prepared beside its place and finished before anything of the old store is
 * touched. The old store is kept under another name. Killed at any point, either the old
 * store is there, or nothing is started until the restore is run again.
 */
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
} from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { OutliveError } from '../domain/errors.ts';
import { type CopyFacts, type CopyFault, checkCopy } from './backup-check.ts';
import { migrate } from './migrate.ts';
import { restoredFile, STORE_FILE, storeError } from './open.ts';
import { syncDirectory } from './owner-file.ts';
import { acquireRuntimeLock } from './runtime-lock.ts';

export interface RestorePlaces {
  readonly workspace: string;
  readonly state: string;
  readonly store: string;
  readonly attempts: string;
}

export interface RestoreReport extends CopyFacts {
  readonly file: string;
  /** Where the store that was replaced is kept; null when there was none. */
  readonly replaced: string | null;
  /** Attempts on the disk that the restored store does not know: they ran after the copy was made. */
  readonly unknownAttempts: readonly string[];
  /** Handles of live work whose attempt has no files here: whether it ran cannot be told. */
  readonly withoutFiles: readonly string[];
}

/**
 * Numbers jump to the next multiple of this: far beyond anything that was given out after
 * the copy was made, so that a cursor of that time is behind the floor and says so.
 */
const POSITION_GAP = 10_000_000_000;

const FAULTS: Readonly<Record<CopyFault, string>> = {
  foreign: 'Give it a file that outlive backup wrote.',
  newer: 'Use the newer outlive.',
  other_build: 'Use the build that wrote it.',
  damaged: 'Use another copy.',
};

const unusable = (file: string, reason: string, todo: string): OutliveError =>
  new OutliveError('backup_unusable', `${file}: ${reason}. ${todo}`);

/** Our own copy of the copy: what is checked is what is used, and the original stays as it is. */
function takeOver(source: string, target: string): void {
  for (const suffix of ['', '-wal', '-shm', '-journal'])
    rmSync(`${target}${suffix}`, { force: true });
  const info = lstatSync(source, { throwIfNoEntry: false });
  if (!info?.isFile()) throw unusable(source, 'there is no such file', FAULTS.foreign);
  copyFileSync(source, target);
  chmodSync(target, 0o600);
  // A copy that somebody else made of a store in use has its newest pages in the log.
  if (existsSync(`${source}-wal`)) copyFileSync(`${source}-wal`, `${target}-wal`);
}

function check(source: string, target: string, workspace: string): CopyFacts {
  const checked = checkCopy(target);
  if (!checked.ok) throw unusable(source, checked.reason, FAULTS[checked.fault]);
  const { facts } = checked;
  if (facts.workspaceId !== null && facts.workspaceId !== workspace)
    throw unusable(
      source,
      `it is of workspace "${facts.workspaceId}"`,
      `This is "${workspace}": use --workspace ${facts.workspaceId}.`,
    );
  return facts;
}

/**
 * Brings it to this build's schema and tells it that it was restored: another epoch, numbers
 * that nobody has seen, and no queued work taken until somebody says so.
 */
function prepare(file: string, workspace: string, at: string): void {
  const db = new Database(file);
  try {
    migrate(db, at);
    db.transaction(() => {
      const { last } = db
        .prepare<[], { last: number }>(
          "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'runtime_events'), 0) AS last",
        )
        .get() ?? { last: 0 };
      const next = (Math.floor(last / POSITION_GAP) + 1) * POSITION_GAP;
      db.exec("DELETE FROM sqlite_sequence WHERE name = 'runtime_events'");
      db.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('runtime_events', ?)").run(next);
      db.prepare(
        'UPDATE store_state SET workspace_id = ?, epoch = lower(hex(randomblob(16))), floor_position = ?',
      ).run(workspace, next);
      db.prepare(
        `INSERT INTO workspace_settings (workspace_id, name, value, updated_at)
         VALUES (?, 'admission', 'paused', ?) ON CONFLICT (workspace_id, name)
         DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`,
      ).run(workspace, at);
    }).immediate();
    if (db.pragma('auto_vacuum', { simple: true }) !== 2) {
      // A store of before it could shrink: now is the moment to make it one that can.
      db.pragma('auto_vacuum = INCREMENTAL');
      db.exec('VACUUM');
    }
    db.pragma('journal_mode = WAL');
  } finally {
    db.close();
  }
  const handle = openSync(file, 'r+');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

/** Keeps what is there under another name, its log with it. @returns that name. */
function keepOld(file: string, at: string): string | null {
  if (!existsSync(file)) return null;
  const kept = `${file}.replaced-${at.replaceAll(':', '')}`;
  for (const suffix of ['', '-wal']) {
    if (existsSync(`${file}${suffix}`)) linkSync(`${file}${suffix}`, `${kept}${suffix}`);
  }
  syncDirectory(path.dirname(file));
  return kept;
}

/** From the first removal to the rename a daemon that starts refuses: it sees the finished copy. */
function swap(file: string): void {
  rmSync(file, { force: true });
  syncDirectory(path.dirname(file));
  rmSync(`${file}-wal`, { force: true });
  rmSync(`${file}-shm`, { force: true });
  syncDirectory(path.dirname(file));
  renameSync(restoredFile(file), file);
  syncDirectory(path.dirname(file));
}

/** Attempts of the disk that the store has no row of, as `<work unit>/<attempt>`. */
function unknownAttempts(db: Database.Database, directory: string): string[] {
  const known = db.prepare<[string]>('SELECT 1 FROM work_unit_attempts WHERE id = ?').pluck();
  const entries = existsSync(directory) ? readdirSync(directory, { withFileTypes: true }) : [];
  return entries
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'))
    .flatMap(({ name: unit }) =>
      readdirSync(path.join(directory, unit))
        .filter((id) => known.get(id) === undefined)
        .map((id) => `${unit}/${id}`),
    );
}

function withoutFiles(db: Database.Database, directory: string): string[] {
  return db
    .prepare<[], { handle: string; unit: string; id: string }>(
      `SELECT handle, unit.id AS unit, attempt.id AS id FROM work_unit_attempts AS attempt
       JOIN work_units AS unit ON unit.active_attempt_id = attempt.id
       WHERE unit.status NOT IN ('succeeded', 'failed', 'cancelled') ORDER BY handle`,
    )
    .all()
    .filter(({ unit, id }) => !existsSync(path.join(directory, unit, id)))
    .map(({ handle }) => handle);
}

/** What the disk and the copy say differently, read before anything is put in place. */
function compare(
  file: string,
  attempts: string,
): Pick<RestoreReport, 'unknownAttempts' | 'withoutFiles'> {
  const db = new Database(file);
  try {
    return {
      unknownAttempts: unknownAttempts(db, attempts),
      withoutFiles: withoutFiles(db, attempts),
    };
  } finally {
    db.close();
  }
}

/**
 * Replaces the store of a workspace by the copy in `source`.
 * @param at now, RFC 3339.
 * @throws OutliveError `workspace_owned` while a daemon runs, `backup_unusable`, `disk_full`.
 */
export function restore(source: string, places: RestorePlaces, at: string): RestoreReport {
  const { workspace, state, store, attempts } = places;
  const file = path.join(store, STORE_FILE);
  const lock = acquireRuntimeLock(state, workspace);
  const temporary = `${file}.restoring`;
  try {
    mkdirSync(store, { recursive: true, mode: 0o700 });
    takeOver(source, temporary);
    const facts = check(source, temporary, workspace);
    prepare(temporary, workspace, at);
    const differences = compare(temporary, attempts);
    renameSync(temporary, restoredFile(file));
    const replaced = keepOld(file, at);
    swap(file);
    return { file, replaced, ...differences, ...facts };
  } catch (error) {
    throw storeError(error, file);
  } finally {
    for (const suffix of ['', '-wal', '-shm', '-journal'])
      rmSync(`${temporary}${suffix}`, { force: true });
    lock.release();
  }
}
