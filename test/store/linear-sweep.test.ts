/** The sweep for missed webhooks over the real ledger and the real way in. X16 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Entropy } from '../../src/domain/ids.ts';
import { createIngress } from '../../src/linear/ingress.ts';
import { parseBody, readEnvelope } from '../../src/linear/payloads.ts';
import { LinearError, type LinearProblem, type ListedSession } from '../../src/linear/port.ts';
import {
  createSweep,
  SWEEP_CURSOR,
  SWEEP_SESSIONS,
  SWEEP_WINDOW_MS,
  type Sweep,
} from '../../src/linear/sweep.ts';
import { recordSwept } from '../../src/linear/swept.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { LinearDouble } from '../support/linear-double/server.ts';
import type { Delivery } from '../support/linear-double/webhooks.ts';
import type { Session } from '../support/linear-double/world.ts';
import { ManualTimers } from '../unit/systemd-manual-timers.ts';

const SECRET = 'signing-secret-of-the-double';
const MINUTE = 60_000;
const log = pino({ level: 'silent' });

let directory: string;
let store: Store;
beforeEach(() => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-sweep-'));
  store = openStore(directory, 'main', '2027-02-03T10:11:12.345Z');
});
afterEach(() => {
  store.close();
  rmSync(directory, { recursive: true });
});

/** Linear without HTTP: what happened there, as its API would list it, and its webhooks. */
class Scene {
  readonly linear = new LinearDouble({});
  readonly timers = new ManualTimers();
  readonly facts = new Map<string, unknown>();
  readonly own = new Set<string>();
  readonly known = new Set<string>();
  readonly heardOf = new Set<string>();
  readonly asked: { readonly since: string; readonly limit: number }[] = [];
  hints = 0;
  problem: LinearProblem | null = null;
  extra: readonly ListedSession[] = [];
  readonly entropy: Entropy = {
    now: () => this.linear.clock.now(),
    monotonic: () => this.linear.clock.now(),
    uptimeSeconds: () => 0,
    random: (size) => randomBytes(size),
  };

  readonly #ingress = createIngress({
    store: () => store,
    secret: SECRET,
    organizationId: null,
    entropy: this.entropy,
    log,
    onDelivery: () => {},
  });

  sweep(): Sweep {
    const { linear, facts, entropy, timers } = this;
    return createSweep({
      api: {
        viewer: async () => ({
          id: linear.world.app.id,
          organizationId: linear.world.organization.id,
        }),
        recentSessions: async (since, limit) => {
          this.asked.push({ since, limit });
          if (this.problem) throw new LinearError(this.problem);
          return [...linear.world.sessions.map((one) => this.listed(one)), ...this.extra];
        },
      },
      facts: {
        get: (name) => facts.get(name) ?? null,
        put: (name, value) => void facts.set(name, value),
      },
      known: {
        isOwn: (id) => this.own.has(id),
        isKnown: (id) => this.known.has(id),
        isHeardOf: (id) => this.known.has(id) || this.heardOf.has(id),
      },
      deliver: (events) =>
        recordSwept(events, {
          store: () => store,
          entropy,
          onDelivery: () => {
            this.hints += 1;
          },
        }),
      entropy,
      timers,
      log,
    });
  }

  listed({ id, status, issue, comment, createdAt, updatedAt }: Session): ListedSession {
    const text = (ms: number): string => new Date(ms).toISOString();
    const prompts = this.linear.world.activities
      .filter((one) => one.sessionId === id && one.content['type'] === 'prompt')
      .map((one) => ({
        id: one.id,
        body: String(one.content['body']),
        signal: one.signal,
        createdAt: one.createdAt,
      }));
    const times = { createdAt: text(createdAt), updatedAt: text(updatedAt) };
    const about = issue && {
      ...{ id: issue.id, identifier: issue.identifier, title: issue.title },
      ...{ url: '', description: issue.description, team: issue.team },
    };
    return { id, status, issue: about, comment, ...times, prompts };
  }

  async webhook(delivery: Delivery): Promise<void> {
    const headers = this.linear.webhooks.headers(delivery);
    await this.#ingress.receive(delivery.body, {
      signature: headers['linear-signature'] ?? headers['Linear-Signature'],
      deliveryId: delivery.id,
    });
  }

  start(): Session {
    const { world } = this.linear;
    return world.startSession('delegation', world.addIssue());
  }
}

