import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createNotifier } from '../../src/systemd/notify.ts';

const scratch = mkdtempSync(path.join(os.tmpdir(), 'outlive-notify-'));
const seen = path.join(scratch, 'seen');
const command = path.join(scratch, 'systemd-notify');

beforeAll(() => {
  // Stands in for the program: notes the socket and each argument on a line of its own.
  writeFileSync(
    command,
    `#!/bin/sh\nfor a in "$NOTIFY_SOCKET" "$@"; do echo "$a"; done >>'${seen}'\n`,
  );
  chmodSync(command, 0o755);
});
afterAll(() => rmSync(scratch, { recursive: true }));

const lines = (): string[] => {
  const text = readFileSync(seen, 'utf8').trimEnd().split('\n');
  rmSync(seen);
  return text;
};

test('each message goes to the socket that was handed in, a status on one line', async () => {
  const reports: string[] = [];
  const notifier = createNotifier({
    socket: '/run/n',
    command,
    report: (problem) => reports.push(problem),
  });
  await notifier.ready('2 attempts\nrunning');
  expect(lines()).toEqual(['/run/n', 'READY=1', 'STATUS=2 attempts running']);
  await notifier.stopping('detaching', null);
  expect(lines()).toEqual(['/run/n', 'STOPPING=1', 'STATUS=detaching']);
  await notifier.stopping('suspending', 90_000);
  expect(lines()).toEqual([
    '/run/n',
    'STOPPING=1',
    'STATUS=suspending',
    'EXTEND_TIMEOUT_USEC=90000000',
  ]);
  await notifier.watchdog('idle');
  expect(lines()).toEqual(['/run/n', 'WATCHDOG=1', 'STATUS=idle']);
  expect(reports).toEqual([]);
});

test('without a socket no process is started', async () => {
  const notifier = createNotifier({ socket: null, command, report: () => {} });
  await notifier.ready('up');
  await notifier.watchdog('idle');
  expect(existsSync(seen)).toBe(false);
});

test.each([
  ['is missing', path.join(scratch, 'missing'), 'cannot be run'],
  ['fails', '/bin/false', 'ended with 1'],
])('a program that %s is reported and never thrown', async (_, program, said) => {
  const reports: string[] = [];
  const notifier = createNotifier({
    socket: '/run/n',
    command: program,
    report: (problem) => reports.push(problem),
  });
  await notifier.ready('up');
  expect(reports).toEqual([expect.stringContaining(said)]);
});
