/** What killed gits leave in a repository: locks, and entries of work trees that are not there. */
import { lstatSync, readdirSync, readFileSync, rmSync, type Stats, utimesSync } from 'node:fs';
import path from 'node:path';
import { removeTree } from '../supervisor/trees.ts';
import type { Git } from './git.ts';
import type { TreeRecord } from './tree-records.ts';

/** Of a git that lives, a lock is there for moments. */
const STALE_MS = 10_000;

/** True when it was there, was old, and is gone. */
function dropStale(file: string): boolean {
  const info = infoOf(file);
  if (!info?.isFile() || Date.now() - info.mtimeMs < STALE_MS) return false;
  rmSync(file, { force: true });
  return true;
}

/** Null also where a file is in the way of the directory. */
function infoOf(file: string): Stats | null {
  try {
    return lstatSync(file);
  } catch {
    return null;
  }
}

/** Locks of the work tree itself; nobody but its own turns works in it. @returns what was done. */
export async function dropStaleLocks(git: Git, place: string): Promise<string[]> {
  const directory = await git.line(['rev-parse', '--absolute-git-dir'], place);
  if (directory === null) return [];
  return ['index.lock', 'HEAD.lock']
    .filter((name) => dropStale(path.join(directory, name)))
    .map((name) => `A stale ${name} was removed from ${directory}.`);
}

/** The lock of a branch that only we make. */
function dropStaleRefLock(common: string, branch: string): void {
  dropStale(path.join(common, 'refs', 'heads', `${branch}.lock`));
}

function readOrNull(file: string): string | null {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return null;
  }
}

function entriesOf(common: string): string[] {
  try {
    return readdirSync(path.join(common, 'worktrees'));
  } catch {
    return [];
  }
}

const isOf = (entry: string, place: string): boolean => {
  const pointer = readOrNull(path.join(entry, 'gitdir'));
  if (pointer !== null && pointer !== '') return pointer === path.join(place, '.git');
  // Killed before it was written: git calls entries by the directory, and a number.
  const base = path.basename(place);
  return (
    path.basename(entry).startsWith(base) && /^\d*$/.test(path.basename(entry).slice(base.length))
  );
};

/** True when git has an entry for the work tree at a place. */
export const hasEntry = (common: string, place: string): boolean =>
  entriesOf(common).some((name) => isOf(path.join(common, 'worktrees', name), place));

/** Takes the entry of a work tree away that is not there any more, and no other's, as a prune would. */
export function dropEntry(common: string, place: string): void {
  for (const name of entriesOf(common)) {
    const entry = path.join(common, 'worktrees', name);
    if (isOf(entry, place)) rmSync(entry, { recursive: true, force: true });
  }
}

/** A work tree that was being made when its maker died: nobody was told of it, nobody worked in it. */
export async function clearHalfMade({ path: place, common, branch }: TreeRecord): Promise<void> {
  await removeTree(place);
  dropEntry(common, place);
  dropStaleRefLock(common, branch);
}

/**
 * Keeps git from noting another place of the work tree for a day: it does so when it is run in
 * a work tree that was moved and the note is older than that.
 */
export function keepEntry(common: string, place: string): void {
  const now = new Date();
  for (const name of entriesOf(common)) {
    const entry = path.join(common, 'worktrees', name);
    if (isOf(entry, place)) utimesSync(path.join(entry, 'gitdir'), now, now);
  }
}
