import os from 'node:os';
import { describe, expect, it } from 'vitest';
import { fileSystemOf, requireLocal } from '../../src/daemon/file-system.ts';
import { OutliveError } from '../../src/domain/errors.ts';

const check = (type: number): { refused: string | null; warned: string[] } => {
  const warned: string[] = [];
  try {
    requireLocal(
      '/somewhere/state',
      (message) => warned.push(message),
      () => type,
    );
    return { refused: null, warned };
  } catch (error) {
    if (!(error instanceof OutliveError)) throw error;
    return { refused: `${error.code}: ${error.message}`, warned };
  }
};

describe('row 008: the lock speaks for one machine', () => {
  it.each([
    ['nfs', 0x6969],
    ['cifs', 0xff534d42],
    ['cifs', -0x00acb2be],
    ['smb2', 0xfe534d42],
    ['ceph', 0x00c36400],
    ['lustre', 0x0bd00bd0],
  ])('a state directory on %s (%i) is refused by name', (name, type) => {
    const { refused } = check(type);
    expect(refused).toContain('network_file_system: /somewhere/state');
    expect(refused).toContain(name);
  });

  it.each([
    ['fuse', 0x65735546],
    ['9p', 0x01021997],
  ])('one on %s may be either: it is warned of', (name, type) => {
    const { refused, warned } = check(type);
    expect(refused).toBeNull();
    expect(warned.join()).toContain(name);
  });

  it.each([
    ['ext4', 0xef53],
    ['tmpfs', 0x01021994],
    ['btrfs', 0x9123683e],
    ['xfs', 0x58465342],
    ['zfs', 0x2fc12fc1],
    ['overlayfs', 0x794c7630],
  ])('one on %s is taken without a word', (_name, type) => {
    expect(check(type)).toEqual({ refused: null, warned: [] });
    expect(fileSystemOf(type).reach).toBe('machine');
  });

  it('what statfs says of a real directory is understood', () => {
    expect(() => requireLocal(os.tmpdir(), () => undefined)).not.toThrow();
  });
});
