/** A sender whose store fails at any statement, and how the statements find their rows. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { say, sayLast } from '../../src/linear/enqueue.ts';
import type { ActivityContent } from '../../src/linear/port.ts';
import { linearOutboxStatements } from '../../src/store/linear-outbox.ts';
import { FakeApi, failing, failingAt, OutboxRig } from '../support/linear-outbox.ts';
import { AT, cleanUp, planOf } from './rig.ts';

let rig: OutboxRig;
beforeEach(() => {
  vi.useFakeTimers({ now: Date.parse(AT) });
  rig = new OutboxRig();
});
afterEach(async () => {
  vi.useRealTimers();
  await cleanUp();
});

const PROGRESS: ActivityContent = { type: 'thought', body: 'progress' };
const ANSWER: ActivityContent = { type: 'response', body: 'very long' };
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

describe('the statements', () => {
  it('find what waits by the index of what waits, whatever lies there delivered', () => {
    const plan = planOf(rig.directory, (db) => {
      linearOutboxStatements(db, 'main').heads();
    });
    expect(plan).toContain('idx_linear_outbox_pending');
    expect(plan).not.toMatch(/SCAN (?!first)/);
  });
});

describe('a sender that fails at any statement', () => {
  it('comes to the same end: one refusal told, one word in its place, each posted once more at most', async () => {
    for (let n = 1; n <= 40; n++) {
      const turn = rig.turn(`session ${n}`);
      const api = new FakeApi();
      api.behave = ({ content }) =>
        content.type === 'response'
          ? failing({ kind: 'rejected', code: 'INPUT_ERROR', message: 'too long' })
          : Promise.resolve();
      const outbox = rig.start({}, api, failingAt(rig.store, n));
      rig.writer.commit(({ at }) =>
        say(rig.parts(), at, { ...turn, turnId: null }, { content: PROGRESS }),
      );
      outbox.wake();
      await pass(1);
      rig.writer.commit(({ at }) => sayLast(rig.parts(), at, turn, ANSWER));
      outbox.wake();
      await pass(30_000);
      await outbox.stop();
      const rows = rig.rows().filter(({ session_id }) => session_id === turn.sessionId);
      expect(
        rows.map(({ state }) => state),
        `statement ${n}`,
      ).toEqual(['delivered', 'failed', 'delivered']);
      const told = rig.store.events.page(turn.workUnitId, 0, 10);
      expect(
        told.map(({ type }) => type),
        `statement ${n}`,
      ).toEqual(['diagnostic.undelivered']);
      expect(
        api.texts.map((text) => text.split(':')[0]),
        `statement ${n}`,
      ).toEqual(['thought', 'error']);
      expect(api.tries.length, `statement ${n}`).toBeLessThanOrEqual(4);
    }
  });
});
