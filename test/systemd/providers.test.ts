/** Providers that fail, money that runs out: real systemd, real Pi, a scripted model over HTTP. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import { cli } from '../support/cli.ts';
import { Rig, script } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

function configure(config: unknown): void {
  const { configFile } = rig.config.directories;
  mkdirSync(path.dirname(configFile), { recursive: true });
  writeFileSync(configFile, JSON.stringify(config));
}

/** A pause no test waits for. */
const LONG_MS = 3_600_000;
const breaker = (failures: number) => ({
  failures,
  firstPauseMs: LONG_MS,
  maxPauseMs: LONG_MS,
});

const isBackoff = ({ type, data }: EventView): boolean =>
  type === 'work_unit.queued' && data['reason'] === 'provider_backoff';

interface Entry {
  readonly type: string;
  readonly message?: {
    readonly role: string;
    readonly content: unknown;
    readonly stopReason?: string;
  };
}

/** Messages of Pi's session file; every line of it parses. */
function session(workUnitId: string): NonNullable<Entry['message']>[] {
  const { sessions } = rig.config.directories;
  const text = readFileSync(path.join(sessions, workUnitId, 'session.jsonl'), 'utf8');
  expect(text.endsWith('\n'), 'the session file ends in mid-line').toBe(true);
  return text
    .trimEnd()
    .split('\n')
    .map((line): Entry => JSON.parse(line))
    .flatMap(({ message }) => (message ? [message] : []));
}

describe('a provider that fails in passing', () => {
  it('429 with Retry-After: one work unit, two attempts, never seen ended, nothing done twice', async () => {
    configure({ breaker: breaker(3) });
    await rig.startDaemon();
    const began = Date.now();
    const { workUnit, events } = await rig.runToEnd({
      prompt: script('bash echo once >> log', 'status 429 retry-after 2 x1', 'say Done'),
    });
    expect([workUnit.status, workUnit.errorCode, workUnit.attemptCount]).toEqual([
      'succeeded',
      null,
      2,
    ]);
    const [first, second] = workUnit.attempts;
    expect([first?.status, first?.errorCode]).toEqual(['failed', 'rate_limited']);
    expect([second?.status, second?.result?.text]).toEqual(['succeeded', 'Done']);
    expect(first?.providerPresetId, 'row 038').toBe('lab');
    const retryAt = Date.parse(first?.result?.retryAt ?? '');
    expect(retryAt - began).toBeGreaterThan(2_000);
    const backoff = events.find(isBackoff)?.data;
    expect(backoff).toMatchObject({ errorCode: 'rate_limited', failures: 1, maxAttempts: 5 });
    expect(Date.parse(String(backoff?.['nextStartAt']))).toBeGreaterThanOrEqual(retryAt);
    expect(Date.parse(second?.createdAt ?? '')).toBeGreaterThanOrEqual(retryAt);
    expect(events.filter(({ type }) => type === 'work_unit.failed')).toEqual([]);
    expect(readFileSync(path.join(rig.tree, 'log'), 'utf8'), 'done twice').toBe('once\n');
    const said = session(workUnit.id)
      .filter(({ role }) => role === 'user')
      .map(({ content }) => JSON.stringify(content));
    expect(said).toHaveLength(2);
    expect(said[1]).toContain('Go on from exactly where it stands');
    expect((await rig.client.providers()).items).toMatchObject([
      { name: 'lab', state: 'closed', failures: 0 },
    ]);
    await rig.unitsAreGone();
  });

  it('outlive run waits through the backoff, and says so', async () => {
    configure({ breaker: breaker(3) });
    await rig.startDaemon();
    const prompt = script('status 429 retry-after 1 x1', 'say Done');
    const { status, stdout, stderr } = await cli(rig, [
      'run',
      '--model',
      'lab/scripted',
      '--',
      prompt,
    ]);
    expect({ status, stdout }).toEqual({ status: 0, stdout: 'Done\n' });
    expect(stderr).toMatch(/backing off until \S+Z, attempt 1 of 5 failed \(rate_limited: 429/);
  });

  it('gives leases and slots back while it backs off, says so, and is cancelled at once', async () => {
    configure({ breaker: breaker(50), limits: { runner: { pi: 1 } } });
    await rig.startDaemon();
    const { id } = await rig.submit({ prompt: script('status 503') });
    await rig.waitForEvent(id, isBackoff, 'the first backoff');
    expect((await rig.client.leases()).items).toEqual([]);
    const { waiting } = await rig.client.explain(id);
    expect(waiting).toMatchObject({ why: 'delayed' });
    expect(waiting?.reason).toMatch(/^its provider failed it 1× \(provider_unavailable\)/);
    const other = await rig.runToEnd({ prompt: script('say Meanwhile') });
    expect(other.workUnit.status).toBe('succeeded');
    const cancelled = await rig.client.cancelWorkUnit(id);
    expect([cancelled.status, cancelled.attemptCount]).toEqual(['cancelled', 1]);
  });

  it('fails with the code of its provider once the budget is over, and says how often', async () => {
    configure({ breaker: breaker(50), providerRetry: { maxAttempts: 2, maxDelayMs: LONG_MS } });
    await rig.startDaemon();
    const { id } = await rig.submit({ prompt: script('status 503 retry-after 1') });
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode, workUnit.attemptCount]).toEqual([
      'failed',
      'provider_unavailable',
      2,
    ]);
    expect(workUnit.errorMessage).toMatch(/^503.*\(the provider failed it 2 times in a row\)$/);
  });

  it('is put back into the queue exactly once, also when the daemon dies before or after the commit', async () => {
    configure({ breaker: breaker(50) });
    const daemon = await rig.startDaemon({ fault: 'evidence_read' });
    const { id } = await rig.submit({
      prompt: script('bash echo once >> log', 'status 429 retry-after 3 x1', 'say Done'),
    });
    await daemon.exited;
    const again = await rig.startDaemon({ fault: 'concluded' });
    await again.exited;
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(id);
    expect([workUnit.status, workUnit.attemptCount]).toEqual(['succeeded', 2]);
    expect(events.filter(isBackoff)).toHaveLength(1);
    expect(readFileSync(path.join(rig.tree, 'log'), 'utf8')).toBe('once\n');
  });
});

