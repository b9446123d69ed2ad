/**
 * An exclusive kernel lock on a file, held by SQLite for as long as the process wants it
 * and gone with the process, however it ends. Locks of the kernel speak for one machine.
 */
import { statSync } from 'node:fs';
import Database from 'better-sqlite3';

/**
 * Processes that try at the same moment hold SQLite's shared lock for an instant each; without
 * a moment's patience each may be refused for the others, and nobody gets the lock.
 */
const SETTLE_MS = 250;

export interface KernelLock {
  /** False when its file is no longer at its path: then somebody else may lock another one there. */
  isInPlace(): boolean;
  release(): void;
}

const identityOf = (file: string): string | null => {
  const stat = statSync(file, { throwIfNoEntry: false });
  return stat ? `${stat.dev}:${stat.ino}` : null;
};

/**
 * Takes the lock on `file`, which is made when it is missing.
 * @returns null when another process has it. @throws what opening the file may throw.
 */
export function takeKernelLock(file: string): KernelLock | null {
  let db: Database.Database | undefined;
  try {
    db = new Database(file, { timeout: SETTLE_MS });
    // Without a journal on disk nothing of this file has to be recovered after a crash.
    db.pragma('journal_mode = MEMORY');
    db.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    db?.close();
    if (((error as { code?: string }).code ?? '').startsWith('SQLITE_BUSY')) return null;
    throw error;
  }
  const held = db;
  const identity = identityOf(file);
  return {
    isInPlace: () => identity !== null && identityOf(file) === identity,
    release: () => {
      held.close();
    },
  };
}
