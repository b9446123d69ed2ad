/** Tokens: minted and rotated, lost answers and crashes, and a problem that is seen and ends. */
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OutliveError } from '../../src/domain/errors.ts';
import { AuthHealth } from '../../src/linear/auth-health.ts';
import { redeemCode } from '../../src/linear/redeem.ts';
import type { TokenPair, TokenStore } from '../../src/linear/token-file.ts';
import { LinearRig, problemOf } from '../support/linear-client.ts';
import type { LinearDouble } from '../support/linear-double/server.ts';

let rig: LinearRig;
let linear: LinearDouble;

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

beforeEach(async () => {
  rig = await LinearRig.start();
  linear = rig.linear;
});
afterEach(() => rig.end());
afterEach(() => rig.expectNoViolations());

const grants = () => linear.calls('token').map(({ variables }) => variables['grant']);
const pair = (): TokenPair => rig.tokens().load() as TokenPair;
const activity = () => ({
  id: randomUUID(),
  agentSessionId: linear.world.startSession('mention', null).id,
  content: { type: 'response', body: 'done' } as const,
});

describe('client credentials', () => {
  it('bug 30: a token that cannot be minted fails the call, and is a problem that is stored', async () => {
    linear.oauth.allowsClientCredentials = false;
    const client = rig.minting();
    const problem = await problemOf(client.createActivity(activity(), 0));
    expect(problem.kind).toBe('auth');
    expect(linear.calls('agentActivityCreate')).toEqual([]);
    rig.restart();
    expect(rig.health().problem()).toMatchObject({
      code: 'Error',
      message:
        'Linear gives no token: Client does not support the client_credentials grant type. Allow client credentials in the settings of the app.',
    });
  });

  it('the problem ends by itself once a token works', async () => {
    linear.oauth.allowsClientCredentials = false;
    const client = rig.minting();
    await problemOf(client.viewer());
    linear.oauth.allowsClientCredentials = true;
    await linear.clock.advance(5_000);
    await client.viewer();
    expect(rig.health().problem()).toBe(null);
    expect(rig.store.linearFacts.list()).toEqual([]);
  });

  it('nobody is asked again at once, and a person may hasten it', async () => {
    linear.oauth.clientSecret = 'another-secret-of-the-app';
    const client = rig.client(
      { grant: 'client_credentials', clientId: linear.oauth.clientId, clientSecret: 'wrong-one' },
      {},
    );
    rig.secrets.push('wrong-one');
    for (let n = 0; n < 3; n++) expect((await problemOf(client.viewer())).kind).toBe('auth');
    expect(grants()).toHaveLength(1);
    client.probeNow();
    await problemOf(client.viewer());
    expect(grants()).toHaveLength(2);
    expect(rig.health().problem()?.message).toMatch(/Check the client id and secret/);
  });

  it('one token for all who ask at once', async () => {
    const client = rig.minting();
    await Promise.all(Array.from({ length: 8 }, () => client.createActivity(activity(), 0)));
    expect(linear.oauth.minted).toBe(1);
  });

  it('bug 8: it is minted again when it is refused, as often as that happens', async () => {
    const client = rig.minting();
    for (let n = 1; n <= 4; n++) {
      await client.createActivity(activity(), 0);
      expect(linear.oauth.minted).toBe(n);
      linear.oauth.expireAccess();
    }
    expect(rig.health().problem()).toBe(null);
  });

  it('bug 8: and before it expires, over many lives of it', async () => {
    const client = rig.minting();
    for (let n = 1; n <= 6; n++) {
      await client.viewer();
      await client.createActivity(activity(), 0);
      await linear.clock.advance(30 * DAY - HOUR / 2 - 2_000);
      await client.createActivity(activity(), 0);
      await linear.waitFor(() => linear.oauth.minted > n);
      await linear.clock.advance(HOUR);
    }
    expect(linear.calls().filter(({ code }) => code === 'AUTHENTICATION_ERROR')).toEqual([]);
  });

  it('many that are refused together mint one', async () => {
    const client = rig.minting();
    await client.viewer();
    linear.oauth.expireAccess();
    await Promise.all(Array.from({ length: 6 }, () => client.createActivity(activity(), 0)));
    expect(linear.oauth.minted).toBe(2);
    expect(rig.errors()).toEqual([]);
  });

  it('is minted again also for a 401 without words', async () => {
    const client = rig.minting();
    await client.viewer();
    linear.faults.next('agentActivityCreate', { kind: 'status', status: 401 });
    await client.createActivity(activity(), 0);
    expect(linear.oauth.minted).toBe(2);
  });

  it('a token that cannot be renewed early is tried again once a minute', async () => {
    const client = rig.minting();
    await client.viewer();
    await linear.clock.advance(30 * DAY - HOUR / 2);
    linear.faults.always('token', { kind: 'status', status: 502 });
    for (let n = 0; n < 3; n++) await client.createActivity(activity(), 0);
    await linear.waitFor(({ name, status }) => name === 'token' && status === 502);
    for (let n = 0; n < 3; n++) await client.createActivity(activity(), 0);
    expect(linear.calls('token')).toHaveLength(2);
    await linear.clock.advance(60_000);
    linear.faults.clear();
    await client.createActivity(activity(), 0);
    await linear.waitFor(() => linear.oauth.minted === 2);
  });

  it('a new token that is refused as well is a problem, and no storm', async () => {
    const client = rig.minting();
    await client.viewer();
    linear.faults.always('agentActivityCreate', { kind: 'unauthorized' });
    for (let n = 0; n < 4; n++) {
      expect((await problemOf(client.createActivity(activity(), 0))).kind).toBe('auth');
    }
    expect(linear.oauth.minted).toBe(2);
    expect(rig.health().problem()).toMatchObject({ code: 'token_refused' });
    linear.faults.clear();
    await linear.clock.advance(60_000);
    await client.createActivity(activity(), 0);
    expect(rig.health().problem()).toBe(null);
  });

  it.each([
    ['a page of somebody else', { kind: 'status', status: 502 }, 'transient'],
    ['a broken connection', { kind: 'cut' }, 'transient'],
    ['a 429', { kind: 'status', status: 429 }, 'rate_limited'],
    ['RATELIMITED', { kind: 'rate_limited', retryAfter: 9 }, 'rate_limited'],
  ] as const)(
    '%s in place of a token passes, and is no problem of a person',
    async (_n, fault, kind) => {
      linear.faults.always('token', fault);
      const client = rig.minting();
      expect((await problemOf(client.viewer())).kind).toBe(kind);
      expect(rig.health().problem()).toBe(null);
      linear.faults.clear();
      await client.viewer();
    },
  );

  it('OAuth words in a 503 are no problem of a person', async () => {
    const body = JSON.stringify({ error: 'temporarily_unavailable' });
    linear.faults.next('token', { kind: 'status', status: 503, body });
    expect((await problemOf(rig.minting().viewer())).kind).toBe('transient');
  });

  it('what the API repeats of a token is not told', async () => {
    const granted = { access_token: 'told-by-nobody', expires_in: 3_600 };
    linear.faults.next('token', { kind: 'status', status: 200, body: JSON.stringify(granted) });
    const errors = [{ message: 'no told-by-nobody', extensions: { type: 'forbidden' } }];
    linear.faults.next('viewer', { kind: 'status', status: 200, body: JSON.stringify({ errors }) });
    expect(await problemOf(rig.minting().viewer())).toMatchObject({ message: 'no [token]' });
  });

  it('what the endpoint repeats of a secret is not told', async () => {
    const { clientSecret } = linear.oauth;
    const body = JSON.stringify({
      error: 'invalid_client',
      error_description: `no ${clientSecret}`,
    });
    linear.faults.next('token', { kind: 'status', status: 401, body });
    const problem = await problemOf(rig.minting().viewer());
    expect(JSON.stringify(problem)).toContain('no [secret]');
  });
});

