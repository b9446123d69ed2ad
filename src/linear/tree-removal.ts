/**
 * Removing a work tree that nobody needs. Nothing is forced: what is not committed, not pushed
 * or still worked on keeps it. It is moved aside before the last look, so that nothing that
 * goes by its name can write to it between that look and its end.
 */
import { lstatSync, renameSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { removeTree, syncDirectory } from '../supervisor/trees.ts';
import type { Git } from './git.ts';
import { defaultBranch, listedTrees } from './tree-base.ts';
import { clearHalfMade, dropEntry, hasEntry, keepEntry } from './tree-mending.ts';
import type { TreeRecord, TreeRecords } from './tree-records.ts';

export type KeepReason =
  | 'open_turn'
  /** Files that are changed or not tracked, or an operation of git in the middle. */
  | 'dirty'
  /** Commits that no remote has; without a remote: that the default branch has not. */
  | 'unpushed'
  /** `git worktree lock`. */
  | 'locked'
  | 'failed';

export type Removal =
  | { readonly kind: 'removed' }
  | { readonly kind: 'kept'; readonly reason: KeepReason; readonly detail: string };

interface RemovalOrder {
  readonly git: Git;
  readonly record: TreeRecord;
  readonly records: TreeRecords;
  isOpen(key: string): boolean;
  fault(point: 'tree_aside' | 'tree_unlisted'): void;
}

const kept = (reason: KeepReason, detail: string): Removal => ({ kind: 'kept', reason, detail });

/** Files of git's that are there while it is in the middle of something. */
const UNDER_WAY: Readonly<Record<string, string>> = {
  'rebase-merge': 'a rebase',
  'rebase-apply': 'a rebase',
  MERGE_HEAD: 'a merge',
  CHERRY_PICK_HEAD: 'a cherry-pick',
  REVERT_HEAD: 'a revert',
  BISECT_LOG: 'a bisect',
};

const asidePath = ({ path: place }: Pick<TreeRecord, 'path'>): string =>
  path.join(path.dirname(place), `.going-${path.basename(place)}`);

const exists = (file: string): boolean => lstatSync(file, { throwIfNoEntry: false }) !== undefined;

/** Moves; both lie in one directory. Durable when it resolves. */
async function move(from: string, to: string): Promise<void> {
  renameSync(from, to);
  await syncDirectory(path.dirname(to));
}

/** Why files keep it; null when they do not. */
export async function dirt(git: Git, place: string): Promise<string | null> {
  const args = ['status', '--porcelain', '-z', '--untracked-files=all', '--ignore-submodules=none'];
  const changed = (await git.must(args, place)).split('\0').filter((line) => line !== '');
  const [first] = changed;
  if (first !== undefined) return `${changed.length} changed or new, as ${first.slice(3)}`;
  // Files that git was told not to look at; in a sparse checkout S is how it works.
  const listed = (await git.must(['ls-files', '-v', '-z'], place)).split('\0');
  const isSparse = await git.line(['config', '--bool', 'core.sparseCheckout'], place);
  const marks = isSparse === 'true' ? /^[a-z] / : /^[a-zS] /;
  const unseen = listed.find((line) => marks.test(line));
  if (unseen !== undefined) return `${unseen.slice(2)} is marked as not to be looked at`;
  const directory = await git.must(['rev-parse', '--absolute-git-dir'], place);
  const names = await readdir(directory.replace(/\n$/, ''));
  const busy = names.find((name) => Object.hasOwn(UNDER_WAY, name));
  return busy === undefined ? null : `${UNDER_WAY[busy]} is under way`;
}

/** Why commits keep it; null when all are elsewhere. */
async function unpushed(git: Git, { path: place, branch }: TreeRecord): Promise<string | null> {
  const hasRemote = (await git.must(['remote'])).trim() !== '';
  const elsewhere = hasRemote ? '--remotes' : await defaultBranch(git);
  const isThere = (await git.run(['show-ref', '--verify', '--quiet', `refs/heads/${branch}`])).ok;
  const own = ['HEAD', ...(isThere ? [`refs/heads/${branch}`] : [])];
  const args = ['rev-list', '--count', ...own, '--not', elsewhere, '--'];
  const count = Number(await git.must(args, place));
  if (count === 0) return null;
  return hasRemote
    ? `${count} commits that no remote has`
    : `${count} commits that ${elsewhere.replace('refs/heads/', '')} has not`;
}

async function looks({ git, record, isOpen }: RemovalOrder): Promise<Removal | null> {
  const { path: place, key } = record;
  const entry = (await listedTrees(git)).find((tree) => tree.path === place);
  if (!entry) return kept('failed', 'git does not know it as a work tree');
  if (entry.isLocked) return kept('locked', 'somebody locked it (git worktree unlock)');
  const changed = await dirt(git, place);
  if (changed !== null) return kept('dirty', changed);
  const commits = await unpushed(git, record);
  if (commits !== null) return kept('unpushed', commits);
  return isOpen(key) ? kept('open_turn', 'its turn is not over') : null;
}

/** Takes the work tree away if nobody needs it, and says so or why not. */
export async function removeUnneeded(order: RemovalOrder): Promise<Removal> {
  const { git, record, records } = order;
  const { path: place, key } = record;
  if (record.state === 'removing' && !(await mendRemoval(record, records))) {
    return { kind: 'removed' };
  }
  if (record.state === 'making') await clearHalfMade(record);
  if (!exists(place)) {
    dropEntry(record.common, place);
    await records.remove(key);
    return { kind: 'removed' };
  }
  const reason = await looks(order);
  if (reason !== null) return reason;
  await records.write({ ...record, state: 'removing' });
  // The lock is ours, and this turn of the loop: nobody may begin to use it in between.
  if (order.isOpen(key)) return back(order, 'open_turn', 'a turn began');
  const aside = asidePath(record);
  keepEntry(record.common, place);
  await move(place, aside);
  order.fault('tree_aside');
  const late = await lateDirt(order, aside);
  if (late !== null) {
    await move(aside, place);
    return back(order, late.reason, late.detail);
  }
  // Without force; of a directory that is gone git removes the entry.
  await git.must(['worktree', 'remove', place]);
  order.fault('tree_unlisted');
  await removeTree(aside);
  await records.remove(key);
  return { kind: 'removed' };
}

/** What came in before it was moved. */
async function lateDirt(
  { git, record, isOpen }: RemovalOrder,
  aside: string,
): Promise<{ readonly reason: KeepReason; readonly detail: string } | null> {
  const changed = await dirt(git, aside);
  if (changed !== null) return { reason: 'dirty', detail: changed };
  const commits = await unpushed(git, { ...record, path: aside });
  if (commits !== null) return { reason: 'unpushed', detail: commits };
  return isOpen(record.key) ? { reason: 'open_turn', detail: 'a turn began' } : null;
}

async function back(
  { records, record }: RemovalOrder,
  reason: KeepReason,
  detail: string,
): Promise<Removal> {
  await records.write({ ...record, state: 'ready' });
  return kept(reason, detail);
}

/**
 * Ends or undoes a removal that a crash cut off.
 * @returns true when the work tree is there again, false when it and its record are gone.
 */
export async function mendRemoval(record: TreeRecord, records: TreeRecords): Promise<boolean> {
  const aside = asidePath(record);
  const isListed = hasEntry(record.common, record.path) || hasEntry(record.common, aside);
  if (!exists(record.path) && !isListed) {
    // git has let go of it: all looks had been passed.
    await removeTree(aside);
    await records.remove(record.key);
    return false;
  }
  if (!exists(record.path) && exists(aside)) await move(aside, record.path);
  await records.write({ ...record, state: 'ready' });
  return true;
}
