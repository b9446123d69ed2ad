/**
 * One git work tree for each issue, made from the repository it was routed to. What is asked
 * for again is there already; what a crash left half-made is made anew.
 */
import { randomUUID } from 'node:crypto';
import { lstatSync, mkdirSync, realpathSync } from 'node:fs';
import path from 'node:path';
import type { LinearRepository } from '../domain/linear-repositories.ts';
import { type BranchedIssue, branchOf } from './branch-name.ts';
import { Git, type TreeReason, treeError } from './git.ts';
import { withRepository } from './repository-lock.ts';
import { chooseBase, holderOf, remoteOf } from './tree-base.ts';
import { clearHalfMade, dropEntry, dropStaleLocks } from './tree-mending.ts';
import { nameOf, type TreeRecord, TreeRecords } from './tree-records.ts';
import { mendRemoval, type Removal, removeUnneeded } from './tree-removal.ts';

const FETCH_MS = 30_000;
const LOCK_SECONDS = 120;

export interface WorktreesOptions {
  /** Holds the work trees; must not lie in what a nest hides. */
  readonly trees: string;
  /** What is known of them; ours alone. */
  readonly records: string;
  /** Shared with all daemons of this user. */
  readonly locks: string;
  /** The person's, for a fetch. */
  readonly environment: Readonly<Record<string, string>>;
  readonly fetchMs?: number;
  readonly lockSeconds?: number;
  /** Where a test wants a crash. */
  readonly fault?: (point: TreeFault) => void;
}

export type TreeFault = 'tree_recorded' | 'tree_added' | 'tree_aside' | 'tree_unlisted';

export interface Tree {
  readonly path: string;
  readonly branch: string;
  /** Another one each time that it is made. */
  readonly made: string;
  /** False: it was there. */
  readonly isNew: boolean;
  /** To be run in it once, before anything else; null when there is none or it was. */
  readonly setup: readonly string[] | null;
  /** What a person may want to know: sentences. */
  readonly notes: readonly string[];
}

export interface TidyRequest {
  /** True while the issue has a turn that is not over. Asked again right before the removal. */
  isOpen(key: string): boolean;
}

export interface Tidied {
  readonly key: string;
  readonly path: string;
  readonly outcome: Removal;
}

export interface Worktrees {
  /**
   * The work tree of an issue. The issue stays with the repository it was first given.
   * @throws OutliveError `work_tree_unavailable` with `extra.reason` and what to do.
   */
  ensure(repository: LinearRepository, issue: BranchedIssue): Promise<Tree>;
  /** Its set-up command has succeeded. */
  markSetUp(key: string): Promise<void>;
  /** Removes what nobody needs of these issues; never what is not safe elsewhere. */
  tidy(keys: readonly string[], request: TidyRequest): Promise<readonly Tidied[]>;
  /** Keys of all issues that have one. */
  keys(): Promise<readonly string[]>;
}

/** The git directory that all work trees of a repository share. */
async function commonOf(repository: string): Promise<string> {
  const info = lstatSync(repository, { throwIfNoEntry: false });
  if (!info) {
    throw treeError(
      'repository_missing',
      `${repository} is not there. Clone the repository, or mend linear.repositories in config.json.`,
    );
  }
  const args = ['rev-parse', '--path-format=absolute', '--git-common-dir'];
  const { ok, output, said } = await new Git(repository).run(args);
  if (ok) return realpathSync(output.replace(/\n$/, ''));
  throw treeError(
    'not_a_repository',
    `${repository} is not a git repository of this user: ${said}. Mend linear.repositories in config.json.`,
  );
}

const exists = (file: string): boolean => lstatSync(file, { throwIfNoEntry: false }) !== undefined;

class GitWorktrees implements Worktrees {
  readonly #options: WorktreesOptions;
  readonly #records: TreeRecords;

  constructor(options: WorktreesOptions) {
    this.#options = options;
    this.#records = new TreeRecords(options.records);
  }

