/** Work trees of issues over real git: making, taking up again, mending, refusing. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { validBranch } from '../../src/linear/branch-name.ts';
import {
  cleanUpTrees,
  commit,
  crashAt,
  git,
  ISSUE,
  repositoryOf,
  type TreeRig,
  treeRig,
} from '../support/linear-trees.ts';

afterEach(cleanUpTrees);

const refusal = (reason: string) =>
  expect.objectContaining({ code: 'work_tree_unavailable', extra: { reason } });
const listed = (rig: TreeRig): string[] =>
  git(rig.clone, 'worktree', 'list', '--porcelain')
    .split('\n')
    .filter((line) => line.startsWith('worktree '))
    .map((line) => line.slice('worktree '.length));
const ago = (seconds: number): Date => new Date(Date.now() - seconds * 1_000);

describe('ensure', () => {
  it('makes a work tree with the branch of the issue, from the remote as it is now', async () => {
    const rig = treeRig();
    const other = path.join(rig.root, 'other');
    git(rig.root, 'clone', '--quiet', rig.remote, other);
    const newest = commit(other, 'later', 'later\n');
    git(other, 'push', '--quiet');
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    expect(tree).toMatchObject({
      path: path.join(rig.trees, 'ENG-12'),
      branch: 'ada/eng-12-fix-the-login',
      isNew: true,
      notes: [],
    });
    expect(git(tree.path, 'rev-parse', 'HEAD')).toBe(newest);
    expect(git(tree.path, 'branch', '--show-current')).toBe(tree.branch);
    expect(git(tree.path, 'status', '--porcelain')).toBe('');
  });

  it('is asked twice and makes it once; what was done in it stays', async () => {
    const rig = treeRig();
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    writeFileSync(path.join(tree.path, 'work'), 'mine');
    const again = await rig.open().ensure(rig.repository, { ...ISSUE, identifier: 'OPS-3' });
    expect(again).toMatchObject({ path: tree.path, branch: tree.branch, isNew: false });
    expect(readFileSync(path.join(tree.path, 'work'), 'utf8')).toBe('mine');
  });

  it('is asked at once for several issues of a repository, and makes each', async () => {
    const rig = treeRig();
    const trees = rig.open();
    const issues = [1, 2, 3].map((n) => ({
      key: `issue-${n}`,
      identifier: `ENG-${n}`,
      branchName: null,
    }));
    const all = await Promise.all(
      [...issues, ...issues].map((issue) => trees.ensure(rig.repository, issue)),
    );
    expect(all.filter(({ isNew }) => isNew)).toHaveLength(3);
    expect(listed(rig).sort()).toEqual(
      [rig.clone, ...issues.map(({ identifier }) => path.join(rig.trees, identifier))].sort(),
    );
  });

  it('names the branch by the prefix, and the directory by the id where there is no identifier', async () => {
    const rig = treeRig();
    const repository = repositoryOf({ path: rig.clone, branchPrefix: 'agent/' });
    const named = await rig.open().ensure(repository, ISSUE);
    expect(named.branch).toBe('agent/eng-12');
    const bare = await rig.open().ensure(repository, {
      key: '../../etc',
      identifier: null,
      branchName: '-x..y',
    });
    expect(path.dirname(bare.path)).toBe(rig.trees);
    expect(path.basename(bare.path)).toMatch(/^[0-9a-f]{32}$/);
  });

  it('goes on with a branch that somebody pushed before', async () => {
    const rig = treeRig();
    git(rig.clone, 'switch', '--quiet', '--create', ISSUE.branchName ?? '');
    const pushed = commit(rig.clone, 'begun', 'begun\n');
    git(rig.clone, 'push', '--quiet', 'origin', 'HEAD');
    git(rig.clone, 'switch', '--quiet', 'main');
    git(rig.clone, 'branch', '--quiet', '-D', ISSUE.branchName ?? '');
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    expect(git(tree.path, 'rev-parse', 'HEAD')).toBe(pushed);
  });

  it('goes on with a branch that is there, and says so', async () => {
    const rig = treeRig();
    git(rig.clone, 'branch', ISSUE.branchName ?? '');
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    expect(tree.notes).toEqual([expect.stringContaining('was there and is gone on with')]);
  });

  it('works from a bare repository and from one without a remote', async () => {
    const rig = treeRig();
    const bare = await rig.open().ensure(repositoryOf({ path: rig.remote }), ISSUE);
    expect(existsSync(path.join(bare.path, 'README'))).toBe(true);
    const lone = treeRig(false);
    git(lone.clone, 'switch', '--quiet', '--create', 'elsewhere');
    commit(lone.clone, 'not-wanted', 'x\n');
    const tree = await lone.open().ensure(lone.repository, ISSUE);
    expect(existsSync(path.join(tree.path, 'not-wanted'))).toBe(false);
  });

  it('does without a remote that does not answer, and says so', async () => {
    const rig = treeRig();
    renameSync(rig.remote, `${rig.remote}.away`);
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    expect(tree.notes).toEqual([expect.stringContaining('origin was not asked')]);
  });

  it('gives up on a remote that never answers at its deadline', async () => {
    const rig = treeRig();
    // A server that says nothing; ssh is the person's to choose, in their own configuration.
    const ssh = path.join(rig.root, 'ssh');
    writeFileSync(ssh, '#!/bin/sh\nexec sleep 600\n');
    chmodSync(ssh, 0o755);
    writeFileSync(path.join(rig.root, '.gitconfig'), `[core]\n\tsshCommand = ${ssh}\n`);
    git(rig.clone, 'remote', 'set-url', 'origin', 'ssh://nowhere.invalid/app');
    const tree = await rig.open({ fetchMs: 200 }).ensure(rig.repository, ISSUE);
    expect(tree.notes).toEqual([expect.stringContaining('took longer than 0.2 s')]);
  });
});

describe('what a repository names is not run', () => {
  it('no hook, no monitor, no filter, and no transport of the repository’s', async () => {
    const rig = treeRig();
    const [mark, script] = [path.join(rig.root, 'ran'), path.join(rig.root, 'evil')];
    writeFileSync(script, `#!/bin/sh\necho "$0 $*" >>${mark}\ncat\n`);
    chmodSync(script, 0o755);
    commit(rig.clone, '.gitattributes', '* filter=evil\n');
    git(rig.clone, 'push', '--quiet');
    for (const hook of ['post-checkout', 'reference-transaction', 'post-index-change']) {
      writeFileSync(path.join(rig.clone, '.git/hooks', hook), readFileSync(script), {
        mode: 0o755,
      });
    }
    for (const key of ['core.fsmonitor', 'filter.evil.smudge', 'filter.evil.clean']) {
      git(rig.clone, 'config', key, script);
    }
    git(rig.clone, 'config', 'filter.evil.required', 'true');
    git(rig.clone, 'config', 'core.sshCommand', script);
    git(rig.clone, 'config', 'remote.origin.uploadpack', script);
    const trees = rig.open();
    const tree = await trees.ensure(rig.repository, ISSUE);
    expect(tree.notes).toEqual([expect.stringContaining('core.sshcommand')]);
    expect(await trees.tidy([ISSUE.key], { isOpen: () => false })).toMatchObject([
      { outcome: { kind: 'removed' } },
    ]);
    expect(existsSync(mark) ? readFileSync(mark, 'utf8') : '').toBe('');
  });

  it('and variables of the daemon’s environment lead git nowhere else', async () => {
    const rig = treeRig();
    const bin = path.join(rig.root, 'bin');
    mkdirSync(bin);
    writeFileSync(path.join(bin, 'git'), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
    const environment = { HOME: rig.root, PATH: bin, GIT_DIR: '/nowhere' };
    const tree = await rig.open({ environment }).ensure(rig.repository, ISSUE);
    expect(tree.notes).toEqual([]);
  });
});

describe('after a crash', () => {
  it.each(['tree_recorded', 'tree_added'])('at %s the next call makes it whole', async (point) => {
    const rig = treeRig();
    await expect(rig.open({ fault: crashAt(point) }).ensure(rig.repository, ISSUE)).rejects.toThrow(
      'crashed',
    );
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    expect(tree).toMatchObject({ path: path.join(rig.trees, 'ENG-12'), isNew: true });
    expect(git(tree.path, 'status', '--porcelain')).toBe('');
    expect(listed(rig)).toEqual([rig.clone, tree.path]);
  });

  it('in the middle of git, its directory, its entry and its locks are made anew', async () => {
    const rig = treeRig();
    await rig
      .open({ fault: crashAt('tree_added') })
      .ensure(rig.repository, ISSUE)
      .catch(() => {});
    const place = path.join(rig.trees, 'ENG-12');
    const entry = path.join(rig.clone, '.git/worktrees/ENG-12');
    // As git leaves it when it is killed before the checkout.
    rmSync(path.join(place, 'README'));
    rmSync(path.join(entry, 'gitdir'));
    writeFileSync(path.join(entry, 'locked'), 'initializing');
    writeFileSync(path.join(entry, 'index.lock'), '');
    const lock = path.join(rig.clone, '.git/refs/heads', `${ISSUE.branchName}.lock`);
    writeFileSync(lock, '');
    utimesSync(lock, ago(60), ago(60));
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    expect(git(tree.path, 'status', '--porcelain')).toBe('');
    expect(readdirSync(path.join(rig.clone, '.git/worktrees'))).toEqual(['ENG-12']);
    expect(existsSync(lock)).toBe(false);
  });

  it('of a turn, a stale lock of its index is removed, and a fresh one is not', async () => {
    const rig = treeRig();
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    const lock = path.join(rig.clone, '.git/worktrees/ENG-12/index.lock');
    writeFileSync(lock, '');
    await rig.open().ensure(rig.repository, ISSUE);
    expect(existsSync(lock)).toBe(true);
    utimesSync(lock, ago(60), ago(60));
    const again = await rig.open().ensure(rig.repository, ISSUE);
    expect(again.notes).toEqual([expect.stringContaining('stale index.lock')]);
    expect(existsSync(lock)).toBe(false);
    expect(again.path).toBe(tree.path);
  });

  it('a tree that somebody deleted is made anew from its branch, and set up again', async () => {
    const rig = treeRig();
    const repository = repositoryOf({ path: rig.clone, setup: ['make', 'deps'] });
    const trees = rig.open();
    const tree = await trees.ensure(repository, ISSUE);
    expect(tree.setup).toEqual(['make', 'deps']);
    await trees.markSetUp(ISSUE.key);
    expect((await rig.open().ensure(repository, ISSUE)).setup).toBeNull();
    const done = commit(tree.path, 'work', 'done\n');
    rmSync(tree.path, { recursive: true });
    const again = await trees.ensure(repository, ISSUE);
    expect(again).toMatchObject({ path: tree.path, isNew: true, setup: ['make', 'deps'] });
    expect(git(again.path, 'rev-parse', 'HEAD')).toBe(done);
  });
});

describe('a lock of the repository', () => {
  it('is waited for with a deadline, and dies with the process that held it', async () => {
    const rig = treeRig();
    await rig.open().ensure(rig.repository, ISSUE);
    const [name = ''] = readdirSync(path.join(rig.root, 'locks'));
    const fd = openSync(path.join(rig.root, 'locks', name), 'a');
    const script = 'flock --exclusive 3; echo held; exec sleep 600';
    const holder = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore', fd] });
    closeSync(fd);
    if (!holder.stdout) throw new Error('it has no output');
    await once(holder.stdout, 'data');
    await expect(rig.open({ lockSeconds: 0 }).ensure(rig.repository, ISSUE)).rejects.toEqual(
      refusal('repository_busy'),
    );
    const waiting = rig.open().ensure(rig.repository, ISSUE);
    holder.kill('SIGKILL');
    await expect(waiting).resolves.toMatchObject({ isNew: false });
  });
});

describe('is refused, with what to do', () => {
  const refused = async (rig: TreeRig, reason: string, says: RegExp, more = {}): Promise<void> => {
    const asked = rig.open().ensure(rig.repository, { ...ISSUE, ...more });
    await expect(asked).rejects.toEqual(refusal(reason));
    await expect(asked).rejects.toThrow(says);
  };

  it('where the branch is checked out elsewhere, and goes on once it is not', async () => {
    const rig = treeRig();
    git(rig.clone, 'switch', '--quiet', '--create', ISSUE.branchName ?? '');
    await refused(rig, 'branch_in_use', /switch --detach/);
    git(rig.clone, 'switch', '--quiet', '--detach');
    await expect(rig.open().ensure(rig.repository, ISSUE)).resolves.toMatchObject({ isNew: true });
  });

  it('where a branch is in the way of the name, and goes on once it is not', async () => {
    const rig = treeRig();
    git(rig.clone, 'branch', 'ada');
    await refused(rig, 'branch_unusable', /Delete or rename/);
    const repository = repositoryOf({ path: rig.clone, branchPrefix: 'agent/' });
    const tree = await rig.open().ensure(repository, ISSUE);
    expect(tree.branch).toBe('agent/eng-12');
  });

  it('where the repository is not there, is none, or has no commit', async () => {
    const rig = treeRig(false);
    renameSync(rig.clone, `${rig.clone}.away`);
    await refused(rig, 'repository_missing', /Clone the repository/);
    mkdirSync(rig.clone);
    await refused(rig, 'not_a_repository', /linear\.repositories/);
    git(rig.clone, 'init', '--quiet');
    await refused(rig, 'no_commits', /first commit/);
    commit(rig.clone, 'README', 'x\n');
    await expect(rig.open().ensure(rig.repository, ISSUE)).resolves.toMatchObject({ isNew: true });
  });

  it('where both directories are somebody else’s', async () => {
    const rig = treeRig();
    mkdirSync(path.join(rig.trees, 'ENG-12'), { recursive: true });
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    expect(tree.path).toBe(path.join(rig.trees, ISSUE.key));
    mkdirSync(path.join(rig.trees, 'other-issue'));
    await refused(rig, 'path_taken', /Move them away/, { key: 'other-issue', branchName: 'b' });
  });

  it('where its directory is no longer a work tree of the repository', async () => {
    const rig = treeRig();
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    rmSync(path.join(tree.path, '.git'));
    writeFileSync(path.join(tree.path, 'work'), 'mine');
    await refused(rig, 'tree_damaged', /worktree repair/);
    expect(existsSync(path.join(tree.path, 'work'))).toBe(true);
  });
});

describe('validBranch', () => {
  it('gives names that git takes, for anything', () => {
    const rig = treeRig(false);
    const piece = fc.constantFrom(
      'a',
      '/',
      '.',
      '-',
      '.lock',
      '@',
      '@{',
      ' ',
      '~',
      '..',
      'HEAD',
      'é',
    );
    const name = fc.oneof(
      fc.array(piece, { maxLength: 8 }).map((parts) => parts.join('')),
      fc.string({ unit: 'grapheme' }),
    );
    fc.assert(
      fc.property(name, (text) => {
        const valid = validBranch(text) ?? 'nothing-was-left';
        expect(git(rig.clone, 'check-ref-format', '--branch', valid)).toBe(valid);
      }),
      { numRuns: 150 },
    );
  });
});
