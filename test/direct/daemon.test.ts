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
  // One that outlive daemon start has started is no child of the rig.
  const left = await rig.client.runtime().catch(() => null);
  if (left) process.kill(left.pid, 'SIGKILL');
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

  it('S2: RuntimeMaxSec passthrough (hard timeout reaches the keeper); row 302', async () => {
    await rig.startDaemon();
    const words = ['run', '--runner', 'command', '--detach', '--handle', 'kept'];
    const command = ['--hard-timeout', '90s', '--', 'sh', '-c', 'echo up; sleep 600'];
    expect((await cli(rig, [...words, ...command])).status).toBe(0);
    await rig.waitForEvent('kept', ({ type }) => type === 'stdout_delta', 'it to be up');
    const { id, attempts } = await rig.client.getWorkUnit('kept');
    const directory = path.join(rig.config.directories.attempts, id, attempts[0]?.id ?? '');
    const keeper = JSON.parse(readFileSync(path.join(directory, 'process.json'), 'utf8')) as {
      pid: number;
      startedCs: number;
      deadlineCs: number;
    };
    expect(keeper.deadlineCs - keeper.startedCs, 'hundredths of a second').toBe(9_000);
    // What holds the deadline is timeout(1), a child of the keeper's.
    const children = readFileSync(`/proc/${keeper.pid}/task/${keeper.pid}/children`, 'utf8');
    const lines = children
      .trim()
      .split(' ')
      .map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0'));
    const timeout = lines.find(([program]) => program?.endsWith('timeout'));
    expect(
      timeout?.filter((word) => /^90(\.0+)?s?$/.test(word)),
      timeout?.join(' '),
    ).toHaveLength(1);
    await rig.client.cancelWorkUnit(id);
    await rig.outcome(id);
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
    // It may be over before it was ever seen to run: what counts is that it is the same attempt.
    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts.map(({ status }) => status)).toEqual(['succeeded']);
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

describe('outlive daemon, without a user manager', () => {
  it('start, status, restart and stop work; what runs goes on after a SIGKILL of it', async () => {
    const started = await cli(rig, ['daemon', 'start']);
    expect(started.stderr).toContain('without systemd');
    expect(started.status).toBe(0);
    const { pid } = await rig.client.runtime();
    expect(started.stdout).toContain(`pid     ${pid}`);
    // A session of its own, and nobody's child that could be waited for with us.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    expect(Number(stat[3])).toBe(pid);
    expect((await cli(rig, ['daemon', 'start'])).stderr).toContain('is running already');
    const { id } = await rig.submit({
      argv: ['sh', '-c', 'echo up; until [ -e go ]; do sleep 0.1; done'],
    });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'the work to be under way');
    process.kill(pid, 'SIGKILL');
    await within('the daemon to be gone', gone(pid));
    expect((await cli(rig, ['daemon', 'start'])).status).toBe(0);
    await rig.waitForEvent(id, ({ type }) => type === 'attempt.reattached', 're-attachment');
    writeFileSync(path.join(rig.tree, 'go'), '');
    expect((await rig.outcome(id)).workUnit.status).toBe('succeeded');
    const before = (await rig.client.runtime()).pid;
    expect((await cli(rig, ['daemon', 'restart'])).status).toBe(0);
    const after = (await rig.client.runtime()).pid;
    expect(after).not.toBe(before);
    expect((await cli(rig, ['daemon', 'stop'])).status).toBe(0);
    expect(existsSync(`/proc/${after}/environ`)).toBe(false);
    expect((await cli(rig, ['daemon', 'status'])).status).toBe(4);
    expect((await cli(rig, ['daemon', 'stop'])).stderr).toContain('No daemon was running');
  });

  it('start says why a daemon does not come up', async () => {
    const { status, stderr } = await cli(rig, ['daemon', 'start'], {
      env: { OUTLIVE_EXECUTOR: 'direct', OUTLIVE_FAULT: 'nonsense' },
    });
    expect(status).toBe(1);
    expect(stderr).toContain('names no fault point');
  });
});

describe('an orderly end of the machine', () => {
  it('is host_shutdown and no cancellation: everything gets SIGTERM, and systemctl says stopping', async () => {
    replaceProgram('systemctl', 'echo stopping; exit 1');
    const daemon = await rig.startDaemon();
    const { id } = await rig.submit({ argv: ['sh', '-c', 'echo up; exec sleep 600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'the work to be under way');
    const opened = await rig.waitForEvent(id, ({ type }) => type === 'attempt.opened', 'the spool');
    const { id: attempt } = (await rig.client.getWorkUnit(id)).attempts[0] ?? {};
    daemon.kill('SIGKILL');
    await daemon.exited;
    const file = path.join(rig.config.directories.attempts, id, attempt ?? '', 'process.json');
    process.kill(JSON.parse(readFileSync(file, 'utf8')).pid, 'SIGTERM');
    process.kill(Number(opened.data['pid']), 'SIGTERM');
    await appears(path.join(rig.exitRecords(), `${String(opened.data['nonce'])}.json`));
    rmSync(path.join(rig.env['PATH'] ?? '', 'systemctl'));
    await rig.startDaemon();
    await rig.waitForEvent(id, ({ type }) => type === 'attempt.ended', 'the end of the attempt');
    const { attempts } = await rig.client.getWorkUnit(id);
    expect(attempts[0]).toMatchObject({ status: 'lost', errorCode: 'host_shutdown' });
  });
});

async function gone(pid: number): Promise<void> {
  while (existsSync(`/proc/${pid}/fd/0`)) await new Promise((r) => setTimeout(r, 20));
}
