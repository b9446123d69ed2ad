import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { Cgroups, cgroup2Mount, saysPopulated } from '../../src/systemd/cgroup.ts';
import { systemTimers, type Timers } from '../../src/systemd/timers.ts';

const root = mkdtempSync(path.join(os.tmpdir(), 'outlive-cgroup-'));
afterAll(() => rmSync(root, { recursive: true }));

const mount = (point: string, type: string): string =>
  `30 23 0:26 / ${point} rw,nosuid shared:4 - ${type} ${type} rw`;

describe('the mount of cgroup v2', () => {
  test('is /sys/fs/cgroup where everything is v2', () => {
    const text = [mount('/sys', 'sysfs'), mount('/sys/fs/cgroup', 'cgroup2')].join('\n');
    expect(cgroup2Mount(text)).toBe('/sys/fs/cgroup');
  });

  test('is its unified part on a hybrid machine', () => {
    const text = [
      mount('/sys/fs/cgroup', 'tmpfs'),
      mount('/sys/fs/cgroup/memory', 'cgroup'),
      mount('/sys/fs/cgroup/unified', 'cgroup2'),
    ].join('\n');
    expect(cgroup2Mount(text)).toBe('/sys/fs/cgroup/unified');
  });

  test('is the usual one of several, not the first', () => {
    const text = [mount('/mnt/other', 'cgroup2'), mount('/sys/fs/cgroup', 'cgroup2')].join('\n');
    expect(cgroup2Mount(text)).toBe('/sys/fs/cgroup');
  });

  test('may be an unusual one, with blanks in its path', () => {
    expect(cgroup2Mount(mount('/mnt/c\\040g', 'cgroup2'))).toBe('/mnt/c g');
  });

  test('is null where there is none', () => {
    expect(cgroup2Mount(mount('/sys/fs/cgroup', 'cgroup'))).toBeNull();
    expect(cgroup2Mount('')).toBeNull();
  });
});

describe('cgroup.events', () => {
  test('says populated unless it says populated 0', () => {
    expect(saysPopulated('populated 1\nfrozen 0\n')).toBe(true);
    expect(saysPopulated('populated 0\nfrozen 0\n')).toBe(false);
    expect(saysPopulated('frozen 0\npopulated 0\n')).toBe(false);
    expect(saysPopulated('')).toBe(true);
  });
});

describe('waiting for an empty group', () => {
  const cgroups = new Cgroups(root, systemTimers);
  const group = (name: string, populated: 0 | 1): string => {
    mkdirSync(path.join(root, name), { recursive: true });
    writeFileSync(path.join(root, name, 'cgroup.events'), `populated ${populated}\nfrozen 0\n`);
    return `/${name}`;
  };

  test('is over at once where it is empty or gone', async () => {
    expect(await cgroups.waitEmpty(group('empty', 0), 0)).toBe(true);
    expect(await cgroups.waitEmpty('/never/there', 0)).toBe(true);
  });

  test('is false at the deadline', async () => {
    expect(await cgroups.waitEmpty(group('busy', 1), 1)).toBe(false);
  });

  test('ends when the file changes to populated 0', async () => {
    const name = group('ending', 1);
    const waiting = cgroups.waitEmpty(name, 3_600_000);
    group('ending', 0);
    expect(await waiting).toBe(true);
  });

  test('ends when the group is removed', async () => {
    const name = group('slice/removed', 1);
    const waiting = cgroups.waitEmpty(name, 3_600_000);
    rmSync(path.join(root, name), { recursive: true });
    expect(await waiting).toBe(true);
  });

  test('looks once more at the deadline, for an event may have been lost', async () => {
    const name = group('late', 1);
    let pass = (): void => {};
    const timers: Timers = {
      after: (_ms, callback) => {
        pass = callback;
        return () => {};
      },
    };
    const waiting = new Cgroups(root, timers).waitEmpty(name, 1);
    group('late', 0);
    pass();
    expect(await waiting).toBe(true);
  });

  test.each(['', '/', '/..', 'relative'])('of %j is refused: it is no unit', async (name) => {
    await expect(cgroups.waitEmpty(name, 1)).rejects.toMatchObject({ code: 'internal' });
  });
});

test('a manager whose group cannot be seen is none that can be used', async () => {
  await expect(Cgroups.detect('/no/such/group.service', systemTimers)).rejects.toMatchObject({
    code: 'no_user_manager',
  });
});
