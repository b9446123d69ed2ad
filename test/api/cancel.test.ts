import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventPage } from '../../src/api/schemas.ts';
import { COMMAND, json, post, problem, refused, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await bootApi();
});
afterEach(cleanUp);

const cancel = (id: string, body?: object | string, headers = {}) =>
  send(rig.socket, {
    method: 'POST',
    path: `/work-units/${id}/cancel`,
    ...(body === undefined ? {} : { body }),
    headers,
  });

const events = async (id: string) =>
  json<EventPage>(await send(rig.socket, { path: `/work-units/${id}/events` })).items;

/** Brings a work unit into a state that only a running attempt has, without one running. */
function move(
  id: string,
  ...steps: ('claim' | 'runner_started' | 'runner_succeeded' | 'runner_failed')[]
) {
  rig.writer.commit((transaction) => {
    for (const step of steps) {
      transaction.moveWorkUnit(transaction.workUnit(id), step, { actor: 'system' });
    }
  });
}

describe('row 171: POST /work-units/:id/cancel', () => {
  it('of queued work is the end of it at once, with its events in order', async () => {
    const { id } = await start(rig.socket);
    const answer = await cancel(id, { reason: 'not needed' });
    expect(answer.status).toBe(200);
    expect(json(answer)).toMatchObject({
      id,
      status: 'cancelled',
      errorCode: 'cancelled_by_request',
      activeAttemptId: null,
      attempts: [],
    });
    expect(json(answer).endedAt).not.toBeNull();
    expect((await events(id)).map(({ seq, type, actor }) => [seq, type, actor])).toEqual([
      [1, 'work_unit.created', 'user'],
      [2, 'work_unit.queued', 'user'],
      [3, 'work_unit.cancelling', 'user'],
      [4, 'work_unit.cancelled', 'user'],
    ]);
    expect((await events(id)).at(-1)?.data).toMatchObject({
      errorCode: 'cancelled_by_request',
      reason: 'not needed',
    });
  });

  it('by the handle is the same', async () => {
    await start(rig.socket, { handle: 'issue42' });
    expect(json(await cancel('issue42')).status).toBe('cancelled');
  });

  it('twice is once: the second changes nothing', async () => {
    const { id } = await start(rig.socket);
    const first = json(await cancel(id));
    const before = rig.counts();
    const second = await cancel(id, { reason: 'again' });
    expect(second.status).toBe(200);
    expect(json(second)).toEqual(first);
    expect(rig.counts()).toEqual(before);
  });

  it('by many at once is one cancellation', async () => {
    const { id } = await start(rig.socket);
    const answers = await Promise.all(Array.from({ length: 20 }, () => cancel(id)));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(await events(id)).toHaveLength(4);
  });

  it('of claimed work without an attempt is the end of it, too', async () => {
    const { id } = await start(rig.socket);
    move(id, 'claim');
    expect(json(await cancel(id)).status).toBe('cancelled');
  });

  it.each(['runner_succeeded', 'runner_failed'] as const)(
    'row 060: after %s is a conflict and changes nothing',
    async (end) => {
      const { id } = await start(rig.socket);
      move(id, 'claim', 'runner_started', end);
      const before = rig.counts();
      const answer = await cancel(id);
      expect(refused(answer)).toMatchObject({ status: 409, code: 'state_conflict' });
      expect(problem(answer).extra).toMatchObject({ event: 'cancel' });
      expect(rig.counts()).toEqual(before);
    },
  );

  it('of nobody is not found', async () => {
    expect(refused(await cancel('nobody'))).toMatchObject({ status: 404, code: 'not_found' });
  });

  it('frees the handle and keeps the key', async () => {
    const headers = { 'idempotency-key': 'k' };
    const first = json(await post(rig.socket, { ...COMMAND, handle: 'h' }, headers));
    await cancel(first.id);
    expect((await start(rig.socket, { handle: 'h' })).id).not.toBe(first.id);
    expect(json(await post(rig.socket, { ...COMMAND, handle: 'h' }, headers)).id).toBe(first.id);
  });
});

describe('what a cancellation may say', () => {
  it.each([
    ['nothing', undefined],
    ['an empty object', {}],
    ['a reason', { reason: 'because' }],
    ['a reason of 1000 characters', { reason: 'r'.repeat(1000) }],
    ['null', 'null'],
  ])('is %s', async (_what, body) => {
    const { id } = await start(rig.socket);
    const headers = typeof body === 'string' ? { 'content-type': 'application/json' } : {};
    expect((await cancel(id, body, headers)).status).toBe(200);
  });

  it.each([
    ['a long reason', { reason: 'r'.repeat(1001) }, '/reason'],
    ['a reason that is a number', { reason: 1 }, '/reason'],
    ['another field', { force: true }, '/force'],
  ])('is not %s', async (_what, body, path) => {
    const { id } = await start(rig.socket);
    const before = rig.counts();
    expect(refused(await cancel(id, body))).toEqual({
      status: 422,
      code: 'invalid_request',
      paths: [path],
    });
    expect(rig.counts()).toEqual(before);
  });
});
