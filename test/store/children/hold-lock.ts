/**
 * Takes the runtime lock at each line `take <ms>` (at that time of the wall clock, so that
 * many do it together), gives it back at `release`, ends with stdin. argv: state directory, name
 */
import readline from 'node:readline';
import { OutliveError } from '../../../src/domain/errors.ts';
import { acquireRuntimeLock, type RuntimeLock } from '../../../src/store/runtime-lock.ts';

const [, , directory = '', name = ''] = process.argv;
const say = (word: Record<string, unknown>) => process.stdout.write(`${JSON.stringify(word)}\n`);
const held: RuntimeLock[] = [];

function take(): void {
  try {
    const lock = acquireRuntimeLock(directory, 'main');
    held.push(lock);
    say({ owner: true, pid: process.pid, previous: lock.dead.at(-1)?.runtimeInstanceId ?? null });
  } catch (error) {
    const { code, message, extra } = error as OutliveError;
    say({ owner: false, code: error instanceof OutliveError ? code : 'raw', message, extra });
  }
}

function describe(): void {
  held[0]?.describe({
    workspaceId: 'main',
    runtimeInstanceId: name,
    pid: process.pid,
    host: '127.0.0.1',
    port: 5187,
    socket: '/run/user/1000/outlive/main/api/api.sock',
    startedAt: '2026-01-02T03:04:05.678Z',
    version: '0.1.0',
    schemaVersion: 1,
    stateDirectory: directory,
  });
  say({ described: true });
}

say({ ready: true, pid: process.pid });
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [verb, at] = line.split(' ');
  if (verb === 'take') {
    while (Date.now() < Number(at)); // All at the same moment, not one after the other.
    take();
  } else if (verb === 'describe') {
    describe();
  } else {
    held.pop()?.release();
    say({ released: true });
  }
}
