/** What work left behind on a branch: read from git, which is told to run nothing of the repository's. */
import { existsSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { type DebrisClass, debrisClass } from '../domain/debris.ts';
import { Git, treeError } from './git.ts';
import { defaultBranch, holderOf, listedTrees } from './tree-base.ts';
import { dirt } from './tree-removal.ts';

export interface DebrisRequest {
  /** A work tree, or anything in it. */
  readonly directory: string;
  /** The one that is checked out there when absent. */
  readonly branch?: string | undefined;
  /** A branch, local or of a remote; the repository's default branch when absent. */
  readonly base?: string | undefined;
}

export interface Debris {
  readonly class: DebrisClass;
  /** Null where the directory has none checked out and none was named. */
  readonly branch: string | null;
  /** Full name of the ref. */
  readonly base: string | null;
  readonly commits: number;
  /** Why it is half done; null when it is not. */
  readonly unfinished: string | null;
}

/** `removed`, or a sentence about why the branch is still there. */
export type DebrisRemoval = 'removed' | { readonly kept: string };

const HEADS = 'refs/heads/';

const isDirectory = (place: string): boolean =>
  statSync(place, { throwIfNoEntry: false })?.isDirectory() ?? false;

async function openRepository(directory: string): Promise<Git> {
  if (!isDirectory(directory)) {
    throw treeError('repository_missing', `${directory} is not a directory.`);
  }
  const git = new Git(directory);
  const inside = await git.run(['rev-parse', '--is-inside-work-tree']);
  if (inside.ok && inside.output.trim() === 'true') {
    await git.withoutFilters();
    return git;
  }
  throw treeError(
    'not_a_repository',
    `${directory} is not in a work tree of git: ${inside.said || 'it is a bare repository'}.`,
  );
}

const hasRef = async (git: Git, ref: string): Promise<boolean> =>
  (await git.run(['show-ref', '--verify', '--quiet', ref])).ok;

/** Full name of the ref that is the base. @throws OutliveError where it is none, or there is none. */
async function findBase(git: Git, asked: string | undefined): Promise<string> {
  if (asked === undefined) return defaultBranch(git);
  for (const ref of [`${HEADS}${asked}`, `refs/remotes/${asked}`])
    if (await hasRef(git, ref)) return ref;
  throw treeError('no_commits', `There is no branch "${asked}" to compare with.`);
}

/** Stashes that were made on the branch: work that nobody sees. */
async function stashes(git: Git, branch: string): Promise<number> {
  const { output } = await git.run(['stash', 'list', '--format=%gs']);
  const own = [`WIP on ${branch}: `, `On ${branch}: `];
  return output.split('\n').filter((line) => own.some((begin) => line.startsWith(begin))).length;
}

/** The work tree in which a rebase of the branch is under way; git lists that as detached. */
async function rebasedIn(git: Git, branch: string): Promise<string | null> {
  for (const { path: place, branch: other } of await listedTrees(git)) {
    if (other !== null || !isDirectory(place)) continue;
    const own = await git.line(['rev-parse', '--absolute-git-dir'], place);
    for (const name of ['rebase-merge', 'rebase-apply']) {
      const file = path.join(own ?? place, name, 'head-name');
      if (existsSync(file) && readFileSync(file, 'utf8').trim() === `${HEADS}${branch}`)
        return place;
    }
  }
  return null;
}

/** Why it is in the middle of something, looked for where the branch is checked out. */
async function unfinishedIn(
  git: Git,
  directory: string,
  head: string | null,
  branch: string | null,
): Promise<string | null> {
  const isElsewhere = head !== null && branch !== null && head !== branch;
  const place = isElsewhere
    ? ((await holderOf(git, branch)) ?? (await rebasedIn(git, branch)))
    : directory;
  // One whose directory is gone is still listed until git prunes it.
  const changed = place !== null && isDirectory(place) ? await dirt(git, place) : null;
  if (changed !== null) return changed;
  if (head === null) return 'no branch is checked out (a detached HEAD)';
  const stashed = branch === null ? 0 : await stashes(git, branch);
  return stashed === 0 ? null : `${stashed} stashed on it`;
}

/**
 * Reads what is left on a branch; writes nothing.
 * @throws OutliveError `work_tree_unavailable`: no repository, no base, git fails.
 */
export async function readDebris({
  directory,
  branch: asked,
  base: askedBase,
}: DebrisRequest): Promise<Debris> {
  const git = await openRepository(directory);
  const ref = await git.line(['symbolic-ref', '--quiet', 'HEAD']);
  const head = ref === null ? null : ref.slice(HEADS.length);
  const branch = asked ?? head;
  const unfinished = await unfinishedIn(git, directory, head, branch);
  const exists = branch !== null && (await hasRef(git, `${HEADS}${branch}`));
  if (!exists) {
    return {
      class: debrisClass({ exists, commits: 0, unfinished }),
      branch,
      base: null,
      commits: 0,
      unfinished,
    };
  }
  const base = await findBase(git, askedBase);
  const range = ['rev-list', '--count', `${HEADS}${branch}`, '--not', base, '--'];
  const commits = Number(await git.must(range));
  return { class: debrisClass({ exists, commits, unfinished }), branch, base, commits, unfinished };
}

/**
 * Deletes the branch if it is empty, by `git branch -d`, which looks once more itself: at
 * commits that came in meanwhile, and at work trees that have it checked out.
 */
export async function removeEmpty(
  directory: string,
  { class: kind, branch, base }: Debris,
): Promise<DebrisRemoval> {
  if (kind !== 'empty' || branch === null || base === null) return { kept: `it is ${kind}` };
  const git = await openRepository(directory);
  const isBase =
    base === `${HEADS}${branch}` || base.replace(/^refs\/remotes\/[^/]+\//, '') === branch;
  if (isBase) return { kept: 'it is the base itself' };
  const { ok, said } = await git.run(['branch', '-d', '--', branch]);
  return ok ? 'removed' : { kept: said.replace(/^error: /, '') };
}
