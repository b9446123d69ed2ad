/** The client of Linear's API: what it asks, and what it makes of every kind of answer. */
import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LinearClient } from '../../src/linear/client.ts';
import type { ActivityInput } from '../../src/linear/port.ts';
import { LinearRig, problemOf } from '../support/linear-client.ts';
import type { LinearDouble } from '../support/linear-double/server.ts';
import type { Session } from '../support/linear-double/world.ts';

let rig: LinearRig;
let linear: LinearDouble;
let client: LinearClient;
let session: Session;

beforeEach(async () => {
  rig = await LinearRig.start();
  linear = rig.linear;
  client = rig.minting();
  session = linear.world.startSession(
    'mention',
    linear.world.addIssue({ labels: ['night'], project: 'Coast' }),
  );
});
afterEach(() => rig.end());

const thought = (body = 'I look.'): ActivityInput => ({
  id: randomUUID(),
  agentSessionId: session.id,
  content: { type: 'thought', body },
});

describe('what it asks fits Linear', () => {
  afterEach(() => rig.expectNoViolations());

  it.each([
    { type: 'thought', body: 'I look.' },
    { type: 'action', action: 'Read', parameter: 'lamp.ts', result: 'ok' },
    { type: 'elicitation', body: 'Which?' },
    { type: 'response', body: 'It turns.' },
    { type: 'error', body: 'It broke.' },
  ] as const)('an activity of type $type', async (content) => {
    const id = randomUUID();
    await client.createActivity({ id, agentSessionId: session.id, content }, 0);
    expect(linear.world.seen(session.id)).toMatchObject([{ id, content, ephemeral: false }]);
  });

  it('an ephemeral one, and a choice', async () => {
    await client.createActivity({ ...thought(), ephemeral: true }, 2);
    await client.createActivity(
      {
        ...thought(),
        content: { type: 'elicitation', body: 'Which?' },
        signal: 'select',
        signalMetadata: { options: [{ value: 'left' }] },
      },
      0,
    );
    expect(linear.world.activities).toMatchObject([{ ephemeral: true }, { signal: 'select' }]);
  });

  it('links and a plan of a session', async () => {
    const addedExternalUrls = [{ label: 'Run', url: 'https://run.invalid/1' }];
    const plan = [{ content: 'Look', status: 'pending' }] as const;
    await client.updateSession(session.id, { addedExternalUrls, plan }, 1);
    expect(session).toMatchObject({ links: addedExternalUrls, plan });
  });

  it('an issue, and null for one that is not there', async () => {
    const { issue } = session;
    expect(await client.issue(issue?.id ?? '')).toEqual({
      id: issue?.id,
      identifier: 'LAMP-1',
      title: 'The lamp number 1 does not turn',
      url: 'https://linear.app/lighthouse/issue/LAMP-1',
      branchName: 'ada/lamp-1-lamp',
      team: { id: linear.world.team.id, key: 'LAMP' },
      project: { id: issue?.project?.id, name: 'Coast' },
      labels: ['night'],
      state: { id: issue?.stateId, type: 'unstarted' },
      delegateId: null,
    });
    expect(await client.issue(randomUUID())).toBe(null);
  });

  it('the first started state, and the move of an issue to it', async () => {
    const state = await client.startedState(linear.world.team.id);
    expect(state).toBe(linear.world.team.states.find(({ name }) => name === 'In Progress')?.id);
    const { id } = await client.viewer();
    await client.updateIssue(session.issue?.id ?? '', { stateId: state ?? '', delegateId: id });
    expect(session.issue).toMatchObject({ stateId: state, delegateId: linear.world.app.id });
  });

  it('no started state where a team has none', async () => {
    const { id, states } = linear.world.addTeam('FOG', 'Fog');
    for (const each of [...states]) {
      if (each.type === 'started') (states as (typeof each)[]).splice(states.indexOf(each), 1);
    }
    expect(await client.startedState(id)).toBe(null);
  });

  it('who it is, once', async () => {
    const { organization, app } = linear.world;
    const us = { id: app.id, organizationId: organization.id };
    expect([await client.viewer(), await client.viewer()]).toEqual([us, us]);
    expect(linear.calls('viewer')).toHaveLength(1);
  });
});

