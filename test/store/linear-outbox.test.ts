/** The Linear outbox on a real store: order, waiting, giving up. Time is vitest's. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { changeIssue, changeSession, say, sayLast } from '../../src/linear/enqueue.ts';
import type { ActivityContent } from '../../src/linear/port.ts';
import { failing, OutboxRig, textOf } from '../support/linear-outbox.ts';
import { AT, cleanUp, open, raw } from './rig.ts';

let rig: OutboxRig;
beforeEach(() => {
  vi.useFakeTimers({ now: Date.parse(AT) });
  rig = new OutboxRig();
});
afterEach(async () => {
  const stopped = rig.outbox?.stop();
  await vi.advanceTimersByTimeAsync(3_600_000);
  await stopped;
  vi.useRealTimers();
  await cleanUp();
});

const HOUR = 3_600_000;
const MINUTE = 60_000;
const thought = (body: string): ActivityContent => ({ type: 'thought', body });
const response = (body: string): ActivityContent => ({ type: 'response', body });
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

function put(
  sessionId: string,
  content: ActivityContent,
  options: { ephemeral?: true; turnId?: string; urgent?: boolean } = {},
): boolean {
  const { ephemeral, turnId = null, urgent } = options;
  const isNew = rig.writer.commit(({ at }) =>
    say(
      rig.parts(),
      at,
      { sessionId, turnId },
      { content, ...(ephemeral ? { ephemeral } : {}) },
      urgent,
    ),
  );
  rig.outbox?.wake();
  return isNew;
}

function putLast(turn: { sessionId: string; turnId: string }, content: ActivityContent): boolean {
  const isNew = rig.writer.commit(({ at }) => sayLast(rig.parts(), at, turn, content));
  rig.outbox?.wake();
  return isNew;
}

const states = (): string[] => rig.rows().map(({ state }) => state);

describe('what lies in the outbox', () => {
  it('goes out in the order of its session, sessions beside each other, within a bound', async () => {
    const waiting: (() => void)[] = [];
    rig.api.behave = () => new Promise((resolve) => waiting.push(resolve));
    for (let n = 0; n < 1_000; n++) put(`s${n % 20}`, thought(String(n)));
    rig.start();
    await pass(0);
    expect(rig.api.underWay, 'as many as the bound').toBe(4);
    while (rig.api.has.length < 1_000) {
      for (const resolve of waiting.splice(0)) resolve();
      await pass(1);
    }
    expect(rig.api.most).toBe(4);
    for (let session = 0; session < 20; session++) {
      const said = rig.api.has
        .filter(({ agentSessionId }) => agentSessionId === `s${session}`)
        .map(({ content }) => Number(textOf(content).slice('thought: '.length)));
      expect(said, `session ${session}`).toEqual(said.toSorted((a, b) => a - b));
      expect(said.length).toBe(50);
    }
    expect(new Set(states())).toEqual(new Set(['delivered']));
  });

  it('has an id of version 4 before the first try, and tells the API how urgent it is; X04', async () => {
    const turn = rig.turn();
    put('session', thought('one'));
    put('session', { type: 'elicitation', body: 'May I?' });
    put('other', { type: 'action', action: 'bash', parameter: 'ls' }, { ephemeral: true });
    const ids = raw(rig.directory).prepare('SELECT id FROM linear_outbox').pluck().all();
    rig.start();
    await pass(1);
    putLast({ ...turn }, response('done'));
    await pass(1);
    expect(new Set(rig.api.has.slice(0, 3).map(({ id }) => id))).toEqual(new Set(ids));
    expect(String(ids[0])).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-/);
    const urgency = Object.fromEntries(
      rig.api.tries.map(({ input, priority }) => [input.content.type, priority]),
    );
    // The thought is in the way of the question and is as urgent.
    expect(urgency).toEqual({ thought: 0, elicitation: 0, action: 2, response: 0 });
  });

  it('keeps a room for what a person waits for, however many posts hang', async () => {
    rig.api.behave = (_input, priority) =>
      priority === 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, HOUR));
    rig.start();
    for (let n = 0; n < 50; n++) put(`busy ${n}`, thought('x'));
    await pass(1);
    expect(rig.api.underWay).toBe(4);
    rig.narrator().acknowledge({ sessionId: 'new', turnId: null });
    await pass(1);
    expect(rig.api.has.map(({ agentSessionId }) => agentSessionId)).toEqual(['new']);
  });

  it('is told to sessions as their last and first word', async () => {
    const turn = rig.turn();
    rig.start();
    await pass(MINUTE);
    put(turn.sessionId, thought('one'));
    await pass(MINUTE);
    put(turn.sessionId, thought('two'));
    await pass(1);
    const [row] = raw(rig.directory).prepare('SELECT * FROM linear_sessions').all() as {
      first_activity_at: string;
      last_activity_at: string;
    }[];
    const at = (ms: number) => new Date(Date.parse(AT) + ms).toISOString();
    expect(row?.first_activity_at).toBe(at(MINUTE));
    expect(row?.last_activity_at).toBe(at(2 * MINUTE));
  });

  it('changes sessions and issues beside what is said, so neither holds the other up', async () => {
    const to = { sessionId: 'session', turnId: null };
    rig.api.behaveUpdate = () => failing({ kind: 'transient', message: 'success: false' });
    rig.writer.commit(({ at }) =>
      changeSession(rig.parts(), at, to, { addedExternalUrls: [{ label: 'a', url: 'https://a' }] }),
    );
    put('session', thought('said'));
    rig.writer.commit(({ at }) => changeIssue(rig.parts(), at, to, { issueId: 'i', stateId: 's' }));
    rig.start();
    await pass(1);
    expect(rig.api.texts).toEqual(['thought: said']);
    expect(rig.api.updates).toEqual([]);
    rig.api.behaveUpdate = () => Promise.resolve();
    await pass(MINUTE);
    expect(rig.api.updates).toHaveLength(1);
    expect(rig.api.issues).toEqual([{ issueId: 'i', input: { stateId: 's' } }]);
  });
});

describe('bug 7: a post that fails', () => {
  it('in passing is tried again later and later, and what follows it waits', async () => {
    rig.api.behave = () => failing({ kind: 'transient', message: 'success: false' });
    rig.start();
    put('session', thought('one'));
    put('session', thought('two'));
    await pass(1);
    const times: number[] = [];
    for (let tries = rig.api.tries.length; times.length < 4; await pass(100)) {
      if (rig.api.tries.length === tries) continue;
      tries = rig.api.tries.length;
      times.push(Date.now());
    }
    expect(new Set(rig.api.tries.map(({ input }) => textOf(input.content)))).toEqual(
      new Set(['thought: one']),
    );
    const gaps = times.slice(1).map((time, index) => time - (times[index] ?? 0));
    for (const [index, gap] of gaps.entries()) {
      expect(gap).toBeGreaterThanOrEqual(2 ** index * 1_000 - 200);
      expect(gap).toBeLessThanOrEqual(2 ** (index + 1) * 1_000 + 200);
    }
    rig.api.behave = () => Promise.resolve();
    await pass(MINUTE);
    expect(rig.api.texts).toEqual(['thought: one', 'thought: two']);
  });

  it('for good is told in the work unit and not tried again; the next goes on', async () => {
    const turn = rig.turn();
    rig.api.behave = ({ content }) =>
      textOf(content) === 'thought: bad'
        ? failing({ kind: 'rejected', code: 'INPUT_ERROR', message: 'Argument Validation Error' })
        : Promise.resolve();
    rig.start();
    put('session', thought('bad'), { turnId: turn.turnId });
    put('session', thought('good'), { turnId: turn.turnId });
    await pass(HOUR);
    expect(rig.api.tries.map(({ input }) => textOf(input.content))).toEqual([
      'thought: bad',
      'thought: good',
    ]);
    expect(states()).toEqual(['failed', 'delivered']);
    const told = rig.store.events
      .page(turn.workUnitId, 0, 100)
      .filter(({ type }) => type === 'diagnostic.undelivered');
    expect(told.map(({ data }) => data)).toMatchObject([
      { code: 'INPUT_ERROR', message: 'Argument Validation Error', turnId: turn.turnId },
    ]);
    expect(rig.log.some(({ msg }) => msg === 'Linear refused an activity')).toBe(true);
    expect(rig.settled.map(({ state }) => state)).toEqual(['failed', 'delivered']);
  });

  it('as a last word leaves a plainer one in its place, once', async () => {
    const turn = rig.turn();
    rig.api.behave = () => failing({ kind: 'rejected', code: 'INPUT_ERROR', message: 'too long' });
    rig.start();
    putLast(turn, response('very long'));
    await pass(HOUR);
    expect(rig.api.tries.map(({ input }) => input.content.type)).toEqual(['response', 'error']);
    expect(states()).toEqual(['failed', 'failed']);
    const last = rig.store.linearOutbox.terminalOf(turn.turnId);
    expect(last?.body).toMatchObject({ content: { type: 'error' } });
  });

  it('that no schema of ours would let through never leaves the machine', async () => {
    rig.start();
    put('session', { type: 'action', action: 'x', parameter: '' });
    await pass(1);
    expect(rig.api.tries).toEqual([]);
    expect(states()).toEqual(['failed']);
  });

  it('by a mistake of ours is tried again and seen in the log', async () => {
    let times = 0;
    rig.api.behave = () =>
      ++times === 1 ? Promise.reject(new TypeError('oops')) : Promise.resolve();
    rig.start();
    put('session', thought('one'));
    await pass(MINUTE);
    expect(rig.api.texts).toEqual(['thought: one']);
    expect(rig.log.some(({ level }) => level === 50)).toBe(true);
  });
});

describe('bug 4: a budget that is used up', () => {
  it('in the middle holds everything until it is said to be there again; nothing is lost', async () => {
    const retryAt = Date.now() + 20 * MINUTE;
    let posts = 0;
    rig.api.behave = () =>
      ++posts > 5 && Date.now() < retryAt
        ? failing({ kind: 'rate_limited', retryAt })
        : Promise.resolve();
    const turns = [0, 1, 2].map((n) => rig.turn(`s${n}`));
    rig.start();
    for (let n = 0; n < 9; n++) put(`s${n % 3}`, thought(String(n)), { urgent: true });
    await pass(19 * MINUTE);
    const tries = rig.api.tries.length;
    expect(rig.outbox?.status().retryAt).toBe(retryAt);
    expect(rig.outbox?.pressed()).toBe(true);
    for (const turn of turns) putLast(turn, response('done'));
    await pass(50_000);
    expect(rig.api.tries.length, 'nobody asked again before').toBe(tries);
    await pass(2 * MINUTE);
    expect(rig.api.texts.filter((text) => text === 'response: done')).toHaveLength(3);
    expect(rig.outbox?.pressed()).toBe(false);
    const [row] = rig.rows().filter(({ terminal }) => terminal === 1);
    expect(row, 'waiting for a budget is no try').toMatchObject({ tries: 1 });
  });

  it('for progress leaves what a person waits for alone', async () => {
    rig.api.behave = (_input, priority) =>
      priority > 0
        ? failing({ kind: 'rate_limited', retryAt: Date.now() + HOUR })
        : Promise.resolve();
    const turn = rig.turn();
    rig.start();
    put('other', thought('progress'));
    await pass(1);
    putLast(turn, response('done'));
    await pass(1);
    expect(rig.api.texts).toEqual(['response: done']);
  });

  it('that names a time in the past is not asked at once again', async () => {
    rig.api.behave = () => failing({ kind: 'rate_limited', retryAt: 0 });
    rig.start();
    put('session', thought('one'));
    await pass(10_000);
    expect(rig.api.tries.length).toBeLessThanOrEqual(11);
  });
});

describe('bug 5: more than can be told', () => {
  it('leaves out what only passes once something later is there, and never what counts', async () => {
    rig.api.behave = () => new Promise((resolve) => setTimeout(resolve, 60_000));
    rig.start();
    put('session', thought('first'));
    await pass(1);
    for (let n = 0; n < 5; n++) {
      put('session', { type: 'action', action: 'bash', parameter: `${n}` }, { ephemeral: true });
      put('session', { type: 'action', action: 'bash', parameter: `${n}`, result: 'ok' });
    }
    put('session', { type: 'elicitation', body: 'May I?' });
    put('session', { type: 'action', action: 'bash', parameter: 'newest' }, { ephemeral: true });
    await pass(9 * 60_000);
    expect(rig.api.texts).toEqual([
      'thought: first',
      ...[0, 1, 2, 3, 4].map((n) => `bash: ${n} = ok`),
      'elicitation: May I?',
      'bash: newest',
    ]);
  });
});

describe('bug 11: credentials that do not work', () => {
  it('for an hour hold everything back, visibly, and it goes on by itself', async () => {
    const until = Date.now() + HOUR;
    rig.api.behave = () =>
      Date.now() < until
        ? failing({ kind: 'auth', message: 'The token was revoked: authorise again' })
        : Promise.resolve();
    const turn = rig.turn();
    rig.start();
    put('other', thought('old'));
    putLast(turn, response('done'));
    await pass(30 * MINUTE);
    expect(rig.outbox?.status()).toMatchObject({ auth: { since: AT }, pending: 1, expired: 1 });
    const told = rig.log.filter(({ msg }) => msg.startsWith('nothing is told to Linear'));
    expect(told, 'one line, not one a try').toHaveLength(1);
    expect(rig.api.most, 'one try at a time').toBeLessThanOrEqual(2);
    expect(rig.api.tries.length).toBeLessThan(45);
    await pass(31 * MINUTE);
    expect(rig.api.texts).toEqual(['response: done']);
    expect(rig.outbox?.status()).toMatchObject({ auth: null, pending: 0 });
  });

  it('are tried at once when somebody says that they work', async () => {
    let works = false;
    rig.api.behave = () =>
      works ? Promise.resolve() : failing({ kind: 'auth', message: 'no token' });
    const turn = rig.turn();
    rig.start();
    putLast(turn, response('done'));
    await pass(10 * MINUTE);
    works = true;
    rig.outbox?.resume();
    await pass(1);
    expect(rig.api.texts).toEqual(['response: done']);
  });
});

describe('X06: after the last word of a turn', () => {
  it('nothing of it goes out: what waits goes before it, what comes is refused', async () => {
    const turn = rig.turn();
    let release = (): void => undefined;
    rig.api.behave = ({ content }) =>
      textOf(content) === 'thought: under way'
        ? new Promise((resolve) => {
            release = resolve;
          })
        : Promise.resolve();
    rig.start();
    put('session', thought('under way'), { turnId: turn.turnId });
    put('session', thought('waits'), { turnId: turn.turnId });
    await pass(1);
    expect(putLast(turn, response('done'))).toBe(true);
    expect(putLast(turn, response('again')), 'one last word').toBe(false);
    expect(put('session', thought('late'), { turnId: turn.turnId })).toBe(false);
    await pass(1);
    expect(rig.api.texts, 'not beside what is under way').toEqual([]);
    release();
    await pass(1);
    expect(rig.api.texts).toEqual(['thought: under way', 'thought: waits', 'response: done']);
  });

  it('nor by the next daemon', async () => {
    const turn = rig.turn();
    put('session', thought('waits'), { turnId: turn.turnId });
    putLast(turn, response('done'));
    rig.store.close();
    rig.store = open(rig.directory);
    rig.writer = rig.writerOf(rig.store);
    rig.start();
    expect(put('session', thought('late'), { turnId: turn.turnId })).toBe(false);
    await pass(HOUR);
    expect(rig.api.texts).toEqual(['thought: waits', 'response: done']);
  });

  it('what the next turn says goes out after it', async () => {
    const turn = rig.turn();
    putLast(turn, response('done'));
    const next = rig.turn('session', 'next');
    put('session', thought('again'), { turnId: next.turnId });
    rig.start();
    await pass(1);
    expect(rig.api.texts).toEqual(['response: done', 'thought: again']);
  });
});

describe('X05: what waits too long', () => {
  it('is given up: progress after 10 minutes, a last word after a day, and the turn is told', async () => {
    const turn = rig.turn();
    rig.api.behave = () => failing({ kind: 'transient', message: 'no network' });
    rig.start();
    put('other', thought('progress'));
    putLast(turn, response('done'));
    await pass(11 * MINUTE);
    expect(states()).toEqual(['expired', 'pending']);
    await pass(23 * HOUR);
    expect(states()).toEqual(['expired', 'pending']);
    expect(rig.store.linearOutbox.terminalOf(turn.turnId)?.state).toBe('pending');
    await pass(HOUR);
    expect(states()).toEqual(['expired', 'expired']);
    expect(rig.settled.map(({ turnId, state }) => [turnId, state])).toEqual([
      [null, 'expired'],
      [turn.turnId, 'expired'],
    ]);
    const told = rig.store.events.page(turn.workUnitId, 0, 10);
    expect(told.map(({ type, data }) => [type, data['code']])).toEqual([
      ['diagnostic.undelivered', 'expired'],
    ]);
  });

  it('and is settled goes from the store after a month', async () => {
    rig.start();
    put('session', thought('one'));
    await pass(1);
    vi.setSystemTime(Date.now() + 29 * 24 * HOUR);
    await pass(MINUTE);
    expect(states()).toEqual(['delivered']);
    vi.setSystemTime(Date.now() + 2 * 24 * HOUR);
    await pass(MINUTE);
    expect(states()).toEqual([]);
  });
});

describe('a stop', () => {
  it('waits for what is on its way, stores what became of it, and begins nothing', async () => {
    let release = (): void => undefined;
    rig.api.behave = () =>
      new Promise((resolve) => {
        release = resolve;
      });
    const outbox = rig.start();
    put('session', thought('one'));
    put('session', thought('two'));
    await pass(1);
    let isStopped = false;
    const stopped = outbox.stop().then(() => {
      isStopped = true;
    });
    await pass(MINUTE);
    expect(isStopped).toBe(false);
    release();
    await stopped;
    expect(states()).toEqual(['delivered', 'pending']);
    expect(rig.api.tries).toHaveLength(1);
  });

  it('of what Linear says of a session drops all but last words', () => {
    const turn = rig.turn();
    putLast(turn, response('done'));
    put('session', thought('one'));
    put('other', thought('stays'));
    const { dropProgress } = rig.store.linearOutbox;
    expect(rig.writer.commit(() => dropProgress('session'))).toBe(1);
    expect(states()).toEqual(['pending', 'dropped', 'pending']);
  });
});

describe('X04: a daemon that dies between a post and the note of it', () => {
  it('posts again under the same id, and Linear has it once', async () => {
    const turn = rig.turn();
    const broken = { ...rig.store, linearOutbox: { ...rig.store.linearOutbox } };
    broken.linearOutbox.delivered = () => {
      throw new Error('injected');
    };
    const first = rig.start({}, rig.api, broken);
    putLast(turn, response('done'));
    first.wake();
    await pass(1);
    expect(rig.api.has).toHaveLength(1);
    expect(states()).toEqual(['pending']);
    await first.stop();
    rig.start();
    await pass(1);
    expect(rig.api.tries).toHaveLength(2);
    expect(new Set(rig.api.tries.map(({ input }) => input.id)).size).toBe(1);
    expect(rig.api.has).toHaveLength(1);
    expect(states()).toEqual(['delivered']);
  });

  it('and a store that cannot be written is waited for, not asked without end', async () => {
    const broken = { ...rig.store, linearOutbox: { ...rig.store.linearOutbox } };
    let times = 0;
    broken.linearOutbox.delivered = (seq, at) => {
      if (++times < 3) throw new Error('injected');
      rig.store.linearOutbox.delivered(seq, at);
    };
    rig.start({}, rig.api, broken);
    put('session', thought('one'));
    await pass(4_000);
    expect(rig.api.tries).toHaveLength(1);
    await pass(7_000);
    expect(rig.api.tries).toHaveLength(3);
    expect(states()).toEqual(['delivered']);
  });
});
