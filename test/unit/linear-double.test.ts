/** The double of Linear holds its clients to Linear's rules: tests of a test's tool. */
import { createHmac, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LinearDouble, startLinearDouble } from '../support/linear-double/server.ts';
import type { Session } from '../support/linear-double/world.ts';

let linear: LinearDouble;
let token: string;
let session: Session;

beforeEach(async () => {
  linear = await startLinearDouble();
  token = linear.oauth.pair().access_token;
  session = linear.world.startSession('mention', linear.world.addIssue({ labels: ['night'] }));
});
afterEach(() => linear.close());

const CREATE = `mutation Post($input: AgentActivityCreateInput!) {
  agentActivityCreate(input: $input) { success agentActivity { id } } }`;
const UPDATE = `mutation News($id: String!, $input: AgentSessionUpdateInput!) {
  agentSessionUpdate(id: $id, input: $input) { success } }`;

interface Answer {
  readonly status: number;
  readonly data: Record<string, unknown> | null;
  readonly code: string | undefined;
  readonly message: string | undefined;
  readonly headers: Headers;
}

async function ask(query: string, variables: object = {}, bearer = token): Promise<Answer> {
  const answer = await fetch(`${linear.url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${bearer}` },
    body: JSON.stringify({ query, variables }),
  });
  const { data, errors } = (await answer.json()) as {
    data: Answer['data'];
    errors?: { message: string; extensions: { code: string } }[];
  };
  const { status, headers } = answer;
  const first = errors?.[0];
  return { status, data, headers, code: first?.extensions.code, message: first?.message };
}

const post = (content: object, more: object = {}) =>
  ask(CREATE, { input: { agentSessionId: session.id, content, ...more } });

async function grant(fields: Record<string, string>) {
  const answer = await fetch(`${linear.url}/oauth/token`, {
    method: 'POST',
    body: new URLSearchParams({
      client_id: linear.oauth.clientId,
      client_secret: linear.oauth.clientSecret,
      ...fields,
    }),
  });
  const body = (await answer.json()) as Record<string, unknown>;
  return { status: answer.status, body };
}

describe('an activity', () => {
  it('of each type is taken and moves the session', async () => {
    const statuses = [];
    for (const content of [
      { type: 'thought', body: 'I look.' },
      { type: 'action', action: 'Read', parameter: 'lamp.ts', result: 'ok' },
      { type: 'elicitation', body: 'Which lamp?' },
      { type: 'response', body: 'It turns.' },
      { type: 'error', body: 'It broke.' },
    ]) {
      expect((await post(content)).code).toBe(undefined);
      statuses.push(linear.world.status(session));
    }
    expect(statuses).toEqual(['active', 'active', 'awaitingInput', 'complete', 'error']);
    expect(linear.world.comments.map(({ body }) => body)).toEqual([
      'Which lamp?',
      'It turns.',
      'It broke.',
    ]);
    expect(linear.violations()).toEqual([]);
  });

  it.each([
    ['an action with a body', { type: 'action', action: 'a', parameter: 'b', body: 'c' }, {}],
    ['an action without a parameter', { type: 'action', action: 'a' }, {}],
    ['an empty parameter', { type: 'action', action: 'a', parameter: '' }, {}],
    ['an empty thought', { type: 'thought', body: ' ' }, {}],
    ['a response without a body', { type: 'response' }, {}],
    ['an ephemeral response', { type: 'response', body: 'x' }, { ephemeral: true }],
    ['an ephemeral elicitation', { type: 'elicitation', body: 'x' }, { ephemeral: true }],
    ['an ephemeral error', { type: 'error', body: 'x' }, { ephemeral: true }],
    ['a prompt', { type: 'prompt', body: 'x' }, {}],
    ['an unknown type', { type: 'song', body: 'x' }, {}],
    ['an id that is no UUID v4', { type: 'thought', body: 'x' }, { id: 'one' }],
    ['a signal of people', { type: 'elicitation', body: 'x' }, { signal: 'stop' }],
    ['select without options', { type: 'elicitation', body: 'x' }, { signal: 'select' }],
  ])('is refused: %s', async (_what, content, more) => {
    const { status, code } = await post(content, more);
    expect([status, code]).toEqual([400, 'INVALID_INPUT']);
    expect(linear.world.seen(session.id)).toEqual([]);
    expect(linear.violations()).toHaveLength(1);
  });

  it('posted again is a conflict and no second one', async () => {
    const id = randomUUID();
    await post({ type: 'thought', body: 'once' }, { id });
    const { status, code, message } = await post({ type: 'thought', body: 'once' }, { id });
    expect([status, code, message]).toEqual([
      200,
      'INPUT_ERROR',
      'conflict on insert of AgentActivity',
    ]);
    expect(linear.world.seen(session.id)).toHaveLength(1);
    expect(linear.violations()).toEqual([]);
  });

  it('that is ephemeral is gone with the next', async () => {
    await post({ type: 'thought', body: 'passing' }, { ephemeral: true });
    await post({ type: 'thought', body: 'staying' });
    expect(linear.world.seen(session.id).map(({ content }) => content['body'])).toEqual([
      'staying',
    ]);
  });
});

