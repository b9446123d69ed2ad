/** Directories the daemon stands on. */
import { accessSync, constants, mkdirSync } from 'node:fs';
import path from 'node:path';
import { OutliveError } from './domain/errors.ts';

/** Makes a directory, 0700, and what is missing above it. Node's own recursive mkdir spins below /proc. */
function make(directory: string): void {
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    if (code !== 'ENOENT' || path.dirname(directory) === directory) throw error;
    make(path.dirname(directory));
    makeOne(directory);
  }
}

/** Another daemon that starts at the same moment may have made it since. */
function makeOne(directory: string): void {
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/**
 * Makes sure that a directory is there and can be written.
 * @throws OutliveError `disk_full`, `state_dir_unwritable`, naming the directory.
 */
export function ensureDirectory(directory: string): void {
  try {
    make(directory);
    accessSync(directory, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new OutliveError(
      (error as NodeJS.ErrnoException).code === 'ENOSPC' ? 'disk_full' : 'state_dir_unwritable',
      `${directory}: ${(error as Error).message}. The daemon needs to write there.`,
      { cause: error },
    );
  }
}
