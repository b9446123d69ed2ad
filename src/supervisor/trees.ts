/**
 * Measuring and removing directory trees that an agent could write to. No link is ever
 * followed, and what was made unwritable is made writable, by the very directory and
 * not by its name: a name may be another thing by then.
 */
import { chmodSync, closeSync, constants, lstatSync, openSync, renameSync } from 'node:fs';
import { chmod, lstat, open, readdir, rmdir, unlink } from 'node:fs/promises';
import path from 'node:path';

/** Bytes of a block as stat(2) counts them. */
const BLOCK = 512;
/** From open(2); Node does not name it. Opens a directory that may not even be read. */
const O_PATH = 0o10_000_000;
const JUST_THIS = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const OWNER_ONLY = 0o700;

export interface Tally {
  readonly files: number;
  /** As they lie on the disk. */
  readonly bytes: number;
}

export const NOTHING: Tally = { files: 0, bytes: 0 };

export const sum = (a: Tally, b: Tally): Tally => ({
  files: a.files + b.files,
  bytes: a.bytes + b.bytes,
});

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? '';
const isDenied = (error: unknown): boolean => ['EACCES', 'EPERM'].includes(codeOf(error));

/** What `work` says, `fallback` where there is nothing of that name. */
async function orMissing<Result>(work: Promise<Result>, fallback: Result): Promise<Result> {
  try {
    return await work;
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
    return fallback;
  }
}

async function makeWritable(directory: string): Promise<void> {
  const handle = await open(directory, JUST_THIS);
  try {
    // chmod(2) by number: O_PATH allows no fchmod, and the name may lead elsewhere by now.
    await chmod(`/proc/self/fd/${handle.fd}`, OWNER_ONLY);
  } finally {
    await handle.close();
  }
}

/** Does it, once more with a writable `directory` when that was in the way. */
async function inWritable<Result>(directory: string, act: () => Promise<Result>): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    if (!isDenied(error)) throw error;
    await makeWritable(directory);
    return act();
  }
}

/** Names in a directory; none where there is no such directory. */
export const namesIn = (directory: string): Promise<string[]> => orMissing(readdir(directory), []);

/** Files and bytes below, as far as they can be read. */
export async function measureTree(file: string): Promise<Tally> {
  const info = await orMissing(lstat(file), null);
  if (info === null) return NOTHING;
  const own: Tally = { files: info.isDirectory() ? 0 : 1, bytes: info.blocks * BLOCK };
  if (!info.isDirectory()) return own;
  let total = own;
  const names = await readdir(file).catch(() => []);
  for (const name of names) total = sum(total, await measureTree(path.join(file, name)));
  return total;
}

/** Removes whatever is there. @returns what that was. */
export async function removeTree(file: string): Promise<Tally> {
  const info = await orMissing(lstat(file), null);
  if (info === null) return NOTHING;
  const parent = path.dirname(file);
  let gone: Tally = { files: info.isDirectory() ? 0 : 1, bytes: info.blocks * BLOCK };
  if (!info.isDirectory()) {
    await inWritable(parent, () => orMissing(unlink(file), undefined));
    return gone;
  }
  for (const name of await inWritable(file, () => readdir(file))) {
    gone = sum(gone, await removeTree(path.join(file, name)));
  }
  await inWritable(parent, () => orMissing(rmdir(file), undefined));
  return gone;
}

/** The newest change to a thing or to what lies directly in it, milliseconds since the epoch. */
export async function newestChange(file: string): Promise<number> {
  const info = await lstat(file);
  if (!info.isDirectory()) return info.mtimeMs;
  const names = await readdir(file).catch(() => []);
  const times = await Promise.all(
    names.map(async (name) => (await orMissing(lstat(path.join(file, name)), info)).mtimeMs),
  );
  return Math.max(info.mtimeMs, ...times);
}

function isDirectory(file: string): boolean {
  return lstatSync(file, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function makeWritableNow(directory: string): void {
  if (!isDirectory(directory)) return;
  const handle = openSync(directory, JUST_THIS);
  try {
    chmodSync(`/proc/self/fd/${handle}`, OWNER_ONLY);
  } finally {
    closeSync(handle);
  }
}

/**
 * Renames, if there is anything, in this very turn of the event loop: between the intent
 * and this nobody may begin to use the place anew. The parent must be a directory of ours
 * and no link, else nothing is done.
 */
export function moveAsideNow(file: string, to: string): void {
  const parent = path.dirname(file);
  if (!isDirectory(parent)) return;
  try {
    renameSync(file, to);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return;
    if (!isDenied(error)) throw error;
    // A directory that moves must be writable itself: its ".." changes.
    makeWritableNow(parent);
    makeWritableNow(file);
    renameSync(file, to);
  }
}

/** Removes a directory if nothing is in it. */
export async function removeEmpty(directory: string): Promise<void> {
  try {
    await rmdir(directory);
  } catch (error) {
    if (!['ENOENT', 'ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes(codeOf(error))) throw error;
  }
}

/** Makes renames in a directory durable. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
