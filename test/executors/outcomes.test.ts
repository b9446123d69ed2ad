/** What success must leave behind on both executors: real daemon, real wrapper. */
import { existsSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { WorkUnitView } from '../../src/api/schemas.ts';
import { OUTCOME_VERIFY } from '../../src/domain/outcome.ts';
import { cli } from '../support/cli.ts';
import { cutPower } from '../support/power.ts';
import { appears, type Rig, script } from '../support/rig.ts';
import { EXECUTOR, tierRig } from '../support/tier-rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await tierRig();
});
afterEach(() => rig.end());

const sh = (text: string): string[] => ['sh', '-c', text];
const verify = (text: string) => ({ verify: { argv: sh(text) } });
const inTree = (name: string): string => path.join(rig.tree, name);
const written = (name: string): string => readFileSync(inTree(name), 'utf8');

/** Work units that verified, oldest first. */
async function verifications(): Promise<WorkUnitView[]> {
  const { items } = await rig.client.listWorkUnits({ limit: 100 });
  return items.filter(({ ownerType }) => ownerType === OUTCOME_VERIFY).reverse();
}

const BLOCKED = { state: 'blocked', code: 'delegated_outcome_missing' };

describe('a verification', () => {
  it('that says yes satisfies the outcome, in the same tree and told what it is about', async () => {
    await rig.startDaemon();
    const { workUnit, events } = await rig.runToEnd({
      argv: sh('echo made > made'),
      externalSubject: 'github:acme/app#42',
      outcome: verify('cat made; env | grep ^OUTLIVE_ | sort > told'),
    });
    expect(workUnit).toMatchObject({ status: 'succeeded', outcome: { state: 'satisfied' } });
    const [judge, ...others] = await verifications();
    expect(others).toEqual([]);
    expect(judge).toMatchObject({
      id: workUnit.outcome?.verify,
      ownerId: workUnit.id,
      createdByActor: 'system',
      priority: 1000,
      status: 'succeeded',
      outcome: null,
    });
    expect(written('told')).toContain(`OUTLIVE_HANDLE=${workUnit.handle}\n`);
    expect(written('told')).toContain('OUTLIVE_SUBJECT=github:acme/app#42\n');
    expect(written('told')).toContain(`OUTLIVE_ATTEMPT=${workUnit.attempts[0]?.id}\n`);
    expect(events.at(-1)).toMatchObject({
      type: 'outcome.settled',
      data: { state: 'satisfied', code: null, verifyId: judge?.id, attemptNumber: 1 },
    });
  });

  it('that says no refutes it with what it printed, and the process stays a success', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      argv: ['true'],
      outcome: verify('echo 3 of 9 tests failed; echo see log >&2; exit 7'),
    });
    expect(workUnit).toMatchObject({
      status: 'succeeded',
      errorCode: null,
      outcome: { state: 'refuted', code: 'verify_failed' },
    });
    expect(workUnit.outcome?.message).toMatch(/status 7: 3 of 9 tests failed\nsee log$/);
  });

  it('is made of work that failed by its own exit status too', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      argv: sh('echo done > made; exit 3'),
      outcome: verify('test -s made'),
    });
    expect(workUnit).toMatchObject({
      status: 'failed',
      errorCode: 'exit_code',
      outcome: { state: 'satisfied' },
    });
  });

  it('that runs out of its own time is no answer', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      argv: ['true'],
      outcome: { verify: { argv: ['sleep', '60'], timeoutMs: 1_000 } },
    });
    expect(workUnit.outcome).toMatchObject({ state: 'blocked', code: 'verify_not_run' });
    expect(workUnit.outcome?.message).toContain('hard_timeout');
  });

  it('goes before what waits for the same tree', async () => {
    await rig.startDaemon();
    const first = await rig.submit({
      argv: sh('echo run >> order; until [ -e go ]; do sleep 0.05; done'),
      exclusive: true,
      outcome: verify('echo verify >> order'),
    });
    await appears(inTree('order'));
    const second = await rig.submit({
      argv: sh('echo next >> order'),
      exclusive: true,
      priority: 1000,
    });
    writeFileSync(inTree('go'), '');
    const { workUnit } = await rig.outcome(first.id);
    await rig.outcome(second.id);
    expect(workUnit.outcome?.state).toBe('satisfied');
    expect(written('order')).toBe('run\nverify\nnext\n');
  });
});

