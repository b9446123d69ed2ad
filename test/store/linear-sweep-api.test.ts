/** The sweep over the real client of Linear's API, against the double. X16 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Entropy } from '../../src/domain/ids.ts';
import { AuthHealth } from '../../src/linear/auth-health.ts';
import { createLinearClient, type LinearClient } from '../../src/linear/client.ts';
import { createSweep, type Sweep } from '../../src/linear/sweep.ts';
import { recordSwept } from '../../src/linear/swept.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { type LinearDouble, startLinearDouble } from '../support/linear-double/server.ts';
import { ManualTimers } from '../unit/systemd-manual-timers.ts';

const log = pino({ level: 'silent' });
let directory: string;
let store: Store;
let linear: LinearDouble;
let client: LinearClient;
let sweep: Sweep;

beforeEach(async () => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-sweep-'));
  store = openStore(directory, 'main', '2027-02-03T10:11:12.345Z');
  linear = await startLinearDouble();
  const entropy: Entropy = {
    now: () => linear.clock.now(),
    monotonic: () => linear.clock.now(),
    uptimeSeconds: () => 0,
    random: (size) => randomBytes(size),
  };
  const { clientId, clientSecret } = linear.oauth;
  client = createLinearClient({
    credentials: { grant: 'client_credentials', clientId, clientSecret },
    health: new AuthHealth({ store, entropy, log }),
    urls: { api: `${linear.url}/graphql`, token: `${linear.url}/oauth/token` },
    entropy,
    log,
  });
  sweep = createSweep({
    api: client,
    facts: {
      get: (name) => store.linearFacts.get(name)?.value,
      put: (name, value) => {
        store.write(() => store.linearFacts.put(name, value, new Date().toISOString()));
      },
    },
    known: { isOwn: () => false, isKnown: () => false, isHeardOf: () => false },
    deliver: (events) => recordSwept(events, { store: () => store, entropy, onDelivery: () => {} }),
    entropy,
    timers: new ManualTimers(),
    log,
  });
});
afterEach(async () => {
  await sweep.close();
  await linear.close();
  store.close();
  rmSync(directory, { recursive: true });
});

const actions = (): string[] => {
  const found: string[] = [];
  for (let row = store.linearDeliveries.next(); row; row = store.linearDeliveries.next(row.id)) {
    found.push(row.action);
  }
  return found;
};

it('finds over the API what no webhook told of, once, also after a restart', async () => {
  const session = linear.world.startSession('mention', linear.world.addIssue());
  await linear.clock.advance(30_000);
  linear.webhooks.prompted(session, 'and the other lamp');
  await sweep.now();
  expect(sweep.problem()).toBeNull();
  expect(actions()).toEqual(['created', 'prompted']);
  await linear.clock.advance(60_000);
  await sweep.now();
  expect(actions()).toEqual(['created', 'prompted']);
  expect(linear.violations()).toEqual([]);
});

it('waits while nobody may call, and finds it at once when somebody may', async () => {
  linear.oauth.allowsClientCredentials = false;
  linear.world.startSession('delegation', linear.world.addIssue());
  await sweep.now();
  expect(sweep.problem()).toMatchObject({ kind: 'auth' });
  expect(actions()).toEqual([]);
  linear.oauth.allowsClientCredentials = true;
  client.probeNow();
  await sweep.now();
  expect([sweep.problem(), actions()]).toEqual([null, ['created']]);
});
