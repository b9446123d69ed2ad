/** The daemon on a machine without systemd: which executor it takes, and that nothing starts twice. */
import { chmodSync, existsSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli } from '../support/cli.ts';
import { appears, Rig, within } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create({ withoutSystemd: true });
});
afterEach(async () => {
  await rig.end();
});

/** Puts a script in the place of a program of the rig's PATH. */
function replaceProgram(name: string, text: string): void {
  const file = path.join(rig.env['PATH'] ?? '', name);
  rmSync(file, { force: true });
  writeFileSync(file, `#!/bin/sh\n${text}\n`);
  chmodSync(file, 0o755);
}

describe('a machine without systemd', () => {
  it('row 141: gets the direct executor from the beginning, and is told so and why', async () => {
    await rig.startDaemon();
    const runtime = await rig.client.runtime();
    expect(runtime).toMatchObject({ executor: 'direct', status: 'degraded' });
    expect(runtime.problems).toEqual([
      expect.stringMatching(
        /^direct_executor: The systemd user manager cannot be reached.*left behind/,
      ),
    ]);
    const { stdout } = await cli(rig, ['daemon', 'status']);
    expect(stdout).toMatch(/executor +direct/);
    expect(stdout).toMatch(/problem +direct_executor: /);
    const { workUnit, events } = await rig.runToEnd({ argv: ['sh', '-c', 'echo hi'] });
    expect(workUnit.attempts).toHaveLength(1);
    expect(workUnit.attempts[0]).toMatchObject({ executor: 'direct', status: 'succeeded' });
    // Row 142: nothing of a start that came to nothing.
    expect(events.filter(({ type }) => type === 'attempt.created')).toHaveLength(1);
    expect(events.filter(({ type }) => type.startsWith('diagnostic.'))).toEqual([]);
  });

  it('row 139: is not taken in by programs of systemd’s names on PATH', async () => {
    replaceProgram('systemctl', 'echo running; exit 0');
    replaceProgram('systemd-run', `echo called >> ${rig.base}/lied; exit 0`);
    // Something is at the bus's address, and it refuses.
    symlinkSync('/dev/null', path.join(rig.base, 'bus'));
    await rig.startDaemon({
      env: { DBUS_SESSION_BUS_ADDRESS: `unix:path=${path.join(rig.base, 'bus')}` },
    });
    const { workUnit } = await rig.runToEnd({ argv: ['sh', '-c', 'echo x >> runs'] });
    expect(workUnit.attempts[0]).toMatchObject({ executor: 'direct', status: 'succeeded' });
    // Row 140: once and only once.
    expect(readFileSync(path.join(rig.tree, 'runs'), 'utf8')).toBe('x\n');
    expect(existsSync(path.join(rig.base, 'lied'))).toBe(false);
  });

  it('shows a dry run of what it would start', async () => {
    await rig.startDaemon();
    const { stdout } = await cli(rig, [
      'run',
      '--runner',
      'command',
      '--dry-run',
      '--json',
      '--',
      'true',
    ]);
    expect(stdout).toContain('direct-attempt.sh');
    expect(stdout).toContain('OUTLIVE_NONCE=');
  });

  it('is refused where systemd alone is wanted', async () => {
    const daemon = rig.spawnDaemon({ env: { OUTLIVE_EXECUTOR: 'systemd' } });
    expect(await daemon.exited).toBe(4);
    expect(daemon.output()).toContain('no_user_manager');
  });

  it('is refused to a daemon that a service manager waits for: its attempts would end with its unit', async () => {
    const daemon = rig.spawnDaemon({ env: { NOTIFY_SOCKET: path.join(rig.base, 'notify') } });
    expect(await daemon.exited).toBe(4);
    expect(daemon.output()).toContain('no_user_manager');
  });
});

describe('a start that comes late', () => {
  const RUNS = 'echo x >> runs';

  it('T59: whose daemon died while it was on its way is waited for, and adopted', async () => {
    replaceProgram('setsid', `: > ${rig.base}/asked; sleep 2; exec /usr/bin/setsid "$@"`);
    const first = await rig.startDaemon();
    const { id } = await rig.submit({ argv: ['sh', '-c', RUNS] });
    await appears(path.join(rig.base, 'asked'));
    first.kill('SIGKILL');
    await first.exited;
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect(workUnit).toMatchObject({ status: 'succeeded', attempts: [{ reattached: 1 }] });
    expect(readFileSync(path.join(rig.tree, 'runs'), 'utf8')).toBe('x\n');
  });

  it('T57 nomad#632: that nobody could see is revoked first, runs nothing when it comes, and the work runs once', async () => {
    // The first one hides: no process carries its nonce until it goes on.
    replaceProgram(
      'setsid',
      `if [ -e ${rig.base}/asked ]; then exec /usr/bin/setsid "$@"; fi
       nonce=$OUTLIVE_NONCE; unset OUTLIVE_NONCE
       exec env --ignore-environment PATH="$PATH" /usr/bin/setsid --fork sh -c '
         : > ${rig.base}/asked; until [ -e ${rig.base}/late ]; do sleep 0.1; done
         nonce=$1; shift; OUTLIVE_NONCE=$nonce exec /usr/bin/setsid "$@"' sh "$nonce" "$@"`,
    );
    const first = await rig.startDaemon();
    const { id } = await rig.submit({ argv: ['sh', '-c', RUNS] });
    await appears(path.join(rig.base, 'asked'));
    first.kill('SIGKILL');
    await first.exited;
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts.map(({ errorCode }) => errorCode)).toEqual(['never_started', null]);
    const late = path.join(
      rig.config.directories.attempts,
      id,
      workUnit.attempts[0]?.id ?? '',
      'wrapper.log',
    );
    writeFileSync(path.join(rig.base, 'late'), '');
    await within('the late start to say that it lost', says(late, 'the attempt is not ours'));
    expect(readFileSync(path.join(rig.tree, 'runs'), 'utf8')).toBe('x\n');
  });
});

async function says(file: string, text: string): Promise<void> {
  await appears(file);
  while (!readFileSync(file, 'utf8').includes(text)) await new Promise((r) => setTimeout(r, 20));
}
