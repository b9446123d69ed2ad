/** The claimer on a real store: random lives of a queue keep every promise the queue makes. */
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { leasesConflict } from '../../src/domain/resources.ts';
import { cleanUp, open } from '../store/rig.ts';
import { QueueRig, STARVING_MS, type Wanted as Wish } from '../support/core-queue.ts';

afterEach(cleanUp);

const PATHS = ['/repo', '/repo/a', '/repo/a/deep', '/repo/b', '/other', '/'];
const PRESETS = ['p', 'q'];

const wish: fc.Arbitrary<Wish> = fc.record(
  {
    priority: fc.integer({ min: -2, max: 2 }),
    providerPresetId: fc.constantFrom(...PRESETS),
    leases: fc.uniqueArray(
      fc.oneof(
        fc.constantFrom(...PATHS).map((key) => ({ type: 'bound_path' as const, key })),
        fc.constantFrom('x', 'y').map((key) => ({ type: 'task' as const, key })),
      ),
      { maxLength: 3, selector: ({ type, key }) => `${type} ${key}` },
    ),
  },
  { requiredKeys: [] },
);

type Step =
  | { readonly do: 'submit'; readonly wish: Wish }
  | { readonly do: 'submitNow'; readonly wish: Wish }
  | { readonly do: 'claim' }
  | { readonly do: 'end' | 'cancel'; readonly which: number }
  | { readonly do: 'limit'; readonly type: 'provider' | 'runner'; readonly limit: number }
  | { readonly do: 'wait' };
const which = fc.nat({ max: 1_000 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('submit' as const), wish }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('submitNow' as const), wish }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('claim' as const) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('end' as const), which }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('cancel' as const), which }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('limit' as const),
      type: fc.constantFrom('provider' as const, 'runner' as const),
      limit: fc.integer({ min: 1, max: 3 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('wait' as const) }) },
);

const LIMITS = { provider: { p: 1, q: 2 }, runner: { command: 3 } };
const fresh = (limits: ConstructorParameters<typeof QueueRig>[1] = LIMITS): QueueRig =>
  new QueueRig(open(), structuredClone(limits));
const pick = (ids: readonly string[], at: number): string | undefined => ids[at % ids.length];
const running = (rig: QueueRig): string[] => rig.store.workUnits.listActive().map(({ id }) => id);

/** Carries one step out and returns the slots that may be held above a limit lowered meanwhile. */
function carryOut(rig: QueueRig, step: Step): void {
  if (step.do === 'submit') rig.submit(step.wish);
  if (step.do === 'claim') rig.claimOnce();
  if (step.do === 'limit')
    rig.setLimit(step.type, step.type === 'runner' ? 'command' : 'p', step.limit);
  if (step.do === 'wait') rig.entropy.advance(STARVING_MS + 1);
  if (step.do === 'submitNow') {
    try {
      rig.submit({ ...step.wish, queueOnConflict: false });
    } catch (error) {
      expect(error).toMatchObject({ code: 'resource_busy' });
    }
  }
  if (step.do === 'end') {
    const id = pick(running(rig), step.which);
    if (id !== undefined) rig.end(id);
  }
  if (step.do === 'cancel') {
    const id = pick(rig.queued(), step.which);
    if (id !== undefined) rig.cancel(id);
  }
}

function assertNoConflict(rig: QueueRig): void {
  const leases = rig.store.resources.leasesHeld();
  for (const [index, one] of leases.entries()) {
    for (const other of leases.slice(index + 1)) {
      if (one.attemptId === other.attemptId) continue;
      expect(leasesConflict(one, other), `${one.key} and ${other.key} are both held`).toBe(false);
    }
  }
}

/** A slot taken in this step was below the limit; slots of a limit lowered later may stay. */
function assertLimits(rig: QueueRig, before: ReadonlyMap<string, number>): Map<string, number> {
  const held = new Map<string, number>();
  for (const { type, key } of rig.store.resources.slotsHeld()) {
    held.set(`${type} ${key}`, (held.get(`${type} ${key}`) ?? 0) + 1);
  }
  const { limits } = rig.context.settings;
  for (const type of ['provider', 'runner'] as const) {
    for (const [key, limit] of Object.entries(limits[type])) {
      const now = held.get(`${type} ${key}`) ?? 0;
      if (now <= (before.get(`${type} ${key}`) ?? 0)) continue;
      expect(now, `slots of ${type} ${key}`).toBeLessThanOrEqual(limit);
    }
  }
  return held;
}

