import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  afterAnswer,
  afterEnd,
  afterPause,
  afterStart,
  type BreakerPolicy,
  closedGate,
  DEFAULT_BREAKER,
  HEALTHY,
  type Health,
  type Word,
  wordOf,
} from '../../src/domain/provider-health.ts';
import { nextTry, type ProviderRetry } from '../../src/domain/provider-retry.ts';

const T0 = 1_800_000_000_000;
const MINUTE = 60_000;
const WEEK = 7 * 24 * 60 * MINUTE;

const failed = (
  code: 'rate_limited' | 'provider_unavailable' | 'provider_auth',
  resetAt: number | null = null,
): Word => ({
  kind: 'failed',
  code,
  message: 'm',
  resetAt,
});

type Step =
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'start' }
  | { readonly do: 'answer'; readonly which: number }
  | {
      readonly do: 'end';
      readonly which: number;
      readonly word: Word;
      readonly resetIn: number | null;
    };

const word: fc.Arbitrary<Word> = fc.oneof(
  fc.constant<Word>({ kind: 'answered' }),
  fc.constant<Word>({ kind: 'silent' }),
  fc
    .constantFrom(
      'rate_limited' as const,
      'provider_unavailable' as const,
      'provider_auth' as const,
    )
    .map((code) => failed(code)),
);
const which = fc.nat({ max: 100 });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constant('wait' as const), ms: fc.nat({ max: 20 * MINUTE }) }),
  fc.record({ do: fc.constant('start' as const) }),
  fc.record({ do: fc.constant('answer' as const), which }),
  fc.record({
    do: fc.constant('end' as const),
    which,
    word,
    resetIn: fc.option(fc.integer({ min: -MINUTE, max: 60 * MINUTE }), { nil: null }),
  }),
);

/** A provider and the attempts that ask it, started only while its gate is open. */
class World {
  health: Health = HEALTHY;
  now = T0;
  running: string[] = [];
  started = 0;
  readonly policy: BreakerPolicy;
  constructor(policy: BreakerPolicy = DEFAULT_BREAKER) {
    this.policy = policy;
  }

  take(next: Step, random: number): void {
    if (next.do === 'wait') this.now += next.ms;
    if (next.do === 'start' && closedGate(this.health, this.now) === null) {
      const id = `a${++this.started}`;
      this.health = afterStart(this.health, id, this.now);
      this.running.push(id);
    }
    if (next.do === 'answer') {
      const id = this.running[next.which % this.running.length];
      if (id !== undefined) this.health = afterAnswer(this.health, id);
    }
    if (next.do === 'end') this.end(next, random);
  }

  end({ which: at, word: said, resetIn }: Extract<Step, { do: 'end' }>, random: number): void {
    const id = this.running[at % this.running.length];
    if (id === undefined) return;
    this.running = this.running.filter((other) => other !== id);
    const resetAt = resetIn === null ? null : this.now + resetIn;
    const whole = said.kind === 'failed' ? { ...said, resetAt } : said;
    this.health = afterEnd(this.health, id, whole, { now: this.now, random }, this.policy);
  }
}

const life = fc.array(fc.tuple(step, fc.double({ min: 0, max: 0.999, noNaN: true })), {
  minLength: 20,
  maxLength: 80,
  size: 'max',
});