describe('a pair of tokens', () => {
  it('comes of a code, and is there for its owner alone', async () => {
    const { clientId, clientSecret } = linear.oauth;
    const code = linear.oauth.code();
    await redeemCode({
      url: `${linear.url}/oauth/token`,
      clientId,
      clientSecret,
      code,
      redirectUri: 'https://app.invalid/',
      tokens: rig.tokens(),
      deadlineMs: 5_000,
      signal: new AbortController().signal,
      now: linear.clock.now(),
    });
    expect(statSync(rig.tokenPath).mode & 0o777).toBe(0o600);
    expect(readdirSync(rig.directory).filter((name) => name.endsWith('.tmp'))).toEqual([]);
    await rig.rotating().viewer();
    expect(grants()).toEqual(['authorization_code']);
  });

  it('is a problem when it is not there, or cannot be read', async () => {
    const client = rig.rotating();
    expect((await problemOf(client.viewer())).kind).toBe('auth');
    expect(rig.health().problem()?.code).toBe('not_authorised');
    writeFileSync(rig.tokenPath, '{"refreshToken": "refresh_0123');
    client.probeNow();
    expect((await problemOf(client.viewer())).kind).toBe('auth');
    expect(rig.health().problem()?.code).toBe('token_not_kept');
    rig.authorise();
    await client.viewer();
    expect(rig.health().problem()).toBe(null);
  });

  it('bug 8, 9: it is refreshed day after day, and each new refresh token is kept', async () => {
    rig.authorise();
    const client = rig.rotating();
    const seen = new Set([pair().refreshToken]);
    for (let n = 1; n <= 5; n++) {
      await linear.clock.advance(DAY);
      await client.createActivity(activity(), 0);
      expect(pair().refreshing).toBe(false);
      seen.add(pair().refreshToken);
      expect(seen.size).toBe(n + 1);
    }
    expect(rig.health().problem()).toBe(null);
  });

  it('bug 9: the next daemon goes on with what the last one kept', async () => {
    rig.authorise();
    for (let n = 0; n < 3; n++) {
      await linear.clock.advance(DAY);
      await rig.rotating().viewer();
    }
    await rig.rotating().viewer();
    expect(grants()).toHaveLength(3);
  });

  it('is refreshed early without anybody waiting for it', async () => {
    rig.authorise();
    const client = rig.rotating();
    await linear.clock.advance(DAY - HOUR / 2);
    linear.faults.next('token', { kind: 'hang' });
    await client.createActivity(activity(), 0);
    await linear.waitFor(({ name }) => name === 'token');
    await client.createActivity(activity(), 0);
    expect(grants()).toHaveLength(1);
  });

  it('bug 10: many that find it expired refresh once', async () => {
    rig.authorise();
    const client = rig.rotating();
    await linear.clock.advance(DAY);
    await Promise.all(Array.from({ length: 8 }, () => client.createActivity(activity(), 0)));
    expect(grants()).toHaveLength(1);
  });

  it('bug 10: a lost answer is asked for again with the old token', async () => {
    rig.authorise();
    const client = rig.rotating();
    await linear.clock.advance(DAY);
    linear.faults.next('token', { kind: 'lost' });
    await client.viewer();
    expect(grants()).toHaveLength(2);
    await linear.clock.advance(DAY);
    await client.createActivity(activity(), 0);
  });

  it('bug 10: answers that stay lost leave a mark, and the next daemon begins with it', async () => {
    rig.authorise();
    const before = pair();
    const client = rig.rotating();
    linear.oauth.expireAccess();
    linear.faults.next('token', { kind: 'lost' }, 3);
    expect((await problemOf(client.viewer())).kind).toBe('transient');
    expect(pair()).toEqual({ ...before, refreshing: true });
    await linear.clock.advance(HOUR / 2);
    // By its time the access token is good for a day: only the mark tells that it is urgent.
    await rig.rotating().viewer();
    expect(pair()).toMatchObject({ refreshing: false });
    expect(pair().refreshToken).not.toBe(before.refreshToken);
    expect(linear.calls('viewer')).toHaveLength(2);
  });

  it('bug 10: a crash between the answer and the disk loses nothing', async () => {
    rig.authorise();
    const file = rig.tokens();
    const dying: TokenStore = {
      load: () => file.load(),
      save: (next) => {
        if (!next.refreshing) throw new Error('killed');
        file.save(next);
      },
    };
    await linear.clock.advance(DAY);
    const calls = linear.calls('viewer').length;
    await problemOf(rig.rotating(dying).viewer());
    expect(linear.calls('viewer')).toHaveLength(calls);
    expect(pair().refreshing).toBe(true);
    await linear.clock.advance(HOUR / 2);
    await rig.rotating().viewer();
    await linear.clock.advance(DAY);
    await rig.rotating().viewer();
    expect(rig.health().problem()).toBe(null);
  });

  it('is not used before it is on disk, and not lost while there is no room', async () => {
    rig.authorise();
    const file = rig.tokens();
    let isFull = true;
    const full: TokenStore = {
      load: () => file.load(),
      save: (next) => {
        if (isFull && !next.refreshing)
          throw Object.assign(new Error('no room'), { code: 'ENOSPC' });
        file.save(next);
      },
    };
    const client = rig.rotating(full);
    await linear.clock.advance(DAY);
    expect((await problemOf(client.viewer())).kind).toBe('auth');
    expect(linear.calls('viewer')).toEqual([]);
    expect(rig.health().problem()?.message).toContain('ENOSPC');
    isFull = false;
    // Later than Linear would take the old one: what was answered is still there.
    await linear.clock.advance(2 * HOUR);
    await client.viewer();
    expect(grants()).toHaveLength(1);
    expect(rig.health().problem()).toBe(null);
  });

  it('bug 11: a refresh token that is no good is a stored problem, until the app is authorised again', async () => {
    rig.authorise();
    const client = rig.rotating();
    linear.oauth.revokeAll();
    expect((await problemOf(client.createActivity(activity(), 0))).kind).toBe('auth');
    const since = rig.health().problem()?.since;
    expect(rig.health().problem()).toMatchObject({
      code: 'invalid_grant',
      message: expect.stringContaining('Authorise the app again.'),
    });
    await linear.clock.advance(HOUR);
    expect((await problemOf(client.createActivity(activity(), 0))).kind).toBe('auth');
    rig.restart();
    expect(rig.health().problem()?.since).toBe(since);
    rig.authorise();
    await rig.rotating().createActivity(activity(), 0);
    expect(rig.health().problem()).toBe(null);
    expect(readFileSync(rig.tokenPath, 'utf8')).toContain(pair().refreshToken);
  });

  it('bug 11: the problem is seen while the last token still works', async () => {
    rig.authorise();
    const { refreshToken } = pair();
    rig.secrets.push(refreshToken);
    rig.tokens().save({ ...pair(), refreshToken: `${refreshToken}x` });
    const client = rig.rotating();
    await linear.clock.advance(DAY - HOUR / 2);
    await client.createActivity(activity(), 0);
    await linear.waitFor(({ code }) => code === 'invalid_grant');
    await expect.poll(() => rig.health().problem()?.code).toBe('invalid_grant');
    await client.createActivity(activity(), 0);
    expect(rig.health().problem()?.code).toBe('invalid_grant');
  });
});

describe('whether anybody may call', () => {
  it('one problem after another is one trouble: it keeps when it began', async () => {
    const health = rig.health();
    health.failed('invalid_client', 'one');
    const since = health.problem()?.since;
    await linear.clock.advance(HOUR);
    health.failed('invalid_grant', 'two');
    expect(rig.health().problem()).toEqual({ code: 'invalid_grant', message: 'two', since });
  });

  it('what could not be stored is stored with the next word', () => {
    const { store } = rig;
    let isBroken = false;
    const health = new AuthHealth({
      store: {
        linearFacts: store.linearFacts,
        write: (work) => {
          if (isBroken) throw new OutliveError('disk_full', 'no room');
          return store.write(work);
        },
      },
      entropy: rig.entropy,
      log: rig.log(),
    });
    health.failed('invalid_grant', 'x');
    isBroken = true;
    health.good();
    expect([health.problem(), rig.health().problem()?.code]).toEqual([null, 'invalid_grant']);
    isBroken = false;
    health.good();
    expect(rig.health().problem()).toBe(null);
  });
});
