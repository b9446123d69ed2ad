/** Providers, money and memory in the store: what an end, a line of a spool and a claim make of them. */
import { afterEach, describe, expect, it } from 'vitest';
import type { FailureCode } from '../../src/domain/outcome-codes.ts';
import type { LastWord } from '../../src/domain/spool.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { continuationOf } from '../../src/supervisor/continuation.ts';
import { explain } from '../../src/supervisor/explain.ts';
import { createGates } from '../../src/supervisor/gates.ts';
import type { Policies } from '../../src/supervisor/policies.ts';
import { resumeProvider } from '../../src/supervisor/provider-gate.ts';
import { countSpend } from '../../src/supervisor/spend-count.ts';
import { end, evidence, lastWord, OPENED } from '../property/evidence.ts';
import { type Limits, QueueRig, STARVING_MS, type Wanted } from '../support/core-queue.ts';
import { cleanUp, open } from './rig.ts';

afterEach(cleanUp);

const MINUTE = 60_000;
const PI: Wanted = { runnerId: 'pi', prompt: 'do it', model: 'p/m', exclusive: false };
const BREAKER = { failures: 3, firstPauseMs: 60 * MINUTE, maxPauseMs: 60 * MINUTE };

const fresh = (policies: Partial<Policies> = {}, limits: Limits = {}): QueueRig =>
  new QueueRig(open(), limits, {}, { breaker: BREAKER, ...policies });

/** Claims and runs all that can start. */
function start(rig: QueueRig): string[] {
  const ids = rig.claimAll();
  for (const id of ids) rig.run(id);
  return ids;
}

/** Ends the active attempt by this last word, as a watch would. */
function finish(rig: QueueRig, id: string, word: Partial<LastWord>): void {
  rig.entropy.advance(1);
  const { id: attemptId } = rig.active(id);
  const said = lastWord(word);
  rig.store.write(() => rig.store.attempts.patch(attemptId, { lastWord: said, opened: OPENED }));
  const status = word.verdict === 'error' ? 1 : 0;
  const gathered = evidence({ lastWord: said, end: end(`x exited ${status}`) });
  conclude(rig.context, attemptId, {
    evidence: gathered,
    record: null,
    unusable: null,
    disagreement: null,
    loss: null,
    artifacts: [],
  });
}

const failing = (code: FailureCode, retryAt: string | null = null): Partial<LastWord> => ({
  verdict: 'error',
  code,
  message: 'it said no',
  retryAt,
});
const row = (rig: QueueRig, id: string) => rig.store.workUnits.get(id);
const notBefore = (rig: QueueRig, id: string) => rig.store.queue.waitingFor(id)?.notBefore ?? '';
const inMs = (rig: QueueRig, ms: number): string => new Date(rig.entropy.now() + ms).toISOString();
const reason = (rig: QueueRig, id: string): string | undefined => {
  const workUnit = row(rig, id);
  return workUnit ? explain(rig.context, workUnit).waiting?.reason : undefined;
};

