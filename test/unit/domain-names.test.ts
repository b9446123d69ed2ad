import { describe, expect, it } from 'vitest';
import {
  daemonUnitName,
  dropInDirectoryName,
  handleSchema,
  parseUnitName,
  sliceName,
  unitName,
  unitPattern,
  workspaceSchema,
} from '../../src/domain/names.ts';

describe('a unit name', () => {
  it('is read from both ends: what stands between workspace and counter is the handle', () => {
    expect(unitName({ workspace: 'main', handle: 'issue42', counter: 3 })).toBe(
      'outlive-main-issue42-3.service',
    );
    expect(parseUnitName('outlive-main-issue42-fix-1.service')).toEqual({
      workspace: 'main',
      handle: 'issue42-fix',
      counter: 1,
    });
    expect(parseUnitName('outlive-main-1-2-3.service')).toEqual({
      workspace: 'main',
      handle: '1-2',
      counter: 3,
    });
  });

  it.each([
    ['a leading zero', 'outlive-main-a-01.service'],
    ['counter 0', 'outlive-main-a-0.service'],
    ['no counter', 'outlive-main-a.service'],
    ['a counter that is no number', 'outlive-main-a-b.service'],
    ['a counter beyond what a number holds exactly', 'outlive-main-a-9007199254740993.service'],
    ['a handle that begins with a dash', 'outlive-main--a-1.service'],
    ['a handle that ends with a dash', 'outlive-main-a--1.service'],
    ['no handle', 'outlive-main-1.service'],
    ['an empty handle', 'outlive-main--1.service'],
    ['an empty workspace', 'outlive--a-1.service'],
    ['an upper-case workspace', 'outlive-Main-a-1.service'],
    ['an upper-case handle', 'outlive-main-A-1.service'],
    ['an upper-case prefix', 'Outlive-main-a-1.service'],
    ['an underscore', 'outlive-main-a_b-1.service'],
    ['a workspace of 33 characters', `outlive-${'w'.repeat(33)}-a-1.service`],
    ['a handle of 65 characters', `outlive-main-${'h'.repeat(65)}-1.service`],
    ['a slice', 'outlive-main-a-1.slice'],
    ['a scope', 'outlive-main-a-1.scope'],
    ['no suffix', 'outlive-main-a-1'],
    ['two suffixes', 'outlive-main-a-1.service.service'],
    ['an instance', 'outlive-main-a-1@x.service'],
    ['a line end', 'outlive-main-a-1.service\n'],
    ['a blank in front', ' outlive-main-a-1.service'],
    ['a path', '/outlive-main-a-1.service'],
    ['the slice of the attempts', sliceName('main')],
    ['the unit of the daemon', daemonUnitName('main')],
    ['the drop-in directory', dropInDirectoryName('main')],
    ['the pattern itself', unitPattern('main')],
    ['nothing', ''],
  ])('is not parsed from %s', (_what, name) => {
    expect(parseUnitName(name)).toBeNull();
  });
});

describe('the names beside it', () => {
  it('are in no way another workspace’s', () => {
    expect(unitPattern('main')).toBe('outlive-main-*.service');
    expect(sliceName('main')).toBe('outlive-attempts-main.slice');
    // Prefix drop-ins: systemd cuts at dashes, so this one is the whole workspace's.
    expect(dropInDirectoryName('main')).toBe('outlive-main-.service.d');
    expect(daemonUnitName('main')).toBe('outlived-main.service');
  });
});

describe('a handle', () => {
  it.each(['a', '0', 'issue42', 'tm-390', 'a--b', 'h'.repeat(64)])('may be %s', (handle) => {
    expect(handleSchema.safeParse(handle).success).toBe(true);
  });

  it.each(['', '-', '-a', 'a-', 'A', 'a b', 'a.b', 'a/b', 'ä', 'a\n', 'h'.repeat(65)])(
    'may not be %j',
    (handle) => {
      expect(handleSchema.safeParse(handle).success).toBe(false);
    },
  );
});

describe('a workspace', () => {
  it.each(['main', 'a', '0', 'w'.repeat(32)])('may be %s', (workspace) => {
    expect(workspaceSchema.safeParse(workspace).success).toBe(true);
  });

  it.each(['', 'a-b', 'Main', 'a.b', '..', 'a\n', 'w'.repeat(33)])('may not be %j', (workspace) => {
    expect(workspaceSchema.safeParse(workspace).success).toBe(false);
  });
});
