/**
 * What makes two deliveries the same one: what they are about. Linear repeats a delivery
 * after a minute, an hour and six, and nobody has said which of its own marks stay the same
 * then; `webhookId` is that of the subscription and is on all of them.
 */
import { createHash } from 'node:crypto';
import { canonicalJson } from '../domain/canonical-json.ts';
import type { LinearEvent } from './payloads.ts';

/** Fields that tell one delivery of an event from another, not one event from another. */
const OF_THE_DELIVERY: ReadonlySet<string> = new Set([
  'webhookTimestamp',
  'webhookId',
  'webhookDeliveryId',
  'deliveryId',
]);

/** As JSON, so that no id can run over into the next. */
const keyOf = (...parts: readonly string[]): string => JSON.stringify(parts);

/** The key of a session's beginning, also for who finds it by other means than a webhook. */
export const createdKey = (organizationId: string, sessionId: string): string =>
  keyOf('created', organizationId, sessionId);

/** The key of a person's prompt or stop, likewise. */
export const promptedKey = (activityId: string): string => keyOf('prompted', activityId);

const digest = (content: string | Uint8Array): string =>
  createHash('sha256').update(content).digest('hex');

function withoutDelivery(body: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(body)
      .filter(([name]) => !OF_THE_DELIVERY.has(name))
      .map(([name, value]) => [name, name === 'payload' ? innerOf(value) : value]),
  );
}

const innerOf = (value: unknown): unknown =>
  value !== null && typeof value === 'object' && !Array.isArray(value)
    ? withoutDelivery(value as Record<string, unknown>)
    : value;

/** Everything in the body but what is of the delivery, whatever the order of its fields. */
function bodyKey(body: Readonly<Record<string, unknown>>, raw: Uint8Array): string {
  try {
    return keyOf('body', digest(canonicalJson(withoutDelivery(body))));
  } catch {
    return rawKey(raw); // Deeper than can be walked.
  }
}

/** The key of a body that cannot be read: its bytes. */
export const rawKey = (raw: Uint8Array): string => keyOf('raw', digest(raw));

/** The content key of an event; `body` is what it was read from, `raw` the bytes of that. */
export function contentKey(
  event: LinearEvent,
  body: Readonly<Record<string, unknown>>,
  raw: Uint8Array,
): string {
  if (event.kind === 'created') return createdKey(event.organizationId, event.session.id);
  if (event.kind === 'prompted') return promptedKey(event.activity.id);
  return bodyKey(body, raw);
}
