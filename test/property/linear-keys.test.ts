/** Content keys of Linear's deliveries: the same for what is the same, and for nothing else. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { contentKey, createdKey, promptedKey, rawKey } from '../../src/linear/keys.ts';
import { parseBody, readEnvelope } from '../../src/linear/payloads.ts';
import { createdBody, otherBody, promptedBody } from '../support/linear-webhooks.ts';

const keyOf = (text: string): string => {
  const raw = Buffer.from(text);
  const body = parseBody(raw);
  return body === null ? rawKey(raw) : contentKey(readEnvelope(body).event, body, raw);
};
const keyOfBody = (body: object): string => keyOf(JSON.stringify(body));

/** Ids that would run over into each other if they were only strung together. */
const id = fc.oneof(
  fc.uuid(),
  fc.string({ minLength: 1, maxLength: 40 }),
  fc.stringMatching(/^[",:[\]\\]{1,8}$/),
);
/** What a redelivery may have for its own. */
const stamp = fc.record(
  { webhookTimestamp: fc.double({ noNaN: true }), webhookId: fc.uuid(), deliveryId: fc.uuid() },
  { requiredKeys: [] },
);
/** Names that are of the delivery are not of the content. */
const OF_THE_DELIVERY = /^(?:webhookTimestamp|webhookId|webhookDeliveryId|deliveryId|__proto__)$/;
const content = fc
  .dictionary(fc.string(), fc.jsonValue())
  .map((fields) =>
    Object.fromEntries(Object.entries(fields).filter(([name]) => !OF_THE_DELIVERY.test(name))),
  );
const kind = fc.constantFrom('OAuthApp', 'PermissionChange', 'Kettle');

/** The same value with its fields in another order. */
const reversed = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(reversed);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([name, inner]) => [name, reversed(inner)]),
  );
};

describe('X02: the content key', () => {
  it('of a created is that of organization and session, whatever else changes', () => {
    fc.assert(
      fc.property(id, id, stamp, content, (organizationId, session, own, more) => {
        const { type, action, agentSession, ...rest } = createdBody(session);
        const body = { ...rest, ...more, ...own, organizationId, type, action, agentSession };
        expect(keyOfBody({ ...body, payload: null })).toBe(createdKey(organizationId, session));
      }),
    );
  });

  it('of a prompt is that of its activity, whatever the session and the delivery', () => {
    fc.assert(
      fc.property(id, id, id, stamp, (activity, one, another, own) => {
        expect(keyOfBody(promptedBody(one, activity))).toBe(promptedKey(activity));
        expect(keyOfBody(promptedBody(another, activity, own))).toBe(promptedKey(activity));
      }),
    );
  });

  it('of anything else is the same for any order of fields and any stamp', () => {
    fc.assert(
      fc.property(kind, content, stamp, stamp, (type, data, one, another) => {
        const body = otherBody(type, 'happened', { data });
        const again = reversed({ ...body, ...another });
        expect(keyOfBody({ ...body, ...one })).toBe(keyOfBody(again as object));
      }),
    );
  });

  it('of anything else differs where the content does, deep inside too', () => {
    fc.assert(
      fc.property(kind, content, content, (type, one, another) => {
        fc.pre(!sameFields(one, another));
        const key = (data: object): string => keyOfBody(otherBody(type, 'happened', { data }));
        expect(key(one)).not.toBe(key(another));
      }),
    );
  });

  it('is another one for another id, and of another kind for the same', () => {
    fc.assert(
      fc.property(id, id, id, id, (a, b, c, d) => {
        if (a !== c || b !== d) expect(createdKey(a, b)).not.toBe(createdKey(c, d));
        if (a !== b) expect(promptedKey(a)).not.toBe(promptedKey(b));
        expect(createdKey(a, b)).not.toBe(promptedKey(c));
      }),
    );
  });

  it('there is for every sequence of bytes, and the same each time', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
        expect(keyOf(text)).toBe(keyOf(text));
        expect(keyOf(text).length).toBeGreaterThan(8);
      }),
    );
  });
});

/** Equal but for the order of fields and for what JSON cannot tell apart. */
function sameFields(a: unknown, b: unknown): boolean {
  const sorted = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(sorted);
    if (value === null || typeof value !== 'object') return value;
    return Object.entries(value)
      .sort(([x], [y]) => (x < y ? -1 : 1))
      .map(([name, inner]) => [name, sorted(inner)]);
  };
  const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
  return JSON.stringify(sorted(plain(a))) === JSON.stringify(sorted(plain(b)));
}
