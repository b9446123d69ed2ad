import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  entries,
  groups,
  hostName,
  needsRoot,
  ok,
  type Running,
  root,
  start,
  startInTerminal,
  states,
  traces,
  tracesOfRun,
  until,
} from './support.ts';

let sleeps = 0;
/** A number of seconds that is in no other process's arguments: the marker of a test's processes. */
const uniqueSeconds = () => {
  sleeps += 1;
  return `${86_400 + sleeps}.${process.pid}`;
};
const marked = (seconds: string) =>
  `(setsid sleep ${seconds} &); echo started; exec sleep ${seconds}`;

const mounts = () => readFileSync('/proc/self/mountinfo', 'utf8');

describe.skipIf(!root)(`host leaves nothing behind${needsRoot}`, () => {
  it('after a CMD that fails and leaves a daemon', async () => {
    const before = mounts();
    const seconds = uniqueSeconds();
    const running = start(['run', '--', 'sh', '-c', `setsid sleep ${seconds} & exit 3`]);
    expect((await running.ended).code).toBe(3);
    expect(tracesOfRun(running, seconds)).toEqual([]);
    expect(mounts()).toBe(before);
  });

  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const) {
    it(`after ${signal} while CMD runs`, async () => {
      const before = mounts();
      const seconds = uniqueSeconds();
      const running = start(['run', '--', 'sh', '-c', marked(seconds)]);
      await running.prints('started');
      running.child.kill(signal);
      expect((await running.ended).code).toBe(code);
      expect(tracesOfRun(running, seconds)).toEqual([]);
      expect(mounts()).toBe(before);
    });
  }

  it('after Ctrl-C on a terminal', async () => {
    const seconds = uniqueSeconds();
    const running = startInTerminal(`sh -c '${marked(seconds)}'`);
    const pid = (await running.prints('started')).match(/pid (\d+)/)?.[1];
    running.child.stdin.write('\x03');
    await running.ended;
    expect(traces(`run-${pid}-`, seconds)).toEqual([]);
  });

  it('after SIGKILL of the script, as soon as its other half has noticed', async () => {
    const seconds = uniqueSeconds();
    const running = start(['run', '--', 'sh', '-c', marked(seconds)]);
    await running.prints('started');
    running.child.kill('SIGKILL');
    await running.ended;
    await until('the clean-up', () => tracesOfRun(running, seconds).length === 0);
    expect(tracesOfRun(running, seconds)).toEqual([]);
  });

  const journalOf = (state: string) => entries(join(state, 'journal')).length > 0;
  const stages: [string, (of: Running) => boolean][] = [
    ['is registered', (of) => states(prefixOf(of)).length > 0],
    ['has a cgroup', (of) => groups(prefixOf(of)).length > 0],
    ['has a PID 1', (of) => states(prefixOf(of)).some((dir) => existsSync(join(dir, 'init')))],
    ['has a journal', (of) => states(prefixOf(of)).some(journalOf)],
    ['is ready', (of) => states(prefixOf(of)).some((dir) => existsSync(join(dir, 'ready')))],
  ];
  for (const [stage, reached] of stages) {
    it(`after SIGINT in the middle of the boot: when the host ${stage}`, async () => {
      const before = mounts();
      const seconds = uniqueSeconds();
      const running = start(['run', '--', 'sleep', seconds]);
      await until(`a host that ${stage}`, () => reached(running));
      running.child.kill('SIGINT');
      expect((await running.ended).code).toBe(130);
      expect(tracesOfRun(running, seconds)).toEqual([]);
      expect(mounts()).toBe(before);
    });
  }

  it('after down, whatever ran in it', async () => {
    const before = mounts();
    const name = hostName();
    const seconds = uniqueSeconds();
    await ok('up', name);
    await ok('exec', name, '--', 'systemd-run', '--user', '--quiet', 'sleep', seconds);
    const foreground = start(['exec', name, '--', 'sh', '-c', marked(seconds)]);
    await foreground.prints('started');
    await ok('down', name);
    expect((await foreground.ended).code).not.toBe(0);
    expect(traces(name, seconds)).toEqual([]);
    expect(mounts()).toBe(before);
  });

  it('after SIGINT in the middle of up: a new host is gone, an old one keeps its home', async () => {
    const name = hostName();
    const interrupted = async () => {
      const up = start(['up', name]);
      await until('a PID 1', () => states(name).some((dir) => existsSync(join(dir, 'init'))));
      up.child.kill('SIGINT');
      expect((await up.ended).code).toBe(130);
    };
    await interrupted();
    expect(traces(name)).toEqual([]);
    await ok('up', name);
    await ok('exec', name, '--', 'sh', '-c', 'echo kept >~/file');
    await ok('crash', name);
    await interrupted();
    await ok('up', name);
    expect(await ok('exec', name, '--', 'sh', '-c', 'cat ~/file')).toBe('kept\n');
  });
});

function prefixOf(running: Running): string {
  return `run-${running.child.pid}-`;
}
