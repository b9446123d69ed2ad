import {
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { makeTemporary, TemporaryWatch } from '../../src/attempt/temporary.ts';

const made: string[] = [];
afterEach(() => {
  for (const directory of made.splice(0)) rmSync(directory, { recursive: true, force: true });
});

function scratch(): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'outlive-temporary-'));
  made.push(directory);
  return directory;
}

const KIB = 1024;

/** A file of so many KiB that changed at this second. */
function put(directory: string, name: string, kib: number, second: number): string {
  const file = path.join(directory, name);
  writeFileSync(file, Buffer.alloc(kib * KIB, 'x'));
  utimesSync(file, second, second);
  return file;
}

function watch(directory: string, logsBytes: number) {
  const emit = vi.fn<(type: string, data: unknown) => boolean>(() => true);
  const temporary = new TemporaryWatch(directory, emit, logsBytes);
  return { temporary, emit };
}

test('the oldest whole outputs go when all take too much room; it is said once', () => {
  const directory = scratch();
  const [oldest, older, newest] = [1, 2, 3].map((second) =>
    put(directory, `pi-bash-${second}.log`, 64, second),
  );
  const mine = put(directory, 'mine.log', 512, 0);
  const { temporary, emit } = watch(directory, 150 * KIB);
  temporary.look();
  expect([oldest, older, newest, mine].map((file) => existsSync(file ?? ''))).toEqual([
    false,
    true,
    true,
    true,
  ]);
  expect(emit.mock.calls).toEqual([
    [
      'progress',
      { kind: 'temporary_space', message: expect.stringContaining('the oldest are gone') },
    ],
  ]);
});

test('one that is being written and is too large alone gives its room back and stays', () => {
  const directory = scratch();
  const [old, growing] = [
    put(directory, 'pi-bash-a.log', 64, 1),
    put(directory, 'pi-bash-b.log', 256, 2),
  ];
  watch(directory, 128 * KIB).temporary.look();
  expect(existsSync(old)).toBe(false);
  expect(statSync(growing).size).toBe(0);
});

test('what only has the name of one is left alone, and not followed', () => {
  const directory = scratch();
  const target = put(scratch(), 'target', 256, 1);
  symlinkSync(target, path.join(directory, 'pi-bash-x.log'));
  const { temporary, emit } = watch(directory, 128 * KIB);
  temporary.look();
  expect(readFileSync(target)).toHaveLength(256 * KIB);
  expect(emit).not.toHaveBeenCalled();
});

test('it is looked at once a second at most', () => {
  const directory = scratch();
  const { temporary } = watch(directory, 128 * KIB);
  temporary.look();
  const late = put(directory, 'pi-bash-a.log', 256, 1);
  temporary.look();
  expect(statSync(late).size).toBe(256 * KIB);
});

test('the directory is made once, for its owner alone; one that is there is somebody else’s', () => {
  const directory = path.join(scratch(), 'tmp', 'a');
  const warn = vi.fn<(sentence: string) => void>();
  expect(makeTemporary(directory, warn)).toBe(directory);
  expect(statSync(directory).mode & 0o777).toBe(0o700);
  expect(warn).not.toHaveBeenCalled();
  expect(makeTemporary(directory, warn)).toBeNull();
  expect(warn).toHaveBeenCalledWith(expect.stringContaining('EEXIST'));
  expect(makeTemporary(null, warn)).toBeNull();
});