describe('the breaker', () => {
  const once = { providerRetry: { maxAttempts: 1 } };

  it('opens after three failures: the fourth run is not started, also after a restart, until resumed', async () => {
    configure({ breaker: breaker(3) });
    const daemon = await rig.startDaemon();
    for (const _ of [1, 2, 3]) {
      const { workUnit } = await rig.runToEnd({ ...once, prompt: script('status 503') });
      expect(workUnit.errorCode).toBe('provider_unavailable');
    }
    const fourth = await rig.submit({ prompt: script('say Works again') });
    const command = await rig.runToEnd({ argv: ['true'] });
    expect(command.workUnit.status, 'commands ask no provider').toBe('succeeded');
    const { waiting } = await rig.client.explain(fourth.id);
    expect(waiting).toMatchObject({ why: 'blocked', resource: 'provider lab' });
    expect(waiting?.reason).toMatch(/^provider lab is paused until .* after provider_unavailable/);
    daemon.kill('SIGKILL');
    await daemon.exited;
    await rig.startDaemon();
    const [provider] = (await rig.client.providers()).items;
    expect(provider).toMatchObject({ name: 'lab', state: 'open', failures: 3, waiting: 1 });
    expect((await rig.client.getWorkUnit(fourth.id)).attemptCount).toBe(0);
    await rig.client.resumeProvider('lab');
    expect((await rig.outcome(fourth.id)).workUnit.status).toBe('succeeded');
  });

  it('lets exactly one run try when its pause is over, and the others once that one has its answer', async () => {
    configure({ breaker: { failures: 1, firstPauseMs: 3_000, maxPauseMs: 3_000 } });
    await rig.startDaemon();
    await rig.runToEnd({ ...once, prompt: script('status 503') });
    const probe = await rig.submit({
      exclusive: false,
      priority: 1,
      prompt: script('slow 1500 2 Hello there'),
    });
    const rest = await Promise.all(
      [1, 2].map(() => rig.submit({ exclusive: false, prompt: script('say Second') })),
    );
    await rig.waitForEvent(probe.id, ({ type }) => type === 'started', 'the probe to start');
    const [provider] = (await rig.client.providers()).items;
    expect(provider).toMatchObject({ state: 'half_open', waiting: 2, used: 1 });
    const ends = await Promise.all([probe, ...rest].map(({ id }) => rig.outcome(id)));
    expect(ends.map(({ workUnit }) => workUnit.status)).toEqual(Array(3).fill('succeeded'));
    const answered = ends[0]?.events.find(
      ({ type, data }) => type === 'agent.message' && data['end'] === true,
    );
    for (const { workUnit } of ends.slice(1)) {
      expect(Date.parse(workUnit.startedAt ?? '')).toBeGreaterThan(Date.parse(answered?.ts ?? ''));
    }
  });

  it('pauses a provider whose key is refused twice', async () => {
    await rig.end();
    rig = await Rig.create({ apiKey: 'wrong' });
    await rig.startDaemon();
    for (const _ of [1, 2]) {
      const { workUnit } = await rig.runToEnd({ prompt: script('say Never') });
      expect([workUnit.errorCode, workUnit.attemptCount]).toEqual(['provider_auth', 1]);
    }
    const [provider] = (await rig.client.providers()).items;
    expect(provider).toMatchObject({ state: 'open', errorCode: 'provider_auth' });
  });
});

