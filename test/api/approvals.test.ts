/** Questions to a person over real HTTP: who may answer, once, and what everybody sees of it. */
import { once } from 'node:events';
import http from 'node:http';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ApprovalPage,
  type ApprovalView,
  approvalPageSchema,
  approvalViewSchema,
} from '../../src/api/schemas-approvals.ts';
import { type SseMessage, SseParser } from '../../src/client/sse-parser.ts';
import { askOf, runningPi } from '../support/api-approvals.ts';
import {
  type Answer,
  COMMAND,
  json,
  openStream,
  PI,
  post,
  problem,
  refused,
  send,
  type Target,
} from '../support/api-http.ts';
import { atTheEnd, bootApi, cleanUp, type Rig } from '../support/api-rig.ts';
import type { Question } from '../support/approvals.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await bootApi();
  atTheEnd(() => rig.context.supervisor.close());
  // As recovery makes it, before anything is asked.
  rig.store.approvals.signingKey(new Date().toISOString());
});
afterEach(cleanUp);

/** Running work with one open question. */
async function asking(handle = 'issue42', question: Question = {}) {
  const id = await runningPi(rig, handle);
  return { id, asked: askOf(rig, id, question) };
}

const get = (path: string): Promise<Answer> => send(rig.socket, { path });
const list = async (query = ''): Promise<ApprovalPage> =>
  approvalPageSchema.parse(json<ApprovalPage>(await get(`/approvals${query}`)));

function decide(
  id: string,
  verb: 'approve' | 'deny',
  options: { key?: string; body?: object; target?: Target } = {},
): Promise<Answer> {
  return send(options.target ?? rig.socket, {
    method: 'POST',
    path: `/approvals/${id}/${verb}`,
    ...(options.body === undefined ? {} : { body: options.body }),
    headers: options.key === undefined ? {} : { 'idempotency-key': options.key },
  });
}

const view = (answer: Answer): ApprovalView => {
  expect(answer.status, answer.text).toBe(200);
  return approvalViewSchema.parse(json<ApprovalView>(answer));
};

/** Causes of the changes of questions that a work unit's events tell. */
const causes = (id: string): unknown[] =>
  rig.store.events
    .page(id, 0, 1_000)
    .flatMap(({ type, data }) => (type === 'approval.changed' ? [data['cause']] : []));

describe('GET /approvals', () => {
  it('lists newest first, by status and by work unit, and pages without a gap', async () => {
    const one = await runningPi(rig, 'one');
    const two = await runningPi(rig, 'two');
    const ids = ['a', 'b', 'c'].map((toolCallId) => askOf(rig, one, { toolCallId }).id);
    const other = askOf(rig, two).id;
    // Ids of one millisecond are in no order of their own; the list is in theirs.
    const newestFirst = (...of: string[]): string[] => of.toSorted().toReversed();
    const [oldest = '', ...later] = newestFirst(...ids).toReversed();
    view(await decide(oldest, 'approve'));
    const of = async (query: string) => (await list(query)).items.map(({ id }) => id);
    const all = newestFirst(other, ...ids);
    expect(await of('')).toEqual(all);
    expect(await of('?status=approved')).toEqual([oldest]);
    expect(await of('?status=pending')).toEqual(newestFirst(other, ...later));
    expect(await of('?status=expired')).toEqual([]);
    expect(await of('?workUnit=two')).toEqual([other]);
    expect(await of(`?workUnit=${one}&status=pending`)).toEqual(newestFirst(...later));
    const first = await list('?limit=3');
    expect(first.items.map(({ id }) => id)).toEqual(all.slice(0, 3));
    const second = await list(`?limit=3&cursor=${first.nextCursor}`);
    expect(second).toMatchObject({ items: [{ id: all[3] }], nextCursor: null });
  });

  it('shows the work unit by its handle, and nothing of how the call is followed', async () => {
    const { id, asked } = await asking('issue42');
    const [item] = json<ApprovalPage>(await get('/approvals')).items;
    expect(item).toMatchObject({ id: asked.id, workUnitId: id, handle: 'issue42' });
    expect(Object.keys(item ?? {})).not.toEqual(expect.arrayContaining(['startCallId']));
    expect(json(await get(`/approvals/${asked.id}`))).toEqual(item);
  });

  it.each<[string, number, string, string[]]>([
    ['?cursor=12', 400, 'invalid_cursor', []],
    ['?cursor=', 400, 'invalid_cursor', []],
    ['?status=open', 422, 'invalid_request', ['/status']],
    ['?limit=0', 422, 'invalid_request', ['/limit']],
    ['?limit=1001', 422, 'invalid_request', ['/limit']],
    ['?limit=1.5', 422, 'invalid_request', ['/limit']],
    ['?colour=red', 422, 'invalid_request', ['/colour']],
    ['?workUnit=nobody', 404, 'not_found', []],
  ])('%s is refused with %i', async (query, status, code, paths) => {
    expect(refused(await get(`/approvals${query}`))).toEqual({ status, code, paths });
  });
});