  async ensure(repository: LinearRepository, issue: BranchedIssue): Promise<Tree> {
    const known = await this.#records.read(issue.key);
    const common = known?.common ?? (await commonOf(repository.path));
    if (!exists(common)) {
      throw treeError(
        'repository_missing',
        `${common}, which the work tree of ${issue.identifier ?? issue.key} belongs to, is gone. Put it back, or remove ${known?.path} and its record below ${this.#options.records}.`,
      );
    }
    return this.#locked(common, async (git) => {
      // Read again: whoever had the lock before us may have made it.
      const record = await this.#records.read(issue.key);
      const notes: string[] = [];
      if (record && (await this.#takeUp(git, record, notes))) {
        return this.#told(record, repository, false, notes);
      }
      const made = await this.#make(git, { common, repository, issue, before: record, notes });
      return this.#told(made, repository, true, notes);
    });
  }

  async markSetUp(key: string): Promise<void> {
    await this.#records.markSetUp(key);
  }

  async keys(): Promise<readonly string[]> {
    return (await this.#records.all()).map(({ key }) => key);
  }

  async tidy(keys: readonly string[], request: TidyRequest): Promise<readonly Tidied[]> {
    const done: Tidied[] = [];
    for (const key of keys) {
      const record = await this.#records.read(key);
      if (record) {
        const outcome = await this.#tidyOne(record, request);
        done.push({ key, path: record.path, outcome });
      }
    }
    return done;
  }

  async #tidyOne(record: TreeRecord, { isOpen }: TidyRequest): Promise<Removal> {
    const { key, common } = record;
    if (isOpen(key)) return { kind: 'kept', reason: 'open_turn', detail: 'its turn is not over' };
    if (!exists(common)) {
      return { kind: 'kept', reason: 'failed', detail: `${common} is gone` };
    }
    try {
      return await this.#locked(common, async (git) => {
        const now = await this.#records.read(key);
        if (!now) return { kind: 'removed' };
        const fault = this.#fault;
        return removeUnneeded({ git, record: now, records: this.#records, isOpen, fault });
      });
    } catch (error) {
      return { kind: 'kept', reason: 'failed', detail: (error as Error).message };
    }
  }

  readonly #fault = (point: TreeFault): void => this.#options.fault?.(point);

  #locked<Result>(common: string, work: (git: Git) => Promise<Result>): Promise<Result> {
    const { locks, lockSeconds = LOCK_SECONDS } = this.#options;
    return withRepository(locks, common, lockSeconds, async (fd) => {
      const git = new Git(common, fd);
      await git.withoutFilters();
      return work(git);
    });
  }

  #told(record: TreeRecord, repository: LinearRepository, isNew: boolean, notes: string[]): Tree {
    const { path: place, branch, key } = record;
    const setup = this.#records.isSetUp(key) ? null : (repository.setup ?? null);
    return { path: place, branch, made: record.made, isNew, setup, notes };
  }

  /** True when it can be used as it is; what a crash left is cleared away. */
  async #takeUp(git: Git, record: TreeRecord, notes: string[]): Promise<boolean> {
    if (record.state === 'removing' && !(await mendRemoval(record, this.#records))) {
      return false;
    }
    if (record.state === 'making') {
      await clearHalfMade(record);
      return false;
    }
    if (!exists(record.path)) {
      notes.push(`${record.path} was gone; it is made anew from the branch ${record.branch}.`);
      dropEntry(record.common, record.path);
      await this.#records.forgetSetUp(record.key);
      return false;
    }
    await mustBeWhole(git, record);
    notes.push(...(await dropStaleLocks(git, record.path)));
    return true;
  }

  async #make(git: Git, order: Order): Promise<TreeRecord> {
    const { common, repository, issue, before, notes } = order;
    // Of one that never came to be the settings may have been mended since.
    const made = before?.state === 'making' ? null : before;
    const branch = made?.branch ?? branchOf(issue, repository);
    await mustBeFree(git, branch);
    const key = issue.key;
    const place = before?.path ?? (await this.#placeOf(issue));
    const record: TreeRecord = {
      ...{ key, repository: repository.path, common, path: place, branch },
      made: randomUUID(),
      state: 'making',
    };
    await this.#records.write(record);
    this.#fault('tree_recorded');
    await this.#fetch(git, repository, notes);
    await this.#add(git, record, notes);
    this.#fault('tree_added');
    const ready: TreeRecord = { ...record, state: 'ready' };
    await this.#records.write(ready);
    return ready;
  }

  async #fetch(git: Git, { fetch }: LinearRepository, notes: string[]): Promise<void> {
    const remote = await remoteOf(git);
    if (!fetch || remote === null) return;
    const { environment, fetchMs = FETCH_MS } = this.#options;
    const problem = await git.fetch(remote, environment, fetchMs);
    if (problem !== null) notes.push(`${remote} was not asked for what is new: ${problem}.`);
  }

  async #add(git: Git, { path: place, branch }: TreeRecord, notes: string[]): Promise<void> {
    const isThere = (await git.run(['show-ref', '--verify', '--quiet', `refs/heads/${branch}`])).ok;
    const base = isThere ? branch : await chooseBase(git, branch);
    if (isThere) notes.push(`The branch ${branch} was there and is gone on with.`);
    const from = isThere ? [place, branch] : ['--no-track', '-b', branch, place, base];
    const { ok, said } = await git.run(['worktree', 'add', '--quiet', ...from]);
    if (ok) return;
    throw addError(said, branch);
  }

  /** By the identifier where that is free, so that people find it. */
  async #placeOf({ key, identifier }: BranchedIssue): Promise<string> {
    const { trees } = this.#options;
    mkdirSync(trees, { recursive: true, mode: 0o700 });
    const claimed = new Set((await this.#records.all()).map((record) => record.path));
    const isSafe = identifier !== null && /^[A-Za-z0-9_]{1,32}-\d{1,12}$/.test(identifier);
    const names = [...(isSafe ? [identifier] : []), nameOf(key)];
    const places = names.map((name) => path.join(realpathSync(trees), name));
    const free = places.find((place) => !claimed.has(place) && !exists(place));
    if (free !== undefined) return free;
    throw treeError(
      'path_taken',
      `${places.join(' and ')} are there and not known to be work trees of ours. Move them away.`,
    );
  }
}

