/** Linear's webhooks over the real server and the real store: what is stored, and what is refused. */
import { afterEach, describe, expect, it } from 'vitest';
import { refused, send, type Target } from '../support/api-http.ts';
import { cleanUp, type Rig } from '../support/api-rig.ts';
import {
  bootIngress as boot,
  expectStored,
  type Ingress,
  onlyRow,
  rows,
} from '../support/linear-ingress.ts';
import {
  type Body,
  createdBody,
  delivery,
  headersOf,
  otherBody,
  promptedBody,
  SECRET,
} from '../support/linear-webhooks.ts';

afterEach(cleanUp);

/** Refused as not signed or not of now, and nothing is stored. */
async function expectRefused(ingress: Ingress, call: ReturnType<typeof delivery>): Promise<void> {
  const answer = await send(ingress.tcp, call);
  expect(refused(answer)).toMatchObject({ status: 401, code: 'webhook_refused' });
  expect(rows(ingress)).toBe(0);
  expect(ingress.hints()).toBe(0);
}

const ago = (ms: number): Body => ({ webhookTimestamp: Date.now() - ms });
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

describe('a delivery that is signed', () => {
  it('X02: is stored as it came before it is answered: body, ids, session, signed time', async () => {
    const ingress = await boot();
    const body = createdBody('session-1');
    const raw = JSON.stringify(body, null, 2);
    expectStored(await send(ingress.tcp, delivery(raw, { deliveryId: 'delivery-1' })));
    const row = onlyRow(ingress);
    expect(Buffer.from(row.body).toString()).toBe(raw);
    expect(row).toMatchObject({
      deliveryId: 'delivery-1',
      type: 'AgentSessionEvent',
      action: 'created',
      organizationId: body['organizationId'],
      sessionId: 'session-1',
      source: 'webhook',
      signedAt: new Date(Number(body['webhookTimestamp'])).toISOString(),
      state: 'new',
      repeats: 0,
    });
    expect(ingress.hints()).toBe(1);
  });

  it.each([
    ['TCP without a token', (rig: Rig): Target => ({ port: rig.tcp.port })],
    ['the unix socket', (rig: Rig): Target => rig.socket],
  ])(
    'bug 23: is taken on %s, whatever address, Host, Origin and content type it comes with',
    async (_name, targetOf) => {
      const ingress = await boot();
      const headers = {
        host: 'hooks.example.test',
        origin: 'https://elsewhere.example.test',
        'content-type': 'text/plain',
        'x-forwarded-for': '203.0.113.9',
        authorization: 'Bearer of-somebody-else',
      };
      const answer = await send(targetOf(ingress.rig), delivery(createdBody('s'), { headers }));
      expectStored(answer);
      expect(Object.keys(answer.headers).filter((name) => name.includes('allow-origin'))).toEqual(
        [],
      );
      expect(rows(ingress)).toBe(1);
    },
  );

  it('bug 22: is taken by its bytes, however they spell what they say', async () => {
    const ingress = await boot();
    const { type, ...rest } = createdBody('s');
    const raw = `\n{ "zero": 1.0e+0, "\\u0074ype" :${JSON.stringify(type)}, "slash": "\\/ é \\u00e9", ${JSON.stringify(rest).slice(1)}\r\n`;
    expectStored(await send(ingress.tcp, delivery(raw)));
    const row = onlyRow(ingress);
    expect([row.type, row.sessionId]).toEqual(['AgentSessionEvent', 's']);
    expect(Buffer.from(row.body).toString()).toBe(raw);
  });

  it('opens no other door: the same headers get nothing elsewhere', async () => {
    const ingress = await boot();
    const raw = JSON.stringify(createdBody('s'));
    for (const path of ['/work-units', '/linear/webhook/', '/linear', '/runtime']) {
      const answer = await send(ingress.tcp, {
        method: 'POST',
        path,
        body: raw,
        headers: headersOf(raw),
      });
      expect(refused(answer).code, path).toBe('unauthorized');
    }
  });

  it('without Linear-Delivery is stored without it, and with somebody else’s as another event', async () => {
    const ingress = await boot();
    const deliveryId = 'the-same-on-both';
    expectStored(await send(ingress.tcp, delivery(createdBody('a'), { deliveryId: null })));
    expect(onlyRow(ingress).deliveryId).toBeNull();
    expectStored(await send(ingress.tcp, delivery(createdBody('b'), { deliveryId })));
    expectStored(await send(ingress.tcp, delivery(createdBody('c'), { deliveryId })));
    expect(rows(ingress)).toBe(3);
  });

  it.each([
    ['an unknown type', otherBody('KettleEvent', 'whistled', { data: { id: 'k' } })],
    ['an unknown action', { ...createdBody('s'), action: 'dismissed' }],
    ['a created without a session', otherBody('AgentSessionEvent', 'created')],
    ['a prompt without an activity', otherBody('AgentSessionEvent', 'prompted')],
    ['no type at all', { webhookTimestamp: Date.now() }],
    ['types of other types', { type: 7, action: [], webhookTimestamp: Date.now() }],
    [
      'PermissionChange',
      otherBody('PermissionChange', 'teamAccessChanged', { addedTeamIds: null }),
    ],
    ['OAuthApp', otherBody('OAuthApp', 'revoked')],
  ])('X03: of %s is stored and answered 200', async (_name, body) => {
    const ingress = await boot();
    expectStored(await send(ingress.tcp, delivery(body)));
    expect(onlyRow(ingress).type).not.toBe('');
  });

  it.each([
    ['broken JSON', '{"type":"AgentSessionEvent",'],
    ['no object', '[1, 2]'],
    ['no text', Buffer.from([0xff, 0xfe, 0x00, 0x80])],
    ['nothing', ''],
    ['JSON deeper than anything', `{"a":${'['.repeat(200_000)}`],
  ])('X03: of %s is kept as it came, ignored, and answered 200', async (_name, raw) => {
    const ingress = await boot();
    expectStored(await send(ingress.tcp, delivery(raw)));
    expectStored(await send(ingress.tcp, delivery(raw)));
    expect(rows(ingress)).toBe(1);
    const { ignored, repeats } = ingress.rig.store.linearDeliveries.counts();
    expect({ ignored, repeats }).toEqual({ ignored: 1, repeats: 1 });
    expect(ingress.hints()).toBe(0);
  });

  it('and deeper than can be walked is stored all the same', async () => {
    const ingress = await boot();
    const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
    const raw = `{"type":"Deep","webhookTimestamp":${Date.now()},"data":${deep}}`;
    expectStored(await send(ingress.tcp, delivery(raw)));
    expect(rows(ingress)).toBe(1);
  });

  it('of another organization is kept and ignored; of ours, or of none, it is new', async () => {
    const ours = String(createdBody('s')['organizationId']);
    const ingress = await boot({ organizationId: ours });
    expectStored(
      await send(ingress.tcp, delivery(createdBody('s', { organizationId: 'another' }))),
    );
    expect(ingress.hints()).toBe(0);
    expectStored(await send(ingress.tcp, delivery(createdBody('s'))));
    expectStored(
      await send(ingress.tcp, delivery(promptedBody('s', 'p', { organizationId: null }))),
    );
    expect(ingress.rig.store.linearDeliveries.counts()).toMatchObject({ new: 2, ignored: 1 });
    expect(ingress.hints()).toBe(2);
  });

  it('leaves no text of a body, and no secret, in the log', async () => {
    const ingress = await boot();
    const body = promptedBody('s', 'p');
    await send(ingress.tcp, delivery(body));
    await send(ingress.tcp, delivery('{"promptContext":"secret plan"'));
    await send(ingress.tcp, delivery(body, { headers: { 'linear-signature': 'f'.repeat(64) } }));
    expect(ingress.log()).toContain('webhooks were refused');
    expect(ingress.log()).toContain('prompted');
    expect(ingress.log()).not.toMatch(/teapot|kettle|secret plan|lin_wh|ffffffff|Ada/);
  });
});

