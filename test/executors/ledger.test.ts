/** The ledger over a real daemon and real processes: how each kind of end reads, and once each. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LedgerLineView } from '../../src/api/schemas-ledger.ts';
import { cli } from '../support/cli.ts';
import type { Rig } from '../support/rig.ts';
import { EXECUTOR, tierRig } from '../support/tier-rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await tierRig();
});
afterEach(() => rig.end());

/** Says that it is up, and waits for the file that lets it go. */
const WAITS = 'echo up; until [ -e go ]; do sleep 0.05; done';
const sh = (text: string): string[] => ['sh', '-c', text];

/** Every line there is, as a program reads them. */
async function exported(...args: readonly string[]): Promise<LedgerLineView[]> {
  const { status, stdout, stderr } = await cli(rig, ['ledger', '--json', ...args]);
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as LedgerLineView);
}

const isUp = (id: string): Promise<unknown> =>
  rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its first words');

describe('the ledger', () => {
  it('S2: exit propagation: well, with 3, unable to start (127) and cancelled (130); row 303', async () => {
    await rig.startDaemon();
    await rig.runToEnd({ handle: 'well', argv: ['true'] });
    await rig.runToEnd({ handle: 'three', argv: sh('exit 3') });
    await rig.runToEnd({ handle: 'nowhere', argv: ['/nowhere/at-all'] });
    const { id } = await rig.submit({ handle: 'stopped', argv: sh(WAITS) });
    await isUp(id);
    await rig.client.cancelWorkUnit(id);
    await rig.outcome(id);
    const lines = await exported();
    expect(lines.map(({ handle, result, rc }) => [handle, result, rc])).toEqual([
      ['well', 'exit', 0],
      ['three', 'exit', 3],
      ['nowhere', 'spawn-error', 127],
      ['stopped', 'stopped', 130],
    ]);
    expect(new Set(lines.map(({ executor, reattached }) => `${executor} ${reattached}`))).toEqual(
      new Set([`${EXECUTOR} false`]),
    );
    const { stdout } = await cli(rig, ['ledger', '--handle', 'three', '--since', '1h']);
    expect(stdout).toMatch(
      /^ENDED .*\n\S+ +three +exit +3 +- +- +\S+ +- +outlive-\S+three-1\.service\n$/,
    );
  });

  it('S2: spawn-failure fallback exactly once: one line, neither a spawn error nor a phantom; row 305', async () => {
    // Something is at the bus's address, and it refuses.
    const bus = path.join(rig.base, 'bus');
    symlinkSync('/dev/null', bus);
    await rig.startDaemon({ env: { DBUS_SESSION_BUS_ADDRESS: `unix:path=${bus}` } });
    const { workUnit } = await rig.runToEnd({
      handle: 'once',
      argv: sh('echo x >> runs'),
      outcome: { outputs: ['runs'] },
    });
    expect(workUnit).toMatchObject({ status: 'succeeded', outcome: { state: 'satisfied' } });
    expect(readFileSync(path.join(rig.tree, 'runs'), 'utf8'), 'what it ran').toBe('x\n');
    const lines = await exported('--all');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject({ handle: 'once', result: 'exit', rc: 0, executor: 'direct' });
  });

  it('X24: a program, or an agent, that is not there is a spawn error with 127, and nothing has run', async () => {
    const { configFile } = rig.config.directories;
    mkdirSync(path.dirname(configFile), { recursive: true });
    writeFileSync(configFile, JSON.stringify({ pi: { command: ['/nowhere/agent'] } }));
    await rig.startDaemon();
    const command = await cli(rig, [
      'run',
      '--runner',
      'command',
      '--handle',
      'a',
      '--',
      'nowhere',
    ]);
    expect(command).toMatchObject({ status: 1 });
    expect(command.stderr).toContain('nowhere could not be started: ENOENT');
    const agent = await cli(rig, ['run', '--handle', 'b', '--', 'go']);
    expect(agent).toMatchObject({ status: 1 });
    expect(agent.stderr).toContain('/nowhere/agent');
    const lines = await exported();
    expect(lines.map(({ handle, result, rc }) => [handle, result, rc])).toEqual([
      ['a', 'spawn-error', 127],
      ['b', 'spawn-error', 127],
    ]);
    for (const handle of ['a', 'b']) {
      const { stdout } = await cli(rig, ['events', handle, '--json']);
      expect(stdout, handle).not.toContain('"type":"started"');
    }
  });

  it('S2: timeout normalisation: 124 also where the program caught its SIGTERM and exited with 0; row 304, row 136', async () => {
    await rig.startDaemon();
    const timeoutPolicy = { hardTimeoutMs: 1_500, cancelGraceMs: 5_000 };
    const polite = sh('trap "exit 0" TERM; echo up; while :; do sleep 0.05; done');
    await rig.runToEnd({ handle: 'hard', argv: polite, timeoutPolicy });
    const idle = { idleTimeoutMs: 1_500, cancelGraceMs: 5_000 };
    await rig.runToEnd({ handle: 'idle', argv: polite, timeoutPolicy: idle });
    const lines = await exported();
    expect(lines.map(({ handle, result, rc }) => [handle, result, rc])).toEqual([
      ['hard', 'timeout', 124],
      ['idle', 'timeout', 124],
    ]);
  });

  it('S2: startup re-attach writes one line marked reattached; row 306, row 145', async () => {
    const first = await rig.startDaemon();
    const { id } = await rig.submit({ handle: 'again', argv: sh(`echo x >> runs; ${WAITS}`) });
    await isUp(id);
    first.kill('SIGKILL');
    await first.exited;
    await rig.startDaemon();
    await rig.waitForEvent(id, ({ type }) => type === 'attempt.reattached', 're-attachment');
    expect(await exported(), 'while it runs').toEqual([]);
    writeFileSync(path.join(rig.tree, 'go'), '');
    const { workUnit } = await rig.outcome(id);
    expect(readFileSync(path.join(rig.tree, 'runs'), 'utf8'), 'what it ran').toBe('x\n');
    const lines = await exported('--all');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject({
      attemptId: workUnit.attempts[0]?.id,
      handle: 'again',
      result: 'exit',
      rc: 0,
      reattached: true,
    });
    const { stdout } = await cli(rig, ['ledger']);
    expect(stdout).toContain('exit (re-attached)');
  });
});
