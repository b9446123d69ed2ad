/** A person is asked before a call acts: real systemd, real Pi, daemons that die in between. */
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { WorkUnitView } from '../../src/api/schemas.ts';
import type { ApprovalView } from '../../src/api/schemas-approvals.ts';
import { EXIT } from '../../src/domain/errors.ts';
import type { ToolPolicyInput } from '../../src/domain/tool-policy-schema.ts';
import { cli } from '../support/cli.ts';
import {
  appears,
  type DaemonProcess,
  Rig,
  script,
  sequenceIsWhole,
  systemctl,
} from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

const ASK_BASH: ToolPolicyInput = {
  rules: [{ effect: 'ask', tool: 'bash', argument: { name: 'command', pattern: 'effects' } }],
  otherwise: 'allow',
};

async function kill(daemon: DaemonProcess): Promise<void> {
  daemon.kill('SIGKILL');
  await daemon.exited;
}

/** Everything of attempt `number` is gone as after a power cut, its exit record too. */
async function cutPower({ handle }: Pick<WorkUnitView, 'handle'>, number = 1): Promise<void> {
  const unit = `outlive-${rig.workspace}-${handle}-${number}.service`;
  await systemctl('kill', '-s', 'KILL', unit);
  await rig.unitsAreDead();
  await systemctl('reset-failed', unit).catch(() => undefined);
  for (const record of readdirSync(rig.exitRecords())) {
    rmSync(path.join(rig.exitRecords(), record), { recursive: true });
  }
}

const effects = (): string =>
  existsSync(path.join(rig.tree, 'effects'))
    ? readFileSync(path.join(rig.tree, 'effects'), 'utf8')
    : '';

async function ask(...lines: readonly string[]): Promise<WorkUnitView> {
  return rig.submit({ prompt: script(...lines), toolPolicy: ASK_BASH });
}

/** The question, once it is stored. */
async function question(workUnit: WorkUnitView, nth = 1): Promise<ApprovalView> {
  let seen = 0;
  await rig.waitForEvent(
    workUnit.id,
    ({ type }) => type === 'approval.requested' && ++seen === nth,
    `question ${nth}`,
  );
  const { items } = await rig.client.listApprovals({ workUnit: workUnit.id, status: 'pending' });
  const [first] = items;
  if (!first) throw new Error('no question is open');
  return first;
}

const suspended = (workUnit: WorkUnitView) =>
  rig.waitForEvent(
    workUnit.id,
    ({ type, data }) => type === 'approval.changed' && data['cause'] === 'suspended:approval_wait',
    'the suspension',
  );

/** The conversation as Pi keeps it: all that the model was told. */
const conversation = (workUnit: WorkUnitView): string =>
  readFileSync(path.join(rig.config.directories.sessions, workUnit.id, 'session.jsonl'), 'utf8');

