/**
 * One daemon per workspace. Ownership is a kernel lock, held by SQLite on a file of
 * its own for the process's whole life and gone with the process, however it ends.
 * `runtime.lock` only describes the owner; nothing is ever decided from it.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { z } from 'zod';
import { OutliveError } from '../domain/errors.ts';

/**
 * Daemons that try at the same moment hold SQLite's shared lock for an instant each; without
 * a moment's patience each may be refused for the others, and nobody owns the workspace.
 */
const SETTLE_MS = 250;

const ownerSchema = z.object({
  workspaceId: z.string(),
  runtimeInstanceId: z.string(),
  pid: z.int(),
  host: z.string().nullable(),
  port: z.int().nullable(),
  socket: z.string(),
  startedAt: z.string(),
  version: z.string(),
  schemaVersion: z.int(),
});
/** What runtime.lock says about the owner. */
export type RuntimeOwner = z.infer<typeof ownerSchema>;

export interface RuntimeLock {
  /** The owner before us, as far as the file told; null when there was none. */
  readonly previous: RuntimeOwner | null;
  describe(owner: RuntimeOwner): void;
  release(): void;
}

function readOwner(file: string): RuntimeOwner | null {
  try {
    return ownerSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch {
    return null; // A description may be missing or old; the lock itself is elsewhere.
  }
}

function refusal(owner: RuntimeOwner | null, workspace: string): OutliveError {
  const who = owner
    ? `pid ${owner.pid}, instance ${owner.runtimeInstanceId}, since ${owner.startedAt}, socket ${owner.socket}`
    : 'it has not said who it is yet';
  return new OutliveError(
    'workspace_owned',
    `Another daemon owns workspace "${workspace}" (${who}). Use it, or stop it first: outlive daemon stop.`,
    { extra: owner ? { owner } : {} },
  );
}

/**
 * Takes the workspace or refuses within a moment; never takes over a live owner, however
 * slow it is. The description of an owner before us is read and removed: until
 * `describe` nobody is named, so that no dead pid is.
 * @throws OutliveError `workspace_owned` with the owner, `state_dir_unwritable`.
 */
export function acquireRuntimeLock(stateDirectory: string, workspace: string): RuntimeLock {
  const file = path.join(stateDirectory, 'runtime.lock');
  let db: Database.Database | undefined;
  try {
    mkdirSync(stateDirectory, { recursive: true, mode: 0o700 });
    db = new Database(path.join(stateDirectory, 'runtime.lock.db'), { timeout: SETTLE_MS });
    // Without a journal on disk nothing of this file has to be recovered after a crash.
    db.pragma('journal_mode = MEMORY');
    db.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    db?.close();
    const code = (error as { code?: string }).code ?? '';
    if (code.startsWith('SQLITE_BUSY')) throw refusal(readOwner(file), workspace);
    throw new OutliveError(
      'state_dir_unwritable',
      `${stateDirectory}: ${(error as Error).message}. The daemon needs to write there.`,
      { cause: error },
    );
  }
  const held = db;
  const previous = readOwner(file);
  rmSync(file, { force: true });
  return {
    previous,
    describe: (owner) => {
      const temporary = `${file}.${owner.pid}`;
      writeFileSync(temporary, `${JSON.stringify(owner, null, 2)}\n`, { mode: 0o600 });
      renameSync(temporary, file);
    },
    release: () => {
      held.close();
    },
  };
}
