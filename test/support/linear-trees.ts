/** A repository with a remote, and work trees of it, in a directory that goes after the test. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { linearFileSchema } from '../../src/domain/linear-config.ts';
import type { LinearRepository } from '../../src/domain/linear-repositories.ts';
import type { BranchedIssue } from '../../src/linear/branch-name.ts';
import {
  createWorktrees,
  type Worktrees,
  type WorktreesOptions,
} from '../../src/linear/worktrees.ts';

const made: string[] = [];

/** To be called after each test. */
export function cleanUpTrees(): void {
  for (const directory of made.splice(0)) rmSync(directory, { recursive: true, force: true });
}

/** Nobody's configuration: the tests are of git, not of whoever runs them. */
const ENVIRONMENT = {
  PATH: process.env['PATH'] ?? '',
  HOME: '/nonexistent',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_AUTHOR_NAME: 'A',
  GIT_AUTHOR_EMAIL: 'a@example.com',
  GIT_COMMITTER_NAME: 'A',
  GIT_COMMITTER_EMAIL: 'a@example.com',
};

export function git(directory: string, ...args: readonly string[]): string {
  const options = { cwd: directory, env: ENVIRONMENT, encoding: 'utf8' } as const;
  return execFileSync('git', args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] }).trim();
}

export function commit(directory: string, file: string, text: string): string {
  writeFileSync(path.join(directory, file), text);
  git(directory, 'add', '--', file);
  git(directory, 'commit', '--quiet', '--message', `Change ${file}`);
  return git(directory, 'rev-parse', 'HEAD');
}

export interface TreeRig {
  readonly root: string;
  /** A bare repository that stands for a server's. */
  readonly remote: string;
  readonly clone: string;
  readonly trees: string;
  readonly records: string;
  readonly repository: LinearRepository;
  /** As a daemon would after a restart. */
  open(options?: Partial<WorktreesOptions>): Worktrees;
}

export const ISSUE: BranchedIssue = {
  key: '0b7e3c1e-5f5a-4a7e-9c53-2d1d8f5f0001',
  identifier: 'ENG-12',
  branchName: 'ada/eng-12-fix-the-login',
};

export const repositoryOf = (repository: object): LinearRepository => {
  const linear = { webhookSecretFile: '/secret', repositories: [repository] };
  const [first] = linearFileSchema.parse(linear).repositories;
  if (!first) throw new Error('there is none');
  return first;
};

/** @param withRemote false: a repository of its own, with one commit on main. */
export function treeRig(withRemote = true): TreeRig {
  const root = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'outlive-linear-')));
  made.push(root);
  const [remote, clone] = [path.join(root, 'remote.git'), path.join(root, 'app')];
  mkdirSync(clone);
  git(clone, 'init', '--quiet', '--initial-branch=main');
  commit(clone, 'README', 'hello\n');
  if (withRemote) {
    git(root, 'clone', '--quiet', '--bare', clone, remote);
    rmSync(clone, { recursive: true });
    git(root, 'clone', '--quiet', remote, clone);
  }
  const [trees, records] = [path.join(root, 'trees'), path.join(root, 'records')];
  const places = { trees, records, locks: path.join(root, 'locks') };
  const environment = { PATH: ENVIRONMENT.PATH, HOME: root };
  return {
    ...{ root, remote, clone, trees, records },
    repository: repositoryOf({ path: clone }),
    open: (options = {}) => createWorktrees({ ...places, environment, ...options }),
  };
}

/** A crash: what was done by then stays, nothing after it happens. */
export const crashAt =
  (wanted: string) =>
  (point: string): void => {
    if (point === wanted) throw new Error(`crashed at ${point}`);
  };
