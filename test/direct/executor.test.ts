/** The direct executor with real processes: setsid, timeout, the keeper, no systemd anywhere. */
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startTicksOf } from '../../src/executor/process-table.ts';
import { appears } from '../support/rig.ts';
import { DirectRig, isDead, lives } from './executor-rig.ts';

let rig: DirectRig;
beforeEach(() => {
  rig = new DirectRig();
});
afterEach(async () => {
  await rig.end();
});

const GATED = 'ready; gate; exit 0';

/** No event tells of the end of a process that is nobody's child here. */
async function dead(pid: number): Promise<void> {
  while (lives(pid)) await pause(10);
}

describe('a start', () => {
  it('is present with its nonce, in a session of its own, and nobody’s child of ours', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt(GATED);
    const facts = await rig.start(executor, attempt);
    expect(facts).toMatchObject({
      unit: attempt.unit,
      nonce: attempt.request.nonce,
      state: 'active',
      invocationId: expect.stringMatching(/^[0-9a-f]{32}$/),
      leavesExitRecord: true,
    });
    const stat =
      readFileSync(`/proc/${facts.mainPid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    expect(Number(stat[1])).not.toBe(process.pid);
    expect(Number(stat[3])).toBe(facts.mainPid);
    const keeper = JSON.parse(readFileSync(path.join(attempt.directory, 'process.json'), 'utf8'));
    expect(keeper).toMatchObject({
      nonce: attempt.request.nonce,
      pid: facts.mainPid,
      bootId: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
      startTicks: Number(stat[19]),
      deadlineCs: keeper.startedCs + 12_000,
    });
    attempt.open();
    await rig.ended(executor, attempt.unit);
  });

  it('runs under timeout with exactly the environment it was given, the attempt directory and a private mask', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt(
      'env >env; pwd >cwd; umask >mask; cat /proc/$PPID/cmdline >parent',
      {
        environment: { PATH: process.env['PATH'] ?? '', GREETING: 'a  b$"\\%' },
        hardTimeoutMs: 61_500,
        cancelGraceMs: 2_000,
      },
    );
    await rig.start(executor, attempt);
    await rig.ended(executor, attempt.unit);
    const read = (name: string) => readFileSync(path.join(attempt.directory, name), 'utf8').trim();
    const names = read('env')
      .split('\n')
      .map((line) => line.split('=')[0]);
    // The test's script has taken the nonce out; PWD is the shell's own.
    expect(names.toSorted((a = '', b = '') => a.localeCompare(b))).toEqual([
      'GREETING',
      'OUTLIVE_MARK',
      'PATH',
      'PWD',
    ]);
    expect(read('env')).toContain('GREETING=a  b$"\\%');
    expect(read('cwd')).toBe(attempt.directory);
    expect(read('mask')).toBe('0077');
    expect(read('parent').split('\0').slice(1, 4)).toEqual([
      '--signal=TERM',
      '--kill-after=7.000',
      '61.500',
    ]);
  });

  it('hands credentials over as files of 0600 that are gone with the attempt', async () => {
    const executor = await rig.connected();
    const given = path.join(rig.home, 'given');
    mkdirSync(given);
    writeFileSync(path.join(given, 'THE_KEY'), 'secret', { mode: 0o600 });
    const attempt = rig.attempt(
      'cp "$CREDENTIALS_DIRECTORY/THE_KEY" seen; echo "$CREDENTIALS_DIRECTORY" >where; ready; gate',
      {
        credentials: [{ name: 'THE_KEY', path: path.join(given, 'THE_KEY') }],
      },
    );
    await rig.start(executor, attempt);
    await attempt.ready();
    expect(readFileSync(path.join(attempt.directory, 'seen'), 'utf8')).toBe('secret');
    const where = readFileSync(path.join(attempt.directory, 'where'), 'utf8').trim();
    expect(where).not.toBe(given);
    expect(statSync(path.join(where, 'THE_KEY')).mode & 0o777).toBe(0o600);
    expect(statSync(where).mode & 0o777).toBe(0o700);
    attempt.open();
    await rig.ended(executor, attempt.unit);
    expect(existsSync(where)).toBe(false);
  });

  it('of a name that lives under another nonce is foreign, and touches nothing', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt(GATED);
    await rig.start(executor, attempt);
    const other = rig.attempt('ready', { unit: attempt.unit });
    expect(await executor.start(other.request)).toMatchObject({ kind: 'foreign' });
    expect(existsSync(path.join(other.directory, 'ready'))).toBe(false);
    expect(await executor.read(attempt.unit)).toMatchObject({ state: 'active' });
  });

  it('asked for twice runs once', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt('echo x >>runs; ready; gate');
    const both = await Promise.all([
      executor.start(attempt.request),
      executor.start(attempt.request),
    ]);
    expect(both.map(({ kind }) => kind)).toEqual(['present', 'present']);
    await attempt.ready();
    attempt.open();
    await rig.ended(executor, attempt.unit);
    expect(readFileSync(path.join(attempt.directory, 'runs'), 'utf8')).toBe('x\n');
  });

  it('that cannot find its directory is refused, and nothing was sent', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt(GATED);
    const gone = { ...attempt.request, attemptDirectory: path.join(rig.home, 'no') };
    await expect(executor.start(gone)).rejects.toMatchObject({ code: 'state_dir_unwritable' });
    expect(await executor.read(attempt.unit)).toBeNull();
  });
});

describe('an end, by facts and by record', () => {
  it.each([
    ['exit 0', 'inactive', 'success', 'exited', '0'],
    ['exit 3', 'failed', 'exit-code', 'exited', '3'],
    ['exit 124, which is the program’s own', 'failed', 'exit-code', 'exited', '124'],
    ['exit 191', 'failed', 'exit-code', 'exited', '191'],
    ['kill -TERM $$', 'failed', 'signal', 'killed', 'TERM'],
    ['kill -KILL $$', 'failed', 'signal', 'killed', 'KILL'],
    ['kill -SEGV $$', 'failed', 'signal', 'killed', 'SEGV'],
  ])('%s is %s, %s, %s %s', async (script, state, result, how, what) => {
    const executor = await rig.connected();
    const attempt = rig.attempt(script.replace(/,.*/, ''));
    await rig.start(executor, attempt);
    const facts = await rig.ended(executor, attempt.unit);
    expect(facts).toMatchObject({ state, result, nonce: attempt.request.nonce });
    expect(facts?.exit).toMatchObject({
      how,
      status: how === 'exited' ? Number(what) : null,
      signal: how === 'killed' ? what : null,
    });
    expect(await attempt.record()).toMatchObject({
      serviceResult: result,
      exitCode: how,
      exitStatus: what,
      invocationId: facts?.invocationId,
      manager: null,
    });
  });

  it('of a program that is not there reads as systemd’s EXEC', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt('', { argv: [path.join(rig.home, 'missing')] });
    await executor.start(attempt.request);
    const facts = await rig.ended(executor, attempt.unit);
    expect(facts?.exit).toMatchObject({ how: 'exited', status: 203 });
  });

  it('row 106: at the deadline is timeout, measured, with nobody but the keeper alive; the same for one that ignores SIGTERM', async () => {
    const first = await rig.connected();
    const meek = rig.attempt('ready; gate', { hardTimeoutMs: 1_500 });
    const deaf = rig.attempt('trap "" TERM; ready; while :; do sleep 0.1; done', {
      hardTimeoutMs: 1_500,
      cancelGraceMs: -4_000, // One second with the margin: the time is the test's own.
    });
    await rig.start(first, meek);
    await rig.start(first, deaf);
    await first.close();
    expect(await meek.record()).toMatchObject({ serviceResult: 'timeout', exitStatus: 'TERM' });
    expect(await deaf.record()).toMatchObject({ serviceResult: 'timeout', exitStatus: 'KILL' });
    const second = await rig.connected();
    const facts = await rig.ended(second, meek.unit);
    expect(facts?.exit.elapsedMs).toBeGreaterThanOrEqual(1_450);
    expect(facts?.exit.elapsedMs).toBeLessThan(20_000);
  });

  it('is hinted at by the kernel, also when everything of it is killed at once', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt(GATED);
    const { mainPid } = await rig.start(executor, attempt);
    await attempt.ready();
    const hinted = new Promise<string | null>((resolve) => {
      executor.onHint(resolve);
    });
    process.kill(mainPid ?? 0, 'SIGKILL');
    await executor.kill(attempt.unit, 9);
    expect(await hinted).toBe(attempt.unit);
    // The keeper was killed before it could record anything: nothing is made up.
    expect(await executor.read(attempt.unit)).toBeNull();
  });
});

/** Leaves a process of every kind that can be found; each writes its pid. */
const LEFTOVERS = [
  'setsid sh -c "trap \\"\\" TERM HUP; echo \\$\\$ >a.new; mv a.new a; while :; do sleep 0.2; done" &',
  '( setsid --fork sh -c "echo \\$\\$ >b.new; mv b.new b; exec sleep 600" )',
  // No mark in its environment, but in a session of the marked.
  'setsid sh -c "env -i sleep 600 & echo \\$! >c.new; mv c.new c; sleep 600" &',
  'until [ -e a ] && [ -e b ] && [ -e c ]; do sleep 0.05; done',
].join('\n');

describe('what is left behind', () => {
  it.each([
    ['ends well', 'exit 0', 'success'],
    ['fails', 'exit 1', 'exit-code'],
  ])(
    'by one that %s is killed: other sessions, orphans, cleared environments',
    async (_how, exit, result) => {
      const executor = await rig.connected();
      const attempt = rig.attempt(`${LEFTOVERS}\nready; gate; ${exit}`);
      const { controlGroup } = await rig.start(executor, attempt);
      await attempt.ready();
      const pids = ['a', 'b', 'c'].map((name) => attempt.pid(name));
      expect(pids.map(lives)).toEqual([true, true, true]);
      expect(await executor.waitEmpty(controlGroup ?? '', 50)).toBe(false);
      attempt.open();
      expect(await rig.ended(executor, attempt.unit)).toMatchObject({ result });
      expect(pids.map(lives)).toEqual([false, false, false]);
      expect(await executor.waitEmpty(controlGroup ?? '', 1_000)).toBe(true);
    },
  );

  it('with nobody else alive is killed by the keeper', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt(`${LEFTOVERS}\nready; gate; exit 0`);
    const { mainPid } = await rig.start(executor, attempt);
    await attempt.ready();
    await executor.close();
    const pids = ['a', 'b', 'c'].map((name) => attempt.pid(name));
    attempt.open();
    await attempt.record();
    await dead(mainPid ?? 0);
    expect(pids.map(lives)).toEqual([false, false, false]);
  });

  it('T71 pueue#372: by one whose keeper was killed is killed by the executor, once the wrapper has ended', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt(`${LEFTOVERS}\nready; gate; exit 0`);
    const { mainPid } = await rig.start(executor, attempt);
    await attempt.ready();
    const pids = ['a', 'b', 'c'].map((name) => attempt.pid(name));
    process.kill(mainPid ?? 0, 'SIGKILL');
    await dead(mainPid ?? 0);
    expect(await executor.read(attempt.unit)).toMatchObject({ state: 'active', mainPid: null });
    attempt.open();
    expect(await rig.ended(executor, attempt.unit)).toBeNull();
    expect(pids.map(lives)).toEqual([false, false, false]);
  });

  it('T38 #1684: a bystander with its pid in no list of ours is left alone', async () => {
    const executor = await rig.connected();
    const one = rig.attempt(GATED);
    const other = rig.attempt(GATED);
    await rig.start(executor, one);
    await rig.start(executor, other);
    await Promise.all([one.ready(), other.ready()]);
    await executor.kill(one.unit, 9);
    await rig.ended(executor, one.unit);
    expect(await executor.read(other.unit)).toMatchObject({ state: 'active' });
  });
});

describe('stop and kill', () => {
  it('stop tells the wrapper, and SIGKILL follows from timeout alone when the grace is over', async () => {
    const executor = await rig.connected();
    const deaf = `const { writeFileSync } = require('node:fs');
      process.on('SIGTERM', () => writeFileSync('told', ''));
      setInterval(() => {}, 1000);
      writeFileSync('ready', '');`;
    const attempt = rig.attempt('', {
      argv: [process.execPath, '-e', deaf],
      cancelGraceMs: -4_500,
    });
    await rig.start(executor, attempt);
    await attempt.ready();
    await executor.stop(attempt.unit);
    await executor.close();
    await appears(path.join(attempt.directory, 'told'));
    expect(await attempt.record()).toMatchObject({
      serviceResult: 'timeout',
      exitCode: 'killed',
      exitStatus: 'KILL',
    });
  });

  it('stop of one that obeys is killed TERM', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt('ready; gate');
    await rig.start(executor, attempt);
    await attempt.ready();
    await executor.stop(attempt.unit);
    expect((await rig.ended(executor, attempt.unit))?.exit.signal).toBe('TERM');
  });

  it('stop of one whose keeper was killed still ends it', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt('ready; gate');
    const { mainPid } = await rig.start(executor, attempt);
    await attempt.ready();
    process.kill(mainPid ?? 0, 'SIGKILL');
    await executor.stop(attempt.unit);
    expect(await rig.ended(executor, attempt.unit)).toBeNull();
  });

  it('kill reaches the whole tree, and the record still says how it ended', async () => {
    const executor = await rig.connected();
    const attempt = rig.attempt(`${LEFTOVERS}\nready; gate`);
    await rig.start(executor, attempt);
    await attempt.ready();
    const pids = ['a', 'b', 'c'].map((name) => attempt.pid(name));
    await executor.kill(attempt.unit, 9);
    expect(pids.map(lives)).toEqual([false, false, false]);
    const facts = await rig.ended(executor, attempt.unit);
    expect(facts).toMatchObject({ result: 'signal', exit: { how: 'killed', signal: 'KILL' } });
  });
});

describe('another daemon', () => {
  it('finds what runs by its entry, and its end by its record', async () => {
    const first = await rig.connected();
    const attempt = rig.attempt(GATED);
    const started = await rig.start(first, attempt);
    await first.close();
    const second = await rig.connected();
    expect(await second.list()).toEqual([started]);
    expect(await second.hold(attempt.unit)).toBe(true);
    await second.release(attempt.unit); // It lives: nothing is let go.
    await attempt.ready();
    attempt.open();
    expect(await rig.ended(second, attempt.unit)).toMatchObject({ state: 'inactive' });
    await second.release(attempt.unit);
    expect(await second.list()).toEqual([]);
  });

  it.each([
    ['environment', { startTicks: startTicksOf(readFileSync('/proc/self/stat', 'utf8')) }],
    ['start time', { startTicks: 1 }],
    ['boot', { bootId: 'another' }],
    ['nonce', { nonce: '0'.repeat(32) }],
  ])(
    'T65: takes no process for the keeper whose %s is another, and signals none',
    async (_what, change) => {
      const executor = await rig.connected();
      const attempt = rig.attempt(GATED);
      const { mainPid } = await rig.start(executor, attempt);
      await attempt.ready();
      await executor.kill(attempt.unit, 9);
      await rig.ended(executor, attempt.unit);
      // The pid of somebody who lives: ourselves.
      const file = path.join(attempt.directory, 'process.json');
      const keeper = JSON.parse(readFileSync(file, 'utf8'));
      expect(keeper.pid).toBe(mainPid);
      writeFileSync(file, JSON.stringify({ ...keeper, pid: process.pid, ...change }));
      await executor.stop(attempt.unit);
      await executor.kill(attempt.unit, 9);
      const facts = await executor.read(attempt.unit);
      expect(facts === null || isDead(facts)).toBe(true);
    },
  );
});
