/** Work that waits for other work, with real daemons and processes: through a kill, and past a failure. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type CliResult, cli } from '../support/cli.ts';
import { type Rig, within } from '../support/rig.ts';
import { tierRig } from '../support/tier-rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await tierRig();
});
afterEach(async () => {
  await rig.end();
});

const inTree = (name: string): string => path.join(rig.tree, name);
const ran = (): string[] => readFileSync(inTree('ran'), 'utf8').trim().split('\n');

/** Runs `script` under a handle, which is written down first; after others by `flags`. */
async function run(handle: string, script: string, ...flags: string[]): Promise<string> {
  const command = ['--', 'sh', '-c', `echo ${handle} >> ran; ${script}`];
  const options = ['--runner', 'command', '--handle', handle, '--detach', '--json'];
  const { stdout, stderr } = await cli(rig, ['run', ...options, ...flags, ...command]);
  expect(stderr).toContain(`${handle} is queued`);
  return (JSON.parse(stdout) as { id: string }).id;
}

const ps = async (): Promise<string[]> => (await cli(rig, ['ps', '--all'])).stdout.split('\n');
const psLine = async (handle: string): Promise<string> =>
  (await ps()).find((line) => line.startsWith(`${handle} `)) ?? '';

describe('three steps, one after the other', () => {
  it('run once each and in order, though the daemon is killed between the end of one and the start of the next', async () => {
    const daemon = await rig.startDaemon({ fault: 'concluded' });
    const a = await run('a', 'until [ -e go ]; do sleep 0.05; done');
    const b = await run('b', 'true', '--after', 'a');
    const c = await run('c', 'true', '--after', 'b', '--after', 'a');
    expect(await psLine('b')).toMatch(/ after a$/);
    expect(await psLine('c')).toMatch(/ after b, a$/);
    writeFileSync(inTree('go'), '');
    expect(await within('the daemon to be killed', daemon.exited)).toBe('SIGKILL');
    expect(ran()).toEqual(['a']);
    await rig.startDaemon();
    expect((await rig.outcome(c)).workUnit.status).toBe('succeeded');
    for (const id of [a, b, c]) {
      const { attempts } = await rig.client.getWorkUnit(id);
      expect(attempts.map(({ status }) => status)).toEqual(['succeeded']);
    }
    expect(ran()).toEqual(['a', 'b', 'c']);
    expect(await rig.client.getWorkUnit(c)).toMatchObject({
      after: [
        { workUnitId: b, handle: 'b', state: 'satisfied' },
        { workUnitId: a, handle: 'a', state: 'satisfied' },
      ],
      afterNeeded: 2,
    });
  });
});

describe('a step whose dependency failed', () => {
  const isTold = (id: string): Promise<unknown> =>
    rig.waitForEvent(id, ({ type }) => type === 'diagnostic.dependency_failed', 'the alarm');

  it('stays queued and says so, and a retry that succeeds lets it go', async () => {
    await rig.startDaemon();
    const a = await run('a', '[ -e mended ]');
    const b = await run('b', 'true', '--after', 'a');
    await rig.outcome(a);
    await isTold(b);
    expect(await psLine('b')).toMatch(/queued.* stuck: failed a$/);
    const { stdout } = await cli(rig, ['explain', 'b']);
    expect(stdout).toContain(
      'b: It is queued: it waits for a, which failed: outlive retry a, or cancel this one.',
    );
    expect((await cli(rig, ['show', 'b'])).stdout).toMatch(/after +a \(failed\)/);
    writeFileSync(inTree('mended'), '');
    expect((await cli(rig, ['retry', 'a'])).status).toBe(0);
    expect((await rig.outcome(b)).workUnit).toMatchObject({ status: 'succeeded', attemptCount: 1 });
    expect(ran()).toEqual(['a', 'a', 'b']);
  });

  it('goes with another where one is enough, is refused with --no-queue, and is cancelled like any other', async () => {
    await rig.startDaemon();
    const a = await run('a', 'exit 1');
    const b = await run('b', 'until [ -e go ]; do sleep 0.05; done');
    const any = await run('any', 'true', '--after', 'a', '--after', 'b', '--after-needed', 'any');
    const all = await run('all', 'true', '--after', 'a', '--after', 'b');
    await rig.outcome(a);
    await isTold(all);
    await rig.waitForEvent(b, ({ type }) => type === 'work_unit.started', 'b to run');
    const refused: CliResult = await cli(rig, [
      'run',
      '--runner',
      'command',
      '--no-queue',
      '--after',
      'b',
      '--',
      'true',
    ]);
    expect(refused).toMatchObject({ status: 5 });
    expect(refused.stderr).toContain('it waits for b (running)');
    const unknown = await cli(rig, ['run', '--after', 'nobody', '--', 'go']);
    expect(unknown).toMatchObject({ status: 3 });
    writeFileSync(inTree('go'), '');
    await rig.outcome(b);
    expect((await rig.outcome(any)).workUnit.status).toBe('succeeded');
    expect((await cli(rig, ['cancel', 'all'])).status).toBe(0);
    expect((await rig.outcome(all)).workUnit).toMatchObject({
      status: 'cancelled',
      attemptCount: 0,
    });
  });
});
