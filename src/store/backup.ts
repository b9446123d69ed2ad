/** Copies the store while it is in use, and believes the copy only after reading it. */
import { link, lstat, open, readdir, realpath, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { Worker } from 'node:worker_threads';
import type { Database } from 'better-sqlite3';
import { OutliveError } from '../domain/errors.ts';
import type { CopyCheck, CopyFacts } from './backup-check.ts';
import { storeError } from './open.ts';

export interface BackupReport extends CopyFacts {
  /** Absolute. */
  readonly file: string;
}

export interface BackupOptions {
  /** Replaces a file that is there. */
  readonly force: boolean;
  /** Sets the unfinished copy apart from others: an id of the caller. */
  readonly mark: string;
  /** True once the copy is to be given up. */
  readonly stopped: () => boolean;
}

/** Copied in one turn of the event loop: 400 kB, well under a millisecond. */
const PAGES_AT_ONCE = 100;
const PARTIAL = '.partial';

const failed = (target: string, error: unknown): OutliveError => {
  if (error instanceof OutliveError) return error;
  const { code = '', message } = error as NodeJS.ErrnoException;
  if (['SQLITE_FULL', 'ENOSPC', 'EDQUOT'].includes(code)) return storeError(error, target);
  return new OutliveError('backup_failed', `${target}: ${message}. Nothing is left of it.`, {
    cause: error,
  });
};

/** Where it is to be, with the links of its directory resolved. */
async function place(store: string, target: string, force: boolean): Promise<string> {
  if (!path.isAbsolute(target) || target.endsWith('/'))
    throw new OutliveError('invalid_request', `"${target}" is not an absolute path of a file.`, {
      fields: [{ path: '/path', message: 'must be the absolute path of a file' }],
    });
  const directory = await realpath(path.dirname(target));
  if (directory === (await realpath(path.dirname(store))))
    throw new OutliveError('backup_failed', `${target} lies in the store's own directory.`);
  const file = path.join(directory, path.basename(target));
  const there = await lstat(file).catch(() => null);
  if (there && !there.isFile())
    throw new OutliveError('target_exists', `${file} is there and is no plain file.`);
  if (there && !force)
    throw new OutliveError('target_exists', `${file} is there. Use --force to replace it.`);
  return file;
}

/** What a daemon that died in a backup left beside the same target. */
async function removeStale(file: string): Promise<void> {
  const directory = path.dirname(file);
  const beginning = `.${path.basename(file)}.`;
  for (const name of await readdir(directory)) {
    if (!name.startsWith(beginning) || !name.includes(PARTIAL)) continue;
    await rm(path.join(directory, name), { force: true });
  }
}

/** Private from its first byte on; and durable, once the work on it is done. */
async function inNewFile(file: string, work: () => Promise<void>): Promise<void> {
  const handle = await open(file, 'wx', 0o600);
  try {
    await work();
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** The script lies beside this one, compiled or not. */
const CHECK = new URL(`./backup-check${path.extname(import.meta.url)}`, import.meta.url);

function check(file: string): Promise<CopyCheck> {
  const { promise, resolve, reject } = Promise.withResolvers<CopyCheck>();
  const worker = new Worker(CHECK, { workerData: file });
  worker.once('message', resolve);
  worker.once('error', reject);
  worker.once('exit', (code) => reject(new Error(`the check ended with ${code}`)));
  return promise;
}

async function publish(partial: string, file: string, force: boolean): Promise<void> {
  try {
    // A link refuses where a rename would replace what came in the meantime.
    if (force) await rename(partial, file);
    else await link(partial, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    throw new OutliveError('target_exists', `${file} is there. Use --force to replace it.`);
  }
  const directory = await open(path.dirname(file), 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/**
 * Writes a copy of an open store to `target`: 0600, whole or not at all. Others go on
 * reading and writing meanwhile; the copy is of the moment it is finished.
 * @throws OutliveError `target_exists`, `backup_failed`, `disk_full`, `invalid_request`.
 */
export async function backupTo(
  db: Database,
  target: string,
  { force, mark, stopped }: BackupOptions,
): Promise<BackupReport> {
  try {
    const file = await place(db.name, target, force);
    await removeStale(file);
    const partial = path.join(path.dirname(file), `.${path.basename(file)}.${mark}${PARTIAL}`);
    try {
      await inNewFile(partial, async () => {
        const progress = (): number => {
          if (stopped()) throw new OutliveError('shutting_down', 'The daemon is shutting down.');
          return PAGES_AT_ONCE;
        };
        await db.backup(partial, { progress });
      });
      const checked = await check(partial);
      if (!checked.ok) throw new Error(`the copy is not whole: ${checked.reason}`);
      await publish(partial, file, force);
      return { file, ...checked.facts };
    } finally {
      for (const suffix of ['', '-journal', '-wal', '-shm'])
        await rm(`${partial}${suffix}`, { force: true });
    }
  } catch (error) {
    throw failed(target, error);
  }
}