describe('a delivery that comes again', () => {
  it.each([
    ['created', createdBody('s')],
    ['prompted', promptedBody('s', 'p')],
    ['unknown', otherBody('KettleEvent', 'whistled')],
  ])('X02: %s, byte for byte the same: one row, one hint, a repeat, 200', async (_name, body) => {
    const ingress = await boot();
    for (let time = 0; time < 3; time++) expectStored(await send(ingress.tcp, delivery(body)));
    expect(onlyRow(ingress).repeats).toBe(2);
    expect(ingress.hints()).toBe(1);
  });

  it.each([
    ['created', (more: Body) => createdBody('s', more)],
    ['prompted', (more: Body) => promptedBody('s', 'p', more)],
    ['revoked', (more: Body) => otherBody('OAuthApp', 'revoked', more)],
    ['unknown', (more: Body) => otherBody('KettleEvent', 'whistled', more)],
  ])('X02: %s with a time and a number of its own: the same one', async (_name, make) => {
    const ingress = await boot();
    const first = make(ago(HOUR));
    expectStored(await send(ingress.tcp, delivery(first, { deliveryId: 'one' })));
    const again = make({ webhookTimestamp: Date.now(), webhookId: 'another-subscription' });
    expectStored(await send(ingress.tcp, delivery(again, { deliveryId: 'two' })));
    const row = onlyRow(ingress);
    expect(row).toMatchObject({ repeats: 1, deliveryId: 'one' });
    expect(Buffer.from(row.body).toString()).toBe(JSON.stringify(first));
  });

  it('at once on twenty connections is one row, and all are answered 200', async () => {
    const ingress = await boot();
    const call = delivery(createdBody('s'));
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        send(index % 2 === 0 ? ingress.tcp : ingress.rig.socket, call),
      ),
    );
    for (const answer of answers) expectStored(answer);
    expect(onlyRow(ingress).repeats).toBe(19);
    expect(ingress.hints()).toBe(1);
  });

  it('after it was worked off stays worked off, and counts', async () => {
    const ingress = await boot();
    const { linearDeliveries } = ingress.rig.store;
    await send(ingress.tcp, delivery(createdBody('s')));
    const { id } = onlyRow(ingress);
    linearDeliveries.settle(id, 'processed', null, new Date().toISOString());
    expectStored(await send(ingress.tcp, delivery(createdBody('s'))));
    expect(linearDeliveries.get(id)).toMatchObject({ state: 'processed', repeats: 1 });
    expect([rows(ingress), ingress.hints()]).toEqual([1, 1]);
  });
});

