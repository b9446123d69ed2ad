/** Restarts of the daemon, as they went wrong for others in public; real systemd, real daemon. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import {
  type DaemonProcess,
  Rig,
  said,
  script,
  sequenceIsWhole,
  systemctl,
  within,
} from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

type Input = Parameters<Rig['submit']>[0];

const lines = (name: string): number =>
  readFileSync(path.join(rig.tree, name), 'utf8').trim().split('\n').length;
const open = (gate: string): void => writeFileSync(path.join(rig.tree, gate), '');
const untilOpen = (gate: string): string => `until [ -e ${gate} ]; do sleep 0.05; done`;
/** Counts its runs in a file, says `up`, waits for the gate. */
const waits = (gate: string): string[] => [
  'sh',
  '-c',
  `echo ran >> ${gate}.runs; echo up; ${untilOpen(gate)}`,
];

const isUp = ({ type, data }: EventView): boolean =>
  (type === 'stdout_delta' || type === 'tool.update') && JSON.stringify(data).includes('up');

async function underWay(input: Input): Promise<string> {
  const { id } = await rig.submit(input);
  await rig.waitForEvent(id, isUp, 'the work to be under way');
  return id;
}

async function end(daemon: DaemonProcess, signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
  daemon.kill(signal);
  const how = await within('the end of the daemon', daemon.exited);
  expect(how, daemon.output()).toBe(signal === 'SIGKILL' ? signal : 0);
}

/** Waits until the work was taken up so often in all. */
async function takenUp(id: string, times: number): Promise<EventView> {
  let seen = 0;
  const passes = ({ type }: EventView): boolean =>
    type === 'attempt.reattached' && ++seen === times;
  return rig.waitForEvent(id, passes, `re-attachment ${times}`);
}

function limitCommands(command: number): void {
  const { configFile } = rig.config.directories;
  mkdirSync(path.dirname(configFile), { recursive: true });
  writeFileSync(configFile, JSON.stringify({ limits: { runner: { command } } }));
}

/** What the disk says of the only attempt: no daemon answers. */
function launched(id: string): { readonly unit: string; readonly nonce: string } {
  const { attempts } = rig.config.directories;
  const [attempt = ''] = readdirSync(path.join(attempts, id));
  return JSON.parse(readFileSync(path.join(attempts, id, attempt, 'launch.json'), 'utf8'));
}

/** Kills all of an attempt without the daemon; with `traceless` its exit record is gone as well. */
async function loseAttempt(id: string, traceless: boolean): Promise<void> {
  const { unit, nonce } = launched(id);
  await systemctl('kill', '-s', 'KILL', unit);
  await expect
    .poll(() => systemctl('show', '-P', 'ActiveState', unit), { timeout: 20_000, interval: 50 })
    .not.toMatch(/^(de)?activ/);
  await systemctl('reset-failed', unit).catch(() => undefined);
  if (traceless) rmSync(path.join(rig.exitRecords(), `${nonce}.json`), { force: true });
}

const invocationOf = (id: string): Promise<string> =>
  systemctl('show', '-P', 'InvocationID', launched(id).unit);