describe('work that its provider failed', () => {
  it('is queued again in the transaction of the failure, holds nothing, and waits for the reset', () => {
    const rig = fresh();
    const id = rig.submit(PI);
    start(rig);
    const retryAt = inMs(rig, 90_000);
    finish(rig, id, failing('rate_limited', retryAt));
    expect(row(rig, id)).toMatchObject({ status: 'queued', activeAttemptId: null, endedAt: null });
    expect(rig.store.resources.leasesHeld()).toEqual([]);
    expect(rig.store.resources.slotsHeld()).toEqual([]);
    expect(notBefore(rig, id) >= retryAt, 'before the reset').toBe(true);
    const types = rig.store.events.page(id, 0, 100).map(({ type }) => type);
    expect(types).not.toContain('work_unit.failed');
    expect(types.slice(-2)).toEqual(['diagnostic.provider_paused', 'work_unit.queued']);
    rig.entropy.advance(89_000);
    expect(start(rig)).toEqual([]);
    rig.entropy.advance(12_000);
    expect(start(rig)).toEqual([id]);
    expect(row(rig, id)?.attemptCount).toBe(2);
  });

  it('goes on with its conversation: the prompt is not said twice', () => {
    const rig = fresh();
    const id = rig.submit(PI);
    start(rig);
    const say = (attemptNumber: number): string | null => {
      const workUnit = row(rig, id);
      return workUnit && continuationOf(rig.context, workUnit, { id: 'none', attemptNumber });
    };
    expect(say(1), 'the first attempt').toBeNull();
    finish(rig, id, failing('provider_unavailable'));
    expect(say(2)).toContain('Go on from exactly where it stands');
    rig.entropy.advance(MINUTE);
    start(rig);
    finish(rig, id, failing('model_error'));
    expect(say(3), 'after another end').toBeNull();
  });

  it.each<[FailureCode]>([['provider_auth'], ['context_overflow'], ['model_error'], ['oom']])(
    'is over when that is %s: nothing will pass by itself',
    (code) => {
      const rig = fresh();
      const id = rig.submit(PI);
      start(rig);
      finish(rig, id, failing(code));
      expect(row(rig, id)).toMatchObject({ status: 'failed', errorCode: code });
    },
  );

  it('has a budget of its own: its request first, else config.json', () => {
    const rig = fresh({ providerRetry: { maxAttempts: 2, maxDelayMs: 60 * MINUTE } });
    const [once, twice] = [
      rig.submit({ ...PI, providerRetry: { maxAttempts: 1 } }),
      rig.submit(PI),
    ];
    start(rig);
    finish(rig, once, failing('provider_unavailable'));
    finish(rig, twice, failing('provider_unavailable'));
    expect(row(rig, once)).toMatchObject({ status: 'failed', errorCode: 'provider_unavailable' });
    expect(row(rig, once)?.errorMessage).toBe('it said no (the provider failed it once)');
    expect(row(rig, twice)?.status).toBe('queued');
    rig.entropy.advance(MINUTE);
    start(rig);
    finish(rig, twice, failing('provider_unavailable'));
    expect(row(rig, twice)).toMatchObject({ status: 'failed', errorCode: 'provider_unavailable' });
    expect(row(rig, twice)?.errorMessage).toContain('2 times in a row');
  });

  it('gives up at once when the reset is beyond its budget, and keeps its provider paused', () => {
    const rig = fresh();
    const id = rig.submit(PI);
    start(rig);
    finish(rig, id, failing('rate_limited', inMs(rig, 7 * 60 * MINUTE)));
    expect(row(rig, id)?.errorMessage).toMatch(/later than it may be tried again/);
    expect(rig.store.providers.health('p').state).toBe('open');
  });

  it('is cancelled at once while it backs off', () => {
    const rig = fresh();
    const id = rig.submit(PI);
    start(rig);
    finish(rig, id, failing('provider_unavailable'));
    expect(reason(rig, id)).toMatch(/^its provider failed it 1× \(provider_unavailable\)/);
    rig.cancel(id);
    expect(row(rig, id)?.status).toBe('cancelled');
    rig.entropy.advance(60 * MINUTE);
    expect(start(rig)).toEqual([]);
  });

  it('is not put back when somebody cancelled it meanwhile', () => {
    const rig = fresh();
    const id = rig.submit(PI);
    start(rig);
    rig.cancel(id);
    finish(rig, id, failing('rate_limited'));
    expect(row(rig, id)).toMatchObject({ status: 'cancelled', errorCode: 'cancelled_by_request' });
  });
});

