/** The main job on real systemd with the real Pi: it runs, it fails honestly, it outlives its daemon. */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { appears, Rig, script, sequenceIsWhole, systemctl } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

const types = (events: readonly { type: string }[]): string[] => events.map((event) => event.type);

describe('a Pi run in a transient unit', () => {
  it('succeeds with text, tokens, cost, its own unit and an exit record; row 130, row 133', async () => {
    await rig.startDaemon();
    const { workUnit, events } = await rig.runToEnd({
      handle: 'issue42',
      prompt: script('say I begin ;; bash echo made > made.txt; pwd', 'say All done'),
    });
    expect(workUnit.errorMessage).toBeNull();
    expect(workUnit.status).toBe('succeeded');
    const [attempt] = workUnit.attempts;
    expect(attempt?.unit).toBe(`outlive-${rig.workspace}-issue42-1.service`);
    expect(attempt?.result).toMatchObject({ verdict: 'ok', text: 'All done' });
    expect(attempt?.result?.costUsd).toBeGreaterThan(0);
    expect(attempt?.result?.usage?.totalTokens).toBeGreaterThan(0);
    expect(attempt?.exit).toMatchObject({
      serviceResult: 'success',
      exitCode: 'exited',
      exitStatus: '0',
      invocationId: attempt?.invocationId,
    });
    expect(attempt?.controlGroup).toContain(`outlive-attempts-${rig.workspace}.slice`);
    expect(sequenceIsWhole(events)).toBe(true);
    expect(types(events)).toEqual(
      expect.arrayContaining([
        'attempt.opened',
        'started',
        'tool.start',
        'tool.end',
        'runner.finished',
        'work_unit.succeeded',
      ]),
    );
    expect(readFileSync(path.join(rig.tree, 'made.txt'), 'utf8')).toBe('made\n');
    // The unit's UMask=0077 is for its own files; what the agent makes is the person's.
    expect(statSync(path.join(rig.tree, 'made.txt')).mode & 0o777).toBe(0o644);
    await rig.unitsAreGone();
    expect(rig.model.violations()).toEqual([]);
  });

  it('has a directory of its own with launch file, claim, spool and logs, and nothing half-written; row 117', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({ prompt: script('say Hi') });
    await rig.unitsAreGone();
    const [attempt] = workUnit.attempts;
    const directory = path.join(rig.config.directories.attempts, workUnit.id, attempt?.id ?? '');
    expect(readdirSync(directory).sort()).toEqual([
      'claim',
      'events.jsonl',
      'launch.json',
      'stderr.log',
      'stdout.log',
      'transcript.txt',
    ]);
    expect(statSync(directory).mode & 0o777).toBe(0o700);
    expect(statSync(path.join(directory, 'events.jsonl')).mode & 0o777).toBe(0o600);
    expect(readFileSync(path.join(directory, 'launch.json'), 'utf8')).not.toContain('test-key');
  });

  it('fails as provider_auth when the provider answers 401', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({ prompt: script('status 401') });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'provider_auth']);
    expect(workUnit.errorMessage).toContain('401');
  });
});

