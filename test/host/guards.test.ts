import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { needsRoot, root, start, tracesOfRun } from './support.ts';

/** The script's test hook leaves one protection out; systemd is not started then even if the guard fails (exit 99). */
const broken: [string, RegExp][] = [
  ['tmp', /refused to start systemd: \/tmp is not a file system of its own/],
  ['var/tmp', /refused to start systemd: \/var\/tmp is not a file system of its own/],
  ['pid', /refused to start systemd: .*PID namespace/],
  ['cgroup', /refused to start systemd: the cgroup namespace is the machine's/],
];

describe.skipIf(!root)(`host guards${needsRoot}`, () => {
  for (const [what, message] of broken) {
    it(`refuses to boot without its own ${what}, and touches nothing`, async () => {
      const canary = `/tmp/outlive-canary-${process.pid}-${what.replace('/', '-')}`;
      writeFileSync(canary, 'alive');
      onTestFinished(() => rmSync(canary, { force: true }));
      const mounts = readFileSync('/proc/self/mountinfo', 'utf8');
      const group = readFileSync('/proc/self/cgroup', 'utf8');
      const running = start(['run', '--', 'echo', 'booted'], { env: { OUTLIVE_HOST_BREAK: what } });
      const { code, stdout, stderr } = await running.ended;
      expect(code, stderr).toBe(78);
      expect(stderr).toMatch(message);
      expect(stdout).toBe('');
      expect(existsSync(canary), 'the real /tmp was emptied').toBe(true);
      expect(readFileSync('/proc/self/mountinfo', 'utf8')).toBe(mounts);
      expect(readFileSync('/proc/self/cgroup', 'utf8'), 'processes were moved').toBe(group);
      expect(tracesOfRun(running)).toEqual([]);
    });
  }

  it('leaves the real /tmp alone when it does boot', async () => {
    const canary = `/tmp/outlive-canary-${process.pid}`;
    writeFileSync(canary, 'alive');
    onTestFinished(() => rmSync(canary, { force: true }));
    const running = start(['run', '--', 'test', '!', '-e', canary]);
    const { code, stderr } = await running.ended;
    expect(code, `the real /tmp is visible inside: ${stderr}`).toBe(0);
    expect(readFileSync(canary, 'utf8')).toBe('alive');
  });
});