describe('a restarted daemon', () => {
  it('T13 claude-code#79569: ten restarts, killed and told, leave a command and a Pi run alone; row 211', async () => {
    // Ten, not a hundred: this tier runs often, and each restart goes the same way.
    const env = { SHUTDOWN_GRACE_MS: '86400000' };
    let daemon = await rig.startDaemon({ env });
    const command = await underWay({ argv: waits('go') });
    const prompt = script(`bash echo ran >> pi.runs; echo up; ${untilOpen('go')}`, 'say Done');
    const pi = await underWay({ prompt });
    const before = await invocationOf(command);
    for (let restart = 1; restart <= 10; restart += 1) {
      // Told to end it waits for nobody, however long its grace: what runs runs on.
      await end(daemon, restart % 2 === 0 ? 'SIGTERM' : 'SIGKILL');
      daemon = await rig.startDaemon({ env });
      for (const id of [command, pi]) await takenUp(id, restart);
    }
    expect(await invocationOf(command)).toBe(before);
    open('go');
    for (const id of [command, pi]) {
      const { workUnit, events } = await rig.outcome(id);
      expect(workUnit.status).toBe('succeeded');
      expect(workUnit.attempts.map(({ reattached }) => reattached)).toEqual([10]);
      expect(events.filter(({ type }) => type === 'attempt.opened')).toHaveLength(1);
      expect(sequenceIsWhole(events)).toBe(true);
    }
    expect([lines('go.runs'), lines('pi.runs')]).toEqual([1, 1]);
  });

  it('T17 claude-code#87891: gives what it takes up no new deadline', async () => {
    let daemon = await rig.startDaemon();
    const hardTimeoutMs = 9_000;
    const id = await underWay({
      argv: waits('go'),
      timeoutPolicy: { hardTimeoutMs, cancelGraceMs: 500 },
    });
    let last: EventView | null = null;
    for (let restart = 1; restart <= 4; restart += 1) {
      await end(daemon, 'SIGKILL');
      daemon = await rig.startDaemon();
      last = await takenUp(id, restart);
    }
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'hard_timeout']);
    const sinceTakenUp = Date.parse(workUnit.endedAt ?? '') - Date.parse(last?.ts ?? '');
    expect(sinceTakenUp).toBeLessThan(hardTimeoutMs);
  });

  it('T17 claude-code#87891: ends what it takes up when that gets nowhere', async () => {
    const daemon = await rig.startDaemon();
    const id = await underWay({ argv: waits('go'), timeoutPolicy: { idleTimeoutMs: 4_000 } });
    await end(daemon, 'SIGKILL');
    await rig.startDaemon();
    await takenUp(id, 1);
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'idle_timeout']);
  });

  it('T18 claude-code#72623, T58 nomad#10449: starts nothing again that has ended, however often it comes', async () => {
    let daemon = await rig.startDaemon();
    const ended = [
      await rig.submit({ argv: ['sh', '-c', 'echo ran >> good.runs'] }),
      await rig.submit({ argv: ['sh', '-c', 'echo ran >> bad.runs; exit 3'], onLost: 'resume' }),
    ].map(({ id }) => id);
    for (const id of ended) await rig.outcome(id);
    const stopped = await underWay({ argv: waits('stopped'), onLost: 'resume' });
    await rig.client.cancelWorkUnit(stopped);
    await rig.outcome(stopped);
    const alone = await underWay({ argv: waits('alone'), onLost: 'resume' });
    await end(daemon, 'SIGKILL');
    // It ends well while nobody is there to see it.
    open('alone');
    await rig.unitsAreDead();
    for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
      daemon = await rig.startDaemon();
      // Behind it everything has been looked at.
      await rig.runToEnd({ argv: ['true'] });
      await end(daemon, signal);
    }
    await rig.startDaemon();
    const seen = await Promise.all(
      [...ended, stopped, alone].map((id) => rig.client.getWorkUnit(id)),
    );
    expect(seen.map(({ status }) => status)).toEqual([
      'succeeded',
      'failed',
      'cancelled',
      'succeeded',
    ]);
    expect(seen.map(({ attempts }) => attempts.length)).toEqual([1, 1, 1, 1]);
    const runs = ['good', 'bad', 'stopped', 'alone'].map((name) => lines(`${name}.runs`));
    expect(runs).toEqual([1, 1, 1, 1]);
  });

  it('T23 gitmoot#1207: says that it took something up when it did, and only then', async () => {
    const daemon = await rig.startDaemon();
    const id = await underWay({ argv: waits('go') });
    await rig.client.reconcileWorkUnit(id);
    expect((await rig.client.getWorkUnit(id)).attempts[0]?.reattached).toBe(0);
    await end(daemon, 'SIGKILL');
    await rig.startDaemon();
    await takenUp(id, 1);
    await rig.client.reconcileWorkUnit(id);
    const { runtimeInstanceId } = await rig.client.runtime();
    open('go');
    const { events } = await rig.outcome(id);
    const told = events.filter(({ type }) => type === 'attempt.reattached');
    expect(told.map(({ data }) => data['runtimeInstanceId'])).toEqual([runtimeInstanceId]);
    const [attempt] = (await rig.client.getWorkUnit(id)).attempts;
    expect(told[0]?.data['invocationId']).toBe(attempt?.invocationId);
  });

  it('T41 PR#162, T30 #1326: forgets nothing that waits: for a slot, for a person; row 217', async () => {
    limitCommands(1);
    let daemon = await rig.startDaemon();
    const asks = await underWay({ argv: waits('asks'), onLost: 'block' });
    await end(daemon, 'SIGKILL');
    await loseAttempt(asks, true);
    daemon = await rig.startDaemon();
    const isBlock = ({ data }: EventView): boolean => data['kind'] === 'resume_blocked';
    await rig.waitForEvent(asks, isBlock, 'the question to a person');
    const runs = await underWay({ argv: waits('runs') });
    const { id: queued } = await rig.submit({ argv: waits('queued') });
    await end(daemon, 'SIGKILL');

    await rig.startDaemon();
    await takenUp(runs, 1);
    const statusOf = async (id: string) => (await rig.client.getWorkUnit(id)).status;
    expect([await statusOf(asks), await statusOf(runs), await statusOf(queued)]).toEqual([
      'stale',
      'running',
      'queued',
    ]);
    expect((await rig.client.getWorkUnit(queued)).attempts).toEqual([]);
    for (const gate of ['asks', 'runs', 'queued']) open(gate);
    await rig.client.retryWorkUnit(asks);
    const ends = await Promise.all([asks, runs, queued].map((id) => rig.outcome(id)));
    expect(ends.map(({ workUnit }) => workUnit.status)).toEqual(Array(3).fill('succeeded'));
    expect(['asks', 'runs', 'queued'].map((name) => lines(`${name}.runs`))).toEqual([2, 1, 1]);
  });

  it('T52 #20097: shows no tool as running once its run is dead', async () => {
    const daemon = await rig.startDaemon();
    const id = await underWay({ prompt: script('bash echo up; sleep 600'), onLost: 'fail' });
    await end(daemon, 'SIGKILL');
    await loseAttempt(id, false);
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'killed']);
    expect(workUnit.live).toBeNull();
    expect(events.at(-1)?.type).toBe('work_unit.failed');
    expect((await rig.client.runtime()).activeAttempts).toBe(0);
  });

  it('T55 #13665: calls a hung tool tool_timeout, also when it was restarted meanwhile', async () => {
    const daemon = await rig.startDaemon();
    const id = await underWay({
      prompt: script('bash echo up; sleep 600', 'say Never'),
      timeoutPolicy: { toolTimeoutMs: 6_000, cancelGraceMs: 1_000 },
    });
    await end(daemon, 'SIGKILL');
    await rig.startDaemon();
    await takenUp(id, 1);
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'tool_timeout']);
    expect(workUnit.errorMessage).not.toMatch(/restart|interrupted|lost/i);
  });

  it('T62 containerd PR#9447: waits for no dead attempt: eight dead and eight live are taken up together', async () => {
    limitCommands(16);
    const daemon = await rig.startDaemon();
    const all = await Promise.all(
      Array.from({ length: 16 }, (_, number) =>
        underWay({ argv: waits(number < 8 ? `dead-${number}` : 'go') }),
      ),
    );
    await end(daemon, 'SIGKILL');
    for (const [number, id] of all.slice(0, 8).entries()) {
      await loseAttempt(id, number % 2 === 0);
    }
    const began = performance.now();
    await rig.startDaemon();
    await Promise.all(all.slice(8).map((id) => takenUp(id, 1)));
    const dead = await Promise.all(all.slice(0, 8).map((id) => rig.outcome(id)));
    // One after the other, each with a deadline of its own, would be minutes.
    expect(performance.now() - began).toBeLessThan(20_000);
    expect(dead.map(({ workUnit }) => workUnit.errorCode)).toEqual(
      Array.from({ length: 8 }, (_, number) =>
        number % 2 === 0 ? 'runtime_interrupted_no_checkpoint' : 'killed',
      ),
    );
    open('go');
    const live = await Promise.all(all.slice(8).map((id) => rig.outcome(id)));
    expect(live.map(({ workUnit }) => workUnit.status)).toEqual(Array(8).fill('succeeded'));
  });

  it('T81 dbos-py#804: one that still waits for its attempts claims nothing, and no other may beside it', async () => {
    limitCommands(1);
    const env = { OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: '60000' };
    const old = await rig.startDaemon({ env });
    const first = await underWay({ argv: waits('first') });
    const { id: second } = await rig.submit({ argv: waits('second') });
    old.kill('SIGTERM');
    await said(old, 'waits for attempts');
    const other = rig.spawnDaemon();
    expect(await within('the other daemon to refuse', other.exited)).toBe(5);
    expect(other.output()).toContain('workspace_owned');
    open('first');
    open('second');
    expect(await within('the end of the old daemon', old.exited)).toBe(0);
    expect(existsSync(path.join(rig.tree, 'second.runs')), 'claimed while it ended').toBe(false);
    await rig.startDaemon();
    const ends = [await rig.outcome(first), await rig.outcome(second)];
    expect(ends.map(({ workUnit }) => workUnit.status)).toEqual(['succeeded', 'succeeded']);
    expect([lines('first.runs'), lines('second.runs')]).toEqual([1, 1]);
  });

  it('T82 dbos-py#805: what it recovers does not block a queue that runs one at a time', async () => {
    limitCommands(1);
    const daemon = await rig.startDaemon();
    const lost = await underWay({ argv: waits('lost'), onLost: 'resume' });
    const behind = await Promise.all(
      ['one', 'two'].map((gate) => rig.submit({ argv: waits(gate) })),
    );
    await end(daemon, 'SIGKILL');
    await loseAttempt(lost, true);
    for (const gate of ['lost', 'one', 'two']) open(gate);
    await rig.startDaemon();
    const ends = await Promise.all(
      [lost, ...behind.map(({ id }) => id)].map((id) => rig.outcome(id)),
    );
    expect(ends.map(({ workUnit }) => workUnit.status)).toEqual(Array(3).fill('succeeded'));
    expect(['lost', 'one', 'two'].map((name) => lines(`${name}.runs`))).toEqual([2, 1, 1]);
  });
});
