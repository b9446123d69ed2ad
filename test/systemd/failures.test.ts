/** Ways a run can fail, each with its own code, on real systemd with the real Pi. */
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FAULT_POINTS } from '../../src/supervisor/faults.ts';
import { Rig, script, sequenceIsWhole, systemctl } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

describe('a command', () => {
  it('that exits 3 has failed as exit_code with the status and all of its output', async () => {
    await rig.startDaemon();
    const { workUnit, events } = await rig.runToEnd({
      argv: ['sh', '-c', 'echo out; echo err >&2; exit 3'],
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'exit_code']);
    expect(workUnit.attempts[0]?.result?.exitCode).toBe(3);
    const runner = events.filter((event) => event.actor === 'runner').map((event) => event.type);
    const own = runner.filter((type) => !type.includes('.'));
    expect(own.sort()).toEqual(['failed', 'started', 'stderr_delta', 'stdout_delta']);
  });

  it('that does not exist is spawn_error', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({ argv: ['no-such-program-anywhere'] });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'spawn_error']);
  });

  it('that prints 1,000 lines right before its exit loses none; T01 systemd#2913', async () => {
    await rig.startDaemon();
    const { workUnit, events } = await rig.runToEnd({ argv: ['seq', '1', '1000'] });
    expect(workUnit.status).toBe('succeeded');
    const text = events
      .filter((event) => event.type === 'stdout_delta')
      .map((event) => event.data['text'] ?? event.data['delta']);
    expect(text.join('')).toBe(
      Array.from({ length: 1000 }, (_, index) => `${index + 1}\n`).join(''),
    );
  });

  it('that leaves a SIGTERM-ignoring setsid child behind succeeds, the child is gone and named', async () => {
    await rig.startDaemon();
    const child = `trap "" TERM; echo $$ > ${rig.tree}/pid; while :; do sleep 1; done`;
    const { workUnit } = await rig.runToEnd({
      argv: [
        'sh',
        '-c',
        `setsid sh -c '${child}' </dev/null >/dev/null 2>&1 & until [ -s ${rig.tree}/pid ]; do sleep 0.05; done`,
      ],
    });
    expect(workUnit.errorMessage).toBeNull();
    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts[0]?.result?.leftovers.length).toBeGreaterThan(0);
    const pid = Number(readFileSync(`${rig.tree}/pid`, 'utf8'));
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });

  it('20 at once all succeed, each in a unit of its own', async () => {
    await rig.startDaemon();
    const submitted = await Promise.all(
      Array.from({ length: 20 }, (_, index) => rig.submit({ argv: ['echo', `n${index}`] })),
    );
    const outcomes = await Promise.all(submitted.map(({ id }) => rig.outcome(id)));
    expect(outcomes.map(({ workUnit }) => workUnit.status)).toEqual(
      Array.from({ length: 20 }, () => 'succeeded'),
    );
    expect(new Set(outcomes.map(({ workUnit }) => workUnit.attempts[0]?.unit)).size).toBe(20);
    expect(outcomes.every(({ events }) => sequenceIsWhole(events))).toBe(true);
    await rig.unitsAreGone();
  });

  it('SIGKILLed from outside is killed, not succeeded', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({ argv: ['sh', '-c', 'echo up; exec sleep 600'] });
    await rig.waitForEvent(id, (event) => event.type === 'stdout_delta', 'its output');
    const { attempts } = await rig.client.getWorkUnit(id);
    await systemctl('kill', '--signal=SIGKILL', attempts[0]?.unit ?? '');
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'killed']);
  });
});

describe('the model provider', () => {
  it('answers 500: provider_unavailable', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      prompt: script('status 500'),
      providerRetry: { maxAttempts: 1 },
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'provider_unavailable']);
  });

  it('cuts the stream: provider_unavailable', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      prompt: script('cut'),
      providerRetry: { maxAttempts: 1 },
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'provider_unavailable']);
  });

  it('hangs: the hard timeout ends it as hard_timeout, told by the wrapper itself', async () => {
    await rig.startDaemon();
    const { workUnit, events } = await rig.runToEnd({
      prompt: script('hang'),
      timeoutPolicy: { hardTimeoutMs: 5_000, cancelGraceMs: 1_000 },
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'hard_timeout']);
    expect(events.some((event) => event.type === 'attempt.deadline')).toBe(true);
  });

  it("is not configured at all: provider_auth or model_error with Pi's own message", async () => {
    await rig.startDaemon({ env: { PI_CODING_AGENT_DIR: `${rig.base}/empty-agent` } });
    const { workUnit } = await rig.runToEnd({
      runnerId: 'pi',
      prompt: 'hello',
      model: undefined,
    } as never);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'provider_auth']);
    expect(workUnit.errorMessage).toMatch(/API key|model/i);
  });
});

describe('the daemon is killed with SIGKILL at every named point, T59 containerd#6860', () => {
  // Those of retention are in retention.test.ts, that of a shutdown is in shutdown.test.ts; the
  // claim is revoked of starts that ran nothing only, and test/chaos makes those.
  const ELSEWHERE: readonly string[] = [
    'approval_decided',
    'cancel_intended',
    'suspended',
    'claim_decided',
  ];
  const points = FAULT_POINTS.filter(
    (point) => !ELSEWHERE.includes(point) && !point.startsWith('gc_'),
  );
  it.each(points)('%s: started again, the work ends once, with nothing lost', async (fault) => {
    const armed = await rig.startDaemon({ fault });
    const submitted = await rig.submit({
      argv: ['sh', '-c', `echo ran >> ${rig.tree}/log; echo told`],
    });
    expect(await armed.exited).toBe('SIGKILL');
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(submitted.id);
    expect(workUnit.errorMessage).toBeNull();
    expect(workUnit.status).toBe('succeeded');
    expect(readFileSync(`${rig.tree}/log`, 'utf8')).toBe('ran\n');
    expect(sequenceIsWhole(events)).toBe(true);
    expect(events.filter((event) => event.type === 'stdout_delta')).toHaveLength(1);
    expect(events.filter((event) => event.type === 'work_unit.succeeded')).toHaveLength(1);
    await rig.unitsAreGone();
  });

  it('cancel_intended: the next daemon carries the cancellation out', async () => {
    const armed = await rig.startDaemon({ fault: 'cancel_intended' });
    const { id } = await rig.submit({ argv: ['sh', '-c', 'echo up; exec sleep 600'] });
    await rig.waitForEvent(id, (event) => event.type === 'stdout_delta', 'its output');
    await expect(rig.client.cancelWorkUnit(id)).rejects.toMatchObject({
      code: 'daemon_unreachable',
    });
    await armed.exited;
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
  });
});