describe('an answer', () => {
  it('row 046: lets the run go on, and its event is told once, however often it is given', async () => {
    const { id, asked } = await asking();
    const first = view(await decide(asked.id, 'approve', { body: { reason: 'fine' } }));
    expect(first).toMatchObject({
      status: 'approved',
      checkpoint: 'waiting',
      decidedBy: 'user',
      decisionReason: 'fine',
      handle: 'issue42',
    });
    const before = rig.counts();
    expect(view(await decide(asked.id, 'approve'))).toEqual(first);
    expect(rig.counts()).toEqual(before);
    expect(causes(id)).toEqual(['decided']);
    expect(rig.store.workUnits.get(id)?.status).toBe('running');
  });

  it('with a key has one effect in twenty posts at once, and one event', async () => {
    const { id, asked } = await asking();
    const options = { key: 'yes', body: { reason: 'fine' } };
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => decide(asked.id, 'approve', options)),
    );
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(view(answers[0] as Answer).revision).toBe(2);
    expect(causes(id)).toEqual(['decided']);
  });

  it('with a key of another question or another verb is refused, and changes nothing', async () => {
    const { id, asked } = await asking('one');
    const { asked: other } = await asking('two');
    view(await decide(asked.id, 'approve', { key: 'k' }));
    const before = rig.counts();
    for (const [target, verb] of [
      [other.id, 'approve'],
      [asked.id, 'deny'],
    ] as const) {
      const answer = await decide(target, verb, { key: 'k' });
      expect(refused(answer)).toMatchObject({ status: 409, code: 'idempotency_mismatch' });
      expect(problem(answer).detail).toContain(`was used to approve approval ${asked.id}`);
    }
    const cancelled = await send(rig.socket, {
      method: 'POST',
      path: `/work-units/${id}/cancel`,
      headers: { 'idempotency-key': 'k' },
    });
    expect(refused(cancelled).code).toBe('idempotency_mismatch');
    expect(rig.counts()).toEqual(before);
  });

  it('that is refused does not use its key up', async () => {
    const { asked } = await asking('one');
    const { asked: other } = await asking('two');
    view(await decide(asked.id, 'deny'));
    expect(refused(await decide(asked.id, 'approve', { key: 'k' })).code).toBe('approval_closed');
    expect(view(await decide(other.id, 'approve', { key: 'k' })).status).toBe('approved');
  });

  it('of two clients at once: exactly one wins, the other learns who and when', async () => {
    const { id, asked } = await asking();
    const answers = await Promise.all([
      decide(asked.id, 'approve', { key: 'hers' }),
      decide(asked.id, 'deny', { key: 'his', target: rig.tcp }),
    ]);
    const [won, ...more] = answers.filter(({ status }) => status === 200);
    const [lost] = answers.filter(({ status }) => status !== 200);
    expect(more).toEqual([]);
    if (!won || !lost) throw new Error('nobody won, or nobody lost');
    const decided = view(won);
    expect(refused(lost)).toMatchObject({ status: 409, code: 'approval_closed' });
    expect(problem(lost).extra).toMatchObject({
      approvalId: asked.id,
      status: decided.status,
      decidedAt: decided.decidedAt,
    });
    expect(problem(lost).detail).toContain(`is ${decided.status} by user`);
    expect(causes(id)).toEqual(['decided']);
    expect(view(await get(`/approvals/${asked.id}`))).toEqual(decided);
  });

  it('row 047: deny goes back to the model; with fail it ends the work', async () => {
    const { id, asked } = await asking('one');
    view(await decide(asked.id, 'deny', { body: { reason: 'not on Friday' } }));
    expect(rig.store.workUnits.get(id)?.status).toBe('running');
    const { id: second, asked: hard } = await asking('two');
    const body = { reason: 'never', fail: true };
    expect(view(await decide(hard.id, 'deny', { body }))).toMatchObject({ status: 'denied' });
    const attemptId = rig.store.workUnits.get(second)?.activeAttemptId ?? '';
    expect(rig.store.workUnits.get(second)?.status).toBe('cancelling');
    expect(rig.store.attempts.get(attemptId)?.intent).toMatchObject({
      kind: 'fail',
      code: 'approval_denied',
      reason: 'never',
    });
    const before = rig.counts();
    view(await decide(hard.id, 'deny', { body }));
    expect(rig.counts(), 'the same again').toEqual(before);
  });

  it('to end the work is not swallowed where the work went on after a plain denial', async () => {
    const { id, asked } = await asking();
    view(await decide(asked.id, 'deny'));
    const before = rig.counts();
    const answer = await decide(asked.id, 'deny', { body: { fail: true } });
    expect(refused(answer)).toMatchObject({ status: 409, code: 'approval_closed' });
    expect(problem(answer).detail).toContain('outlive cancel issue42');
    expect(rig.counts()).toEqual(before);
    expect(rig.store.workUnits.get(id)?.status).toBe('running');
  });

  it('row 230: that comes after its time is refused, also before anybody noticed', async () => {
    const expiresAt = new Date(Date.now() - 1).toISOString();
    const { asked } = await asking('issue42', { expiresAt });
    const before = rig.counts();
    for (const verb of ['approve', 'deny'] as const) {
      const answer = await decide(asked.id, verb);
      expect(refused(answer)).toMatchObject({ status: 409, code: 'approval_closed' });
      expect(problem(answer).detail).toContain(`expired at ${expiresAt}`);
    }
    expect(rig.counts()).toEqual(before);
  });

  it('while its work is being cancelled is refused, and nobody acts on it', async () => {
    const { id, asked } = await asking();
    rig.context.supervisor.cancel(id, { actor: 'user', reason: null });
    const before = rig.counts();
    for (const verb of ['approve', 'deny'] as const) {
      const answer = await decide(asked.id, verb);
      expect(refused(answer)).toMatchObject({ status: 409, code: 'state_conflict' });
      expect(problem(answer).extra).toMatchObject({ approvalId: asked.id, status: 'cancelling' });
    }
    expect(rig.counts()).toEqual(before);
  });

  it('to nobody is not found', async () => {
    for (const id of ['nobody', '018f0000-0000-7000-8000-0000000000ff', '%00']) {
      expect(refused(await decide(id, 'approve'))).toMatchObject({ status: 404 });
      expect(refused(await decide(id, 'deny', { key: 'k' })).code).toBe('not_found');
      expect(refused(await get(`/approvals/${id}`)).code).toBe('not_found');
    }
  });

  it('while the daemon ends is refused with 503, and the question stays open', async () => {
    const { asked } = await asking();
    await rig.context.supervisor.close();
    const before = rig.counts();
    for (const verb of ['approve', 'deny'] as const) {
      const answer = await decide(asked.id, verb, { key: 'k' });
      expect(refused(answer)).toMatchObject({ status: 503, code: 'shutting_down' });
    }
    expect(rig.counts()).toEqual(before);
    expect(view(await get(`/approvals/${asked.id}`)).status).toBe('pending');
  });
});

