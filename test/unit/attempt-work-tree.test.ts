import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { findGit, findWorkTree } from '../../src/attempt/work-tree.ts';

const made: string[] = [];
afterEach(() => {
  vi.restoreAllMocks();
  for (const directory of made.splice(0)) rmSync(directory, { recursive: true, force: true });
});

function scratch(): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'outlive-tree-'));
  made.push(directory);
  return directory;
}

/** What of a repository is looked for. */
function repository(root: string, directory = path.join(root, '.git')): void {
  mkdirSync(path.join(directory, 'objects'), { recursive: true });
  writeFileSync(path.join(directory, 'HEAD'), 'ref: refs/heads/main\n');
}

const asSomebodyElse = (): void => {
  vi.spyOn(process, 'getuid').mockReturnValue(4_242_424);
};

describe('the work tree of a directory', () => {
  test('is found from below, with what lies where', () => {
    const root = scratch();
    repository(root);
    writeFileSync(path.join(root, '.git/config'), '[extensions]\n\tobjectFormat = sha256\n');
    mkdirSync(path.join(root, 'a/b'), { recursive: true });
    expect(findWorkTree(path.join(root, 'a/b'))).toEqual({
      root,
      index: path.join(root, '.git/index'),
      objects: path.join(root, '.git/objects'),
      exclude: path.join(root, '.git/info/exclude'),
      objectFormat: 'sha256',
    });
  });

  test('of another user is none', () => {
    const root = scratch();
    repository(root);
    expect(findWorkTree(root)?.root).toBe(root);
    asSomebodyElse();
    expect(findWorkTree(root)).toBeNull();
  });

  test('that only looks like one is passed over for the one above', () => {
    const root = scratch();
    repository(root);
    mkdirSync(path.join(root, 'sub/.git'), { recursive: true });
    expect(findWorkTree(path.join(root, 'sub'))?.root).toBe(root);
  });
});

describe('git', () => {
  test('is the first of the search path that this user could not have put there', () => {
    const [mine, link] = [scratch(), scratch()];
    writeFileSync(path.join(mine, 'git'), '#!/bin/sh\n');
    chmodSync(path.join(mine, 'git'), 0o755);
    symlinkSync('/usr/bin/env', path.join(link, 'git'));
    const search = [mine, link, 'bin', '', '/nowhere', '/usr/bin'].join(':');
    const uid = process.getuid?.() ?? 0;
    // Whoever runs the tests: as an ordinary user who owns the first two.
    expect(findGit(search)).toBe(uid === 0 ? path.join(mine, 'git') : '/usr/bin/git');
    expect(findGit('/nowhere')).toBeNull();
  });
});
