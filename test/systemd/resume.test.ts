/** A lost attempt is gone on from once, in the same conversation: real systemd, real Pi. */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventView, WorkUnitView } from '../../src/api/schemas.ts';
import { cli } from '../support/cli.ts';
import { appears, Rig, script, sequenceIsWhole, systemctl } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

const sessionFile = (workUnit: WorkUnitView): string =>
  path.join(rig.config.directories.sessions, workUnit.id, 'session.jsonl');

async function crashDaemon(daemon: Awaited<ReturnType<Rig['startDaemon']>>): Promise<void> {
  daemon.kill('SIGKILL');
  await daemon.exited;
}

/** A Pi run in the middle of a tool call that has left its mark; then nothing lives any more. */
async function lostInTheMiddle(
  options: { onLost?: 'resume' | 'fail' | 'block' } = {},
): Promise<WorkUnitView> {
  const daemon = await rig.startDaemon();
  const workUnit = await rig.submit({
    ...options,
    prompt: script('say I begin ;; bash echo once >> effects; touch begun; sleep 600', 'say Done'),
  });
  await appears(path.join(rig.tree, 'begun'));
  await rig.waitForEvent(workUnit.id, ({ type }) => type === 'tool.start', 'the tool call');
  await crashDaemon(daemon);
  await loseIt(workUnit);
  return workUnit;
}

/** What the model was told as a user, message by message. */
const said = (workUnit: WorkUnitView): unknown[] =>
  readFileSync(sessionFile(workUnit), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { message?: { role?: string; content?: unknown } })
    .flatMap(({ message }) => (message?.role === 'user' ? [message.content] : []));

/**
 * Everything of the run is gone as after a power cut: every process and the exit record.
 * What is left is on the disk.
 */
async function loseIt({ handle }: Pick<WorkUnitView, 'handle'>): Promise<void> {
  const unit = `outlive-${rig.workspace}-${handle}-1.service`;
  await systemctl('kill', '-s', 'KILL', unit);
  await rig.unitsAreDead();
  await systemctl('reset-failed', unit).catch(() => undefined);
  for (const record of readdirSync(rig.exitRecords())) {
    rmSync(path.join(rig.exitRecords(), record), { recursive: true });
  }
}

const queuedBy = (events: readonly EventView[]): unknown[] =>
  events.filter(({ type }) => type === 'work_unit.queued').map(({ data }) => data['reason']);

describe('a lost Pi run', () => {
  it('goes on in the same conversation, is told of the open call, and does not run it again; T24 Opendray PR#247', async () => {
    const lost = await lostInTheMiddle();
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(lost.id);

    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts.map(({ status, errorCode }) => [status, errorCode])).toEqual([
      ['lost', 'no_evidence'],
      ['succeeded', null],
    ]);
    expect(workUnit.attempts[1]?.resumesAttemptId).toBe(workUnit.attempts[0]?.id);
    const explained = await cli(rig, ['explain', workUnit.handle]);
    expect(explained.stdout).toContain('attempt 1 (no_evidence)');
    expect(queuedBy(events).filter((reason) => reason === 'resume')).toEqual(['resume']);
    expect(sequenceIsWhole(events)).toBe(true);
    expect(readFileSync(path.join(rig.tree, 'effects'), 'utf8')).toBe('once\n');

    const users = said(workUnit);
    expect(users).toHaveLength(2);
    const told = JSON.stringify(users[1]);
    expect(told).toContain('had begun and left no result');
    expect(told).toContain('sleep 600');
    await rig.unitsAreGone();
  });

  it('is resumed once across a crash loop of the daemon; row 271', async () => {
    const lost = await lostInTheMiddle();
    for (const fault of [
      'evidence_read',
      'concluded',
      'claimed',
      'prepared',
      'start_answered',
    ] as const) {
      const daemon = await rig.startDaemon({ fault });
      await daemon.exited;
    }
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(lost.id);
    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts.filter(({ status }) => status === 'succeeded')).toHaveLength(1);
    expect(readFileSync(path.join(rig.tree, 'effects'), 'utf8')).toBe('once\n');
    expect(said(workUnit)).toHaveLength(2);
  });

  it('whose conversation is damaged in the middle waits for a person; retry goes on', async () => {
    const lost = await lostInTheMiddle();
    const file = sessionFile(lost);
    const lines = readFileSync(file, 'utf8').split('\n');
    lines[3] = (lines[3] ?? '').slice(0, 20);
    writeFileSync(file, lines.join('\n'));
    await rig.startDaemon();
    await rig.waitForEvent(lost.id, ({ data }) => data['kind'] === 'resume_blocked', 'the block');
    const blocked = await rig.client.getWorkUnit(lost.id);
    expect([blocked.status, blocked.errorCode]).toEqual(['stale', 'resume_session_corrupt']);
    expect(existsSync(file)).toBe(true);
    await rig.client.retryWorkUnit(lost.id);
    expect((await rig.client.getWorkUnit(lost.id)).attempts.length).toBeGreaterThan(0);
  });

  it('whose work tree is gone waits for a person', async () => {
    const lost = await lostInTheMiddle();
    rmSync(rig.tree, { recursive: true });
    await rig.startDaemon();
    await rig.waitForEvent(lost.id, ({ data }) => data['kind'] === 'resume_blocked', 'the block');
    expect((await rig.client.getWorkUnit(lost.id)).errorCode).toBe('resume_cwd_missing');
  });

  it.each([
    ['fail', 'failed', 'runtime_interrupted_no_checkpoint'],
    ['block', 'stale', 'resume_needs_decision'],
  ] as const)('under --on-lost %s is %s', async (onLost, status, code) => {
    const lost = await lostInTheMiddle({ onLost });
    await rig.startDaemon();
    await rig.waitForEvent(
      lost.id,
      ({ type, data }) => type === 'work_unit.failed' || data['kind'] === 'resume_blocked',
      'its end',
    );
    const workUnit = await rig.client.getWorkUnit(lost.id);
    expect([workUnit.status, workUnit.errorCode]).toEqual([status, code]);
  });
});

describe('a lost command', () => {
  it('fails as runtime_interrupted_no_checkpoint and is not run again', async () => {
    const daemon = await rig.startDaemon();
    const { id, handle } = await rig.submit({
      argv: ['sh', '-c', 'echo once >> effects; touch begun; exec sleep 600'],
    });
    await appears(path.join(rig.tree, 'begun'));
    await crashDaemon(daemon);
    await loseIt({ handle });
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual([
      'failed',
      'runtime_interrupted_no_checkpoint',
    ]);
    expect(readFileSync(path.join(rig.tree, 'effects'), 'utf8')).toBe('once\n');
  });
});
