import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  inside,
  journaled,
  needsRoot,
  root,
  run,
  start,
  startInTerminal,
  tracesOfRun,
} from './support.ts';

describe.skipIf(!root)(`host run${needsRoot}`, () => {
  it('returns the exit code of CMD and prints nothing of its own on stdout', async () => {
    const { code, stdout } = await run(inside('echo only this; echo talk >&2; exit 7'));
    expect(code).toBe(7);
    expect(stdout).toBe('only this\n');
  });

  it('tells a CMD that does not exist and one that was killed by their codes', async () => {
    expect((await run(['run', '--', 'no-such-command'])).code).toBe(127);
    expect((await run(inside('kill -KILL $$'))).code).toBe(137);
  });

  it('passes stdin through', async () => {
    const { stdout } = await run(['run', '--', 'cat'], { input: 'from outside' });
    expect(stdout).toBe('from outside');
  });

  it('runs CMD as an unprivileged, lingering user in the checkout', async () => {
    const { stdout, stderr } = await run(
      inside('id -un; id -u; pwd; loginctl show-user agent -P Linger; cat package.json | head -2'),
    );
    const lines = stdout.split('\n');
    expect(lines.slice(0, 4), stderr).toEqual(['agent', '1000', '/opt/outlive', 'yes']);
    expect(stdout).toContain('"name": "outlive"');
  });

  it('gives CMD a fixed environment, and CI and OUTLIVE_* of the caller', async () => {
    const env = { CI: '1', OUTLIVE_A_B: 'x  y\nz', SECRET_OF_CALLER: 'no' };
    const { stdout } = await run(['run', '--', 'env', '-0'], { env });
    const seen = Object.fromEntries(
      stdout
        .split('\0')
        .filter(Boolean)
        .map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]),
    );
    const passed = Object.entries({ ...process.env, ...env }).filter(([key]) =>
      /^(CI|OUTLIVE_.*)$/.test(key),
    );
    expect(seen).toEqual({
      ...Object.fromEntries(passed),
      HOME: '/home/agent',
      USER: 'agent',
      LOGNAME: 'agent',
      SHELL: '/bin/bash',
      PATH: '/usr/local/bin:/usr/bin:/bin',
      LANG: 'C.UTF-8',
      XDG_RUNTIME_DIR: '/run/user/1000',
      DBUS_SESSION_BUS_ADDRESS: 'unix:path=/run/user/1000/bus',
    });
  });

  it('starts when the user manager is up, and units of the user run in it', async () => {
    const { stdout, stderr } = await run(
      inside(
        `systemctl --user is-system-running
         systemd-run --user --quiet --wait --pipe -u one sh -c 'id -u; cat /proc/self/cgroup'`,
      ),
    );
    expect(stdout, stderr).toMatch(/^running\n1000\n/);
    expect(stdout).toContain('0::/user.slice/user-1000.slice/user@1000.service/app.slice/one');
  });

  it('shows the user his own journal', async () => {
    const { stdout, stderr } = await run(
      inside(
        `# It lives on, because journald looks up the unit of a line's process and may be late.
         systemd-run --user --quiet -u talks sh -c 'echo a line of the unit; exec sleep 60'
         ${journaled('talks', 'a line of the unit')}`,
      ),
    );
    expect(stdout, stderr).toBe('a line of the unit\n');
  });

  it('lets units have user namespaces and credentials, and commands nest with a /proc', async () => {
    const { stdout, stderr } = await run(
      inside(
        `echo secret >~/key
         systemd-run --user --quiet --wait --pipe -p PrivateUsers=yes -p LoadCredential=key:$HOME/key \\
           sh -c 'cat $CREDENTIALS_DIRECTORY/key'
         systemd-run --user --quiet --scope sh -c 'cat /proc/self/cgroup' | grep -c /app.slice/run-
         unshare --user --map-root-user --mount --pid --fork --mount-proc sh -c 'id -u; echo /proc/[0-9]*'`,
      ),
    );
    expect(stdout, stderr).toBe('secret\n1\n0\n/proc/1\n');
  });

  it('keeps commands out of the root cgroup, where systemd allows no process', async () => {
    const { stdout } = await run(
      inside(
        'grep ^0:: /proc/self/cgroup; cat /sys/fs/cgroup/cgroup.procs | wc -l; systemctl is-system-running',
      ),
    );
    expect(stdout).toBe('0::/outlive-commands\n0\nrunning\n');
  });

  it('gives the command a terminal where the caller has one', async () => {
    const running = startInTerminal(
      `sh -c 'test -t 0; echo "$? $TERM"; read -r l; echo "got $l"'`,
      {
        TERM: 'xterm-test',
      },
    );
    await running.prints('0 xterm-test');
    running.child.stdin.write('typed\n');
    running.child.stdin.end();
    expect((await running.ended).stdout).toContain('got typed');
  });

  it('changes nothing of the machine: accounts, limits, host name', async () => {
    const files = [
      '/etc/passwd',
      '/etc/group',
      '/etc/shadow',
      '/etc/machine-id',
      '/proc/sys/fs/nr_open',
    ];
    const before = files.map((file) => readFileSync(file, 'utf8'));
    const running = start(inside('touch /tmp/mine /dev/shm/mine; ! touch /opt/outlive/mine'));
    expect((await running.ended).code, (await running.ended).stderr).toBe(0);
    expect(files.map((file) => readFileSync(file, 'utf8'))).toEqual(before);
    expect(tracesOfRun(running)).toEqual([]);
  });
});