/** What the ledger holds that is new, oldest first: kind, session, and of a prompt its text and signal. */
function ledger(): readonly (readonly unknown[])[] {
  const rows: (readonly unknown[])[] = [];
  for (let row = store.linearDeliveries.next(); row; row = store.linearDeliveries.next(row.id)) {
    const { event } = readEnvelope(parseBody(row.body) ?? {});
    if (event.kind !== 'created' && event.kind !== 'prompted') throw new Error(event.kind);
    const more = event.kind === 'prompted' ? [event.activity.body, event.activity.signal] : [];
    rows.push([event.kind, event.session.id, ...more]);
  }
  return rows;
}

const repeats = (): number => store.linearDeliveries.counts().repeats;

describe('a sweep; X16', () => {
  it('finds what no webhook told of: a beginning, a prompt and a stop, in their order', async () => {
    const scene = new Scene();
    const session = scene.start();
    await scene.linear.clock.advance(MINUTE);
    scene.linear.webhooks.prompted(session, 'and the other lamp');
    await scene.linear.clock.advance(MINUTE);
    scene.linear.webhooks.stop(session);
    const sweep = scene.sweep();
    await sweep.now();
    expect(ledger()).toEqual([
      ['created', session.id],
      ['prompted', session.id, 'and the other lamp', null],
      ['prompted', session.id, 'Stop', 'stop'],
    ]);
    expect(store.linearDeliveries.next()).toMatchObject({ source: 'sweep', signedAt: null });
    expect(scene.hints).toBe(1);
    await sweep.now();
    expect([ledger().length, repeats(), scene.hints]).toEqual([3, 0, 1]);
    await sweep.close();
  });

  it('agrees with real webhooks in any order, sent again as they may be: one row each', async () => {
    const step = fc.oneof(
      fc.constantFrom('start', 'prompt', 'stop', 'sweep', 'restart', 'later'),
      fc.tuple(fc.nat(20), fc.boolean()),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
        const before = ledger().length;
        const scene = new Scene();
        const { webhooks, clock } = scene.linear;
        const sent: Delivery[] = [];
        const sessions: Session[] = [];
        let sweep = scene.sweep();
        const last = (): Session | undefined => sessions.at(-1);
        for (const one of steps) {
          const session = last();
          if (one === 'start') {
            const begun = scene.start();
            sessions.push(begun);
            sent.push(webhooks.created(begun));
            await clock.advance(10_000);
          } else if (one === 'sweep') await sweep.now();
          else if (one === 'restart') {
            await sweep.close();
            sweep = scene.sweep();
          } else if (one === 'later') await clock.advance(MINUTE);
          else if (one === 'prompt' && session) sent.push(webhooks.prompted(session, 'more'));
          else if (one === 'stop' && session) sent.push(webhooks.stop(session));
          else if (Array.isArray(one)) {
            const delivery = sent[one[0]];
            if (delivery) await scene.webhook(one[1] ? webhooks.restamped(delivery) : delivery);
          }
        }
        await sweep.now();
        await sweep.close();
        expect(ledger().length - before).toBe(sent.length);
      }),
      { numRuns: 60 },
    );
  });

  it('takes a prompt as old as its session for what the session began with', async () => {
    const scene = new Scene();
    const { world } = scene.linear;
    const session = world.startSession('mention', world.addIssue());
    scene.linear.world.prompt(session, '@keeper please look at this');
    scene.linear.world.prompt(session, 'and quickly');
    await scene.sweep().now();
    expect(ledger()).toEqual([
      ['created', session.id],
      ['prompted', session.id, 'and quickly', null],
    ]);
    const { event } = readEnvelope(
      parseBody(store.linearDeliveries.next()?.body ?? Buffer.of()) ?? {},
    );
    expect(event).toMatchObject({ session: { comment: { body: '@keeper please look at this' } } });
  });

  it('starts nothing for sessions we made, nor for one that was over before it was heard of', async () => {
    const scene = new Scene();
    const [own, over] = [scene.start(), scene.start()];
    scene.own.add(own.id);
    over.status = 'complete';
    await scene.linear.clock.advance(MINUTE);
    scene.linear.webhooks.prompted(own, 'hello');
    await scene.sweep().now();
    expect(ledger()).toEqual([]);
    // What is said in one that is known counts, over or not.
    scene.known.add(over.id);
    scene.linear.world.prompt(over, 'once more');
    await scene.sweep().now();
    expect(ledger()).toEqual([['prompted', over.id, 'once more', null]]);
  });

  it('finds the beginning of one that is over and was heard of: words may wait for it', async () => {
    const scene = new Scene();
    const session = scene.start();
    scene.heardOf.add(session.id);
    session.status = 'complete';
    await scene.sweep().now();
    expect(ledger()).toEqual([['created', session.id]]);
  });

  it('looks back to where the last one came and ten minutes more, and never beyond a day', async () => {
    const scene = new Scene();
    const { clock } = scene.linear;
    const looked = async (): Promise<number> => {
      await scene.sweep().now();
      return clock.now() - Date.parse(scene.asked.at(-1)?.since ?? '');
    };
    expect(await looked()).toBe(10 * MINUTE);
    await clock.advance(60 * MINUTE);
    expect(await looked()).toBe(70 * MINUTE);
    await clock.advance(3 * SWEEP_WINDOW_MS);
    expect(await looked()).toBe(SWEEP_WINDOW_MS);
    // A clock that was set back does not make it blind.
    scene.facts.set(SWEEP_CURSOR, clock.now() + SWEEP_WINDOW_MS);
    expect(await looked()).toBe(10 * MINUTE);
    scene.facts.set(SWEEP_CURSOR, 'nonsense');
    expect(await looked()).toBe(10 * MINUTE);
  });

  it('looks only at sessions lately active and at 200 of them, whatever is listed', async () => {
    const scene = new Scene();
    const at = (ms: number): string => new Date(scene.linear.clock.now() - ms).toISOString();
    const session = (id: string, ms: number): ListedSession => ({
      ...{ id, status: 'pending', issue: null, comment: null, prompts: [] },
      ...{ createdAt: at(ms), updatedAt: at(ms) },
    });
    scene.extra = [
      session('old', 11 * MINUTE),
      ...Array.from({ length: SWEEP_SESSIONS + 5 }, (_, n) => session(`s-${n}`, MINUTE)),
    ];
    await scene.sweep().now();
    expect(ledger()).toHaveLength(SWEEP_SESSIONS);
    expect(scene.asked).toEqual([expect.objectContaining({ limit: SWEEP_SESSIONS })]);
    // Nobody knows what was left out: the next one looks as far back.
    expect(scene.facts.has(SWEEP_CURSOR)).toBe(false);
  });
});

