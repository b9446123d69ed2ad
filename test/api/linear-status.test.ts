/** GET /linear/status over a real store. */
import pino from 'pino';
import { afterEach, describe, expect, it } from 'vitest';
import { linearStatusSchema } from '../../src/api/schemas-linear.ts';
import { AUTH_PROBLEM } from '../../src/linear/auth-health.ts';
import { createDeliveries, createHandlers } from '../../src/linear/deliveries.ts';
import { createIngress } from '../../src/linear/ingress.ts';
import { type LinearLive, linearDetails, NOT_LIVE } from '../../src/linear/status.ts';
import { SWEEP_CURSOR } from '../../src/linear/sweep.ts';
import { trialWebhook } from '../../src/linear/trial.ts';
import type { NewDelivery } from '../../src/store/linear-deliveries.ts';
import type { Store } from '../../src/store/store.ts';
import { json, send } from '../support/api-http.ts';
import { bootApi, cleanUp } from '../support/api-rig.ts';

afterEach(cleanUp);

const AT = '2027-02-03T10:11:12.345Z';
const LATER = '2027-02-03T10:12:12.345Z';

function deliver(store: Store, id: string, more: Partial<NewDelivery> = {}): void {
  const row: NewDelivery = {
    ...{ id, contentKey: id, deliveryId: null, type: 'AgentSessionEvent', action: 'created' },
    ...{ organizationId: null, sessionId: null, source: 'webhook', receivedAt: AT },
    ...{ signedAt: null, body: Buffer.from('{}'), state: 'new', detail: null },
    ...more,
  };
  store.write(() => store.linearDeliveries.record(row));
}

async function statusOf(live: LinearLive | null, prepare: (store: Store) => void = () => {}) {
  const rig = await bootApi();
  prepare(rig.store);
  const linearStatus = () => live && linearDetails(rig.store, live);
  Object.assign(rig.context, { linearStatus });
  const answer = await send(rig.socket, { path: '/linear/status' });
  expect(answer.status, answer.text).toBe(200);
  return linearStatusSchema.parse(json(answer));
}

describe('GET /linear/status', () => {
  it('says that Linear is not configured', async () => {
    expect(await statusOf(null)).toEqual({ configured: false, status: null });
  });

  it('says what is known before anything happened', async () => {
    const { configured, status } = await statusOf(NOT_LIVE);
    expect(configured).toBe(true);
    expect(status).toEqual({
      authProblem: null,
      permissions: null,
      appUserId: null,
      organizationId: null,
      deliveries: { lastReceivedAt: null, new: 0, failed: 0 },
      outbox: { pending: 0, failed: 0, oldestPendingAt: null },
      openSessions: 0,
      openTurns: 0,
      sweep: { lastAt: null, problem: null },
      budget: { requests: null, complexity: null, closedUntil: null },
    });
  });

  it('counts webhooks, and takes what only the daemon knows', async () => {
    const at = Date.parse(AT);
    const live: LinearLive = {
      viewer: { id: 'app-1', organizationId: 'org-1' },
      budget: {
        requests: { limit: 5_000, remaining: 4_999, resetAt: at },
        complexity: null,
        closedUntil: at,
      },
      sweepProblem: { kind: 'transient', message: 'no answer', since: at },
    };
    const { status } = await statusOf(live, (store) => {
      deliver(store, '1');
      deliver(store, '2', { state: 'failed', receivedAt: LATER });
      deliver(store, '3', { source: 'sweep', receivedAt: '2027-02-03T11:00:00.000Z' });
      const problem = { code: 'invalid_client', message: 'mend it', since: AT };
      store.write(() => {
        store.linearFacts.put(AUTH_PROBLEM, problem, AT);
        store.linearFacts.put(SWEEP_CURSOR, at, AT);
      });
    });
    expect(status).toMatchObject({
      authProblem: { code: 'invalid_client', message: 'mend it', since: AT },
      appUserId: 'app-1',
      organizationId: 'org-1',
      deliveries: { lastReceivedAt: LATER, new: 2, failed: 1 },
      sweep: { lastAt: AT, problem: { code: 'transient', message: 'no answer', since: AT } },
      budget: { requests: { limit: 5_000, remaining: 4_999, resetAt: AT }, closedUntil: AT },
    });
  });
});

describe('the newest webhook', () => {
  it('bug 32: is one that tells of a session, for others come without “Agent session events” too', async () => {
    const others = ['Issue', 'Comment', 'OAuthApp', 'OutliveSetupTest'];
    const { status } = await statusOf(NOT_LIVE, (store) => {
      for (const type of others) deliver(store, type, { type, state: 'ignored' });
    });
    expect(status?.deliveries.lastReceivedAt).toBeNull();
    const told = await statusOf(NOT_LIVE, (store) => {
      deliver(store, '1');
      for (const type of others) deliver(store, type, { type, receivedAt: LATER });
    });
    expect(told.status?.deliveries.lastReceivedAt).toBe(AT);
  });
});

describe('the self-test of the set-up', () => {
  it('is taken by the real way in and ignored, and is one row however often it is made', async () => {
    const secret = 'of-this-test';
    const rig = await bootApi(undefined, undefined, undefined, ({ store, entropy }) =>
      createIngress({
        ...{ store: () => store, secret, organizationId: null, entropy },
        log: pino({ level: 'silent' }),
        onDelivery: () => {},
      }),
    );
    for (const now of [Date.now() - 1_000, Date.now()]) {
      const { body, signature } = trialWebhook(secret, now);
      const headers = { 'content-type': 'application/json', 'linear-signature': signature };
      const call = { method: 'POST', path: '/linear/webhook', body, headers };
      expect((await send(rig.socket, call)).status).toBe(200);
    }
    expect(rig.store.linearDeliveries.counts()).toMatchObject({ new: 1, repeats: 1 });
    const handlers = createHandlers<Store>();
    const deliveries = createDeliveries(rig.store.linearDeliveries);
    const delivery = deliveries.takeNext();
    expect(delivery && handlers.handle(delivery, rig.store)).toMatchObject({ state: 'ignored' });
  });
});
