/** `outlive debris`, without a daemon. */
import { afterEach, expect, it } from 'vitest';
import { cleanUpTrees, commit, git, treeRig } from '../support/linear-trees.ts';
import { outlive } from './outlive.ts';

afterEach(cleanUpTrees);

it('X22: says one word, deletes what is empty, and nothing else', async () => {
  const { clone } = treeRig();
  git(clone, 'branch', 'empty');
  git(clone, 'checkout', '--quiet', '-b', 'done');
  commit(clone, 'a', '1');
  const run = (...args: string[]) => outlive(['debris', ...args], { cwd: clone });
  const word = await run('.');
  expect({ code: word.code, stdout: word.stdout }).toEqual({ code: 0, stdout: 'publishable\n' });
  const spared = await run('.', '--delete-empty', '--json');
  expect(spared.code).toBe(0);
  expect(JSON.parse(spared.stdout)).toEqual({
    class: 'publishable',
    branch: 'done',
    base: expect.stringMatching(/\/main$/) as string,
    commits: 1,
    unfinished: null,
    deleted: false,
    kept: 'it is publishable',
  });
  const gone = await run(clone, '--branch', 'empty', '--delete-empty');
  expect(gone).toMatchObject({ code: 0, stdout: 'empty\n' });
  expect(gone.stderr).toContain('empty is deleted.');
  expect(await run(clone, '--branch', 'empty')).toMatchObject({ code: 0, stdout: 'absent\n' });
  expect(git(clone, 'branch', '--format=%(refname:short)').split('\n')).toEqual(['done', 'main']);
  git(clone, 'checkout', '--quiet', '-b', 'here', 'main');
  expect(await run('.', '--delete-empty'), 'checked out').toMatchObject({
    code: 1,
    stdout: 'empty\n',
  });
  expect(await run('/nowhere')).toMatchObject({ code: 5, stdout: '' });
});