describe('deliveries that are not the same', () => {
  it('bug 12: with the same webhookId, number and time are each stored, in the order they came', async () => {
    const ingress = await boot();
    const at = { webhookTimestamp: Date.now() };
    const bodies = [
      createdBody('a', at),
      createdBody('b', at),
      promptedBody('a', 'p1', at),
      promptedBody('a', 'p2', at),
      createdBody('a', { ...at, organizationId: 'another' }),
      otherBody('OAuthApp', 'revoked', at),
      otherBody('OAuthApp', 'revoked', { ...at, createdAt: '2027-02-03T10:11:12.346Z' }),
    ];
    for (const body of bodies) expectStored(await send(ingress.tcp, delivery(body)));
    const stored: string[] = [];
    for (let row = ingress.rig.store.linearDeliveries.next(); row !== null; ) {
      stored.push(Buffer.from(row.body).toString());
      row = ingress.rig.store.linearDeliveries.next(row.id);
    }
    expect(stored).toEqual(bodies.map((body) => JSON.stringify(body)));
  });

  it.each([
    ['stands', 0],
    ['is set back an hour each time', -HOUR],
  ])('are worked off in the order they came, also where the clock %s', async (_name, step) => {
    let now = Date.now();
    const ingress = await boot({ now: () => now });
    const sessions = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'];
    for (const session of sessions) {
      const at = { webhookTimestamp: now };
      expectStored(await send(ingress.tcp, delivery(createdBody(session, at))));
      now += step;
    }
    const stored: unknown[] = [];
    const { next } = ingress.rig.store.linearDeliveries;
    for (let row = next(); row !== null; row = next(row.id)) stored.push(row.sessionId);
    expect(stored).toEqual(sessions);
  });

  it('bug 29: a hundred of one millisecond, all at once, are a hundred rows', async () => {
    const ingress = await boot();
    const at = { webhookTimestamp: Date.now() };
    const calls = Array.from({ length: 100 }, (_, n) => delivery(promptedBody('s', `p${n}`, at)));
    const answers = await Promise.all(calls.map((call) => send(ingress.tcp, call)));
    for (const answer of answers) expectStored(answer);
    expect([rows(ingress), ingress.hints()]).toEqual([100, 100]);
  });
});