/** Holds exactly what the running attempts need: nothing leaks, nothing is released early. */
function assertHoldersRun(rig: QueueRig): void {
  const { resources } = rig.store;
  const attempts = new Set(running(rig).map((id) => rig.active(id).id));
  for (const { attemptId } of [...resources.leasesHeld(), ...resources.slotsHeld()]) {
    expect(attempts.has(attemptId), 'an ended attempt still holds something').toBe(true);
  }
  const needed = running(rig).flatMap((id) => resources.needsOf(id)).length;
  expect(resources.leasesHeld().length + resources.slotsHeld().length).toBe(needed);
}

describe('the claimer', () => {
  it('never lets two attempts hold what conflicts, and never exceeds a limit; row 083, row 092', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 10, maxLength: 60 }), (steps) => {
        const rig = fresh();
        let held = new Map<string, number>();
        for (const next of steps) {
          carryOut(rig, next);
          assertNoConflict(rig);
          held = assertLimits(rig, held);
          assertHoldersRun(rig);
        }
        rig.store.close();
      }),
      { numRuns: 50 },
    );
  });

  it('loses no wake-up: whatever can start is started after a few rounds, graphile#449', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 10, maxLength: 60 }), (steps) => {
        const rig = fresh();
        for (const next of steps) carryOut(rig, next);
        rig.claimAll();
        while (running(rig).length > 0) {
          for (const id of running(rig)) rig.end(id);
          rig.claimAll();
        }
        expect(rig.queued(), 'left set aside with nothing in the way').toEqual([]);
        rig.store.close();
      }),
      { numRuns: 80 },
    );
  });

  it('after every claimAll nothing that is set aside could start, unless its leases are kept free', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 10, maxLength: 40 }), (steps) => {
        const rig = fresh();
        for (const next of steps) {
          if (next.do === 'wait') continue; // Nobody starves, so nothing is kept free.
          carryOut(rig, next);
          rig.claimAll();
          const { resources } = rig.store;
          for (const id of rig.queued()) {
            const needs = resources.needsOf(id);
            const free = needs.every((need) =>
              need.form === 'lease'
                ? !resources.leasesNear(need).some((held) => leasesConflict(held, need))
                : resources.countSlots(need) <
                  (need.type === 'provider' || need.type === 'runner'
                    ? (rig.context.settings.limits[need.type][need.key] ?? Infinity)
                    : Infinity),
            );
            expect(free, `a unit waits for ${rig.store.queue.waitingFor(id)?.blockedOn}`).toBe(
              false,
            );
          }
        }
        rig.store.close();
      }),
      { numRuns: 40 },
    );
  });

  it('takes the ready ones by priority, then age, and every eighth by age alone; row 080', () => {
    const priorities = fc.array(fc.integer({ min: -3, max: 3 }), { minLength: 1, maxLength: 30 });
    fc.assert(
      fc.property(priorities, (given) => {
        const rig = fresh({});
        const waiting = given.map((priority) => ({ id: rig.submit({ priority }), priority }));
        for (let taken = 0; waiting.length > 0; taken++) {
          const best = waiting.reduce((a, b) => (b.priority > a.priority ? b : a));
          const expected = taken % 8 === 7 ? waiting[0] : best;
          const id = rig.claimOnce().claim?.workUnit.id;
          expect(id, `claim ${taken + 1}`).toBe(expected?.id);
          waiting.splice(
            waiting.findIndex((unit) => unit.id === id),
            1,
          );
        }
        rig.store.close();
      }),
      { numRuns: 30 },
    );
  });

  it('gives a freed slot to the best of those that wait, then to the oldest of equals; row 080', () => {
    const rig = fresh({ runner: { command: 1 } });
    const first = rig.submit();
    expect(rig.claimAll()).toEqual([first]);
    const [low, high, later] = [
      rig.submit(),
      rig.submit({ priority: 5 }),
      rig.submit({ priority: 5 }),
    ];
    expect(rig.claimAll()).toEqual([]);
    const order: string[] = [];
    for (let id: string | undefined = first; id !== undefined; ) {
      rig.end(id);
      id = rig.claimAll()[0];
      if (id !== undefined) order.push(id);
    }
    expect(order).toEqual([high, later, low]);
  });
});

