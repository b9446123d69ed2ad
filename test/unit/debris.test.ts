/** What work left behind on a branch, over real repositories. */
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { debrisClass } from '../../src/domain/debris.ts';
import { readDebris, removeEmpty } from '../../src/linear/debris.ts';
import { cleanUpTrees, commit, git, type TreeRig, treeRig } from '../support/linear-trees.ts';

let rig: TreeRig;
let app: string;
let tree: string;
beforeEach(() => {
  rig = treeRig();
  app = rig.clone;
  tree = path.join(rig.root, 'tree');
});
afterEach(cleanUpTrees);

/** A branch in a work tree of its own. */
function workTree(branch = 'issue42'): void {
  git(app, 'worktree', 'add', '--quiet', '-b', branch, tree, 'main');
}
const write = (name: string, text = 'x'): void => writeFileSync(path.join(tree, name), text);
/** The name of a file that is different now. */
const written = (name: string): string => {
  write(name);
  return name;
};
const refs = (): string => git(app, 'for-each-ref');

describe('the class; X22', () => {
  it.each([
    [false, 0, null, 'absent'],
    [false, 0, 'x', 'half-done'],
    [true, 0, null, 'empty'],
    [true, 0, 'x', 'half-done'],
    [true, 3, null, 'publishable'],
    [true, 3, 'x', 'half-done'],
  ] as const)('exists %s, %i commits, unfinished %s: %s', (exists, commits, unfinished, kind) => {
    expect(debrisClass({ exists, commits, unfinished })).toBe(kind);
  });
});

describe('a branch; X22', () => {
  it('that is not there is absent', async () => {
    const found = await readDebris({ directory: app, branch: 'issue42' });
    expect(found).toEqual({
      class: 'absent',
      branch: 'issue42',
      base: null,
      commits: 0,
      unfinished: null,
    });
  });

  it('without a commit beyond its base is empty, whatever git ignores in it', async () => {
    workTree();
    writeFileSync(path.join(app, '.git/info/exclude'), 'node_modules\n');
    write('node_modules');
    const found = { class: 'empty', branch: 'issue42', commits: 0, unfinished: null };
    expect(await readDebris({ directory: tree })).toMatchObject(found);
    expect(await readDebris({ directory: app, branch: 'issue42' })).toMatchObject(found);
  });

  it('with commits and nothing changed is publishable, also from a directory below', async () => {
    workTree();
    mkdirSync(path.join(tree, 'sub'));
    commit(tree, 'sub/a', '1');
    commit(tree, 'sub/b', '2');
    const found = { class: 'publishable', branch: 'issue42', commits: 2 };
    expect(await readDebris({ directory: path.join(tree, 'sub') })).toMatchObject(found);
    // Against another base there is less, or nothing.
    git(app, 'branch', 'other', 'issue42~1');
    expect(await readDebris({ directory: tree, base: 'other' })).toMatchObject({ commits: 1 });
    git(app, 'branch', 'same', 'issue42');
    expect(await readDebris({ directory: tree, base: 'same' })).toMatchObject({ class: 'empty' });
  });

  it('whose work tree is gone is judged by its commits', async () => {
    workTree();
    commit(tree, 'a', '1');
    rmSync(tree, { recursive: true });
    const found = await readDebris({ directory: app, branch: 'issue42' });
    expect(found).toMatchObject({ class: 'publishable', commits: 1 });
  });

  it.each<[string, () => void, RegExp]>([
    ['a changed file', () => write('README', 'changed'), /README/],
    ['a new file', () => write('new'), /new/],
    ['a staged file', () => git(tree, 'add', written('new')), /new/],
    ['a stash', () => git(tree, 'stash', '--quiet', '--', written('README')), /1 stashed/],
    ['a detached HEAD', () => git(tree, 'checkout', '--quiet', '--detach'), /detached/],
    ['a merge under way', () => conflict('merge', '--no-commit', '--no-ff'), /./],
    ['a rebase under way', () => conflict('rebase'), /./],
  ])('with %s is half-done, with commits or without', async (_, spoil, said) => {
    workTree();
    spoil();
    const found = await readDebris({ directory: tree, branch: 'issue42' });
    expect(found).toMatchObject({
      class: 'half-done',
      unfinished: expect.stringMatching(said) as string,
    });
  });

  it('with a rebase under way in a work tree of its own is half-done, asked for from elsewhere', async () => {
    workTree();
    conflict('rebase');
    git(tree, 'reset', '--quiet', '--hard');
    const found = await readDebris({ directory: app, branch: 'issue42' });
    expect(found).toMatchObject({ class: 'half-done' });
  });

  it('is not judged by what is changed on another one', async () => {
    workTree();
    writeFileSync(path.join(app, 'README'), 'somebody works here');
    const found = await readDebris({ directory: app, branch: 'issue42' });
    expect(found).toMatchObject({ class: 'empty' });
  });

  /** Both sides change README; what is asked for then stops in the middle. */
  function conflict(...how: readonly string[]): void {
    commit(tree, 'README', 'ours');
    git(tree, 'branch', 'theirs', 'main');
    const there = path.join(rig.root, 'there');
    git(app, 'worktree', 'add', '--quiet', there, 'theirs');
    commit(there, 'README', 'theirs');
    expect(() => git(tree, ...how, 'theirs')).toThrow('Command failed');
  }
});

