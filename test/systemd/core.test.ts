/** Clocks, leases, slots and the four ways to end an attempt, on real systemd with the real wrapper. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { STORE_FILE } from '../../src/store/open.ts';
import { Rig, script, systemctl } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

/** The policy of a test: every clock out of the way but those it names. */
const clocks = (named: Record<string, number>): Record<string, number> => ({
  heartbeatIntervalMs: 500,
  heartbeatTimeoutMs: 60_000,
  idleTimeoutMs: 120_000,
  hardTimeoutMs: 120_000,
  toolTimeoutMs: 120_000,
  cancelGraceMs: 1_000,
  ...named,
});

const file = (name: string): string => path.join(rig.tree, name);
const lines = (name: string): string[] => readFileSync(file(name), 'utf8').trim().split('\n');
const open = (gate: string): void => writeFileSync(file(gate), '');
/** Shell that goes on once the gate is open. */
const until = (gate: string): string => `until [ -e ${file(gate)} ]; do sleep 0.05; done`;

function configure(config: unknown): void {
  const { configFile } = rig.config.directories;
  mkdirSync(path.dirname(configFile), { recursive: true });
  writeFileSync(configFile, JSON.stringify(config));
}

const commandSaid = (id: string, word: string): Promise<unknown> =>
  rig.waitForEvent(
    id,
    ({ type, data }) => type === 'stdout_delta' && JSON.stringify(data).includes(word),
    `the command to say ${word}`,
  );
const toolSaid = (id: string, word: string): Promise<unknown> =>
  rig.waitForEvent(
    id,
    ({ type, data }) => type === 'tool.update' && String(data['delta']).includes(word),
    `the tool to say ${word}`,
  );

describe('the clocks', () => {
  it('idle timeout: a silent command fails as idle_timeout, its heartbeats notwithstanding; row 102, row 104, row 328, T32 PR#5712', async () => {
    await rig.startDaemon();
    const { workUnit, events } = await rig.runToEnd({
      argv: ['sleep', '600'],
      timeoutPolicy: clocks({ idleTimeoutMs: 2_000 }),
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'idle_timeout']);
    expect(workUnit.lastHeartbeatAt, 'it was heard all along').not.toBeNull();
    expect(events.map(({ type }) => type)).toContain('work_unit.cancelling');
    await rig.unitsAreGone();
  });

  it('a tool call longer than the idle timeout is left alone within its own budget; T33 PR#3800', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      prompt: script('bash sleep 6', 'say Finished'),
      timeoutPolicy: clocks({ idleTimeoutMs: 2_000 }),
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['succeeded', null]);
  });

  it('tool timeout: a hung tool call fails as tool_timeout, T29 #5682', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      prompt: script('bash sleep 600', 'say Never'),
      timeoutPolicy: clocks({ toolTimeoutMs: 2_000 }),
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'tool_timeout']);
    await rig.unitsAreGone();
  });

  it('heartbeat timeout: a wrapper stopped by SIGSTOP fails as heartbeat_timeout; row 104, T74 river#682', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['sh', '-c', 'echo up; exec sleep 600'],
      timeoutPolicy: clocks({ heartbeatTimeoutMs: 1_500, cancelGraceMs: 0 }),
    });
    await commandSaid(id, 'up');
    const { data } = await rig.waitForEvent(
      id,
      ({ type }) => type === 'attempt.opened',
      'the first spool line',
    );
    process.kill(Number(data['pid']), 'SIGSTOP');
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'heartbeat_timeout']);
    await rig.unitsAreGone();
  });

  it('hard timeout: with the daemon alive it fails as hard_timeout; row 104, row 329, T63 nomad#1782', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      argv: ['sleep', '600'],
      timeoutPolicy: clocks({ hardTimeoutMs: 2_000 }),
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'hard_timeout']);
  });

  it('a unit frozen for longer than every silence and thawed goes on; T34 #4793', async ({
    skip,
  }) => {
    await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['sh', '-c', `echo up; ${until('go')}; echo over`],
      timeoutPolicy: clocks({ idleTimeoutMs: 3_000, heartbeatTimeoutMs: 2_000 }),
    });
    await commandSaid(id, 'up');
    const unit = (await rig.client.getWorkUnit(id)).attempts[0]?.unit ?? '';
    const frozen = await systemctl('freeze', unit).then(
      () => null,
      (error: Error) => error.message,
    );
    if (frozen !== null) skip(`this host cannot freeze a unit: ${frozen}`);
    // Silence and the unanswered ping (5 s) on top: it is time itself that is tested.
    await pause(10_000);
    expect((await rig.client.getWorkUnit(id)).status, 'while it is frozen').toBe('running');
    await systemctl('thaw', unit);
    open('go');
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['succeeded', null]);
  });
});