describe('row 128: a person is asked before bash acts', () => {
  it('ask → daemon killed → approve exits 4 and changes nothing → restart → the same approve acts once', async () => {
    const first = await rig.startDaemon();
    const workUnit = await ask('bash echo once >> effects', 'say Done');
    const asked = await question(workUnit);
    expect(asked).toMatchObject({ tool: 'bash', arguments: { command: 'echo once >> effects' } });
    expect(effects()).toBe('');
    await kill(first);
    const approve = ['approve', asked.id, '--idempotency-key', 'yes-once'];
    expect((await cli(rig, approve)).status).toBe(EXIT.unreachable);
    expect(effects()).toBe('');
    await rig.startDaemon();
    const listed = await cli(rig, ['approvals', '--json']);
    const open = JSON.parse(listed.stdout) as { items: ApprovalView[] };
    expect(open.items.map(({ id, status }) => [id, status])).toEqual([[asked.id, 'pending']]);
    expect((await cli(rig, approve)).status).toBe(EXIT.ok);
    expect((await cli(rig, approve)).status, 'the same answer again').toBe(EXIT.ok);
    const { workUnit: ended, events } = await rig.outcome(workUnit.id);
    expect(ended.status).toBe('succeeded');
    expect(ended.attempts).toHaveLength(1);
    expect(effects()).toBe('once\n');
    expect(sequenceIsWhole(events)).toBe(true);
    expect((await rig.client.getApproval(asked.id)).checkpoint).toBe('closed');
    expect(rig.model.violations()).toEqual([]);
    await rig.unitsAreGone();
  });

  it('row 257: a daemon that dies between the answer and its file: the next one carries it over', async () => {
    await rig.startDaemon({ fault: 'approval_decided' });
    const workUnit = await ask('bash echo once >> effects', 'say Done');
    const asked = await question(workUnit);
    await rig.client.approve(asked.id, {}, 'k').catch(() => undefined);
    await rig.startDaemon();
    const { workUnit: ended } = await rig.outcome(workUnit.id);
    expect(ended.status).toBe('succeeded');
    expect(effects()).toBe('once\n');
  });

  it('deny goes back to the model with its reason, and the run goes on', async () => {
    await rig.startDaemon();
    const workUnit = await ask('bash echo once >> effects', 'say I see');
    const asked = await question(workUnit);
    const denied = await cli(rig, ['deny', workUnit.handle, '--reason', 'use the staging host']);
    expect(denied.status).toBe(EXIT.ok);
    const { workUnit: ended } = await rig.outcome(workUnit.id);
    expect(ended.status).toBe('succeeded');
    expect(effects()).toBe('');
    expect(conversation(ended)).toContain('use the staging host');
    expect(await rig.client.getApproval(asked.id)).toMatchObject({
      status: 'denied',
      decisionReason: 'use the staging host',
      checkpoint: 'closed',
    });
  });

  it('row 047: deny --fail fails the run', async () => {
    await rig.startDaemon();
    const workUnit = await ask('bash echo once >> effects', 'say never');
    await question(workUnit);
    await cli(rig, ['deny', workUnit.handle, '--fail', '--reason', 'no']);
    const { workUnit: ended } = await rig.outcome(workUnit.id);
    expect([ended.status, ended.errorCode]).toEqual(['failed', 'approval_denied']);
    expect(effects()).toBe('');
    await rig.unitsAreGone();
  });
});

