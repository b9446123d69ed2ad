/** Removing work trees over real git: what keeps one, and what a crash leaves. */
import {
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { Tidied, Tree, Worktrees } from '../../src/linear/worktrees.ts';
import {
  cleanUpTrees,
  commit,
  crashAt,
  git,
  ISSUE,
  type TreeRig,
  treeRig,
} from '../support/linear-trees.ts';

afterEach(cleanUpTrees);

const closed = { isOpen: () => false };
const tidy = (trees: Worktrees, request = closed): Promise<readonly Tidied[]> =>
  trees.tidy([ISSUE.key], request);
const REMOVED = [expect.objectContaining({ outcome: { kind: 'removed' } })];
const keptFor = (reason: string, detail: RegExp = /./) => [
  expect.objectContaining({
    outcome: { kind: 'kept', reason, detail: expect.stringMatching(detail) },
  }),
];

async function made(withRemote = true): Promise<{ rig: TreeRig; trees: Worktrees; tree: Tree }> {
  const rig = treeRig(withRemote);
  const trees = rig.open();
  return { rig, trees, tree: await trees.ensure(rig.repository, ISSUE) };
}

const nothingIsLeft = (rig: TreeRig): void => {
  expect(readdirSync(rig.trees)).toEqual([]);
  expect(readdirSync(rig.records)).toEqual([]);
  expect(git(rig.clone, 'worktree', 'list').split('\n')).toHaveLength(1);
};

describe('tidy', () => {
  it('removes a tree whose work is pushed, and keeps its branch; X15', async () => {
    const { rig, trees, tree } = await made();
    const done = commit(tree.path, 'work', 'done\n');
    git(tree.path, 'push', '--quiet', 'origin', 'HEAD');
    expect(await tidy(trees)).toEqual(REMOVED);
    nothingIsLeft(rig);
    expect(git(rig.clone, 'rev-parse', tree.branch)).toBe(done);
    expect(await tidy(trees)).toEqual([]);
    expect(await trees.ensure(rig.repository, ISSUE)).toMatchObject({ isNew: true });
  });

  it('removes one in which nothing was done, and what git ignores in it', async () => {
    const { rig, trees, tree } = await made();
    writeFileSync(path.join(rig.clone, '.git/info/exclude'), 'node_modules\n');
    writeFileSync(path.join(tree.path, 'node_modules'), 'x');
    expect(await tidy(trees)).toEqual(REMOVED);
    nothingIsLeft(rig);
  });

  it('spares commits that no remote has, of the branch and of a detached head; X15', async () => {
    const { trees, tree } = await made();
    commit(tree.path, 'work', 'done\n');
    expect(await tidy(trees)).toEqual(keptFor('unpushed', /^1 commits that no remote has/));
    git(tree.path, 'push', '--quiet', 'origin', 'HEAD');
    git(tree.path, 'switch', '--quiet', '--detach');
    commit(tree.path, 'more', 'done\n');
    expect(await tidy(trees)).toEqual(keptFor('unpushed'));
    expect(existsSync(path.join(tree.path, 'more'))).toBe(true);
  });

  it('goes by the default branch where there is no remote', async () => {
    const { rig, trees, tree } = await made(false);
    commit(tree.path, 'work', 'done\n');
    expect(await tidy(trees)).toEqual(keptFor('unpushed', /main has not/));
    git(rig.clone, 'merge', '--quiet', '--ff-only', tree.branch);
    expect(await tidy(trees)).toEqual(REMOVED);
  });

  it.each<[string, (tree: Tree) => void, RegExp]>([
    ['a changed file', (t) => writeFileSync(path.join(t.path, 'README'), 'x'), /README/],
    ['a new file', (t) => writeFileSync(path.join(t.path, 'new'), 'x'), /new/],
    [
      'a staged file',
      (t) => {
        writeFileSync(path.join(t.path, 'staged'), 'x');
        git(t.path, 'add', 'staged');
      },
      /staged/,
    ],
    [
      'new files that git was told not to show',
      (t) => {
        git(t.path, 'config', 'status.showUntrackedFiles', 'no');
        writeFileSync(path.join(t.path, 'new'), 'x');
      },
      /new/,
    ],
    [
      'a file that is not to be looked at',
      (t) => {
        git(t.path, 'update-index', '--assume-unchanged', 'README');
        writeFileSync(path.join(t.path, 'README'), 'x');
      },
      /README is marked/,
    ],
    [
      'a file that is skipped',
      (t) => {
        git(t.path, 'update-index', '--skip-worktree', 'README');
        writeFileSync(path.join(t.path, 'README'), 'x');
      },
      /README is marked/,
    ],
    [
      'a bisect in the middle',
      (t) => {
        git(t.path, 'bisect', 'start');
      },
      /a bisect is under way/,
    ],
  ])('spares %s; X15', async (_what, spoil, says) => {
    const { rig, trees, tree } = await made();
    spoil(tree);
    expect(await tidy(trees)).toEqual(keptFor('dirty', says));
    expect(existsSync(tree.path)).toBe(true);
    expect(await trees.ensure(rig.repository, ISSUE)).toMatchObject({
      path: tree.path,
      isNew: false,
    });
  });

  it('spares one that somebody locked', async () => {
    const { rig, trees, tree } = await made();
    git(rig.clone, 'worktree', 'lock', tree.path);
    expect(await tidy(trees)).toEqual(keptFor('locked'));
  });

  it.each([1, 2, 3, 4])('looks for an open turn each time: at look %i; X15', async (when) => {
    const { trees, tree } = await made();
    let looks = 0;
    const isOpen = (key: string): boolean => {
      expect(key).toBe(ISSUE.key);
      looks += 1;
      return looks === when;
    };
    expect(await tidy(trees, { isOpen } as typeof closed)).toEqual(keptFor('open_turn'));
    expect(git(tree.path, 'status', '--porcelain')).toBe('');
    expect(await tidy(trees)).toEqual(REMOVED);
  });

  it('puts a tree back in which something was written at the last moment', async () => {
    const rig = treeRig();
    const trees = rig.open({
      fault: (point) => {
        const aside = path.join(rig.trees, '.going-ENG-12');
        if (point === 'tree_aside') writeFileSync(path.join(aside, 'late'), 'mine');
      },
    });
    const tree = await trees.ensure(rig.repository, ISSUE);
    // Older than a day: then git would note where it was moved to.
    const entry = path.join(rig.clone, '.git/worktrees/ENG-12/gitdir');
    utimesSync(entry, new Date(0), new Date(0));
    expect(await tidy(trees)).toEqual(keptFor('dirty', /late/));
    expect(readFileSync(path.join(tree.path, 'late'), 'utf8')).toBe('mine');
    expect(await trees.ensure(rig.repository, ISSUE)).toMatchObject({ isNew: false });
  });

  it('tells of one whose repository is gone, and touches nothing', async () => {
    const { rig, trees, tree } = await made();
    renameSync(rig.clone, `${rig.clone}.away`);
    expect(await tidy(trees)).toEqual(keptFor('failed', /is gone/));
    expect(existsSync(tree.path)).toBe(true);
  });
});

describe('a removal that a crash cut off', () => {
  it('before git has let go of it is undone, and what came meanwhile stays', async () => {
    const rig = treeRig();
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    await tidy(rig.open({ fault: crashAt('tree_aside') }));
    expect(existsSync(tree.path)).toBe(false);
    writeFileSync(path.join(rig.trees, '.going-ENG-12', 'late'), 'mine');
    const again = await rig.open().ensure(rig.repository, ISSUE);
    expect(again).toMatchObject({ path: tree.path, isNew: false });
    expect(existsSync(path.join(tree.path, 'late'))).toBe(true);
  });

  it('after that is ended, by the next tidy or by the next turn', async () => {
    const rig = treeRig();
    await rig.open().ensure(rig.repository, ISSUE);
    await tidy(rig.open({ fault: crashAt('tree_unlisted') }));
    expect(await tidy(rig.open())).toEqual(REMOVED);
    nothingIsLeft(rig);
    await rig.open().ensure(rig.repository, ISSUE);
    await tidy(rig.open({ fault: crashAt('tree_unlisted') }));
    const tree = await rig.open().ensure(rig.repository, ISSUE);
    expect(git(tree.path, 'status', '--porcelain')).toBe('');
    expect(readdirSync(rig.trees)).toEqual(['ENG-12']);
  });

  it('of what was never made whole leaves nothing', async () => {
    const rig = treeRig();
    await rig
      .open({ fault: crashAt('tree_added') })
      .ensure(rig.repository, ISSUE)
      .catch(() => {});
    expect(await tidy(rig.open())).toEqual(REMOVED);
    nothingIsLeft(rig);
  });
});