describe('the breaker', () => {
  it('is always of one piece: open has a time, only half open has a probe, and one that runs', () => {
    fc.assert(
      fc.property(life, (steps) => {
        const world = new World();
        for (const [next, random] of steps) {
          world.take(next, random);
          const { state, openUntil, probe, failures, openings } = world.health;
          expect(openUntil !== null).toBe(state === 'open');
          if (probe !== null)
            expect([state, world.running.includes(probe)]).toEqual(['half_open', true]);
          expect(Math.min(failures, openings)).toBeGreaterThanOrEqual(0);
        }
      }),
    );
  });

  it('starts nothing before its time, and one attempt at a time while it is tried out', () => {
    fc.assert(
      fc.property(life, (steps) => {
        const world = new World();
        for (const [next, random] of steps) {
          const before = world.health;
          const count = world.started;
          world.take(next, random);
          if (world.started === count) continue;
          if (before.state === 'open') expect(before.openUntil).toBeLessThanOrEqual(world.now);
          if (before.state === 'half_open') expect(before.probe).toBeNull();
          if (before.state !== 'closed') expect(world.health.probe).toBe(world.running.at(-1));
        }
      }),
    );
  });

  it('never asks before a reset time that was named, up to a week', () => {
    fc.assert(
      fc.property(life, fc.integer({ min: 1, max: 2 * WEEK }), (steps, resetIn) => {
        const world = new World();
        for (const [next, random] of steps) world.take(next, random);
        // While it is tried out only the probe can be the one who fails.
        const id = world.health.probe ?? 'somebody';
        const moment = { now: world.now, random: 0 };
        const after = afterEnd(
          world.health,
          id,
          failed('rate_limited', world.now + resetIn),
          moment,
          DEFAULT_BREAKER,
        );
        expect(closedGate(after, world.now + Math.min(resetIn, WEEK) - 1)).toBe('paused');
      }),
    );
  });

  it('comes back: after the pause one good answer closes it, whatever was before', () => {
    fc.assert(
      fc.property(life, (steps) => {
        const world = new World();
        for (const [next, random] of steps) world.take(next, random);
        // Whoever still runs ends without a word.
        while (world.running.length > 0)
          world.end({ do: 'end', which: 0, word: { kind: 'silent' }, resetIn: null }, 0);
        world.now = Math.max(world.now, world.health.openUntil ?? 0);
        world.take({ do: 'start' }, 0);
        expect(world.running, 'nothing may start').toHaveLength(1);
        world.take({ do: 'answer', which: 0 }, 0);
        expect(world.health.state).toBe('closed');
        world.end({ do: 'end', which: 0, word: { kind: 'answered' }, resetIn: null }, 0);
        expect(world.health).toEqual(HEALTHY);
      }),
    );
  });

  it('opens at the third failure in a row, and an answer in between starts the count anew', () => {
    const moment = { now: T0, random: 0 };
    const end = (health: Health, said: Word): Health =>
      afterEnd(health, 'a', said, moment, DEFAULT_BREAKER);
    const bad = failed('provider_unavailable');
    const two = end(end(HEALTHY, bad), bad);
    expect([two.state, two.failures]).toEqual(['closed', 2]);
    expect(end(two, bad)).toMatchObject({ state: 'open', failures: 3, openUntil: T0 + MINUTE });
    expect(end(end(two, { kind: 'silent' }), bad).state).toBe('open');
    expect(end(end(two, { kind: 'answered' }), bad)).toMatchObject({
      state: 'closed',
      failures: 1,
    });
  });

  it('opens at the second refused key, for longer', () => {
    const moment = { now: T0, random: 0 };
    const one = afterEnd(HEALTHY, 'a', failed('provider_auth'), moment, DEFAULT_BREAKER);
    expect(one.state).toBe('closed');
    const two = afterEnd(one, 'b', failed('provider_auth'), moment, DEFAULT_BREAKER);
    expect(two).toMatchObject({ state: 'open', openUntil: T0 + 15 * MINUTE });
  });

  it('pauses longer each time its probe fails, up to the cap', () => {
    let health = HEALTHY;
    let now = T0;
    const policy = { failures: 1, firstPauseMs: MINUTE, maxPauseMs: 5 * MINUTE };
    const pauses: number[] = [];
    for (const id of ['a', 'b', 'c', 'd', 'e']) {
      health = afterStart(afterPause(health, now), id, now);
      health = afterEnd(health, id, failed('rate_limited'), { now, random: 0 }, policy);
      pauses.push(((health.openUntil ?? 0) - now) / MINUTE);
      now = health.openUntil ?? now;
    }
    expect(pauses).toEqual([1, 2, 4, 5, 5]);
  });

  it('listens only to its probe: who was started before the trouble neither opens nor closes it', () => {
    const open = afterEnd(
      HEALTHY,
      'a',
      failed('rate_limited', T0 + MINUTE),
      { now: T0, random: 0 },
      DEFAULT_BREAKER,
    );
    const moment = { now: T0 + 1, random: 0 };
    expect(afterEnd(open, 'old', { kind: 'answered' }, moment, DEFAULT_BREAKER)).toBe(open);
    expect(afterEnd(open, 'old', failed('provider_unavailable'), moment, DEFAULT_BREAKER)).toBe(
      open,
    );
    const later = afterEnd(
      open,
      'old',
      failed('rate_limited', T0 + 9 * MINUTE),
      moment,
      DEFAULT_BREAKER,
    );
    expect([later.openUntil, later.openings]).toEqual([T0 + 9 * MINUTE, open.openings]);
  });

  it.each([
    [{ kind: 'succeeded' }, 'answered'],
    [{ kind: 'failed', code: 'model_error' }, 'answered'],
    [{ kind: 'failed', code: 'context_overflow' }, 'answered'],
    [{ kind: 'failed', code: 'rate_limited' }, 'failed'],
    [{ kind: 'failed', code: 'provider_unavailable' }, 'failed'],
    [{ kind: 'failed', code: 'provider_auth' }, 'failed'],
    [{ kind: 'failed', code: 'oom' }, 'silent'],
    [{ kind: 'cancelled', code: 'cancelled_by_request' }, 'silent'],
    [{ kind: 'lost', code: 'host_shutdown' }, 'silent'],
    [{ kind: 'never_started' }, 'silent'],
  ])('of %j it hears: %s', (outcome, kind) => {
    expect(wordOf(outcome, null).kind).toBe(kind);
  });
});

