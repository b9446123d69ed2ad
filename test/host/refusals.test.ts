import { describe, expect, it } from 'vitest';
import { needsRoot, root, run, tinyCheckout } from './support.ts';

/** An environment in which no user manager can be found. */
const nowhere = {
  XDG_RUNTIME_DIR: '/nonexistent',
  DBUS_SESSION_BUS_ADDRESS: 'unix:path=/nonexistent/bus',
};

describe('host refuses', () => {
  for (const [args, message] of [
    [[], /a verb is missing/],
    [['boot', 'x'], /no such verb: boot/],
    [['run'], /run needs -- and a CMD/],
    [['run', 'true'], /run needs -- and a CMD/],
    [['run', '--'], /run needs a CMD after --/],
    [['up'], /up needs a NAME/],
    [['up', '../etc'], /not a name/],
    [['up', 'Abc'], /not a name/],
    [['up', 'a', 'b'], /too many arguments: b/],
    [['exec', 'a', 'true'], /exec needs -- and a CMD/],
  ] as [string[], RegExp][]) {
    it(`host ${args.join(' ')} as a usage error`, async () => {
      const { code, stdout, stderr } = await run(args);
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
      expect(stderr).toMatch(message);
      expect(stderr).toContain('host --help');
    });
  }

  it('nothing when asked for help', async () => {
    const { code, stdout, stderr } = await run(['--help']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    for (const verb of ['run', 'up', 'exec', 'crash', 'reboot', 'down', 'list'])
      expect(stdout).toContain(`host ${verb}`);
  });

  it('without root and without a user manager, with 77', async () => {
    const { host } = tinyCheckout();
    const asNobody = ['--reuid', '65534', '--regid', '65534', '--clear-groups', host];
    for (const args of [['run', '--', 'true'], ['up', 'x'], ['list']]) {
      const { code, stdout, stderr } = root
        ? await run([...asNobody, ...args], { command: 'setpriv', env: nowhere })
        : await run(args, { command: host, env: nowhere });
      expect({ code, stdout }, stderr).toEqual({ code: 77, stdout: '' });
      expect(stderr).toContain('a private host needs root');
      expect(stderr).toContain('No user manager answers either');
    }
  });

  it('OUTLIVE_TEST_HOST=live without a user manager, with 77', async () => {
    for (const args of [
      ['run', '--', 'echo', 'ran'],
      ['exec', 'x', '--', 'echo', 'ran'],
      ['up', 'x'],
      ['list'],
    ]) {
      const { code, stdout, stderr } = await run(args, {
        env: { ...nowhere, OUTLIVE_TEST_HOST: 'live' },
      });
      expect({ code, stdout }).toEqual({ code: 77, stdout: '' });
      expect(stderr).toContain('no user manager answers');
    }
  });

  it.skipIf(!root)(`root without the power to make namespaces, with 77${needsRoot}`, async () => {
    const { code, stderr } = await run(
      ['--bounding-set=-sys_admin', tinyCheckout().host, 'run', '--', 'true'],
      {
        command: 'setpriv',
      },
    );
    expect(code, stderr).toBe(77);
    expect(stderr).toContain('may not make namespaces');
  });

  it.skipIf(!root)(
    'to enter, crash or reboot what is not up, and says how to start it',
    async () => {
      const name = `t${process.pid}-never`;
      for (const args of [
        ['exec', name, '--', 'true'],
        ['crash', name],
        ['reboot', name],
      ]) {
        const { code, stderr } = await run(args);
        expect(code, stderr).toBe(68);
        expect(stderr).toContain(`host up ${name}`);
      }
      const down = await run(['down', name]);
      expect(down.code, 'down of what does not exist has nothing to do').toBe(0);
    },
  );

  it.skipIf(!root)(
    `to boot without the Debian packages, which it names, with 69${needsRoot}`,
    async () => {
      const { host } = tinyCheckout();
      const script = `
      empty=$(mktemp -d) && mount -n --bind "$empty" /usr/lib/systemd/user && rmdir "$empty"; exec "$0" run -- true`;
      const { code, stderr } = await run(
        ['--mount', '--propagation', 'private', 'sh', '-c', script, host],
        {
          command: 'unshare',
        },
      );
      expect(code, stderr).toBe(69);
      expect(stderr).toContain('missing Debian packages: dbus-user-session');
    },
  );

  it.skipIf(!root)(
    'to go on when the boot fails: says why, with 70, and leaves nothing',
    async () => {
      const { host } = tinyCheckout();
      // A user manager that cannot start.
      const script = `
      mount -n --bind /bin/false /lib/systemd/systemd-user-runtime-dir && exec "$0" run -- true`;
      const { code, stdout, stderr } = await run(
        ['--mount', '--propagation', 'private', 'sh', '-c', script, host],
        {
          command: 'unshare',
        },
      );
      expect({ code, stdout }, stderr).toEqual({ code: 70, stdout: '' });
      expect(stderr).toMatch(/did not boot: the user manager is failed/);
      expect(stderr).toMatch(/user-runtime-dir@1000.service: .*status=1\/FAILURE/);
    },
  );
});
