/** From events to Linear: narrator, outbox and client against the double, on its clock. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LinearClient } from '../../src/linear/client.ts';
import { say, sayLast } from '../../src/linear/enqueue.ts';
import type { NarratedTurn } from '../../src/linear/narrator.ts';
import { LinearRig } from '../support/linear-client.ts';
import type { Fault } from '../support/linear-double/faults.ts';
import type { LinearDouble } from '../support/linear-double/server.ts';
import type { Session } from '../support/linear-double/world.ts';
import { callOf, messageOf, OutboxRig, successOf, textOf } from '../support/linear-outbox.ts';
import { cleanUp, raw } from './rig.ts';

let rig: OutboxRig;
let api: LinearRig;
let linear: LinearDouble;
let client: LinearClient;
let session: Session;
let turn: NarratedTurn;

/** The double's clock is moved by the test: the outbox looks at it often. */
const POLICY = { lookMs: 5 };

beforeEach(async () => {
  api = await LinearRig.start();
  linear = api.linear;
  client = api.minting();
  const { store, directory, entropy } = api;
  rig = new OutboxRig({ store, directory, entropy });
  session = linear.world.startSession('mention', linear.world.addIssue());
  turn = rig.turn(session.id);
});
afterEach(async () => {
  await rig.outbox?.stop();
  await cleanUp();
  await api.end();
});

const CREATE = 'agentActivityCreate';
const inputs = (): Record<string, unknown>[] =>
  linear.calls(CREATE).map(({ variables }) => variables['input'] as Record<string, unknown>);
/** What Linear has of a session, in the order in which it came. */
const arrived = (sessionId: string): string[] =>
  linear.world.activities
    .filter((one) => one.sessionId === sessionId)
    .map(({ content }) => textOf(content as unknown as Parameters<typeof textOf>[0]));
const isTold = (n: number) => rig.whenSettled((rows) => rows.length >= n);

/** Time goes on as long as there is something to wait for, in steps of `ms`. */
async function passUntil(awaited: Promise<void>, ms: number): Promise<void> {
  const isOver = awaited.then(() => true);
  for (let over = false; !over; ) {
    await linear.clock.advance(ms);
    over = await Promise.race([
      isOver,
      new Promise<false>((resolve) => setTimeout(() => resolve(false), 10)),
    ]);
  }
}

function put(sessionId: string, body: string): void {
  rig.writer.commit(({ at }) =>
    say(rig.parts(), at, { sessionId, turnId: null }, { content: { type: 'thought', body } }),
  );
  rig.outbox?.wake();
}

function putLast(of: NarratedTurn, body: string): void {
  rig.writer.commit(({ at }) => sayLast(rig.parts(), at, of, { type: 'response', body }));
  rig.outbox?.wake();
}

describe('a run, as Linear gets it', () => {
  it('row 292, row 293, AC2: an action has exactly these fields, also of a call without input', async () => {
    rig.start(POLICY, client);
    rig.events(turn, ...callOf('bash', { command: 'ls' }, 'lamp.ts'), ...callOf('ls', {}, ''));
    rig.narrator().narrate(turn);
    await isTold(4);
    const id = expect.stringMatching(
      /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    ) as unknown;
    const agentSessionId = session.id;
    expect(inputs()).toStrictEqual([
      {
        id,
        agentSessionId,
        ephemeral: true,
        content: { type: 'action', action: 'bash', parameter: 'ls' },
      },
      {
        id,
        agentSessionId,
        content: { type: 'action', action: 'bash', parameter: 'ls', result: 'lamp.ts' },
      },
      {
        id,
        agentSessionId,
        ephemeral: true,
        content: { type: 'action', action: 'ls', parameter: 'running' },
      },
      {
        id,
        agentSessionId,
        content: { type: 'action', action: 'ls', parameter: 'running', result: '(no output)' },
      },
    ]);
    expect(linear.violations()).toEqual([]);
  });

  it('X01, X06: answers at once, works, ends, and says nothing afterwards', async () => {
    rig.start(POLICY, client);
    const narrator = rig.narrator();
    narrator.acknowledge(turn);
    await isTold(1);
    expect(linear.world.isUnresponsive(session)).toBe(false);
    expect(linear.world.status(session)).toBe('active');
    rig.events(
      turn,
      ...messageOf(1, 'I open a pull request.'),
      ...callOf('bash', { command: 'gh pr create' }, 'https://github.com/acme/lamp/pull/7'),
    );
    narrator.narrate(turn);
    await isTold(5);
    rig.events(turn, ...messageOf(2, 'It is mended.', 'stop'), ...successOf('It is mended.'));
    narrator.narrate(turn);
    await isTold(6);
    rig.events(turn, ...callOf('bash', { command: 'too late' }));
    rig.narrator().narrate(turn);
    put('unknown', 'refused: there is no such session');
    await isTold(7);
    expect(linear.world.status(session)).toBe('complete');
    expect(arrived(session.id)).toEqual([
      'thought: Starting to work on this.',
      'thought: I open a pull request.',
      'bash: gh pr create',
      'bash: gh pr create = https://github.com/acme/lamp/pull/7',
      'response: It is mended.',
    ]);
    expect(session.links).toEqual([
      { label: 'acme/lamp#7', url: 'https://github.com/acme/lamp/pull/7' },
    ]);
    expect(rig.settled.at(-1)?.state, 'and what is refused for good stops nothing').toBe('failed');
  });

  it('AC5, row 296: an interrupted one leaves neither answer nor error', async () => {
    rig.start(POLICY, client);
    const narrator = rig.narrator();
    rig.events(turn, ...callOf('bash', { command: 'sleep 99' }));
    narrator.narrate(turn);
    await isTold(2);
    rig.interrupt(turn);
    rig.events(turn, [
      'work_unit.cancelled',
      { errorCode: 'interrupted_by_prompt', errorMessage: 'A new prompt interrupted it' },
    ]);
    narrator.narrate(turn);
    put(session.id, 'of the next turn');
    await isTold(3);
    expect(arrived(session.id).map((text) => text.split(':')[0])).toEqual([
      'bash',
      'bash',
      'thought',
    ]);
    expect(linear.world.status(session)).toBe('active');
    expect(linear.violations()).toEqual([]);
  });
});