describe('the next try', () => {
  const policy: fc.Arbitrary<ProviderRetry> = fc.record({
    maxAttempts: fc.integer({ min: 1, max: 20 }),
    maxDelayMs: fc.integer({ min: 0, max: 24 * 60 * MINUTE }),
  });
  const tried = fc.record({
    failures: fc.integer({ min: 1, max: 30 }),
    sinceAgo: fc.nat({ max: 10 * 60 * MINUTE }),
    resetIn: fc.option(fc.integer({ min: -MINUTE, max: 48 * 60 * MINUTE }), { nil: null }),
    random: fc.double({ min: 0, max: 0.999_999, noNaN: true }),
  });

  it('is never before the reset, never after the budget, and there is none after the last attempt', () => {
    fc.assert(
      fc.property(tried, policy, ({ failures, sinceAgo, resetIn, random }, budget) => {
        const since = T0 - sinceAgo;
        const resetAt = resetIn === null ? null : T0 + resetIn;
        const next = nextTry({ failures, since, now: T0, resetAt, random }, budget);
        if (failures >= budget.maxAttempts) expect(next.kind).toBe('give_up');
        if (next.kind === 'give_up') return;
        expect(next.at).toBeGreaterThanOrEqual(Math.max(T0, resetAt ?? T0));
        expect(next.at - since).toBeLessThanOrEqual(budget.maxDelayMs);
      }),
    );
  });

  it('does not have all come back in one moment', () => {
    const at = (random: number, resetAt: number | null): number => {
      const next = nextTry(
        { failures: 1, since: T0, now: T0, resetAt, random },
        { maxAttempts: 5, maxDelayMs: WEEK },
      );
      return next.kind === 'retry' ? next.at : -1;
    };
    expect(at(0.9, null) - at(0.1, null)).toBeGreaterThan(3_000);
    expect(at(0.9, T0 + MINUTE) - at(0.1, T0 + MINUTE)).toBeGreaterThan(3_000);
    expect(at(0.9, T0 + 100) - at(0.1, T0 + 100)).toBeGreaterThanOrEqual(200);
  });
});