describe('the breaker of a provider', () => {
  /** Three runs fail, each for good. */
  function broken(): QueueRig {
    const rig = fresh({ providerRetry: { maxAttempts: 1, maxDelayMs: 0 } });
    for (const _ of [1, 2, 3]) {
      const id = rig.submit(PI);
      start(rig);
      finish(rig, id, failing('provider_unavailable'));
    }
    return rig;
  }

  it('stands in the way of its own runs only, and says so', () => {
    const rig = broken();
    const held = rig.submit(PI);
    const others = [rig.submit({ ...PI, model: 'q/m' }), rig.submit()];
    expect(start(rig)).toEqual(others);
    expect(reason(rig, held)).toMatch(/^provider p is paused until .* after provider_unavailable/);
    expect(rig.store.diagnostics.blocked(10)).toMatchObject([
      { resource: 'provider p', waiting: 1 },
    ]);
    expect(() => rig.submit({ ...PI, queueOnConflict: false })).toThrow(/provider p is paused/);
  });

  it('opens for one probe when the pause is over; its first answer lets the others start', () => {
    const rig = broken();
    const gates = createGates(rig.context);
    const ids = [rig.submit(PI), rig.submit(PI), rig.submit(PI)];
    expect(start(rig)).toEqual([]);
    const due = gates.tend() ?? 0;
    expect(due).toBeGreaterThan(59 * MINUTE);
    rig.entropy.advance(due + 1);
    gates.tend();
    const [probe = ''] = start(rig);
    expect(ids).toContain(probe);
    expect(start(rig), 'a second probe').toEqual([]);
    say(rig, probe, [message(10, 0.1)]);
    expect(rig.store.providers.health('p').state).toBe('closed');
    expect(start(rig)).toHaveLength(2);
  });

  it('opens again, for longer, when the probe fails; a probe without a word frees its place', () => {
    const rig = broken();
    const gates = createGates(rig.context);
    const cancelled = rig.submit({ ...PI, priority: 1 });
    const next = rig.submit(PI);
    start(rig);
    rig.entropy.advance((gates.tend() ?? 0) + 1);
    gates.tend();
    expect(start(rig)).toEqual([cancelled]);
    rig.cancel(cancelled);
    finish(rig, cancelled, { verdict: 'stopped' });
    expect(start(rig)).toEqual([next]);
    finish(rig, next, failing('rate_limited'));
    expect(rig.store.providers.health('p')).toMatchObject({ state: 'open', openings: 2 });
  });

  it('is closed by a person, who also hastens what backs off; nobody else is known', () => {
    const rig = fresh({ breaker: { ...BREAKER, failures: 1 } });
    const [failed, waiting] = [rig.submit(PI), rig.submit(PI)];
    rig.claimOnce();
    rig.run(failed);
    finish(rig, failed, failing('rate_limited'));
    expect(start(rig)).toEqual([]);
    resumeProvider(rig.context, 'p');
    expect(start(rig).sort()).toEqual([failed, waiting].sort());
    expect(() => resumeProvider(rig.context, 'nobody')).toThrow(/no provider "nobody"/);
  });

  it('keeps nothing free for its runs meanwhile, however long they wait', () => {
    const rig = broken();
    const leases = [{ type: 'task' as const, key: 't' }];
    rig.submit({ ...PI, leases });
    expect(start(rig)).toEqual([]);
    rig.entropy.advance(STARVING_MS + 1);
    const other = rig.submit({ leases });
    expect(start(rig)).toEqual([other]);
  });

  it('outlives the daemon: it is read from the store', () => {
    const rig = broken();
    const again = new QueueRig(rig.store, {}, {}, { breaker: BREAKER });
    const id = again.submit({ ...PI, handle: 'other', idempotencyKey: 'other' });
    expect(again.claimAll()).toEqual([]);
    expect(reason(again, id)).toMatch(/^provider p is paused/);
  });
});

describe('presets; row 353', () => {
  const presets = {
    fast: { provider: 'p', model: 'small', maxParallel: 1 },
    slow: { provider: 'p', model: 'large', maxParallel: null },
  };

  it('have slots of their own, whatever their provider', () => {
    const rig = fresh({ presets }, { provider: { fast: 1 } });
    const by = (providerPresetId: string): string => {
      const { model: _model, ...rest } = PI;
      return rig.submit({ ...rest, providerPresetId });
    };
    const [first, second, other] = [by('fast'), by('fast'), by('slow')];
    expect(start(rig)).toEqual([first, other]);
    expect(reason(rig, second)).toBe('all 1 slots of provider fast are taken');
    expect(row(rig, first)).toMatchObject({ providerPresetId: 'fast', model: 'p/small' });
    expect(rig.active(first).providerPresetId, 'row 038').toBe('fast');
  });

  it('have health of their own: a paused one leaves the other of the same provider alone', () => {
    const rig = fresh({ presets, breaker: { ...BREAKER, failures: 1 } });
    const fast = rig.submit({ ...PI, providerPresetId: 'fast' });
    start(rig);
    finish(rig, fast, failing('rate_limited'));
    const [held, free] = [
      rig.submit({ ...PI, providerPresetId: 'fast' }),
      rig.submit({ ...PI, providerPresetId: 'slow' }),
    ];
    expect(start(rig)).toEqual([free]);
    expect(reason(rig, held)).toMatch(/^provider fast is paused/);
  });
});