describe('what goes wrong on the way', () => {
  it('X04: an answer that is lost is a second post of the same activity, which is there once', async () => {
    linear.faults.next(CREATE, { kind: 'lost' });
    rig.start(POLICY, client);
    putLast(turn, 'done');
    await passUntil(isTold(1), 500);
    expect(linear.calls(CREATE)).toHaveLength(2);
    expect(new Set(inputs().map(({ id }) => id)).size).toBe(1);
    expect(linear.calls(CREATE).at(-1)?.code).toBe('INPUT_ERROR');
    expect(arrived(session.id)).toEqual(['response: done']);
    expect(rig.settled.map(({ state }) => state)).toEqual(['delivered']);
  });

  it('bug 7: success: false is no success; T43 open-swe PR#2558', async () => {
    linear.faults.next(CREATE, { kind: 'unsuccessful' });
    rig.start(POLICY, client);
    putLast(turn, 'done');
    await passUntil(isTold(1), 500);
    expect(linear.calls(CREATE).map(({ effective }) => effective)).toEqual([false, true]);
    expect(arrived(session.id)).toEqual(['response: done']);
  });

  it('X05, bug 4: a budget that ends in the middle is waited for, and the last word arrives', async () => {
    rig.start(POLICY, client);
    put(session.id, 'first');
    await isTold(1);
    linear.limits.leave(0);
    for (let n = 0; n < 3; n++) put(session.id, `progress ${n}`);
    await linear.waitFor(({ code }) => code === 'RATELIMITED');
    putLast(turn, 'done');
    const asked = linear.calls().length;
    await passUntil(
      rig.whenSettled((rows) => rows.some(({ terminal }) => terminal)),
      60_000,
    );
    expect(arrived(session.id)).toEqual(['thought: first', 'response: done']);
    expect(linear.calls().length - asked, 'nobody knocked meanwhile').toBeLessThanOrEqual(5);
    expect(linear.world.status(session)).toBe('complete');
  });

  it('bug 11: tokens that are refused for an hour are seen, and everything goes on afterwards', async () => {
    linear.faults.always('*', { kind: 'unauthorized' });
    rig.start(POLICY, client);
    putLast(turn, 'done');
    for (let n = 0; n < 60; n++) {
      await linear.clock.advance(60_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await expect.poll(() => rig.outbox?.status().auth?.message).toContain('token');
    expect(api.health().problem()).not.toBe(null);
    expect(rig.outbox?.status().pending).toBe(1);
    linear.faults.clear();
    await passUntil(isTold(1), 10_000);
    expect(arrived(session.id)).toEqual(['response: done']);
    expect(api.health().problem()).toBe(null);
    expect(rig.outbox?.status().auth).toBe(null);
  });

  it('a shape that Linear refuses is told, not tried again, and holds nobody up', async () => {
    rig.start(POLICY, client);
    raw(rig.directory)
      .prepare(
        `INSERT INTO linear_outbox (id, workspace_id, session_id, turn_id, kind, priority,
           body_json, state, expires_at, created_at)
         VALUES ('not a uuid', 'main', ?, ?, 'activity', 1, ?, 'pending', '9999', '2026')`,
      )
      .run(session.id, turn.turnId, '{"content":{"type":"thought","body":"x"}}');
    putLast(turn, 'done');
    put(session.id, 'goes on');
    await isTold(3);
    expect(linear.calls(CREATE).filter(({ status }) => status === 400)).toHaveLength(1);
    const told = rig.store.events.page(turn.workUnitId, 0, 10);
    expect(told.map(({ type }) => type)).toEqual(['diagnostic.undelivered']);
    expect(arrived(session.id)).toEqual(['response: done', 'thought: goes on']);
  });

  it('hundreds of rows in twenty sessions arrive once and in order, whatever breaks', async () => {
    const sessions = Array.from({ length: 20 }, () =>
      linear.world.startSession('mention', linear.world.addIssue()),
    );
    const faults: Fault[] = [
      { kind: 'cut' },
      { kind: 'lost' },
      { kind: 'unsuccessful' },
      { kind: 'status', status: 503 },
      { kind: 'rate_limited', retryAfter: 1 },
      { kind: 'unauthorized' },
    ];
    rig.start(POLICY, client);
    for (let n = 0; n < 200; n++) put(sessions[n % 20]?.id ?? '', String(n));
    for (let n = 0; n < 30; n++) {
      const fault = faults[n % faults.length];
      if (fault) linear.faults.next(CREATE, fault);
    }
    await passUntil(isTold(200), 1_000);
    for (const [index, { id }] of sessions.entries()) {
      const expected = Array.from({ length: 10 }, (_, n) => `thought: ${n * 20 + index}`);
      expect(arrived(id)).toEqual(expected);
    }
    expect(linear.violations()).toEqual([]);
  });
});