describe('an operation', () => {
  it.each([
    ['an unknown field', 'query { viewer { shoeSize } }', {}],
    ['a wrong enum', CREATE, { input: { agentSessionId: 'x', content: {}, signal: 'halt' } }],
    ['a missing label', UPDATE, { id: 'x', input: { addedExternalUrls: [{ url: 'https://x' }] } }],
    ['no GraphQL at all', 'please', {}],
  ])('is refused by the schema: %s', async (_what, query, variables) => {
    const { status, code } = await ask(query, variables);
    expect([status, code]).toEqual([400, 'GRAPHQL_VALIDATION_FAILED']);
    expect(linear.violations()).toHaveLength(1);
  });

  it('reads an issue with team, labels and states', async () => {
    const { data } = await ask(
      `query($id: String!) { issue(id: $id) { identifier branchName delegate { id } project { id }
        labels { nodes { name } } state { type }
        team { key states(filter: { type: { eq: "started" } }) { nodes { name position } } } } }`,
      { id: session.issue?.id },
    );
    expect(data?.['issue']).toMatchObject({
      identifier: 'LAMP-1',
      delegate: null,
      project: null,
      labels: { nodes: [{ name: 'night' }] },
      state: { type: 'unstarted' },
      team: { key: 'LAMP', states: { nodes: [{ name: 'In Review' }, { name: 'In Progress' }] } },
    });
  });

  it('lists sessions by their last change, with the prompts in them', async () => {
    await linear.clock.advance(1_000);
    const other = linear.world.startSession('automation', null);
    await linear.clock.advance(1_000);
    linear.world.prompt(session, 'and the bell?');
    const { data } = await ask(`{ agentSessions(first: 5, orderBy: updatedAt) { nodes { id
      issue { id } creator { id } appUser { id }
      activities(first: 5, filter: { type: { eq: "prompt" } }) { nodes { id signal
        content { ... on AgentActivityPromptContent { body } } } } } } }`);
    expect(data?.['agentSessions']).toMatchObject({
      nodes: [
        { id: session.id, activities: { nodes: [{ content: { body: 'and the bell?' } }] } },
        { id: other.id, issue: null, creator: null, activities: { nodes: [] } },
      ],
    });
  });

  it('moves an issue, adds links and a plan', async () => {
    const started = linear.world.team.states.find(({ type }) => type === 'started')?.id;
    await ask(
      `mutation($id: String!, $input: IssueUpdateInput!) { issueUpdate(id: $id, input: $input) {
        success } }`,
      {
        id: session.issue?.id,
        input: { stateId: started, delegateId: linear.world.app.id },
      },
    );
    const plan = [{ content: 'Look', status: 'inProgress' }];
    const url = 'https://example.invalid/run';
    await ask(UPDATE, {
      id: session.id,
      input: { plan, addedExternalUrls: [{ label: 'r', url }] },
    });
    expect(session.issue).toMatchObject({ stateId: started, delegateId: linear.world.app.id });
    expect(session).toMatchObject({ plan, links: [{ label: 'r', url }] });
    expect(linear.violations()).toEqual([]);
  });

  it('with a broken plan is refused', async () => {
    const plan = [{ content: 'Look', status: 'done' }];
    expect((await ask(UPDATE, { id: session.id, input: { plan } })).code).toBe('INVALID_INPUT');
  });

  it('that costs too much is refused', async () => {
    const { code } = await ask(`{ agentSessions(first: 250) { nodes { id
      activities(first: 250) { nodes { id } } } } }`);
    expect(code).toBe('INVALID_INPUT');
  });
});