const message = (totalTokens: number, costUsd: number, stopReason = 'toolUse') => ({
  type: 'agent.message' as const,
  data: { end: true, stopReason, usage: { totalTokens }, costUsd },
});
type Said = { type: 'agent.message' | 'runner.finished'; data: Record<string, unknown> };

let said = 0;
/** Lines of the active attempt's spool, counted as ingest does. */
function say(rig: QueueRig, id: string, lines: readonly Said[], isLive = true): void {
  const attempt = rig.active(id);
  const ts = new Date(rig.entropy.now()).toISOString();
  const parsed = lines.map((line) => ({
    kind: 'line' as const,
    line: { v: 1 as const, n: ++said, ts, ...line },
  }));
  rig.context.writer.commit((transaction) =>
    countSpend(rig.context, transaction, attempt, parsed, isLive),
  );
}

describe('spend ceilings', () => {
  const day = '2026-01-02';

  it('count each message of all attempts, by work unit, channel and day, in micro-dollars', () => {
    const rig = fresh();
    rig.store.write(() =>
      rig.store.channels.put(
        'lane',
        { status: 'active', maxConcurrentRuns: 5, onNewerSubject: 'queue' },
        day,
      ),
    );
    const id = rig.submit({ ...PI, channelId: 'lane' });
    const other = rig.submit(PI);
    start(rig);
    say(rig, id, [message(100, 0.1), message(50, 0.2)]);
    say(rig, other, [message(7, 0)]);
    finish(rig, id, failing('rate_limited'));
    rig.entropy.advance(60 * MINUTE);
    start(rig);
    say(rig, id, [message(10, 0.000_001)]);
    const { spend } = rig.store;
    expect(spend.ofWorkUnit(id)).toEqual({ microUsd: 300_001, tokens: 160, unpricedTokens: 0 });
    expect(spend.ofChannel('lane', day)).toEqual(spend.ofWorkUnit(id));
    expect(spend.ofDay(day)).toEqual({ microUsd: 300_001, tokens: 167, unpricedTokens: 7 });
    expect(spend.ofAttempt(rig.active(id).id).tokens, 'of the second attempt').toBe(10);
  });

  it('the last word adds what no message told', () => {
    const rig = fresh();
    const id = rig.submit(PI);
    start(rig);
    const word = { usage: { totalTokens: 130 }, costUsd: 0.25 };
    say(rig, id, [message(100, 0.2), { type: 'runner.finished', data: word }]);
    say(rig, id, [{ type: 'runner.finished', data: word }]);
    expect(rig.store.spend.ofWorkUnit(id)).toMatchObject({ microUsd: 250_000, tokens: 130 });
  });

  it('stop a run that goes on, by a stored decision with the reason', () => {
    const rig = fresh();
    const id = rig.submit({ ...PI, spendCeiling: { maxCostUsd: 2.5 } });
    start(rig);
    say(rig, id, [message(100, 2.4)]);
    expect(row(rig, id)?.status).toBe('running');
    say(rig, id, [message(100, 0.1)]);
    expect(row(rig, id)?.status).toBe('cancelling');
    expect(rig.active(id).intent).toMatchObject({
      kind: 'fail',
      code: 'budget_exceeded',
      reason: '$2.50 of $2.50 are spent',
    });
  });

  it.each<[string, readonly Said[], boolean]>([
    ['with its last answer', [message(100, 9, 'stop')], true],
    ['with its last word', [message(100, 9), { type: 'runner.finished', data: {} }], true],
    ['before its spool was read to the end', [message(100, 9)], false],
  ])('leave a run alone that has come to its end %s', (_how, lines, isLive) => {
    const rig = fresh();
    const id = rig.submit({ ...PI, spendCeiling: { maxCostUsd: 1 } });
    start(rig);
    say(rig, id, lines, isLive);
    expect(row(rig, id)?.status).toBe('running');
  });

  it('of a day hold runs back until the next one begins there; commands run on', () => {
    const spend = { timeZone: 'Asia/Tokyo', day: { maxTokens: 100 }, kinds: {} };
    const rig = fresh({ spend });
    const gates = createGates(rig.context);
    const id = rig.submit(PI);
    start(rig);
    say(rig, id, [message(100, 0, 'stop')]);
    rig.end(id);
    const [held, command] = [rig.submit(PI), rig.submit()];
    expect(start(rig)).toEqual([command]);
    expect(reason(rig, held)).toBe(
      'the workspace, today (Asia/Tokyo): 100 of 100 tokens are spent',
    );
    const due = gates.tend() ?? 0;
    // It is past noon there: 12:04 and some seconds.
    expect(Math.round(due / MINUTE)).toBe(12 * 60 - 4);
    rig.entropy.advance(due - 1_000);
    gates.tend();
    expect(start(rig)).toEqual([]);
    rig.entropy.advance(1_000);
    gates.tend();
    expect(start(rig)).toEqual([held]);
  });

  it('of a channel hold back its own runs only, and are raised by its policy', () => {
    const rig = fresh();
    const policy = { status: 'active', maxConcurrentRuns: 5, onNewerSubject: 'queue' } as const;
    rig.store.write(() => {
      rig.store.channels.put('lane', policy, day);
      rig.store.spend.setChannelCeiling('lane', { microUsd: 1_000_000, tokens: null });
    });
    const id = rig.submit({ ...PI, channelId: 'lane' });
    start(rig);
    say(rig, id, [message(5, 1, 'stop')]);
    rig.end(id);
    const [held, free] = [rig.submit({ ...PI, channelId: 'lane' }), rig.submit(PI)];
    expect(start(rig)).toEqual([free]);
    expect(reason(rig, held)).toBe('channel lane, today: $1.00 of $1.00 are spent');
    rig.store.write(() => {
      rig.store.spend.setChannelCeiling('lane', { microUsd: 2_000_000, tokens: null });
      rig.store.queue.wakeAll();
    });
    expect(start(rig)).toEqual([held]);
  });

  it('end the tries of work whose provider failed it: it could not go on', () => {
    const rig = fresh();
    const id = rig.submit({ ...PI, spendCeiling: { maxTokens: 10 } });
    start(rig);
    say(rig, id, [message(10, 0, 'stop')]);
    finish(rig, id, failing('rate_limited'));
    expect(row(rig, id)).toMatchObject({ status: 'failed', errorCode: 'rate_limited' });
    expect(row(rig, id)?.errorMessage).toContain('10 of 10 tokens are spent');
  });
});

describe('free memory', () => {
  it('holds everything back while there is less than the setting, and is asked for again', () => {
    let free: number | null = 99 * 1_048_576;
    const rig = fresh({ minFreeMemory: 100 * 1_048_576, freeMemory: () => free });
    const gates = createGates(rig.context);
    expect(gates.tend(), 'nothing waits, so nothing is asked').toBeNull();
    const id = rig.submit();
    expect(rig.claimAll()).toEqual([]);
    expect(reason(rig, id)).toBe('99 MiB of memory are free, admission.minFreeMemory is 100 MiB');
    expect(() => rig.submit({ queueOnConflict: false })).toThrow(/99 MiB of memory are free/);
    expect(gates.tend()).toBe(2_000);
    free = 100 * 1_048_576;
    expect(gates.tend()).toBeNull();
    expect(rig.claimAll()).toEqual([id]);
  });

  it('that cannot be told holds nothing back', () => {
    const rig = fresh({ minFreeMemory: 1, freeMemory: () => null });
    const id = rig.submit();
    expect(rig.claimAll()).toEqual([id]);
  });
});
