import { describe, expect, it } from 'vitest';
import {
  hostName,
  journaled,
  needsRoot,
  ok,
  registry,
  root,
  run,
  start,
  states,
  tinyCheckout,
  traces,
} from './support.ts';

const shell = (name: string, script: string) => ok('exec', name, '--', 'sh', '-ec', script);

/** Starts a unit that notes how it ended and in what manager, in ~/ended. */
const lasting = `
  printf '%s\\n' '#!/bin/sh' 'echo "$(systemctl --user is-system-running) $SERVICE_RESULT" >>~/ended' >~/ended.sh
  chmod +x ~/ended.sh
  systemd-run --user --quiet -u lasting -p ExecStopPost=$HOME/ended.sh sleep 86000`;

describe.skipIf(!root)(`host up, exec, crash, reboot, down${needsRoot}`, () => {
  it('crash kills everything at once; up boots again over the same home', async () => {
    const name = hostName();
    await ok('up', name);
    await shell(name, `echo kept >~/file; ${lasting}`);
    await ok('crash', name);
    expect(traces(name)).toEqual([`${registry}/${name}`]);
    expect(await ok('list')).toMatch(new RegExp(`^${name}\\toff\\t`, 'm'));
    await ok('up', name);
    expect(
      await shell(
        name,
        'cat ~/file; cd; ls ended 2>&1 || :; systemctl --user is-active lasting || :',
      ),
    ).toBe("kept\nls: cannot access 'ended': No such file or directory\ninactive\n");
    await ok('down', name);
    expect(states(name)).toEqual([]);
  });

  it('reboot stops the units of the user in a manager that is stopping, and keeps home and journal', async () => {
    const name = hostName();
    await ok('up', name);
    const boot = await shell(name, `${lasting}; cat /proc/sys/kernel/random/boot_id`);
    await shell(
      name,
      `systemd-run --user --quiet -u early sh -c 'echo from the first boot; exec sleep 60'
       ${journaled('early', 'from the first boot')}`,
    );
    const foreground = start(['exec', name, '--', 'sh', '-c', 'echo started; exec sleep 86001']);
    await foreground.prints('started');
    const reboot = await run(['reboot', name]);
    expect(reboot, 'the host must go down in order, not by a power cut').toMatchObject({
      code: 0,
      stderr: '',
    });
    expect((await foreground.ended).code, 'a command must end with its host').not.toBe(0);
    expect(await shell(name, 'cat ~/ended')).toBe('stopping success\n');
    expect(await shell(name, 'cat /proc/sys/kernel/random/boot_id')).not.toBe(boot);
    expect(await shell(name, 'journalctl --user -b -1 -u early -o cat')).toContain(
      'from the first boot',
    );
  });

  it('stopping a unit by hand is no reboot: its manager is running', async () => {
    const name = hostName();
    await ok('up', name);
    expect(await shell(name, `${lasting}; systemctl --user stop lasting; cat ~/ended`)).toBe(
      'running success\n',
    );
  });

  it('up of a host that is up changes nothing; of two at once exactly one boots', async () => {
    const name = hostName();
    const both = await Promise.all([run(['up', name]), run(['up', name])]);
    expect(both.map(({ code }) => code)).toEqual([0, 0]);
    expect(both.filter(({ stderr }) => stderr.includes('already up'))).toHaveLength(1);
    const boot = await shell(name, 'cat /proc/sys/kernel/random/boot_id');
    expect((await run(['up', name])).stderr).toContain(`${name} is already up`);
    expect(await shell(name, 'cat /proc/sys/kernel/random/boot_id')).toBe(boot);
  });

  it('keeps hosts apart', async () => {
    const [one, two] = [hostName(), hostName()];
    await Promise.all([ok('up', one), ok('up', two)]);
    await shell(one, 'systemd-run --user --quiet -u only-in-one sleep 86002; echo 1 >~/who');
    expect(
      await shell(
        two,
        'ls ~; systemctl --user is-active only-in-one || pgrep -x sleep || echo apart',
      ),
    ).toBe('inactive\napart\n');
    await ok('down', two);
    expect(await shell(one, 'systemctl --user is-active only-in-one')).toBe('active\n');
  });

  it('two runs at once do not meet', async () => {
    const runs = await Promise.all(
      [3, 4].map((code) =>
        run(['run', '--', 'sh', '-c', `systemd-run --user -q --wait -u same true && exit ${code}`]),
      ),
    );
    expect(runs.map(({ code }) => code)).toEqual([3, 4]);
  });

  it('exec passes exit code, stdin and signals', async () => {
    const name = hostName();
    await ok('up', name);
    const { code, stdout } = await run(['exec', name, '--', 'sh', '-c', 'cat; exit 9'], {
      input: 'in',
    });
    expect({ code, stdout }).toEqual({ code: 9, stdout: 'in' });
    const running = start([
      'exec',
      name,
      '--',
      'sh',
      '-c',
      'trap "echo told >~/told; exit" TERM; echo on; sleep 9 >/dev/null 2>&1 & wait',
    ]);
    await running.prints('on');
    running.child.kill('SIGTERM');
    await running.ended;
    expect(
      await shell(
        name,
        'for i in $(seq 100); do [ -s ~/told ] && break; sleep 0.05; done; cat ~/told',
      ),
    ).toBe('told\n');
  });

  it('OUTLIVE_TEST_HOST=live uses the manager of the caller', async () => {
    const name = hostName();
    await ok('up', name);
    const live = (...args: string[]) =>
      run([
        'exec',
        name,
        '--',
        'env',
        'OUTLIVE_TEST_HOST=live',
        '/opt/outlive/ops/scripts/host',
        ...args,
      ]);
    const { code, stdout } = await live(
      'run',
      '--',
      'sh',
      '-c',
      'pwd; systemctl --user is-system-running; exit 5',
    );
    expect({ code, stdout }).toEqual({ code: 5, stdout: '/opt/outlive\nrunning\n' });
    expect((await live('exec', 'any', '--', 'pwd')).stdout).toBe('/opt/outlive\n');
    expect((await live('up', 'any')).code).toBe(0);
    const crash = await live('crash', 'any');
    expect(crash.code).toBe(1);
    expect(crash.stderr).toContain('will not crash the machine you are using');
  });

  it('a name belongs to the checkout that booted it', async () => {
    const name = hostName();
    const other = tinyCheckout();
    await ok('up', name);
    for (const args of [
      ['up', name],
      ['exec', name, '--', 'true'],
    ]) {
      const { code, stderr } = await run(args, { command: other.host });
      expect(code).toBe(1);
      expect(stderr).toContain(`${name} belongs to the checkout`);
    }
  });
});
