/** The part of the conformance table in which a person is asked. Only Pi can ask. */
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import type { StartWorkUnitInput, WorkUnitView } from '../../src/api/schemas.ts';
import type { ApprovalView } from '../../src/api/schemas-approvals.ts';
import type { Scenario, Scene } from './conformance.ts';
import { type Outcome, type Rig, script, systemctl } from './rig.ts';
import { killDirectAttempts } from './without-systemd.ts';

const COMMAND = 'echo once >> effects';

async function ask(rig: Rig, known: Partial<StartWorkUnitInput> = {}): Promise<WorkUnitView> {
  return rig.submit({
    prompt: script(`bash ${COMMAND}`, 'say Finished'),
    toolPolicy: { rules: [{ effect: 'ask', tool: 'bash' }] },
    ...known,
  } as Parameters<Rig['submit']>[0]);
}

/** The question, once it is stored; nothing was done by then. */
async function question(rig: Rig, { id }: WorkUnitView): Promise<ApprovalView> {
  await rig.waitForEvent(id, ({ type }) => type === 'approval.requested', 'the question');
  const { items } = await rig.client.listApprovals({ workUnit: id });
  const [asked] = items;
  if (!asked) throw new Error('the question was not stored');
  expect(asked).toMatchObject({ status: 'pending', arguments: { command: COMMAND } });
  expect(effects(rig)).toBe('');
  return asked;
}

const suspended = (rig: Rig, { id }: WorkUnitView) =>
  rig.waitForEvent(
    id,
    ({ type, data }) => type === 'approval.changed' && data['cause'] === 'suspended:approval_wait',
    'the suspension',
  );

function effects({ tree }: Rig): string {
  const file = path.join(tree, 'effects');
  return existsSync(file) ? readFileSync(file, 'utf8') : '';
}

/** All processes of its first attempt are gone as after a power cut, and the exit record too. */
async function cutPower({ rig, executor }: Scene, { handle }: WorkUnitView): Promise<void> {
  if (executor === 'direct') {
    await killDirectAttempts(rig.config.directories.direct);
  } else {
    const unit = `outlive-${rig.workspace}-${handle}-1.service`;
    await systemctl('kill', '-s', 'KILL', unit);
    await rig.unitsAreDead();
    await systemctl('reset-failed', unit).catch(() => undefined);
  }
  for (const record of readdirSync(rig.exitRecords())) {
    rmSync(path.join(rig.exitRecords(), record), { recursive: true });
  }
}

/** The call acted once, in this attempt, and its beginning and end stand around that. */
function actedOnce({ workUnit, events }: Outcome, { rig }: Scene, attempt: number): void {
  expect(effects(rig)).toBe('once\n');
  const { id } = workUnit.attempts[attempt - 1] ?? {};
  const calls = events.filter(({ type }) => type === 'tool.start' || type === 'tool.end');
  expect(calls.map(({ type, attemptId }) => [type, attemptId])).toEqual([
    ['tool.start', id],
    ['tool.end', id],
  ]);
  expect(calls[0]?.data['approvalId']).toBeTypeOf('string');
  expect(rig.model.violations()).toEqual([]);
}

const statuses = ({ workUnit }: Outcome): string[] => workUnit.attempts.map(({ status }) => status);
const SUCCEEDS = (): readonly [string, null] => ['succeeded', null];

export const ASKING: readonly Scenario[] = [
  {
    name: 'asks, is approved, and acts once',
    only: 'pi',
    run: async ({ rig }) => {
      const workUnit = await ask(rig);
      await rig.client.approve((await question(rig, workUnit)).id);
      return rig.outcome(workUnit.id);
    },
    ends: SUCCEEDS,
    also: (outcome, scene) => {
      expect(statuses(outcome)).toEqual(['succeeded']);
      actedOnce(outcome, scene, 1);
    },
  },
  {
    name: 'asks, is denied, and the model is told',
    only: 'pi',
    run: async ({ rig }) => {
      const workUnit = await ask(rig);
      await rig.client.deny((await question(rig, workUnit)).id, { reason: 'use another host' });
      return rig.outcome(workUnit.id);
    },
    ends: SUCCEEDS,
    also: ({ workUnit: { id } }, { rig }) => {
      expect(effects(rig)).toBe('');
      const session = path.join(rig.config.directories.sessions, id, 'session.jsonl');
      expect(readFileSync(session, 'utf8')).toContain('use another host');
    },
  },
  {
    name: 'asks, is suspended before its deadline, and acts once in its next attempt',
    only: 'pi',
    run: async ({ rig }) => {
      const timeoutPolicy = { hardTimeoutMs: 25_000, cancelGraceMs: 2_000 };
      const workUnit = await ask(rig, { timeoutPolicy });
      const asked = await question(rig, workUnit);
      await suspended(rig, workUnit);
      expect((await rig.client.leases()).items).toEqual([]);
      await rig.client.approve(asked.id);
      return rig.outcome(workUnit.id);
    },
    ends: SUCCEEDS,
    also: (outcome, scene) => {
      expect(statuses(outcome)).toEqual(['lost', 'succeeded']);
      actedOnce(outcome, scene, 2);
    },
  },
  {
    name: 'asks, is lost with its daemon and everything that told of it, and acts once when it is approved',
    only: 'pi',
    run: async (scene) => {
      const { rig } = scene;
      const first = await rig.startDaemon();
      const workUnit = await ask(rig);
      const asked = await question(rig, workUnit);
      first.kill('SIGKILL');
      await first.exited;
      await cutPower(scene, workUnit);
      await rig.startDaemon();
      await suspended(rig, workUnit);
      expect((await rig.client.leases()).items).toEqual([]);
      await rig.client.approve(asked.id);
      return rig.outcome(workUnit.id);
    },
    ends: SUCCEEDS,
    also: (outcome, scene) => {
      expect(statuses(outcome)).toEqual(['lost', 'succeeded']);
      actedOnce(outcome, scene, 2);
    },
  },
];