describe('what an answer may say', () => {
  it.each<[string, 'approve' | 'deny', object | undefined]>([
    ['nothing', 'approve', undefined],
    ['an empty object', 'deny', {}],
    ['a reason of 1000 characters', 'approve', { reason: 'r'.repeat(1000) }],
    ['a reason and whether it ends the work', 'deny', { reason: 'no', fail: false }],
  ])('is %s', async (_what, verb, body) => {
    const { asked } = await asking();
    const answer = await decide(asked.id, verb, body === undefined ? {} : { body });
    expect(view(answer).status).toBe(verb === 'approve' ? 'approved' : 'denied');
  });

  it.each<[string, 'approve' | 'deny', object, string]>([
    ['a long reason', 'approve', { reason: 'r'.repeat(1001) }, '/reason'],
    ['a reason that is a number', 'deny', { reason: 1 }, '/reason'],
    ['another call in place of the one asked for', 'approve', { arguments: {} }, '/arguments'],
    ['an approval that ends the work', 'approve', { fail: true }, '/fail'],
    ['a word for a boolean', 'deny', { fail: 'yes' }, '/fail'],
  ])('is not %s', async (_what, verb, body, path) => {
    const { asked } = await asking();
    const before = rig.counts();
    expect(refused(await decide(asked.id, verb, { body }))).toEqual({
      status: 422,
      code: 'invalid_request',
      paths: [path],
    });
    expect(rig.counts()).toEqual(before);
  });

  it('row 288: nothing by which a client reports what a runner did: there is no such route', async () => {
    const { asked } = await asking();
    const before = rig.counts();
    for (const path of ['resolve', 'begin', 'end', 'complete']) {
      const answer = await send(rig.socket, {
        method: 'POST',
        path: `/approvals/${asked.id}/${path}`,
        body: {},
      });
      expect(refused(answer).status).toBe(404);
    }
    for (const method of ['PUT', 'PATCH', 'DELETE']) {
      const answer = await send(rig.socket, { method, path: `/approvals/${asked.id}` });
      expect([404, 405]).toContain(answer.status);
    }
    expect(rig.counts()).toEqual(before);
  });
});