describe('the daemon is killed with SIGKILL', () => {
  it('mid-tool: the next daemon re-attaches to the same attempt and nothing is lost; row 131, row 267', async () => {
    const first = await rig.startDaemon();
    const { id } = await rig.submit({
      prompt: script(
        'bash echo before; until [ -e go ]; do sleep 0.1; done; echo after',
        'say Finished',
      ),
    });
    const started = await rig.waitForEvent(
      id,
      (event) => event.type === 'tool.update' && String(event.data['delta']).includes('before'),
      'the first output of the tool',
    );
    const before = await rig.client.getWorkUnit(id);
    first.kill('SIGKILL');
    expect(await first.exited).toBe('SIGKILL');
    await rig.startDaemon();
    await rig.waitForEvent(id, (event) => event.type === 'attempt.reattached', 'the re-attachment');
    await systemctl('show', before.attempts[0]?.unit ?? '', '-p', 'ActiveState').then((text) =>
      expect(text).toBe('ActiveState=active'),
    );
    await rig.runToEnd({ argv: ['touch', path.join(rig.tree, 'go')] });
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts).toHaveLength(1);
    expect(workUnit.attempts[0]).toMatchObject({
      id: before.attempts[0]?.id,
      invocationId: before.attempts[0]?.invocationId,
      reattached: 1,
    });
    expect(workUnit.attempts[0]?.invocationId).toMatch(/^[0-9a-f]{32}$/);
    expect(sequenceIsWhole(events)).toBe(true);
    expect(events.filter((event) => event.seq === started.seq)).toEqual([started]);
    expect(types(events).filter((type) => type === 'runner.finished')).toHaveLength(1);
  });

  it('and never comes back before the deadline: it still ends there, and is hard_timeout afterwards; row 107', async () => {
    const daemon = await rig.startDaemon();
    const { id } = await rig.submit({
      prompt: script('bash echo up; sleep 600'),
      timeoutPolicy: { hardTimeoutMs: 6_000, cancelGraceMs: 1_000 },
    });
    await rig.waitForEvent(
      id,
      (event) => event.type === 'tool.update' && String(event.data['delta']).includes('up'),
      'the tool to run',
    );
    const { nonce } = await opened(id);
    daemon.kill('SIGKILL');
    await daemon.exited;
    await appears(path.join(rig.exitRecords(), `${nonce}.json`));
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'hard_timeout']);
    await rig.unitsAreGone();
  });

  it('while the unit ends well: the outcome is found afterwards, T60 containerd#6771', async () => {
    const daemon = await rig.startDaemon();
    const { id } = await rig.submit({
      prompt: script('bash echo up; until [ -e go ]; do sleep 0.1; done', 'say Finished alone'),
    });
    await rig.waitForEvent(
      id,
      (event) => event.type === 'tool.update' && String(event.data['delta']).includes('up'),
      'the tool to run',
    );
    const { nonce } = await opened(id);
    daemon.kill('SIGKILL');
    await daemon.exited;
    writeFileSync(path.join(rig.tree, 'go'), '');
    await appears(path.join(rig.exitRecords(), `${nonce}.json`));
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(id);
    expect([workUnit.status, workUnit.attempts[0]?.result?.text]).toEqual([
      'succeeded',
      'Finished alone',
    ]);
    expect(sequenceIsWhole(events)).toBe(true);
  });

  it('between StartTransientUnit and its commit: one attempt, adopted by its nonce; T59 containerd#6860', async () => {
    const daemon = await rig.startDaemon({ fault: 'start_answered' });
    const { id } = await rig.submit({ prompt: script('bash sleep 1', 'say Finished') });
    expect(await daemon.exited).toBe('SIGKILL');
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts).toHaveLength(1);
    expect(types(events).filter((type) => type === 'attempt.opened')).toHaveLength(1);
    expect(rig.model.requests().filter((request) => request.turn === 'bash sleep 1')).toHaveLength(
      1,
    );
  });
});

/** Data of the first spool line of the work unit's only attempt. */
async function opened(id: string): Promise<{ nonce: string; pid: number }> {
  const { data } = await rig.waitForEvent(
    id,
    (event) => event.type === 'attempt.opened',
    'the first spool line',
  );
  return { nonce: String(data['nonce']), pid: Number(data['pid']) };
}

describe('the deadline with everybody dead', () => {
  it('daemon killed, wrapper stopped by SIGSTOP: systemd alone ends it, and the record says hard_timeout; row 106', async () => {
    const daemon = await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['sh', '-c', 'echo up; exec sleep 600'],
      timeoutPolicy: { hardTimeoutMs: 4_000, cancelGraceMs: 0 },
    });
    await rig.waitForEvent(id, (event) => event.type === 'stdout_delta', 'the command to run');
    const { nonce, pid } = await opened(id);
    daemon.kill('SIGKILL');
    process.kill(pid, 'SIGSTOP');
    await appears(path.join(rig.exitRecords(), `${nonce}.json`));
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'hard_timeout']);
    expect(workUnit.attempts[0]).toMatchObject({
      decidedByRule: 5,
      exit: { serviceResult: 'timeout' },
    });
  });
});