describe('time', () => {
  it('makes a session unresponsive after 10 s', async () => {
    await linear.clock.advance(10_000);
    expect(linear.world.isUnresponsive(session)).toBe(false);
    await linear.clock.advance(1);
    expect(linear.world.isUnresponsive(session)).toBe(true);
  });

  it('a link in time is a first word, a summary is none', async () => {
    const other = linear.world.startSession('mention', null);
    const addedExternalUrls = [{ label: 'run', url: 'https://example.invalid/' }];
    await ask(UPDATE, { id: session.id, input: { addedExternalUrls } });
    await ask(UPDATE, { id: other.id, input: { summary: 'soon' } });
    await linear.clock.advance(11_000);
    expect(linear.world.isUnresponsive(session)).toBe(false);
    expect(linear.world.isUnresponsive(other)).toBe(true);
  });

  it('makes working sessions stale after 30 min, and any word ends that', async () => {
    await post({ type: 'thought', body: 'hm' });
    await linear.clock.advance(1_799_999);
    expect(linear.world.status(session)).toBe('active');
    await linear.clock.advance(1);
    expect(linear.world.status(session)).toBe('stale');
    await post({ type: 'response', body: 'done' });
    await linear.clock.advance(3_600_000);
    expect(linear.world.status(session)).toBe('complete');
    linear.world.prompt(session, 'once more');
    expect(linear.world.status(session)).toBe('pending');
  });
});

describe('a token', () => {
  it('expires after 24 h', async () => {
    await linear.clock.advance(86_399_000);
    const { status, code } = await ask('{ viewer { id } }');
    expect([status, code]).toEqual([401, 'AUTHENTICATION_ERROR']);
  });

  it('is refreshed by rotation; the old one again for 30 min with the same outcome', async () => {
    const first = linear.oauth.pair().refresh_token;
    const second = await grant({ grant_type: 'refresh_token', refresh_token: first });
    expect(second.body['refresh_token']).not.toBe(first);
    await linear.clock.advance(1_800_000);
    const again = await grant({ grant_type: 'refresh_token', refresh_token: first });
    expect(again.body['refresh_token']).toBe(second.body['refresh_token']);
    await linear.clock.advance(1);
    const late = await grant({ grant_type: 'refresh_token', refresh_token: first });
    expect([late.status, late.body['error']]).toEqual([400, 'invalid_grant']);
  });

  it('of client credentials lives 30 days and dies by another scope', async () => {
    const fields = { grant_type: 'client_credentials', scope: 'read,write' };
    const minted = await grant(fields);
    const mine = String(minted.body['access_token']);
    expect(minted.body['refresh_token']).toBe(undefined);
    await linear.clock.advance(29 * 86_400_000);
    expect((await ask('{ viewer { id } }', {}, mine)).status).toBe(200);
    await grant({ ...fields, scope: 'read' });
    expect((await ask('{ viewer { id } }', {}, mine)).status).toBe(401);
  });

  it('comes of a code once', async () => {
    const code = linear.oauth.code();
    const fields = { grant_type: 'authorization_code', code, redirect_uri: 'https://x.invalid/' };
    expect((await grant(fields)).status).toBe(200);
    expect((await grant(fields)).body['error']).toBe('invalid_grant');
  });

  it('is not given for a wrong secret, nor where the app may not', async () => {
    const fields = { grant_type: 'client_credentials', scope: 'read' };
    expect((await grant({ ...fields, client_secret: 'x' })).status).toBe(401);
    linear.oauth.allowsClientCredentials = false;
    expect((await grant(fields)).body['error_description']).toMatch(/does not support/);
  });
});