describe('recent sessions', () => {
  it('are ours, changed since, with the prompts of people in their order', async () => {
    await linear.clock.advance(1_000);
    const since = linear.clock.text();
    await linear.clock.advance(1_000);
    linear.world.prompt(session, 'first');
    await linear.clock.advance(1);
    linear.world.prompt(session, 'Stop', 'stop');
    const other = linear.world.startSession('automation', null);
    Object.assign(linear.world.startSession('mention', null), {
      appUserId: linear.world.person.id,
    });
    const found = await client.recentSessions(since, 10);
    expect(found.map(({ id }) => id).toSorted()).toEqual([session.id, other.id].toSorted());
    expect(found.find(({ id }) => id === session.id)).toMatchObject({
      status: 'pending',
      issue: { id: session.issue?.id },
      prompts: [
        { body: 'first', signal: null },
        { body: 'Stop', signal: 'stop' },
      ],
    });
    expect(found.find(({ id }) => id === other.id)).toMatchObject({ issue: null, prompts: [] });
    expect(linear.violations()).toEqual([]);
  });

  it('bug 2: are none that the app began itself', async () => {
    const { world, clock } = linear;
    const since = clock.text();
    await clock.advance(1);
    const [ours, theirs] = ['delegation', 'delegation'].map(() =>
      world.startSession('delegation', world.addIssue()),
    );
    Object.assign(ours ?? {}, { creator: world.app });
    expect((await client.recentSessions(since, 10)).map(({ id }) => id)).toEqual([theirs?.id]);
    expect(linear.violations()).toEqual([]);
  });

  it('are read over pages, up to the limit, and no further than needed', async () => {
    const since = linear.clock.text();
    await linear.clock.advance(1);
    for (let n = 0; n < 60; n++) linear.world.startSession('mention', null);
    expect(await client.recentSessions(since, 100)).toHaveLength(60);
    expect(linear.calls('agentSessions')).toHaveLength(3);
    expect(await client.recentSessions(since, 30)).toHaveLength(30);
    expect(linear.calls('agentSessions')).toHaveLength(5);
    await linear.clock.advance(1);
    const later = linear.clock.text();
    await linear.clock.advance(1);
    linear.world.prompt(session, 'only this one');
    expect(await client.recentSessions(later, 100)).toHaveLength(1);
    expect(linear.calls('agentSessions')).toHaveLength(6);
  });

  it('have all their prompts, however many', async () => {
    const since = linear.clock.text();
    for (let n = 0; n < 45; n++) {
      await linear.clock.advance(1);
      linear.world.prompt(session, `${n}`);
    }
    const [found] = await client.recentSessions(since, 10);
    expect(found?.prompts.map(({ body }) => body)).toEqual(
      Array.from({ length: 45 }, (_, n) => `${n}`),
    );
  });
});