describe('the attempt that asked is gone', () => {
  it('row 256, row 333: power cut → nobody holds anything → approve → the exact call runs once and Pi goes on', async () => {
    const first = await rig.startDaemon();
    const workUnit = await ask('bash echo once >> effects', 'say Done');
    const asked = await question(workUnit);
    await kill(first);
    await cutPower(workUnit);
    await rig.startDaemon();
    await suspended(workUnit);
    const waiting = await rig.client.getWorkUnit(workUnit.id);
    expect(waiting).toMatchObject({ status: 'waiting_for_approval', activeAttemptId: null });
    expect((await rig.client.leases()).items).toEqual([]);
    await cli(rig, ['approve', workUnit.handle]);
    const { workUnit: ended, events } = await rig.outcome(workUnit.id);
    expect(ended.attempts.map(({ status }) => status)).toEqual(['lost', 'succeeded']);
    expect(effects()).toBe('once\n');
    const starts = events.filter(({ type }) => type === 'tool.start');
    expect(starts.map(({ data }) => data['approvalId'])).toEqual([asked.id]);
    expect((await rig.client.getApproval(asked.id)).checkpoint).toBe('resumed');
    expect(conversation(ended)).toContain('It has run now');
    expect(rig.model.violations()).toEqual([]);
    await rig.unitsAreGone();
  });

  it('row 258: power cut between tool.start and tool.end: effect unknown, and never again', async () => {
    const first = await rig.startDaemon();
    const workUnit = await ask('bash echo once >> effects; touch begun; sleep 600', 'say Done');
    const asked = await question(workUnit);
    await rig.client.approve(asked.id);
    await appears(path.join(rig.tree, 'begun'));
    await kill(first);
    await cutPower(workUnit);
    await rig.startDaemon();
    const { workUnit: ended } = await rig.outcome(workUnit.id);
    expect([ended.status, ended.errorCode]).toEqual(['failed', 'approval_resume_effect_unknown']);
    expect(ended.attempts).toHaveLength(1);
    expect(effects()).toBe('once\n');
    expect(await rig.client.getApproval(asked.id)).toMatchObject({
      checkpoint: 'resume_failed',
      failureCode: 'effect_unknown',
    });
  });

  it('two calls in one message, the second waiting: no false unknown for the first', async () => {
    const first = await rig.startDaemon();
    const workUnit = await ask(
      'bash echo first > one; touch done-one ;; bash echo once >> effects',
      'say Done',
    );
    await question(workUnit);
    await appears(path.join(rig.tree, 'done-one'));
    await rig.waitForEvent(workUnit.id, ({ type }) => type === 'tool.end', 'the end of the first');
    await kill(first);
    await cutPower(workUnit);
    await rig.startDaemon();
    await rig.client.approve((await question(workUnit)).id);
    const { workUnit: ended } = await rig.outcome(workUnit.id);
    expect(ended.status).toBe('succeeded');
    expect(effects()).toBe('once\n');
  });

  it('row 259: the daemon is gone from the answer to the end of the call: finished by its evidence', async () => {
    const first = await rig.startDaemon();
    const workUnit = await ask('bash echo once >> effects; touch begun', 'hang');
    const asked = await question(workUnit);
    await rig.client.approve(asked.id);
    await appears(path.join(rig.tree, 'begun'));
    await rig.waitForEvent(workUnit.id, ({ type }) => type === 'tool.end', 'the end of the call');
    await kill(first);
    await cutPower(workUnit);
    await rig.startDaemon();
    await rig.waitForEvent(
      workUnit.id,
      ({ type, data }) => type === 'work_unit.queued' && data['reason'] === 'resume',
      'the ordinary resume',
    );
    expect(effects()).toBe('once\n');
    expect((await rig.client.getApproval(asked.id)).checkpoint).toBe('closed');
    await rig.client.cancelWorkUnit(workUnit.id);
    await rig.outcome(workUnit.id);
    expect(effects()).toBe('once\n');
  });

  it('row 213: an orderly stop that suspends keeps run and question, and holds nothing', async () => {
    const env = { OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: '0' };
    const first = await rig.startDaemon({ env });
    const workUnit = await ask('bash echo once >> effects', 'say Done');
    await question(workUnit);
    first.kill('SIGTERM');
    expect(await first.exited).toBe(0);
    await rig.unitsAreDead();
    await rig.startDaemon();
    const waiting = await rig.client.getWorkUnit(workUnit.id);
    expect(waiting).toMatchObject({ status: 'waiting_for_approval', activeAttemptId: null });
    expect((await rig.client.leases()).items).toEqual([]);
    await rig.client.approve((await question(workUnit)).id);
    const { workUnit: ended } = await rig.outcome(workUnit.id);
    expect(ended.status).toBe('succeeded');
    expect(effects()).toBe('once\n');
  });

  it('a deadline that comes near with the question open suspends, and the next attempt has what was left', async () => {
    await rig.startDaemon();
    const workUnit = await rig.submit({
      prompt: script('bash echo once >> effects', 'say Done'),
      toolPolicy: ASK_BASH,
      timeoutPolicy: { hardTimeoutMs: 20_000, cancelGraceMs: 2_000 },
    });
    const asked = await question(workUnit);
    await suspended(workUnit);
    await rig.client.approve(asked.id);
    const { workUnit: ended } = await rig.outcome(workUnit.id);
    expect(ended.status).toBe('succeeded');
    expect(ended.attempts.map(({ errorCode }) => errorCode)).toEqual(['suspended', null]);
    expect(effects()).toBe('once\n');
  });

  it('a deadline that strikes while there is no daemon is a suspension, too', async () => {
    const first = await rig.startDaemon();
    const workUnit = await rig.submit({
      prompt: script('bash touch begun; sleep 1', 'bash echo once >> effects', 'say Done'),
      toolPolicy: ASK_BASH,
      timeoutPolicy: { hardTimeoutMs: 6_000, cancelGraceMs: 1_000 },
    });
    await appears(path.join(rig.tree, 'begun'));
    await kill(first);
    await rig.unitsAreDead();
    await rig.startDaemon();
    await suspended(workUnit);
    await rig.client.approve((await question(workUnit)).id);
    const { workUnit: ended } = await rig.outcome(workUnit.id);
    expect(ended.attempts.map(({ errorCode }) => errorCode)).toEqual(['suspended', null]);
    expect(ended.status).toBe('succeeded');
    expect(effects()).toBe('once\n');
  });
});
