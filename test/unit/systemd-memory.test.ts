import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { availableOf, createMemoryReader, groupsOf, leftOf } from '../../src/systemd/memory.ts';

const MEMINFO =
  'MemTotal:       16000000 kB\nMemFree:         1000 kB\nMemAvailable:    8000000 kB\n';
const CGROUP = '0::/user.slice/user-1000.slice/user@1000.service/app.slice/outlived-main.service\n';

const root = mkdtempSync(path.join(os.tmpdir(), 'outlive-memory-'));
afterEach(() => rmSync(root, { recursive: true, force: true }));

function write(file: string, text: string): void {
  const full = path.join(root, file);
  mkdirSync(path.dirname(full), { recursive: true });
  writeFileSync(full, text);
}

test('MemAvailable is in bytes, and may be missing', () => {
  expect(availableOf(MEMINFO)).toBe(8_192_000_000);
  expect(availableOf('MemFree: 1 kB\n')).toBeNull();
});

test('a group without a limit says nothing, one over its limit leaves nothing', () => {
  expect(leftOf('max\n', '5\n')).toBeNull();
  expect(leftOf(null, null)).toBeNull();
  expect(leftOf('100\n', '40\n')).toBe(60);
  expect(leftOf('100\n', '140\n')).toBe(0);
});

test('the groups that hold the daemon and its runs are those of the user', () => {
  expect(groupsOf(CGROUP)).toEqual([
    '/user.slice/user-1000.slice/user@1000.service',
    '/user.slice/user-1000.slice',
    '/user.slice',
  ]);
  expect(groupsOf('0::/\n')).toEqual([]);
});

test('the least of machine and slices counts, read afresh each time', () => {
  write('proc/meminfo', MEMINFO);
  write('proc/self/cgroup', CGROUP);
  const read = createMemoryReader(root);
  expect(read()).toBe(8_192_000_000);
  const slice = 'sys/fs/cgroup/user.slice/user-1000.slice';
  write(`${slice}/memory.max`, '1000000\n');
  write(`${slice}/memory.current`, '400000\n');
  expect(read()).toBe(600_000);
  write(`${slice}/memory.current`, '900000\n');
  expect(read()).toBe(100_000);
});

test('where nothing can be told nothing is said', () => {
  expect(createMemoryReader(root)()).toBeNull();
});