describe('when it sweeps', () => {
  const around = (ms: number) => (set: number) => set >= ms * 0.8 && set <= ms * 1.2;

  it('at the start, and then every five minutes or so', async () => {
    const scene = new Scene();
    const sweep = scene.sweep();
    sweep.start();
    await scene.timers.pass(around(5 * MINUTE));
    await scene.timers.pass(around(5 * MINUTE));
    expect(scene.asked.length).toBeGreaterThanOrEqual(2);
    await sweep.close();
    expect(scene.timers.pending).toBe(0);
    await sweep.now();
    expect(scene.timers.pending).toBe(0);
  });

  it('backs off while it fails, tells one problem for all failures, and goes on after it', async () => {
    const scene = new Scene();
    const sweep = scene.sweep();
    scene.problem = { kind: 'transient', message: 'no answer' };
    await sweep.now();
    const since = scene.linear.clock.now();
    expect(sweep.problem()).toEqual({ kind: 'transient', message: 'no answer', since });
    await scene.linear.clock.advance(MINUTE);
    for (const ms of [30_000, 60_000, 120_000]) {
      await scene.timers.pass(around(ms));
    }
    await sweep.now();
    expect(sweep.problem()).toMatchObject({ since });
    expect(scene.facts.has(SWEEP_CURSOR)).toBe(false);
    scene.problem = null;
    await sweep.now();
    expect([sweep.problem(), sweep.lastAt()]).toEqual([null, scene.linear.clock.now()]);
    await scene.timers.pass(around(5 * MINUTE));
    await sweep.close();
  });

  it('not before the budget is there again, and at once when an auth problem has gone', async () => {
    const scene = new Scene();
    const sweep = scene.sweep();
    const retryAt = scene.linear.clock.now() + 40 * MINUTE;
    scene.problem = { kind: 'rate_limited', retryAt };
    await sweep.now();
    await scene.timers.pass((ms) => ms === 40 * MINUTE);
    scene.problem = { kind: 'auth', message: 'the token was revoked' };
    await sweep.now();
    expect(sweep.problem()).toMatchObject({ kind: 'auth', message: 'the token was revoked' });
    scene.problem = null;
    const session = scene.start();
    await sweep.now();
    expect(ledger()).toEqual([['created', session.id]]);
    await sweep.close();
  });

  it('a store that refuses keeps the cursor where it was', async () => {
    const scene = new Scene();
    scene.start();
    store.close();
    const sweep = scene.sweep();
    await sweep.now();
    expect(sweep.problem()).toMatchObject({ kind: 'internal' });
    expect(scene.facts.has(SWEEP_CURSOR)).toBe(false);
    store = openStore(directory, 'main', '2027-02-03T10:11:12.345Z');
    await sweep.now();
    expect(ledger()).toHaveLength(1);
    await sweep.close();
  });
});
