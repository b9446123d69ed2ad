/** What tools that act outside a nest may touch. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { judgePath, type ProtectedPaths, resolveLinks } from '../../src/attempt/nest-paths.ts';

interface Place {
  readonly root: string;
  readonly tree: string;
  readonly paths: ProtectedPaths;
}

/** `tree/` to work in, `hidden/`, `locked/`, and links from the first into the others. */
function place(): Place {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'outlive-paths-')));
  onTestFinished(() => rmSync(root, { recursive: true }));
  const at = (...names: string[]): string => path.join(root, ...names);
  for (const name of ['tree/sub', 'hidden/deep', 'locked', 'hidden-not']) {
    mkdirSync(at(name), { recursive: true });
  }
  writeFileSync(at('hidden/deep/file'), '');
  symlinkSync('../hidden', at('tree/link'));
  symlinkSync(at('hidden/deep/file'), at('tree/file'));
  symlinkSync(at('hidden/not-yet'), at('tree/dangling'));
  symlinkSync('dangling', at('tree/chain'));
  symlinkSync('loop', at('tree/loop'));
  symlinkSync(at('locked'), at('tree/locked'));
  symlinkSync('../../hidden/deep', at('tree/sub/into'));
  return {
    root,
    tree: at('tree'),
    paths: { hidden: [at('hidden')], readOnly: [at('locked')], shown: [] },
  };
}

describe('what is out of bounds', () => {
  test.each([
    '../hidden',
    '../hidden/deep/file',
    'link/deep/file',
    'link/new',
    'file',
    'dangling',
    'chain',
    'sub/../link/x',
    './/link//x',
    'loop',
    'loop/x',
  ])('%s is neither read nor written', (file) => {
    const { paths, tree } = place();
    for (const access of ['read', 'write'] as const) {
      const judged = judgePath(paths, access, file, tree);
      expect(judged).toMatchObject({ allowed: false, reason: expect.stringContaining(file) });
    }
  });

  test('a link is followed before what comes after it', () => {
    const { paths, tree, root } = place();
    // The tool's own normalization has the last word: it writes to what path.resolve makes of it.
    const judged = judgePath(paths, 'write', 'sub/into/../x', tree);
    expect(judged).toMatchObject({ allowed: true, resolved: path.join(root, 'tree/sub/x') });
    expect(resolveLinks(path.join(tree, 'sub/into'))).toBe(path.join(root, 'hidden/deep'));
  });

  test.each(['../locked/x', 'locked/x', 'locked'])('%s is read and not written', (file) => {
    const { paths, tree } = place();
    expect(judgePath(paths, 'read', file, tree).allowed).toBe(true);
    expect(judgePath(paths, 'write', file, tree)).toMatchObject({
      allowed: false,
      reason: expect.stringContaining('read-only'),
    });
  });

  test.each([
    ['write', '/proc/self/oom_score_adj'],
    ['write', '/sys/kernel/x'],
    ['read', '/proc/self/environ'],
    ['read', '/proc/1/cwd/x'],
  ] as const)('of the kernel: %s %s', (access, file) => {
    const { paths, tree } = place();
    expect(judgePath(paths, access, file, tree).allowed).toBe(false);
  });
});

describe('what is not', () => {
  test.each(['new', 'sub/new/deeper', '../hidden-not/x', '..', '/tmp/elsewhere', '.'])(
    '%s is read and written',
    (file) => {
      const { paths, tree } = place();
      for (const access of ['read', 'write'] as const) {
        expect(judgePath(paths, access, file, tree)).toMatchObject({ allowed: true, reason: null });
      }
    },
  );

  test('is given with its links resolved', () => {
    const { paths, tree, root } = place();
    symlinkSync(root, path.join(tree, 'up'));
    expect(judgePath(paths, 'write', 'up/tree/new', tree).resolved).toBe(path.join(tree, 'new'));
  });
});
