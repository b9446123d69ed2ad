/** What is read out of Linear's bodies, and what is not insisted on. */
import { describe, expect, it } from 'vitest';
import { DELIVERY_KEPT_MS } from '../../src/domain/retention.ts';
import { parseBody, readEnvelope } from '../../src/linear/payloads.ts';
import { FUTURE_MS, isSigned, isTimely, PAST_MS, sign } from '../../src/linear/signature.ts';
import { type Body, createdBody, otherBody, promptedBody } from '../support/linear-webhooks.ts';

const eventOf = (body: Body) => readEnvelope(body).event;
const activity = (body: Body): Body => body['agentActivity'] as Body;

describe('a created', () => {
  it('tells session, issue and who asked', () => {
    expect(eventOf(createdBody('s'))).toMatchObject({
      kind: 'created',
      session: {
        id: 's',
        issue: { identifier: 'LAB-7', team: { key: 'LAB' }, description: null },
        creator: { name: 'Ada' },
      },
      guidance: [{ body: 'Be brief', origin: { type: 'Organization', team: null } }],
      previousComments: [],
    });
  });

  it('by an automation has no issue, comment and creator, absent or null', () => {
    const none = { issue: null, issueId: null, comment: null, creator: null, creatorId: null };
    for (const session of [{ id: 's' }, { id: 's', ...none }]) {
      const event = eventOf(createdBody('s', { agentSession: session }));
      expect(event).toMatchObject({ kind: 'created', session: { id: 's', ...none } });
    }
  });

  it('says the same wrapped in an envelope', () => {
    const { type, action, webhookTimestamp, webhookId, ...payload } = createdBody('s');
    const wrapped = readEnvelope({ type, action, webhookTimestamp, webhookId, payload });
    expect(wrapped).toEqual(readEnvelope(createdBody('s', { webhookTimestamp })));
  });

  it('takes the organization of its session where it names none itself', () => {
    const event = eventOf(createdBody('s', { organizationId: null }));
    expect(event).toMatchObject({ kind: 'created', organizationId: expect.any(String) as string });
  });

  it('goes on without fields of the wrong type, and leaves broken entries of lists out', () => {
    const session = { id: 's', issue: 'LAB-7', creator: 7, url: {} };
    const comments = [{ id: 'c', body: 'one' }, 'two', { body: 'no id' }];
    expect(
      eventOf(
        createdBody('s', { agentSession: session, previousComments: comments, guidance: {} }),
      ),
    ).toMatchObject({
      kind: 'created',
      session: { issue: null, creator: null, url: null },
      previousComments: [{ id: 'c', body: 'one', userId: null }],
      guidance: [],
    });
  });
});

describe('a prompt', () => {
  it.each([
    ['its content', { content: { type: 'prompt', body: 'in it' }, body: 'beside it' }, 'in it'],
    ['beside it, where there is none', { content: { type: 'prompt' }, body: 'beside' }, 'beside'],
    ['beside no content', { content: null, body: 'beside' }, 'beside'],
    ['nowhere', { content: undefined }, ''],
  ])('bug 13: has its text in %s', (_name, fields, body) => {
    const prompt = promptedBody('s', 'p');
    const event = eventOf({ ...prompt, agentActivity: { ...activity(prompt), ...fields } });
    expect(event).toMatchObject({ kind: 'prompted', activity: { id: 'p', body } });
  });

  it('carries its signal as a word, whatever it is', () => {
    const prompt = promptedBody('s', 'p');
    for (const signal of ['stop', 'continue', 'hum', null]) {
      const event = eventOf({ ...prompt, agentActivity: { ...activity(prompt), signal } });
      expect(event).toMatchObject({ activity: { signal } });
    }
  });

  it('knows its session by the activity alone', () => {
    const envelope = readEnvelope({ ...promptedBody('s', 'p'), agentSession: undefined });
    expect(envelope).toMatchObject({ sessionId: 's', event: { kind: 'prompted' } });
  });
});

describe('any other', () => {
  it('of the two that are known is told with what it says', () => {
    const change = { addedTeamIds: ['t1'], removedTeamIds: null, canAccessAllPublicTeams: false };
    expect(eventOf(otherBody('PermissionChange', 'teamAccessChanged', change))).toMatchObject({
      kind: 'permission_change',
      addedTeamIds: ['t1'],
      removedTeamIds: [],
      canAccessAllPublicTeams: false,
    });
    expect(eventOf(otherBody('OAuthApp', 'revoked')).kind).toBe('revoked');
  });

  it('is unknown, with the reason', () => {
    for (const body of [
      otherBody('Kettle', 'whistled'),
      createdBody('s', { action: 'dismissed' }),
      createdBody('s', { agentSession: null }),
      createdBody('s', { agentSession: { id: '' } }),
      promptedBody('s', 'p', { agentActivity: [] }),
      {},
    ]) {
      expect(eventOf(body)).toMatchObject({
        kind: 'unknown',
        why: expect.stringMatching(/\w/) as string,
      });
    }
  });

  it('is no object at all', () => {
    for (const text of ['', '{', 'null', '7', '"x"', '[{}]']) {
      expect(parseBody(Buffer.from(text)), text).toBeNull();
    }
  });
});

describe('the signature', () => {
  it('is the HMAC-SHA256 of RFC 4231, case 2', () => {
    const expected = '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843';
    const raw = Buffer.from('what do ya want for nothing?');
    expect(sign('Jefe', raw)).toBe(expected);
    expect(isSigned('Jefe', raw, expected)).toBe(true);
    expect(isSigned('Jefe', raw, expected.toUpperCase())).toBe(false);
    expect(isSigned('Jefe', raw, undefined)).toBe(false);
    expect(isSigned('jefe', raw, expected)).toBe(false);
  });

  it('is timely from 6 h 5 min past to a minute ahead, and the ledger remembers for longer', () => {
    const now = 1_800_000_000_000;
    expect([PAST_MS, FUTURE_MS]).toEqual([21_900_000, 60_000]);
    expect([now - PAST_MS, now, now + FUTURE_MS].map((at) => isTimely(at, now))).toEqual([
      true,
      true,
      true,
    ]);
    expect([now - PAST_MS - 1, now + FUTURE_MS + 1].map((at) => isTimely(at, now))).toEqual([
      false,
      false,
    ]);
    // Whatever is replayed within the window came at most this long ago for the first time.
    expect(DELIVERY_KEPT_MS).toBeGreaterThan(PAST_MS + FUTURE_MS);
  });
});