describe('the TCP listener', () => {
  it.each([
    'GET /approvals',
    'GET /approvals/ID',
    'POST /approvals/ID/approve',
    'POST /approvals/ID/deny',
  ])('answers %s only to who has the token', async (route) => {
    const { asked } = await asking();
    const [method = '', path = ''] = route.replace('ID', asked.id).split(' ');
    const before = rig.counts();
    const anonymous = { port: rig.tcp.port };
    expect(refused(await send(anonymous, { method, path }))).toMatchObject({
      status: 401,
      code: 'unauthorized',
    });
    const strange = { method, path, headers: { origin: 'https://evil.example' } };
    expect(refused(await send(rig.tcp, strange)).code).toBe('forbidden_origin');
    expect(rig.counts()).toEqual(before);
    expect((await send(rig.tcp, { method, path })).status).toBe(200);
  });
});

/** Reads the workspace's stream until an event of this type. */
async function streamUntil(last: string, act: () => Promise<unknown>): Promise<SseMessage[]> {
  const request = http.get({
    socketPath: rig.socketPath,
    path: '/events',
    headers: { accept: 'text/event-stream' },
    agent: false,
  });
  request.on('error', () => undefined);
  atTheEnd(() => {
    request.destroy();
  });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  await act();
  const parser = new SseParser();
  const seen: SseMessage[] = [];
  for await (const chunk of response) {
    seen.push(...parser.push(chunk as Buffer));
    if (seen.some(({ event }) => event === last)) return seen;
  }
  throw new Error(`the stream ended without ${last}`);
}

