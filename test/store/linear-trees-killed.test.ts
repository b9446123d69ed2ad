/** A maker of work trees that is killed at any moment: the next one makes them whole. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as later } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { cleanUpTrees, git, type TreeRig, treeRig } from '../support/linear-trees.ts';

afterEach(cleanUpTrees);

const ROUNDS = 12;
/** Long enough that a kill may come within any step of it. */
const FILES = 400;

async function killedAfter(rig: TreeRig, first: number, ms: number): Promise<void> {
  const script = path.join(import.meta.dirname, 'children/linear-tree.ts');
  const child = spawn(process.execPath, [script, rig.root, rig.clone, String(first)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  // Any moment will do: it is not an event that is waited for.
  await later(ms);
  child.kill('SIGKILL');
  await once(child, 'close');
}

it('leaves nothing that the next one cannot mend, and no lock', { timeout: 120_000 }, async () => {
  const rig = treeRig(false);
  mkdirSync(rig.trees);
  for (let number = 0; number < FILES; number++) {
    writeFileSync(path.join(rig.clone, `file-${number}`), 'x'.repeat(4_096));
  }
  git(rig.clone, 'add', '.');
  git(rig.clone, 'commit', '--quiet', '--message', 'Many files');
  for (let round = 0; round < ROUNDS; round++) {
    const first = round * 1_000;
    await killedAfter(rig, first, 11 + round * 17);
    const trees = rig.open({ lockSeconds: 20 });
    const keys = await trees.keys();
    for (const key of keys) {
      const identifier = key.replace('issue-', 'ENG-');
      const tree = await trees.ensure(rig.repository, { key, identifier, branchName: null });
      expect(git(tree.path, 'status', '--porcelain')).toBe('');
      expect(git(tree.path, 'branch', '--show-current')).toBe(tree.branch);
    }
    const done = await trees.tidy(keys, { isOpen: () => false });
    expect(done.map(({ outcome }) => outcome)).toEqual(keys.map(() => ({ kind: 'removed' })));
    expect(readdirSync(rig.trees)).toEqual([]);
    expect(git(rig.clone, 'worktree', 'list').split('\n')).toHaveLength(1);
  }
});