describe('a failure', () => {
  it('bug 7: `success: false` without an error is one, and passes', async () => {
    linear.faults.next('agentActivityCreate', { kind: 'unsuccessful' });
    const activity = thought();
    expect(await problemOf(client.createActivity(activity, 0))).toEqual({
      kind: 'transient',
      message: 'agentActivityCreate was answered success: false',
    });
    await client.createActivity(activity, 0);
    expect(linear.world.seen(session.id)).toHaveLength(1);
  });

  it('bug 7: nothing is swallowed: what can never be accepted says why', async () => {
    expect(await problemOf(client.createActivity(thought(''), 0))).toEqual({
      kind: 'rejected',
      code: 'INVALID_INPUT',
      message: 'Argument Validation Error: content.body of thought must not be empty',
    });
    const lost = { ...thought(), agentSessionId: randomUUID() };
    expect(await problemOf(client.createActivity(lost, 0))).toMatchObject({
      kind: 'rejected',
      code: 'NOT_FOUND',
    });
    const nowhere = client.updateIssue(randomUUID(), {});
    expect(await problemOf(nowhere)).toMatchObject({ kind: 'rejected', code: 'NOT_FOUND' });
  });

  it('a lost answer: the same activity again is a conflict, and so delivered', async () => {
    linear.faults.next('agentActivityCreate', { kind: 'lost' });
    const activity = thought();
    expect(await problemOf(client.createActivity(activity, 0))).toMatchObject({
      kind: 'transient',
    });
    await client.createActivity(activity, 0);
    await client.createActivity(activity, 0);
    expect(linear.world.seen(session.id)).toHaveLength(1);
    expect(linear.calls('agentActivityCreate').map(({ code }) => code)).toEqual([
      null,
      'INPUT_ERROR',
      'INPUT_ERROR',
    ]);
  });

  it.each([500, 502, 503, 403, 404])(
    'HTTP %d with a page of somebody else passes',
    async (status) => {
      linear.faults.next('agentActivityCreate', { kind: 'status', status });
      expect(await problemOf(client.createActivity(thought(), 0))).toMatchObject({
        kind: 'transient',
        message: expect.stringContaining(`HTTP ${status}`),
      });
    },
  );

  it('HTTP 200 with no JSON passes', async () => {
    linear.faults.next('issue', { kind: 'status', status: 200, body: '<html>' });
    expect(await problemOf(client.issue(session.issue?.id ?? ''))).toMatchObject({
      kind: 'transient',
    });
  });

  it('a redirect is not followed: the token stays here', async () => {
    const location = `${linear.url}/elsewhere`;
    linear.faults.next('agentActivityCreate', { kind: 'status', status: 307, location });
    expect((await problemOf(client.createActivity(thought(), 0))).kind).toBe('transient');
    expect(linear.violations()).toEqual([]);
  });

  it('an answer in another shape passes, and names the field', async () => {
    const body = JSON.stringify({ data: { issue: { id: 7 } } });
    linear.faults.next('issue', { kind: 'status', status: 200, body });
    expect(await problemOf(client.issue(session.issue?.id ?? ''))).toMatchObject({
      kind: 'transient',
      message: expect.stringContaining('(id)'),
    });
  });

  it('a mutation that happened has happened, whatever else went wrong', async () => {
    const body = JSON.stringify({
      data: { agentActivityCreate: { success: true } },
      errors: [{ message: 'x', extensions: { type: 'internal error' } }],
    });
    linear.faults.next('agentActivityCreate', { kind: 'status', status: 200, body });
    await client.createActivity(thought(), 0);
    expect(linear.calls('agentActivityCreate')).toHaveLength(1);
  });

  it('no answer at all ends at the deadline', async () => {
    const hasty = rig.minting({ deadlineMs: 100 });
    linear.faults.next('agentActivityCreate', { kind: 'hang' });
    expect(await problemOf(hasty.createActivity(thought(), 0))).toEqual({
      kind: 'transient',
      message: 'no answer within 100 ms',
    });
  });

  it('a broken connection, and nobody there', async () => {
    await client.viewer();
    linear.faults.next('agentActivityCreate', { kind: 'cut' });
    expect(await problemOf(client.createActivity(thought(), 0))).toMatchObject({
      kind: 'transient',
      message: expect.stringMatching(/^no answer: /),
    });
    await linear.close();
    expect(await problemOf(client.createActivity(thought(), 0))).toMatchObject({
      kind: 'transient',
      message: 'no answer: ECONNREFUSED',
    });
  });

  it('the end of the daemon gives up what is under way', async () => {
    const ends = new AbortController();
    const ending = rig.minting({ signal: ends.signal });
    linear.faults.next('agentActivityCreate', { kind: 'hang' });
    const asked = problemOf(ending.createActivity(thought(), 0));
    await linear.waitFor(({ name }) => name === 'agentActivityCreate');
    ends.abort();
    expect(await asked).toEqual({ kind: 'transient', message: 'given up, the daemon ends' });
  });
});