describe('outputs', () => {
  it.each(['task_run', 'external_work_step'] as const)(
    'row 065: a %s that succeeds without them is blocked, and nothing verifies it',
    async (kind) => {
      await rig.startDaemon();
      const { workUnit } = await rig.runToEnd({
        kind,
        argv: ['true'],
        outcome: { ...verify('touch verified'), outputs: ['dist/**/*.js', 'report.md'] },
      });
      expect(workUnit).toMatchObject({ status: 'succeeded', outcome: BLOCKED });
      expect(workUnit.outcome?.message).toContain('dist/**/*.js is no file; report.md is no file');
      expect(existsSync(inTree('verified'))).toBe(false);
    },
  );

  it('X22: exit 0 with no evidence is a phantom: outputs older than the start do not count', async () => {
    await rig.startDaemon();
    writeFileSync(inTree('report.md'), 'of last week');
    utimesSync(inTree('report.md'), new Date('2020-01-01'), new Date('2020-01-01'));
    const stale = await rig.runToEnd({ argv: ['true'], outcome: { outputs: ['report.md'] } });
    expect(stale.workUnit).toMatchObject({ status: 'succeeded', outcome: BLOCKED });
    expect(stale.workUnit.outcome?.message).toContain('report.md is older than the start');

    const fresh = await rig.runToEnd({
      argv: sh('mkdir -p dist/a; echo x > dist/a/b.js; echo new > report.md'),
      outcome: { outputs: ['dist/**/*.js', inTree('report.md')] },
    });
    expect(fresh.workUnit.outcome).toMatchObject({ state: 'satisfied', verify: null });
  });
});

describe('a result', () => {
  const schema = { type: 'object', required: ['pr'], properties: { pr: { type: 'integer' } } };

  it('of a command is its last line, kept when its schema accepts it', async () => {
    await rig.startDaemon();
    const outcome = { result: { schema } };
    const good = await rig.runToEnd({ argv: sh(`echo words; echo '{"pr":42}'`), outcome });
    expect(good.workUnit.outcome).toMatchObject({ state: 'satisfied', result: { pr: 42 } });
    const wrong = await rig.runToEnd({ argv: sh(`echo '{"pr":"42"}'`), outcome });
    expect(wrong.workUnit.outcome).toMatchObject({ ...BLOCKED, result: null });
    expect(wrong.workUnit.outcome?.message).toContain('/pr must be integer');
    const none = await rig.runToEnd({ argv: sh('echo 42 >&2'), outcome });
    expect(none.workUnit.outcome?.message).toContain('it printed nothing on stdout');
  });

  it('of an agent is the JSON of its final text', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      prompt: script('say {"pr": 7}'),
      outcome: { result: { schema } },
    });
    expect(workUnit.outcome).toMatchObject({ state: 'satisfied', result: { pr: 7 } });
  });

  it('with a schema that is none is refused before anything is stored', async () => {
    await rig.startDaemon();
    const bad = { argv: ['true'], outcome: { result: { schema: { type: 'nonsense' } } } };
    await expect(rig.submit(bad)).rejects.toMatchObject({
      code: 'invalid_request',
      fields: [{ path: '/outcome/result/schema' }],
    });
    expect((await rig.client.listWorkUnits({ limit: 1 })).items).toEqual([]);
  });
});

describe('an end that leaves nothing to judge', () => {
  it('S2: a timed-out run skips verification; row 137', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      argv: ['sleep', '60'],
      timeoutPolicy: { hardTimeoutMs: 1_000 },
      outcome: verify('true'),
    });
    expect(workUnit).toMatchObject({
      errorCode: 'hard_timeout',
      outcome: { state: 'skipped', code: 'timed_out', verify: null },
    });
    expect(await verifications()).toEqual([]);
  });

  it('is a cancellation, also before anything ran', async () => {
    await rig.startDaemon();
    const running = await rig.submit({
      argv: sh(': > begun; exec sleep 60'),
      exclusive: true,
      outcome: verify('true'),
    });
    await appears(inTree('begun'));
    const waiting = await rig.submit({ argv: ['true'], exclusive: true, outcome: verify('true') });
    await rig.client.cancelWorkUnit(waiting.id, {});
    await rig.client.cancelWorkUnit(running.id, {});
    expect((await rig.outcome(waiting.id)).workUnit.outcome).toMatchObject({ code: 'never_ran' });
    expect((await rig.outcome(running.id)).workUnit.outcome).toMatchObject({
      state: 'skipped',
      code: 'was_cancelled',
    });
    expect(await verifications()).toEqual([]);
  });

  it('is a program that could not be started', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({ argv: ['/nowhere/x'], outcome: verify('true') });
    expect(workUnit).toMatchObject({ errorCode: 'spawn_error', outcome: { code: 'never_ran' } });
    expect(await verifications()).toEqual([]);
  });
});

