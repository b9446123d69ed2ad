/** How a unit's end looks: in the facts of the unit, and in the record it leaves. */

import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Executor } from '../../src/executor/port.ts';
import { within } from '../support/rig.ts';
import { Rig } from './executor-rig.ts';

const rig = new Rig();
let executor: Executor;

beforeAll(async () => {
  executor = await rig.connected();
});
afterAll(() => rig.sweep());

interface End {
  readonly title: string;
  readonly script: string;
  readonly argv?: readonly string[];
  readonly hardTimeoutMs?: number;
  readonly act?: (unit: string, pid: number) => Promise<void> | void;
  readonly facts: readonly [state: string, result: string];
  readonly exit: readonly [how: string, status: number | null, signal: string | null];
  /** $SERVICE_RESULT $EXIT_CODE $EXIT_STATUS */
  readonly record: readonly [string, string, string];
}

const stop = (unit: string): Promise<void> => executor.stop(unit);
const STUBBORN = `trap '' TERM; ready; while :; do sleep 0.1; done`;

const ENDS: readonly End[] = [
  {
    title: 'exit 0 is inactive, success, exited 0',
    script: 'ready; exit 0',
    facts: ['inactive', 'success'],
    exit: ['exited', 0, null],
    record: ['success', 'exited', '0'],
  },
  {
    title: 'exit 3 is failed, exit-code, exited 3',
    script: 'ready; exit 3',
    facts: ['failed', 'exit-code'],
    exit: ['exited', 3, null],
    record: ['exit-code', 'exited', '3'],
  },
  {
    title: 'SIGKILL from outside is failed, signal, killed KILL',
    script: 'ready; exec sleep 100',
    act: (_unit, pid) => void process.kill(pid, 'SIGKILL'),
    facts: ['failed', 'signal'],
    exit: ['killed', null, 'KILL'],
    record: ['signal', 'killed', 'KILL'],
  },
  {
    title: 'SIGABRT is failed, and named ABRT by unit and record alike',
    script: 'ulimit -c 0; ready; exec sleep 100',
    act: (unit) => executor.kill(unit, 6),
    facts: ['failed', 'signal'],
    exit: ['killed', null, 'ABRT'],
    record: ['signal', 'killed', 'ABRT'],
  },
  {
    title: 'a real-time signal has the same name in unit and record',
    script: 'ready; exec sleep 100',
    act: (unit) => executor.kill(unit, 37),
    facts: ['failed', 'signal'],
    exit: ['killed', null, 'RTMIN+3'],
    record: ['signal', 'killed', 'RTMIN+3'],
  },
  {
    title: 'RuntimeMax reached, dies of SIGTERM: failed, timeout, killed TERM',
    script: 'ready; exec sleep 100',
    hardTimeoutMs: 1_000,
    facts: ['failed', 'timeout'],
    exit: ['killed', null, 'TERM'],
    record: ['timeout', 'killed', 'TERM'],
  },
  {
    title: 'RuntimeMax reached, ignores SIGTERM: failed, timeout, killed KILL; T08 systemd#2598',
    script: STUBBORN,
    hardTimeoutMs: 1_000,
    facts: ['failed', 'timeout'],
    exit: ['killed', null, 'KILL'],
    record: ['timeout', 'killed', 'KILL'],
  },
  {
    title: 'a stop is inactive, success, killed TERM',
    script: 'ready; exec sleep 100',
    act: stop,
    facts: ['inactive', 'success'],
    exit: ['killed', null, 'TERM'],
    record: ['success', 'killed', 'TERM'],
  },
  {
    title: 'a stop that is trapped and answered with exit 0 looks like a success',
    script: `trap 'exit 0' TERM; ready; sleep 100 & wait`,
    act: stop,
    facts: ['inactive', 'success'],
    exit: ['exited', 0, null],
    record: ['success', 'exited', '0'],
  },
  {
    title: 'a stop that is ignored is failed, timeout, killed KILL',
    script: STUBBORN,
    act: stop,
    facts: ['failed', 'timeout'],
    exit: ['killed', null, 'KILL'],
    record: ['timeout', 'killed', 'KILL'],
  },
];

describe('an end by unit facts and by exit record', () => {
  test.each(ENDS)('$title', async (end) => {
    const { hardTimeoutMs = 120_000 } = end;
    const attempt = rig.attempt(end.script, { hardTimeoutMs });
    const started = await rig.start(executor, attempt);
    await attempt.ready();
    if (end.act) await end.act(attempt.unit, started.mainPid ?? -1);

    const facts = await rig.ended(executor, attempt.unit);
    expect([facts.state, facts.result]).toEqual(end.facts);
    expect([facts.exit.how, facts.exit.status, facts.exit.signal]).toEqual(end.exit);
    expect(facts).toMatchObject({ controlGroup: null, mainPid: null, leavesExitRecord: true });
    const least = end.act ? 0 : (end.hardTimeoutMs ?? 0);
    expect(facts.exit.elapsedMs).toBeGreaterThanOrEqual(least);

    const record = await attempt.record();
    expect([record.serviceResult, record.exitCode, record.exitStatus]).toEqual(end.record);
    expect(record.nonce).toBe(attempt.request.nonce);
    expect(record.invocationId).toBe(facts.invocationId);
  });

  test('a program that does not exist is failed with 203, and leaves a record', async () => {
    const attempt = rig.attempt('', { argv: ['/nonexistent/program'] });
    const facts = await rig.start(executor, attempt);
    expect(facts.state).toBe('failed');
    expect(facts.exit).toMatchObject({ how: 'exited', status: 203 });
    expect(await attempt.record()).toMatchObject({ serviceResult: 'exit-code', exitStatus: '203' });
  });

  test('a missing working directory is failed with 200, and leaves no record', async () => {
    const attempt = rig.attempt('', { attemptDirectory: '/nonexistent/directory' });
    const facts = await rig.start(executor, attempt);
    const after = await rig.ended(executor, attempt.unit);
    expect(facts.state).toBe('failed');
    expect(after.exit).toMatchObject({ how: 'exited', status: 200 });
    expect(existsSync(path.join(rig.exits, `${attempt.request.nonce}.json`))).toBe(false);
  });

  test('a child that ignores SIGTERM in a session of its own is swept when the run exits 0', async () => {
    const attempt = rig.attempt(
      `setsid sh -c 'trap "" TERM; : >ready; while :; do sleep 0.1; done' & gate; exit 0`,
    );
    const started = await rig.start(executor, attempt);
    const group = started.controlGroup ?? '';
    await attempt.ready();
    expect(await executor.waitEmpty(group, 0)).toBe(false);
    // A deadline that is never reached here: only an event of the kernel can end this wait.
    const empty = executor.waitEmpty(group, 3_600_000);
    attempt.open();
    expect(await within('the empty group', empty)).toBe(true);
    const facts = await rig.ended(executor, attempt.unit);
    expect([facts.state, facts.result, facts.exit.status]).toEqual(['inactive', 'success', 0]);
    expect(await attempt.record()).toMatchObject({ serviceResult: 'success', exitStatus: '0' });
  });
});