describe('the budget', () => {
  const limited = async (priority: 0 | 1 | 2 = 0) => {
    const problem = await problemOf(client.createActivity(thought(), priority));
    return problem.kind === 'rate_limited' ? problem.retryAt : problem;
  };

  it.each([400, 429, 401])(
    'bug 34: RATELIMITED as HTTP %d is that, until the reset',
    async (status) => {
      linear.limits.refusalStatus = status;
      await client.viewer();
      linear.limits.leave(0);
      expect(await limited()).toBe(linear.limits.resetAt);
      expect(await limited()).toBe(linear.limits.resetAt);
      expect(linear.limits.refused).toBe(1);
      expect(linear.oauth.minted).toBe(1);
      expect(rig.health().problem()).toBe(null);
      await linear.clock.advance(linear.limits.resetAt - linear.clock.now());
      await client.createActivity(thought(), 2);
    },
  );

  it('a 429 without words is one as well', async () => {
    linear.faults.next('agentActivityCreate', { kind: 'status', status: 429 });
    expect(await limited()).toBe(linear.clock.now() + 60_000);
  });

  it('bug 34: a read is no "not found" while the budget is used up', async () => {
    await client.viewer();
    linear.limits.leave(0);
    expect(await problemOf(client.issue(randomUUID()))).toMatchObject({ kind: 'rate_limited' });
    expect(await problemOf(client.startedState('x'))).toMatchObject({ kind: 'rate_limited' });
  });

  it('retry-after goes before all else', async () => {
    linear.faults.next('*', { kind: 'rate_limited', status: 429, retryAfter: 7 });
    await problemOf(client.viewer());
    linear.faults.next('agentActivityCreate', { kind: 'rate_limited', status: 429, retryAfter: 7 });
    expect(await limited()).toBe(linear.clock.now() + 7_000);
  });

  it('a refusal that tells no time closes for longer each time', async () => {
    await client.viewer();
    const waits = [];
    for (let n = 0; n < 6; n++) {
      linear.faults.next('agentActivityCreate', { kind: 'rate_limited' });
      const until = Number(await limited());
      waits.push((until - linear.clock.now()) / 60_000);
      await linear.clock.advance(until - linear.clock.now());
    }
    expect(waits).toEqual([1, 2, 4, 8, 15, 15]);
    await client.createActivity(thought(), 0);
    linear.faults.next('agentActivityCreate', { kind: 'rate_limited' });
    expect(Number(await limited()) - linear.clock.now()).toBe(60_000);
  });

  it('progress is given up before answers, and answers before final words', async () => {
    linear.limits.leave(1_002);
    await client.createActivity(thought(), 2);
    await client.createActivity(thought(), 2);
    expect(await limited(2)).toBe(linear.limits.resetAt);
    await client.createActivity(thought(), 1);
    linear.limits.leave(251);
    await client.createActivity(thought(), 1);
    expect(await limited(1)).toBe(linear.limits.resetAt);
    await client.createActivity(thought(), 0);
    expect(linear.limits.refused).toBe(0);
  });

  it('complexity counts as well', async () => {
    await client.viewer();
    linear.limits.leaveComplexity(300_000);
    await client.createActivity(thought(), 2);
    expect(await limited(2)).toBe(linear.limits.resetAt);
    await client.createActivity(thought(), 1);
    expect(client.budget()).toMatchObject({ complexity: { limit: 2_000_000 }, closedUntil: null });
  });

  it('calls under way count as spent', async () => {
    await client.viewer();
    linear.limits.leave(3);
    await client.createActivity(thought(), 0);
    linear.faults.always('agentActivityCreate', { kind: 'late', ms: 20 });
    const outcomes = await Promise.allSettled(
      Array.from({ length: 5 }, () => client.createActivity(thought(), 0)),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(2);
    expect(linear.limits.refused).toBe(0);
  });
});
