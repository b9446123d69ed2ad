/** Files that are whole or absent, also after a power cut. */
import { closeSync, fsyncSync, mkdirSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';

/** Makes the directory's entries durable (fsync(2): a new file needs its directory synced too). */
export function syncDirectory(directory: string): void {
  const fd = openSync(directory, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** Writes a new file, mode 0600, and syncs it; it must not exist. */
export function writeNewFile(path: string, text: string): void {
  const fd = openSync(path, 'wx', 0o600);
  try {
    writeAll(fd, Buffer.from(text));
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** write(2) may take less than it is given: goes on until all is written. */
export function writeAll(
  fd: number,
  bytes: Uint8Array,
  written: (count: number) => void = () => {},
): void {
  for (let done = 0; done < bytes.length; ) {
    const count = writeSync(fd, bytes, done, bytes.length - done);
    done += count;
    written(count);
  }
}

/**
 * Makes a directory, mode 0700, and what is missing above it. Node's own recursive
 * mkdir never returns below /proc.
 */
export function makeDirectory(directory: string): void {
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch (error) {
    const code = errorCode(error);
    if (code === 'EEXIST') return;
    if (code !== 'ENOENT') throw error;
    makeDirectory(path.dirname(directory));
    makeOne(directory);
  }
}

/** Another wrapper that starts at the same moment may have made it since. */
function makeOne(directory: string): void {
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
  }
}

/** True for the codes of an error that say there is no room: a full disk, a quota, a file at its limit. */
export const isDiskFull = (code: string): boolean =>
  code === 'ENOSPC' || code === 'EDQUOT' || code === 'EFBIG';

/** The system's code of an error (`ENOSPC`), or its message where it has none. */
export function errorCode(error: unknown): string {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string')
    return error.code;
  return error instanceof Error ? error.message : String(error);
}