describe('spend ceilings', () => {
  it('stops a run in the middle at its ceiling as budget_exceeded, with its session whole', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      spendCeiling: { maxTokens: 50 },
      prompt: script('bash echo one', 'bash echo two', 'bash sleep 60', 'say Never'),
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'budget_exceeded']);
    expect(workUnit.errorMessage).toMatch(
      /^\d+ of 50 tokens are spent$|^It spent .* all that was left/,
    );
    expect(workUnit.spend).toMatchObject({ maxTokens: 50, remainingTokens: 0, unpricedTokens: 0 });
    expect(workUnit.spend.costUsd).toBeGreaterThan(0);
    const messages = session(workUnit.id);
    const calls = messages.flatMap(({ role, content }) =>
      role === 'assistant' ? (content as { type: string; id?: string }[]) : [],
    );
    const results = messages.filter(({ role }) => role === 'toolResult');
    expect(results).toHaveLength(calls.filter(({ type }) => type === 'toolCall').length);
    await expect(rig.client.retryWorkUnit(workUnit.id)).rejects.toMatchObject({
      code: 'state_conflict',
    });
    await rig.unitsAreGone();
  });

  it('is held by the wrapper too, while no daemon runs', async () => {
    const daemon = await rig.startDaemon();
    const gate = path.join(rig.tree, 'gate');
    const { id } = await rig.submit({
      spendCeiling: { maxTokens: 150 },
      prompt: script(
        `bash until [ -e ${gate} ]; do sleep 0.05; done`,
        'bash echo two',
        'bash echo three; sleep 60',
        'say Never',
      ),
    });
    await rig.waitForEvent(id, ({ type }) => type === 'tool.start', 'the first tool');
    daemon.kill('SIGKILL');
    await daemon.exited;
    writeFileSync(gate, '');
    await rig.unitsAreDead();
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'budget_exceeded']);
    expect(workUnit.errorMessage).toMatch(/^It spent .* all that was left of its ceiling$/);
    expect(workUnit.attempts[0]?.decidedByRule).toBe(11);
  });

  it("counts attempts together, and holds work back once the day's ceiling is spent", async () => {
    configure({ spend: { day: { maxTokens: 20 } } });
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      prompt: script('say A first answer of a model', 'say no'),
    });
    expect([workUnit.status, workUnit.errorCode], 'a last answer is let end').toEqual([
      'succeeded',
      null,
    ]);
    const day = await rig.client.spend();
    expect(day).toMatchObject({ tokens: workUnit.spend.tokens, maxTokens: 20, remainingTokens: 0 });
    const next = await rig.submit({ prompt: script('say Later') });
    const command = await rig.runToEnd({ argv: ['true'] });
    expect(command.workUnit.status).toBe('succeeded');
    const { waiting } = await rig.client.explain(next.id);
    expect(waiting).toMatchObject({ why: 'blocked', resource: 'spend day' });
    expect(waiting?.reason).toMatch(/of 20 tokens are spent$/);
  });
});

describe('a stream that stalls', () => {
  it('row 253: heartbeats go on, and the idle timeout ends it with its own code', async () => {
    await rig.startDaemon();
    const { workUnit, events } = await rig.runToEnd({
      prompt: script('say Half of ;; slow 600000 1 an answer'),
      timeoutPolicy: {
        heartbeatIntervalMs: 300,
        heartbeatTimeoutMs: 20_000,
        idleTimeoutMs: 8_000,
        cancelGraceMs: 2_000,
      },
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'idle_timeout']);
    const at = (type: EventView['type']): number =>
      Date.parse(events.find((event) => event.type === type)?.ts ?? '');
    const silence = at('work_unit.cancelling') - at('agent.message');
    expect(silence, 'it said the first half and then nothing').toBeGreaterThan(7_000);
    const heard = Date.parse(workUnit.lastHeartbeatAt ?? '');
    expect(heard, 'it was heard all along').toBeGreaterThan(at('work_unit.cancelling') - 1_000);
    await rig.unitsAreGone();
  });
});