describe('nothing starves', () => {
  /** One is running, one low one waits, and a better one comes in before every end. */
  function roundsUntilLow(rig: QueueRig, stream: Wish, wanted: Wish): number {
    let current = rig.submit(stream);
    rig.claimAll();
    const low = rig.submit({ ...wanted, priority: -5 });
    for (let round = 1; round <= 100; round++) {
      rig.submit({ ...stream, priority: 5 });
      rig.submit({ ...stream, priority: 5 });
      rig.claimAll();
      rig.entropy.advance(30_000);
      rig.end(current);
      const next = rig.claimAll()[0];
      expect(next, 'the freed resource stays unused').toBeDefined();
      if (next === undefined || next === low) return round;
      current = next;
    }
    return Infinity;
  }

  it('work on a path gets it in bounded rounds under a stream of better work on the same path', () => {
    const lease = { leases: [{ type: 'bound_path' as const, key: '/repo' }] };
    // Ten rounds of 30 s until it starves; from then on the path is kept for it.
    expect(roundsUntilLow(fresh({}), lease, lease)).toBeLessThanOrEqual(12);
  });

  it('work on a whole tree gets it under a stream of better work below it', () => {
    const rig = fresh({});
    const below = (name: string): Wish => ({
      priority: 5,
      leases: [{ type: 'bound_path', key: `/repo/${name}` }],
    });
    let active = [rig.submit(below('a')), rig.submit(below('b'))];
    rig.claimAll();
    const low = rig.submit({ priority: -5, leases: [{ type: 'bound_path', key: '/repo' }] });
    let rounds = 0;
    for (; rig.queued().includes(low) && rounds < 100; rounds++) {
      // Overlapping on purpose: one of the two is always held.
      rig.submit(below('a'));
      rig.submit(below('b'));
      rig.claimAll();
      rig.entropy.advance(30_000);
      const [oldest] = active;
      if (oldest !== undefined) rig.end(oldest);
      active = [...active.slice(1), ...rig.claimAll()];
    }
    expect(rounds, 'rounds until the whole tree was free for it').toBeLessThanOrEqual(14);
  });

  it('work for a slot gets it in bounded rounds under a stream of better work for the same slot', () => {
    const rig = fresh({ runner: { command: 1 } });
    expect(roundsUntilLow(rig, {}, {})).toBeLessThanOrEqual(20);
  });

  it('the oldest of a backlog is not passed over for ever by priorities alone', () => {
    const rig = fresh({});
    const low = rig.submit({ priority: -5 });
    let rounds = 0;
    for (; rig.queued().includes(low) && rounds < 100; rounds++) {
      rig.submit({ priority: 5 });
      const id = rig.claimOnce().claim?.workUnit.id;
      if (id !== undefined) rig.end(id);
    }
    expect(rounds).toBeLessThanOrEqual(8);
  });
});

describe('wake-ups that are easy to lose', () => {
  it('a woken unit that is cancelled before it was looked at passes the slot on', () => {
    const rig = fresh({ runner: { command: 1 } });
    const first = rig.submit();
    rig.claimAll();
    const [second, third] = [rig.submit(), rig.submit()];
    rig.claimAll();
    rig.end(first);
    rig.cancel(second);
    expect(rig.claimAll()).toEqual([third]);
  });

  it('a woken unit that is superseded before it was looked at passes the slot on', () => {
    const rig = fresh({ runner: { command: 1 } });
    const first = rig.submit();
    rig.claimAll();
    rig.submit({ externalSubject: 'github:acme/app#1', priority: 1 });
    const third = rig.submit();
    rig.claimAll();
    rig.end(first);
    const newer = rig.submit({ externalSubject: 'github:acme/app#1', onNewerSubject: 'supersede' });
    const [next] = rig.claimAll();
    expect(next).toBeDefined();
    if (next !== undefined) rig.end(next);
    expect(new Set([next, ...rig.claimAll()])).toEqual(new Set([third, newer]));
  });

  it('whoever was kept waiting for a starving unit is looked at again when that is cancelled', () => {
    const rig = fresh({});
    const leases = [{ type: 'bound_path' as const, key: '/repo' }];
    const first = rig.submit({ leases: [{ type: 'bound_path', key: '/repo/a' }] });
    rig.claimAll();
    const starving = rig.submit({ leases });
    rig.claimAll();
    rig.entropy.advance(STARVING_MS + 1);
    const kept = rig.submit({ leases: [{ type: 'bound_path', key: '/repo/b' }] });
    expect(rig.claimAll(), 'the tree is kept free').toEqual([]);
    rig.cancel(starving);
    expect(rig.claimAll()).toEqual([kept]);
    rig.end(first);
  });

  it('a raised limit lets several start at once', () => {
    const rig = fresh({ runner: { command: 1 } });
    rig.submit();
    const rest = [rig.submit(), rig.submit(), rig.submit()];
    expect(rig.claimAll()).toHaveLength(1);
    rig.setLimit('runner', 'command', 3);
    expect(rig.claimAll()).toEqual(rest.slice(0, 2));
  });

  it('more blocked units than one look takes do not hide one that can start', () => {
    const rig = fresh({ provider: { p: 1 } });
    rig.submit({ providerPresetId: 'p' });
    rig.claimAll();
    for (let index = 0; index < 450; index++) rig.submit({ providerPresetId: 'p', priority: 1 });
    const free = rig.submit({ providerPresetId: 'q' });
    expect(rig.claimAll()).toEqual([free]);
  });
});