describe('a daemon that is killed', () => {
  it('between the end and the verification: the next one verifies once', async () => {
    const first = await rig.startDaemon({ fault: 'concluded' });
    const { id } = await rig.submit({
      argv: ['true'],
      exclusive: true,
      outcome: verify('echo verified >> log'),
    });
    await first.exited;
    expect(existsSync(inTree('log'))).toBe(false);
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit.outcome?.state).toBe('satisfied');
    expect(events.filter(({ type }) => type === 'outcome.settled')).toHaveLength(1);
    expect(written('log')).toBe('verified\n');
    expect(await verifications()).toHaveLength(1);
  });

  it('in the middle of the verification: it goes on, and its answer counts once', async () => {
    const first = await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['true'],
      outcome: verify('echo verified >> log; until [ -e go ]; do sleep 0.05; done; exit 1'),
    });
    await appears(inTree('log'));
    first.kill('SIGKILL');
    await first.exited;
    await rig.startDaemon();
    expect((await rig.client.getWorkUnit(id)).outcome?.state).toBe('pending');
    writeFileSync(inTree('go'), '');
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit.outcome).toMatchObject({ state: 'refuted', code: 'verify_failed' });
    expect(events.filter(({ type }) => type === 'outcome.settled')).toHaveLength(1);
    expect(written('log')).toBe('verified\n');
    expect(await verifications()).toHaveLength(1);
  });

  it('and with it the machine, in the middle of the verification: it is run again', async () => {
    const first = await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['true'],
      outcome: verify('echo verified >> log; test $(wc -l < log) -gt 1 || exec sleep 60'),
    });
    await appears(inTree('log'));
    first.kill('SIGKILL');
    await first.exited;
    await cutPower(rig, EXECUTOR);
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect(workUnit).toMatchObject({ status: 'succeeded', outcome: { state: 'satisfied' } });
    expect(written('log')).toBe('verified\nverified\n');
    const [judge, ...others] = await verifications();
    expect(others).toEqual([]);
    expect(judge?.attempts.map(({ status }) => status)).toEqual(['lost', 'succeeded']);
  });
});

it('X26: what may leave no process behind and does fails, and the process is named', async () => {
  await rig.startDaemon();
  const stays = "setsid sh -c ': > up; read x < never' > /dev/null 2>&1 &";
  const argv = sh(`rm -f up; mkfifo never; ${stays} until [ -e up ]; do sleep 0.05; done`);
  const { workUnit } = await rig.runToEnd({ argv, leftovers: 'fail' });
  expect(workUnit).toMatchObject({ status: 'failed', errorCode: 'leftovers' });
  expect(workUnit.errorMessage).toMatch(/left processes behind: sh \(\d+\)$/);
  const ignored = await rig.runToEnd({ argv: sh(argv[2]?.replace('mkfifo never; ', '') ?? '') });
  expect(ignored.workUnit.status).toBe('succeeded');
});

it('outlive run waits for the outcome, ends as it, and show and explain tell it', async () => {
  await rig.startDaemon();
  const run = (...args: string[]) =>
    cli(rig, ['run', '--runner', 'command', '--cwd', rig.tree, ...args]);
  const good = await run('--verify', 'test -s out', '--output', 'out', '--', ...sh('echo x > out'));
  expect({ status: good.status, told: good.stderr }).toEqual({
    status: 0,
    told: expect.stringContaining('\noutcome satisfied'),
  });
  const bad = await run('--handle', 'bad', '--verify', 'echo no; exit 1', '--', 'true');
  expect(bad.status).toBe(1);
  expect(bad.stderr).toMatch(/bad succeeded .*\noutcome refuted\(verify_failed\): .*status 1: no/);
  expect((await cli(rig, ['show', 'bad'])).stdout).toMatch(/outcome +refuted\(verify_failed\): /);
  expect((await cli(rig, ['explain', 'bad'])).stdout).toContain('refuted(verify_failed)');
  expect((await cli(rig, ['ps', '--all'])).stdout).toMatch(/bad .*refuted\(verify_failed\)/);
});