describe('looking; X22', () => {
  it('writes nothing and runs nothing that the repository names', async () => {
    workTree();
    write('new');
    const ran = path.join(rig.root, 'ran');
    const program = path.join(rig.root, 'program');
    writeFileSync(program, `#!/bin/sh\ntouch ${ran}\ncat\n`, { mode: 0o755 });
    git(app, 'config', 'core.fsmonitor', program);
    git(app, 'config', 'filter.x.clean', program);
    writeFileSync(path.join(tree, '.gitattributes'), '* filter=x\n');
    const before = refs();
    expect(await readDebris({ directory: tree })).toMatchObject({ class: 'half-done' });
    expect(refs()).toBe(before);
    expect(existsSync(ran)).toBe(false);
  });

  it.each([
    ['no directory', () => ({ directory: path.join(rig.root, 'nowhere') }), 'repository_missing'],
    ['no repository', () => ({ directory: rig.root }), 'not_a_repository'],
    ['a bare repository', () => ({ directory: rig.remote }), 'not_a_repository'],
    ['a base that is none', () => ({ directory: app, base: 'nowhere' }), 'no_commits'],
  ])('at %s is refused', async (_, request, reason) => {
    await expect(readDebris(request())).rejects.toMatchObject({
      code: 'work_tree_unavailable',
      extra: { reason },
    });
  });
});

describe('removal; X22', () => {
  const remove = async (branch: string, directory = app, base?: string) =>
    removeEmpty(directory, await readDebris({ directory, branch, base }));

  it('takes an empty branch', async () => {
    git(app, 'branch', 'issue42');
    expect(await remove('issue42')).toBe('removed');
    expect(refs()).not.toContain('issue42');
  });

  it('takes nothing else', async () => {
    workTree();
    commit(tree, 'a', '1');
    expect(await remove('issue42')).toEqual({ kept: 'it is publishable' });
    write('new');
    expect(await remove('issue42')).toEqual({ kept: 'it is half-done' });
    expect(await remove('nowhere')).toEqual({ kept: 'it is absent' });
    expect(refs()).toContain('refs/heads/issue42');
  });

  it('takes no branch that is checked out somewhere, and not the base itself', async () => {
    workTree();
    expect(await remove('issue42')).toEqual({ kept: expect.stringMatching(/tree/) as string });
    expect(await remove('issue42', tree)).toEqual({
      kept: expect.stringMatching(/tree/) as string,
    });
    expect(await remove('main', tree)).toEqual({ kept: 'it is the base itself' });
    expect(refs()).toContain('refs/heads/issue42');
    expect(refs()).toContain('refs/heads/main');
  });

  it('keeps a branch that got a commit after the look', async () => {
    git(app, 'branch', 'issue42');
    const found = await readDebris({ directory: app, branch: 'issue42' });
    git(app, 'worktree', 'add', '--quiet', tree, 'issue42');
    commit(tree, 'late', '1');
    git(app, 'worktree', 'remove', tree);
    expect(found.class).toBe('empty');
    expect(await removeEmpty(app, found)).toEqual({
      kept: expect.stringMatching(/not fully merged/) as string,
    });
    expect(refs()).toContain('refs/heads/issue42');
  });
});