describe('leases and slots', () => {
  it('two Pi runs in one work tree never overlap, the second starts when the first has ended; row 083, T90 hermes-agent#80280', async () => {
    await rig.startDaemon();
    const run = (name: string): string =>
      script(
        `bash echo "${name} begins" >> log; echo up; ${until(`go-${name}`)}; echo "${name} ends" >> log`,
      );
    const first = await rig.submit({ prompt: run('a') });
    await toolSaid(first.id, 'up');
    const second = await rig.submit({ prompt: run('b') });
    open('go-b');
    // Proves that the scheduler has looked at the second one: work behind it ran.
    await rig.runToEnd({ argv: ['true'] });
    expect((await rig.client.getWorkUnit(second.id)).status).toBe('queued');
    open('go-a');
    const ends = [await rig.outcome(first.id), await rig.outcome(second.id)];
    expect(ends.map(({ workUnit }) => workUnit.status)).toEqual(['succeeded', 'succeeded']);
    expect(lines('log')).toEqual(['a begins', 'a ends', 'b begins', 'b ends']);
  });

  it('twelve commands on three slots: never more than three at once, and all of them run; row 091', async () => {
    configure({ limits: { runner: { command: 3 } } });
    await rig.startDaemon();
    const argv = ['sh', '-c', 'echo + >> log; sleep 0.3; echo - >> log'];
    const submitted = await Promise.all(Array.from({ length: 12 }, () => rig.submit({ argv })));
    const ends = await Promise.all(submitted.map(({ id }) => rig.outcome(id)));
    expect(ends.map(({ workUnit }) => workUnit.status)).toEqual(Array(12).fill('succeeded'));
    let now = 0;
    const atOnce = lines('log').map((sign) => (now += sign === '+' ? 1 : -1));
    expect(atOnce).toHaveLength(24);
    expect(Math.max(...atOnce)).toBeLessThanOrEqual(3);
  });

  it('a queued and a set-aside work unit are cancelled at once, without an attempt; row 059', async () => {
    configure({ limits: { runner: { command: 1 } } });
    await rig.startDaemon();
    const running = await rig.submit({ argv: ['sh', '-c', `echo up; ${until('go')}`] });
    await commandSaid(running.id, 'up');
    const [second, third] = [
      await rig.submit({ argv: ['touch', 'second'] }),
      await rig.submit({ argv: ['touch', 'third'] }),
    ];
    const cancelled = await rig.client.cancelWorkUnit(second.id, { reason: 'not needed' });
    expect(cancelled).toMatchObject({
      status: 'cancelled',
      errorCode: 'cancelled_by_request',
      attempts: [],
    });
    open('go');
    const { workUnit } = await rig.outcome(third.id);
    expect(workUnit.status, 'who waited behind it goes on').toBe('succeeded');
    expect((await rig.outcome(running.id)).workUnit.status).toBe('succeeded');
  });

  it('daemon killed with a lease held: the next one finds it held by the same attempt, and it goes with its end; row 093, row 262', async () => {
    const daemon = await rig.startDaemon();
    const first = await rig.submit({ prompt: script(`bash echo up; ${until('go')}`) });
    await toolSaid(first.id, 'up');
    const second = await rig.submit({ prompt: script('say Second') });
    daemon.kill('SIGKILL');
    await daemon.exited;
    const held = leases();
    await rig.startDaemon();
    await rig.waitForEvent(
      first.id,
      ({ type }) => type === 'attempt.reattached',
      'the re-attachment',
    );
    await rig.runToEnd({ argv: ['true'] });
    expect(leases(), 'the lease after the restart').toEqual(held);
    expect(held).toEqual([{ workUnitId: first.id, key: rig.tree, reason: null }]);
    expect((await rig.client.getWorkUnit(second.id)).status).toBe('queued');
    open('go');
    const ends = [await rig.outcome(first.id), await rig.outcome(second.id)];
    expect(ends.map(({ workUnit }) => workUnit.status)).toEqual(['succeeded', 'succeeded']);
    expect(leases()).toEqual([
      { workUnitId: first.id, key: rig.tree, reason: 'succeeded' },
      { workUnitId: second.id, key: rig.tree, reason: 'succeeded' },
    ]);
  });
});

/** All leases ever taken in this workspace, oldest first, as the file says. */
function leases(): unknown[] {
  const db = new Database(path.join(rig.config.directories.store, STORE_FILE), { readonly: true });
  try {
    return db
      .prepare(
        `SELECT work_unit_id AS workUnitId, resource_key AS key, release_reason AS reason
         FROM resource_leases ORDER BY acquired_at, id`,
      )
      .all();
  } finally {
    db.close();
  }
}

describe('a cancelled run', () => {
  it('that then succeeds stays cancelled: a late success overwrites nothing; row 064, row 261, row 330', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['sh', '-c', 'trap "exit 0" TERM; echo up; while :; do sleep 0.05; done'],
      timeoutPolicy: clocks({ cancelGraceMs: 10_000 }),
    });
    await commandSaid(id, 'up');
    await rig.client.cancelWorkUnit(id, { reason: 'enough' });
    const { workUnit, events } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    expect(events.filter(({ type }) => type === 'work_unit.succeeded')).toEqual([]);
    await rig.unitsAreGone();
  });

  it('that ignores SIGTERM is killed by systemd and its lease goes with it; row 089, T28 #5918', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['sh', '-c', 'trap "" TERM; echo up; while :; do sleep 0.05; done'],
      exclusive: true,
      timeoutPolicy: clocks({ cancelGraceMs: 0 }),
    });
    await commandSaid(id, 'up');
    await rig.client.cancelWorkUnit(id, { reason: 'enough' });
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    expect(leases()).toEqual([{ workUnitId: id, key: rig.tree, reason: 'cancelled' }]);
    await rig.unitsAreGone();
  });
});
