import { existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { openDatabase, STORE_FILE, storeError } from '../../src/store/open.ts';
import { AT, cleanUp, open, refusal, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

const sqlite = (code: string): Error => Object.assign(new Error('no'), { code });

/** Where the kernel says that there is no room at all: statfs(2) of procfs has no free block. */
const FULL = '/proc/outlive.db';

describe('what SQLite says of a disk', () => {
  it.each(['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE', 'ENOSPC', 'EDQUOT'])(
    '%s is disk_full',
    (code) => {
      const error = storeError(sqlite(code), path.join(temporaryDirectory(), STORE_FILE));
      expect(error.code).toBe('disk_full');
      expect(error.message).toContain(STORE_FILE);
    },
  );

  it.each([
    'SQLITE_IOERR_WRITE',
    'SQLITE_IOERR_TRUNCATE',
    'SQLITE_IOERR_SHMMAP',
    'SQLITE_CANTOPEN',
  ])('%s is disk_full where there is no room, and else what it is', (code) => {
    expect(storeError(sqlite(code), FULL).code).toBe('disk_full');
    const roomy = path.join(temporaryDirectory(), STORE_FILE);
    expect(storeError(sqlite(code), roomy).code).toBe('store_unavailable');
  });

  it('SQLITE_BUSY is no full disk, wherever it is', () => {
    expect(storeError(sqlite('SQLITE_BUSY'), FULL).code).toBe('store_unavailable');
  });
});

describe('a store that was there at the first try', () => {
  it('and is gone at the next is missed, not made anew', () => {
    const directory = temporaryDirectory();
    open(directory).close();
    rmSync(path.join(directory, STORE_FILE));
    const error = refusal(() => openDatabase(directory, AT, false));
    expect(error.code).toBe('store_damaged');
    expect(existsSync(path.join(directory, STORE_FILE))).toBe(false);
  });
});