describe('the budget', () => {
  it('ends as RATELIMITED in HTTP 400 and is whole again at the reset', async () => {
    linear.limits.leave(1);
    const last = await ask('{ viewer { id } }');
    expect(last.headers.get('x-ratelimit-requests-remaining')).toBe('0');
    const over = await ask('{ viewer { id } }');
    expect([over.status, over.code]).toEqual([400, 'RATELIMITED']);
    const reset = Number(over.headers.get('x-ratelimit-requests-reset'));
    expect(reset).toBe(linear.limits.resetAt);
    await linear.clock.advance(reset - linear.clock.now());
    expect((await ask('{ viewer { id } }')).status).toBe(200);
  });

  it('counts complexity, too', async () => {
    linear.limits.leaveComplexity(1);
    expect((await post({ type: 'thought', body: 'dear' })).code).toBe('RATELIMITED');
    expect(linear.world.seen(session.id)).toEqual([]);
  });
});

describe('a fault', () => {
  const thought = { type: 'thought', body: 'x' };

  it.each([
    ['status', { kind: 'status', status: 503 }, 0],
    ['cut', { kind: 'cut' }, 0],
    ['lost', { kind: 'lost' }, 1],
    ['late', { kind: 'late', ms: 1 }, 1],
    ['rate_limited', { kind: 'rate_limited', status: 429, retryAfter: 3 }, 0],
    ['unauthorized', { kind: 'unauthorized' }, 0],
    ['unsuccessful', { kind: 'unsuccessful' }, 0],
  ] as const)('%s has its effect, once', async (_name, fault, effects) => {
    linear.faults.next('agentActivityCreate', fault);
    await post(thought).catch(() => null);
    expect(linear.world.seen(session.id)).toHaveLength(effects);
    expect((await post(thought)).status).toBe(200);
  });

  it('hang is only ended by the client or by the close', async () => {
    linear.faults.next('*', { kind: 'hang' });
    const asked = ask('{ viewer { id } }').then(
      () => 'answered',
      () => 'broken',
    );
    await linear.waitFor(({ name }) => name === 'viewer');
    await linear.close();
    expect(await asked).toBe('broken');
  });
});