describe('row 249: events', () => {
  it('of the work unit tell the question, the wait and each change with its revision', async () => {
    const id = await runningPi(rig, 'issue42');
    const stream = await openStream(rig.socket, id);
    const asked = askOf(rig, id);
    view(await decide(asked.id, 'approve', { body: { reason: 'fine' } }));
    rig.context.supervisor.cancel(id, { actor: 'user', reason: null });
    const told: (readonly [string, Readonly<Record<string, unknown>>])[] = [];
    while (told.at(-1)?.[0] !== 'work_unit.cancelling') {
      const [event] = await stream.next(1);
      if (event) told.push([event.event, event.data['data'] as Record<string, unknown>]);
    }
    stream.drop();
    const types = told.map(([type]) => type);
    expect(types.slice(types.indexOf('approval.requested'))).toEqual([
      'approval.requested',
      'work_unit.approval_requested',
      'approval.changed',
      'work_unit.started',
      'work_unit.cancelling',
    ]);
    const data = Object.fromEntries(told);
    expect(data['approval.requested']).toMatchObject({ toolCallId: 'call_1', tool: 'bash' });
    expect(data['approval.changed']).toEqual({
      approvalId: asked.id,
      cause: 'decided',
      status: 'approved',
      checkpoint: 'waiting',
      revision: 2,
    });
  });

  it('of the workspace carry the same, so that a client knows what to load', async () => {
    const id = await runningPi(rig, 'issue42');
    let asked = '';
    const seen = await streamUntil('approval.changed', async () => {
      asked = askOf(rig, id).id;
      await decide(asked, 'deny');
    });
    const [requested, changed] = ['approval.requested', 'approval.changed'].map((type) => {
      const message = seen.find(({ event }) => event === type);
      return JSON.parse(message?.data ?? '{}') as Record<string, unknown>;
    });
    expect(requested).toMatchObject({ workUnitId: id, data: { tool: 'bash' } });
    expect(changed).toMatchObject({
      workUnitId: id,
      data: { approvalId: asked, status: 'denied' },
    });
    const page = json<{ items: { type: string }[] }>(await get('/events?limit=1000'));
    expect(page.items.map(({ type }) => type)).toEqual(
      expect.arrayContaining(['approval.requested', 'approval.changed']),
    );
  });
});

describe('row 286: a policy in a request is settled before it is queued', () => {
  const rule = (known: object = {}) => ({ effect: 'ask', tool: 'bash', ...known });
  const policy = (known: object, more: object = {}) => ({
    toolPolicy: { rules: [rule(known)] },
    ...more,
  });
  it.each<[string, object, string]>([
    ['for a command, before which nobody stands', { ...COMMAND, ...policy({}) }, '/toolPolicy'],
    [
      'whose expression does not compile',
      { ...PI, ...policy({ argument: { pattern: '(' } }) },
      '/toolPolicy/rules/0/argument/pattern',
    ],
    [
      'whose expression is longer than 1000 characters',
      { ...PI, ...policy({ argument: { pattern: 'x'.repeat(1001) } }) },
      '/toolPolicy/rules/0/argument/pattern',
    ],
    [
      'of more than 100 rules',
      { ...PI, toolPolicy: { rules: Array.from({ length: 101 }, () => rule()) } },
      '/toolPolicy/rules',
    ],
    [
      'of an unknown effect',
      { ...PI, ...policy({ effect: 'perhaps' }) },
      '/toolPolicy/rules/0/effect',
    ],
    ['of an unknown place', { ...PI, ...policy({ path: 'beside' }) }, '/toolPolicy/rules/0/path'],
    ['with a misspelt field', { ...PI, ...policy({ argumnt: {} }) }, '/toolPolicy/rules/0/argumnt'],
    [
      'with another default',
      { ...PI, toolPolicy: { otherwise: 'maybe' } },
      '/toolPolicy/otherwise',
    ],
    ['that is a word', { ...PI, toolPolicy: 'ask' }, '/toolPolicy'],
  ])('one %s is refused, and nothing is stored', async (_what, body, path) => {
    const before = rig.counts();
    for (const query of ['', '?dryRun=true']) {
      const answer = await send(rig.socket, { path: `/work-units${query}`, body });
      expect(refused(answer)).toEqual({ status: 422, code: 'invalid_request', paths: [path] });
    }
    expect(rig.counts()).toEqual(before);
  });

  it('row 229: a good one is kept with the request, whole, and part of what its key stands for', async () => {
    const toolPolicy = {
      rules: [rule({ argument: { name: 'command', pattern: '^git push' }, reason: 'it leaves' })],
      otherwise: 'allow',
    };
    const body = { ...PI, idempotencyKey: 'k' };
    const { id } = json(await post(rig.socket, { ...body, toolPolicy }));
    expect(rig.store.workUnits.get(id)?.request.toolPolicy).toEqual(toolPolicy);
    expect(json(await post(rig.socket, { ...body, toolPolicy })).id).toBe(id);
    expect(refused(await post(rig.socket, body)).code).toBe('idempotency_mismatch');
  });
});