describe('what others do to the unit', () => {
  it('systemctl --user stop is stopped_externally, not a success and not a cancellation of ours; T42 PR#615', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({ prompt: script('bash echo up; sleep 600') });
    await rig.waitForEvent(
      id,
      (event) => event.type === 'tool.update' && String(event.data['delta']).includes('up'),
      'the tool to run',
    );
    const { attempts } = await rig.client.getWorkUnit(id);
    await systemctl('stop', attempts[0]?.unit ?? '');
    const { workUnit, events } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'stopped_externally']);
    expect(events.at(-1)).toMatchObject({ type: 'work_unit.cancelled', actor: 'external' });
    expect(events.some((event) => event.type === 'attempt.told_to_stop')).toBe(true);
  });

  it('daemon-reload and daemon-reexec mid-run keep unit, exit record and outcome', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({
      prompt: script('bash echo up; until [ -e go ]; do sleep 0.1; done', 'say Finished'),
    });
    await rig.waitForEvent(
      id,
      (event) => event.type === 'tool.update' && String(event.data['delta']).includes('up'),
      'the tool to run',
    );
    const before = await rig.client.getWorkUnit(id);
    await systemctl('daemon-reload');
    await systemctl('daemon-reexec');
    await systemctl('daemon-reload');
    writeFileSync(path.join(rig.tree, 'go'), '');
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts).toHaveLength(1);
    expect(workUnit.attempts[0]?.invocationId).toBe(before.attempts[0]?.invocationId);
    expect(workUnit.attempts[0]?.exit).toMatchObject({ serviceResult: 'success', exitStatus: '0' });
    expect(sequenceIsWhole(events)).toBe(true);
    await rig.unitsAreGone();
  });

  it('outlive cancel stops it as cancelled_by_request, with its session closed and its cgroup empty; T28 #5918', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({ prompt: script('bash echo up; sleep 600') });
    await rig.waitForEvent(
      id,
      (event) => event.type === 'tool.update' && String(event.data['delta']).includes('up'),
      'the tool to run',
    );
    const cancelling = await rig.client.cancelWorkUnit(id, { reason: 'enough' });
    expect(cancelling.status).toBe('cancelling');
    const { workUnit, events } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    expect(events.at(-1)).toMatchObject({ type: 'work_unit.cancelled', actor: 'user' });
    const session = path.join(rig.config.directories.sessions, id, 'session.jsonl');
    const last = readFileSync(session, 'utf8').trim().split('\n').at(-1) ?? '';
    expect(JSON.parse(last)).toMatchObject({ message: { stopReason: 'aborted' } });
    await rig.unitsAreGone();
  });

  it('a runner that ignores SIGTERM is killed when its grace is over; row 120', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['sh', '-c', 'trap "" TERM; echo up; while :; do sleep 1; done'],
      timeoutPolicy: { cancelGraceMs: 500 },
    });
    await rig.waitForEvent(id, (event) => event.type === 'stdout_delta', 'its output');
    await rig.client.cancelWorkUnit(id);
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    await rig.unitsAreGone();
  });
});

describe('one daemon per workspace', () => {
  it('a second one refuses and says who owns it; row 001', async () => {
    const first = await rig.startDaemon({ env: { OUTLIVE_PORT: '0' } });
    const { port } = await rig.client.runtime();
    const second = rig.spawnDaemon({ env: { OUTLIVE_PORT: String(port) } });
    expect(await second.exited).toBe(5);
    // It never came as far as the port, which is taken and would have been its complaint.
    expect(second.output()).not.toContain('port_taken');
    expect(second.output()).toContain(`workspace_owned`);
    expect(second.output()).toContain(`pid ${first.pid}`);
    const { pid } = await rig.client.runtime();
    expect(pid).toBe(first.pid);
  });
});
