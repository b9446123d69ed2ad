/** What a nest mounts, and in which order. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { planNest } from '../../src/attempt/nest-mounts.ts';
import { findPrograms } from '../../src/attempt/nest-script.ts';

function scratch(): string {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'outlive-mounts-')));
  onTestFinished(() => rmSync(root, { recursive: true }));
  return root;
}

/** The kernel's table, with the scratch directory as a file system of its own. */
const table = (root: string, ...more: string[]): string =>
  [`30 1 0:30 / ${root} rw,relatime - tmpfs tmpfs rw`, ...more, ''].join('\n');

const NOTHING = { hidden: [], veiled: [], readOnly: [] };

test('pins what could be moved aside, from the outside in, before it covers anything', () => {
  const root = scratch();
  const at = (name: string): string => path.join(root, name);
  for (const name of ['tree', 'a/b/state/x', 'c/config/unit', 'c/agent']) {
    mkdirSync(at(name), { recursive: true });
  }
  writeFileSync(at('c/agent/auth.json'), '');
  const { mounts, paths } = planNest(
    {
      hidden: [at('a/b/state'), at('a/b/state/x'), at('missing')],
      veiled: [at('c/agent/auth.json'), at('c/agent/missing')],
      readOnly: [at('c/config/unit'), at('c/new/made')],
    },
    at('tree'),
    table(root),
  );
  const own = mounts.filter((each) => each.path.startsWith(`${root}/`));
  expect(own.map(({ kind, path: place }) => `${kind} ${path.relative(root, place)}`)).toEqual([
    'pin a',
    'pin c',
    'pin a/b',
    'pin c/new',
    'pin c/agent',
    'pin c/config',
    'hide a/b/state',
    'lock c/config/unit',
    'lock c/new/made',
    'veil c/agent/auth.json',
  ]);
  expect(existsSync(at('c/new/made')), 'made, or it could be made later').toBe(true);
  expect(paths).toEqual({
    hidden: [at('a/b/state'), at('c/agent/auth.json')],
    readOnly: [at('c/config/unit'), at('c/new/made')],
    shown: [],
  });
});

test('follows links: what is covered is the place itself', () => {
  const root = scratch();
  mkdirSync(path.join(root, 'real'));
  mkdirSync(path.join(root, 'tree'));
  symlinkSync('real', path.join(root, 'link'));
  const spec = { ...NOTHING, hidden: [path.join(root, 'link')] };
  const { paths } = planNest(spec, path.join(root, 'tree'), table(root));
  expect(paths.hidden).toEqual([path.join(root, 'real')]);
});

test('leaves writable what the work tree lies in, and refuses to hide it', () => {
  const root = scratch();
  const tree = path.join(root, 'program/tree');
  mkdirSync(tree, { recursive: true });
  const program = path.join(root, 'program');
  const locked = planNest({ ...NOTHING, readOnly: [program] }, tree, table(root));
  expect(locked.paths.readOnly).toEqual([]);
  expect(() => planNest({ ...NOTHING, hidden: [program] }, tree, table(root))).toThrow(
    `the work tree ${tree} lies in ${program}, which is hidden`,
  );
});

test('locks every control group file system that can be written', () => {
  const root = scratch();
  const groups = [
    '40 1 0:40 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro',
    '41 40 0:41 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw',
    '42 40 0:42 / /sys/fs/cgroup/with\\040blank rw,nosuid - cgroup cgroup rw,memory',
    '43 40 0:43 / /sys/fs/cgroup/cpu ro,nosuid - cgroup cgroup rw,cpu',
  ];
  const { mounts } = planNest(NOTHING, root, table(root, ...groups));
  expect(mounts.filter(({ kind }) => kind !== 'clear')).toEqual([
    { kind: 'lock', path: '/sys/fs/cgroup/unified' },
    { kind: 'lock', path: '/sys/fs/cgroup/with blank' },
  ]);
});

test('programs are looked for in the system’s own directories only', () => {
  expect(findPrograms([scratch()])).toEqual({ missing: 'sh' });
  expect(Object.values(findPrograms()).every(path.isAbsolute)).toBe(true);
});