describe('X03: a delivery is refused with 401, and leaves nothing', () => {
  it.each([
    ['no signature', { 'linear-signature': undefined }],
    ['an empty one', { 'linear-signature': '' }],
    ['one with a prefix', { 'linear-signature': `sha256=${'0'.repeat(64)}` }],
    ['one of another body', { 'linear-signature': '0'.repeat(64) }],
    ['one that is too short', { 'linear-signature': '0'.repeat(63) }],
    ['one that is no hex', { 'linear-signature': 'g'.repeat(64) }],
    ['another kind of text', { 'linear-signature': 'é'.repeat(64) }],
  ])('with %s', async (_name, headers) => {
    const ingress = await boot();
    const call = delivery(createdBody('s'));
    const { 'linear-signature': signature } = headers;
    const { 'linear-signature': _real, ...others } = call.headers as Record<string, string>;
    const given = signature === undefined ? others : { ...others, 'linear-signature': signature };
    await expectRefused(ingress, { ...call, headers: given });
  });

  it('bug 29: with the right signature twice, in capitals, or of another secret', async () => {
    const ingress = await boot();
    const call = delivery(createdBody('s'));
    const right = String(call.headers['linear-signature']);
    for (const signature of [[right, right], right.toUpperCase(), `${right},`]) {
      await expectRefused(ingress, {
        ...call,
        headers: { ...call.headers, 'linear-signature': signature },
      });
    }
    await expectRefused(ingress, delivery(createdBody('s'), { secret: `${SECRET} ` }));
  });

  it('bug 22: when its body was written anew, though it means the same', async () => {
    const ingress = await boot();
    const call = delivery(JSON.stringify(createdBody('s'), null, 1));
    await expectRefused(ingress, { ...call, body: JSON.stringify(JSON.parse(String(call.body))) });
    await expectRefused(ingress, { ...call, body: `${String(call.body)}\n` });
  });

  it.each([
    ['more than 6 h 5 min old', () => ago(6 * HOUR + 5 * MINUTE + 1_000)],
    ['more than a minute ahead', () => ago(-MINUTE - 5_000)],
    ['without its time', () => ({ webhookTimestamp: undefined })],
    ['with a time that is text', () => ({ webhookTimestamp: String(Date.now()) })],
    ['with a time that is null', () => ({ webhookTimestamp: null })],
    ['with a time in seconds', () => ({ webhookTimestamp: Math.floor(Date.now() / 1000) })],
  ])('when it is signed and %s', async (_name, more) => {
    await expectRefused(await boot(), delivery(createdBody('s', more())));
  });

  it('when it is old, whatever the header that nobody signed says', async () => {
    const headers = { 'linear-timestamp': String(Date.now()) };
    await expectRefused(await boot(), delivery(createdBody('s', ago(7 * HOUR)), { headers }));
  });

  it('bug 24: but not at Linear’s last retry, 6 h after the first, nor within a minute ahead', async () => {
    const ingress = await boot();
    const stale = { 'linear-timestamp': '1' };
    const late = delivery(createdBody('late', ago(6 * HOUR + 4 * MINUTE)), { headers: stale });
    expectStored(await send(ingress.tcp, late));
    expectStored(await send(ingress.tcp, delivery(createdBody('early', ago(-MINUTE + 10_000)))));
    expect(rows(ingress)).toBe(2);
  });
});