describe('webhooks', () => {
  interface Got {
    readonly headers: Record<string, unknown>;
    readonly raw: string;
  }
  let got: Got[];
  let answers: number[];
  let close: () => Promise<unknown>;

  beforeEach(async () => {
    got = [];
    answers = [];
    const receiver = createServer((request, response) => {
      void text(request).then((raw) => {
        got.push({ headers: request.headers, raw });
        const status = answers.shift() ?? 200;
        if (status > 0) response.writeHead(status).end();
      });
    });
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    linear.webhooks.url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;
    close = () => {
      const closed = once(receiver, 'close');
      receiver.close();
      receiver.closeAllConnections();
      return closed;
    };
  });
  afterEach(() => close());

  const hooks = () => linear.webhooks;
  const last = () => JSON.parse(got.at(-1)?.raw ?? '{}') as Record<string, unknown>;

  it('are signed over the bytes that are sent', async () => {
    expect(await hooks().send(hooks().created(session))).toMatchObject({ ok: true, status: 200 });
    const { headers, raw } = got[0] as Got;
    const expected = createHmac('sha256', hooks().secret).update(raw).digest('hex');
    expect(headers['linear-signature']).toBe(expected);
    expect(headers['linear-event']).toBe('AgentSessionEvent');
    expect(headers['linear-timestamp']).toBe(String(last()['webhookTimestamp']));
  });

  it.each(['mention', 'delegation', 'automation'] as const)('tell of a %s', async (how) => {
    const issue = how === 'automation' ? null : linear.world.addIssue();
    const begun = linear.world.startSession(how, issue);
    await hooks().send(hooks().created(begun));
    const told = last()['agentSession'] as Record<string, unknown>;
    expect(told['id']).toBe(begun.id);
    expect(told['issueId']).toBe(issue?.id ?? null);
    expect(told['creator'] === null).toBe(how === 'automation');
    expect(issue?.delegateId ?? null).toBe(how === 'delegation' ? linear.world.app.id : null);
  });

  it('carry prompts in content.body, and stop as a signal', async () => {
    await hooks().send(hooks().prompted(session, 'also the bell'));
    expect(last()).toMatchObject({
      action: 'prompted',
      agentActivity: { content: { type: 'prompt', body: 'also the bell' } },
    });
    await hooks().send(hooks().stop(session));
    expect(last()).toMatchObject({ action: 'prompted', agentActivity: { signal: 'stop' } });
  });

  it('tell what nobody knows, of permissions and of a revoked app', async () => {
    const types = [];
    for (const delivery of [
      hooks().unknownType(),
      hooks().unknownAction(session),
      hooks().permissionChange([linear.world.team.id]),
      hooks().revoked(),
    ]) {
      await hooks().send(delivery);
      types.push(`${String(last()['type'])} ${String(last()['action'])}`);
    }
    expect(types).toEqual([
      'TideEvent rose',
      'AgentSessionEvent serenaded',
      'PermissionChange teamAccessChanged',
      'OAuthApp revoked',
    ]);
  });

  it('come again identical or restamped, when the clock says so', async () => {
    const delivery = hooks().created(session);
    await hooks().send(delivery);
    hooks().repeat(delivery, 'identical', [1_100]);
    hooks().repeat(delivery, 'restamped', [60_000]);
    await linear.clock.advance(1_099);
    expect(got).toHaveLength(1);
    await linear.clock.advance(1);
    expect(got[1]?.raw).toBe(got[0]?.raw);
    expect(got[1]?.headers['linear-delivery']).toBe(delivery.id);
    await linear.clock.advance(60_000);
    expect(last()['webhookTimestamp']).toBe(delivery.timestamp + 60_000);
    expect(got[2]?.headers['linear-delivery']).not.toBe(delivery.id);
    expect({ ...last(), webhookTimestamp: 0 }).toEqual({
      ...JSON.parse(got[0]?.raw ?? ''),
      webhookTimestamp: 0,
    });
  });

  it('are tried at 1 min, 1 h and 6 h until 200, which 202 is not', async () => {
    answers = [500, 202];
    const begun = linear.clock.now();
    expect((await hooks().sendWithRetries(hooks().created(session), 'restamped')).ok).toBe(false);
    await linear.clock.advance(24 * 3_600_000);
    const times = got.map(({ raw }) => JSON.parse(raw).webhookTimestamp - begun);
    expect(times).toEqual([0, 60_000, 3_600_000]);
    expect(hooks().tries.map(({ outcome }) => outcome.status)).toEqual([500, 202, 200]);
  });

  it('count no answer in time as a failure', async () => {
    answers = [0];
    const outcome = await hooks().send(hooks().created(session), { deadlineMs: 50 });
    expect(outcome).toMatchObject({ status: 0, ok: false });
  });

  it('can be forged', async () => {
    await hooks().send(hooks().created(session), {
      headers: { 'linear-signature': undefined, 'linear-timestamp': '1' },
    });
    expect(got[0]?.headers['linear-signature']).toBe(undefined);
    expect(got[0]?.headers['linear-timestamp']).toBe('1');
  });
});

it('keeps no token in what it recorded', async () => {
  await ask('{ viewer { id } }');
  await grant({ grant_type: 'refresh_token', refresh_token: linear.oauth.pair().refresh_token });
  expect(JSON.stringify(linear.calls())).not.toMatch(/access_|refresh_[0-9a-f]/);
});