interface Order {
  readonly common: string;
  readonly repository: LinearRepository;
  readonly issue: BranchedIssue;
  /** What it was called when it was made before. */
  readonly before: TreeRecord | null;
  readonly notes: string[];
}

async function mustBeFree(git: Git, branch: string): Promise<void> {
  const holder = await holderOf(git, branch);
  if (holder === null) return;
  throw treeError(
    'branch_in_use',
    `The branch ${branch} is checked out in ${holder}. Switch to another branch there (git -C ${holder} switch --detach), or remove that work tree.`,
  );
}

/** A directory that git does not take for this work tree is not touched. */
async function mustBeWhole(git: Git, { path: place, common }: TreeRecord): Promise<void> {
  const args = ['rev-parse', '--path-format=absolute', '--show-toplevel', '--git-common-dir'];
  const { ok, output, said } = await git.run(args, place);
  const [top, shared] = output.trim().split('\n');
  if (ok && top === place && shared !== undefined && realpathSync(shared) === common) return;
  throw treeError(
    'tree_damaged',
    `${place} is no longer a work tree of ${common}${said === '' ? '' : ` (${said})`}. Save what you need of it and move it away, or mend it: git -C ${common} worktree repair ${place}.`,
  );
}

/** git's refusal, with what to do. */
function addError(said: string, branch: string): Error {
  const [reason, advice]: [TreeReason, string] = /\.lock'?:? File exists|Unable to create/.test(
    said,
  )
    ? ['repository_locked', 'If no git is at work there, remove that file.']
    : /cannot lock ref|not a valid (?:branch|ref)|refs\/heads/.test(said)
      ? [
          'branch_unusable',
          `Delete or rename what is in the way of ${branch}, or set branchPrefix.`,
        ]
      : ['git_failed', 'Try it by hand: git worktree add.'];
  return treeError(reason, `git made no work tree: ${said}. ${advice}`);
}

/** The work trees below a directory. */
export function createWorktrees(options: WorktreesOptions): Worktrees {
  return new GitWorktrees(options);
}