describe('channels', () => {
  const leases = [{ type: 'bound_path' as const, key: '/repo' }];
  const put = (
    rig: QueueRig,
    status: 'active' | 'paused' | 'archived',
    maxConcurrentRuns = 1,
  ): void =>
    rig.store.write(() => {
      const policy = { status, maxConcurrentRuns, onNewerSubject: 'queue' as const };
      rig.store.channels.put('lane', policy, new Date(rig.entropy.now()).toISOString());
      rig.store.queue.wakeAll();
    });

  it('queued work of a paused channel waits until it is active again; row 073', () => {
    const rig = fresh({});
    put(rig, 'active');
    const id = rig.submit({ channelId: 'lane' });
    put(rig, 'paused');
    expect(rig.claimAll()).toEqual([]);
    put(rig, 'active');
    expect(rig.claimAll()).toEqual([id]);
  });

  it.each(['paused', 'archived'] as const)(
    'work for a channel that is %s is refused; row 078',
    (status) => {
      const rig = fresh({});
      put(rig, status);
      expect(() => rig.submit({ channelId: 'lane' })).toThrow(`is ${status}`);
      expect(rig.queued()).toEqual([]);
    },
  );

  it('a paused channel keeps nothing free: others go on in the tree that its work waits for', () => {
    const rig = fresh({});
    const first = rig.submit({ leases });
    rig.claimAll();
    put(rig, 'active');
    rig.submit({ channelId: 'lane', leases });
    rig.claimAll();
    put(rig, 'paused');
    rig.claimAll();
    rig.entropy.advance(STARVING_MS + 1);
    const other = rig.submit({ leases });
    rig.claimAll();
    rig.end(first);
    expect(rig.claimAll()).toEqual([other]);
  });

  it('what was kept free for work whose channel is then paused goes to others', () => {
    const rig = fresh({});
    const first = rig.submit({ leases: [{ type: 'bound_path', key: '/repo/a' }] });
    rig.claimAll();
    put(rig, 'active');
    rig.submit({ channelId: 'lane', leases });
    rig.claimAll();
    rig.entropy.advance(STARVING_MS + 1);
    const kept = rig.submit({ leases: [{ type: 'bound_path', key: '/repo/b' }] });
    expect(rig.claimAll()).toEqual([]);
    put(rig, 'paused');
    expect(rig.claimAll()).toEqual([kept]);
    rig.end(first);
  });

  it('maxConcurrentRuns holds, and a higher one lets the rest start at once; row 079', () => {
    const rig = fresh({});
    const all = Array.from({ length: 5 }, () => rig.submit({ channelId: 'lane' }));
    expect(rig.claimAll()).toEqual(all.slice(0, 1));
    put(rig, 'active', 4);
    expect(rig.claimAll()).toEqual(all.slice(1, 4));
  });
});

describe('claims at once', () => {
  it.each([1, 3, 8])(
    '40 submits on %i slots: never more run than there are slots; row 092',
    (limit) => {
      const rig = fresh({ runner: { command: limit } });
      const all = Array.from({ length: 40 }, () => rig.submit());
      const started: string[] = [];
      while (started.length < all.length) {
        const claimed = rig.claimAll();
        started.push(...claimed);
        expect(rig.store.resources.countSlots({ type: 'runner', key: 'command' })).toBe(
          running(rig).length,
        );
        expect(running(rig).length).toBeLessThanOrEqual(limit);
        const [oldest] = running(rig);
        if (oldest !== undefined) rig.end(oldest);
      }
      expect(started, 'each once, by age').toEqual(all);
    },
  );

  it('work that would not wait takes a slot or is refused with the reason; row 074', () => {
    const rig = fresh({ runner: { command: 1 } });
    const { claim } = rig.submitFully({ queueOnConflict: false });
    expect(claim?.workUnit.status).toBe('claimed');
    expect(() => rig.submit({ queueOnConflict: false })).toThrow(/all 1 slots of runner command/);
    expect(rig.queued(), 'a refused one leaves nothing behind').toEqual([]);
  });
});
