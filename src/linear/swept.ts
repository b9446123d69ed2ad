/**
 * What a sweep found, as the webhooks that would have told of it: the same content keys, so
 * that whichever comes first is the one that counts, and bodies that are read the same way.
 */
import { OutliveError } from '../domain/errors.ts';
import { type Entropy, timestamp, uuidv7 } from '../domain/ids.ts';
import type { NewDelivery } from '../store/linear-deliveries.ts';
import type { Store } from '../store/store.ts';
import { createdKey, promptedKey } from './keys.ts';
import type { ListedSession } from './port.ts';

/** A prompt that is as old as its session is what the session was opened with, and `created` tells of it. */
const OPENING_MS = 2_000;
/** Nobody waits for an answer there; what is said in it later opens it again. */
const OVER: ReadonlySet<string> = new Set(['complete', 'error']);

export interface SweptEvent {
  readonly contentKey: string;
  readonly action: 'created' | 'prompted';
  readonly organizationId: string;
  readonly sessionId: string;
  /** As a webhook would carry it. */
  readonly body: Readonly<Record<string, unknown>>;
}

export interface SweptBy {
  readonly organizationId: string;
  readonly appUserId: string;
}

export interface Known {
  /** Sessions we made ourselves: nothing in them starts work. */
  isOwn(sessionId: string): boolean;
  /** Its `created` was seen. */
  isKnown(sessionId: string): boolean;
  /** Something of it was seen: words that wait for its `created`, or a stop. */
  isHeardOf(sessionId: string): boolean;
}

type Prompt = ListedSession['prompts'][number];

function isOpening({ comment, ...session }: ListedSession, prompt: Prompt): boolean {
  const { signal, body, createdAt } = prompt;
  const isFirst = Date.parse(createdAt) - Date.parse(session.createdAt) <= OPENING_MS;
  // Where its first words are known, other words are not those.
  return signal === null && isFirst && (comment === null || comment.body.trim() === body.trim());
}

function sessionBody(session: ListedSession, { organizationId, appUserId }: SweptBy) {
  const { id, status, issue, createdAt, updatedAt } = session;
  const opening = session.prompts.find((prompt) => isOpening(session, prompt));
  const said = opening ? { id: opening.id, body: opening.body } : null;
  const about = { issueId: issue?.id ?? null, issue, comment: session.comment ?? said };
  return { id, status, ...about, createdAt, updatedAt, organizationId, appUserId };
}

function created(session: ListedSession, by: SweptBy): SweptEvent {
  const { organizationId, appUserId } = by;
  const action = 'created';
  const { id: sessionId, createdAt } = session;
  const agentSession = sessionBody(session, by);
  return {
    ...{ contentKey: createdKey(organizationId, sessionId), action, organizationId, sessionId },
    body: { ...{ type: TYPE, action, createdAt, organizationId, appUserId }, agentSession },
  };
}

function prompted(session: ListedSession, prompt: Prompt, by: SweptBy): SweptEvent {
  const { organizationId, appUserId } = by;
  const action = 'prompted';
  const { id, body, signal, createdAt } = prompt;
  const { id: sessionId } = session;
  const content = { type: 'prompt', body };
  const agentActivity = { id, agentSessionId: sessionId, content, signal, createdAt };
  const agentSession = sessionBody(session, by);
  return {
    ...{ contentKey: promptedKey(id), action, organizationId, sessionId },
    body: {
      ...{ type: TYPE, action, createdAt, organizationId, appUserId },
      ...{ agentSession, agentActivity },
    },
  };
}

const TYPE = 'AgentSessionEvent';

/**
 * What webhooks should have told of a session: its beginning, then prompts and stops since
 * `since` (milliseconds since the epoch), oldest first.
 */
export function eventsOf(
  session: ListedSession,
  by: SweptBy,
  known: Known,
  since: number,
): SweptEvent[] {
  if (known.isOwn(session.id)) return [];
  const isKnown = known.isKnown(session.id);
  const later = session.prompts.filter(
    (prompt) => !isOpening(session, prompt) && Date.parse(prompt.createdAt) >= since,
  );
  // Over before we ever heard of it: somebody ended it without us.
  if (!known.isHeardOf(session.id) && OVER.has(session.status)) return [];
  const prompts = later.map((prompt) => prompted(session, prompt, by));
  return isKnown ? prompts : [created(session, by), ...prompts];
}

export interface SweptLedger {
  readonly store: () => Store | null;
  readonly entropy: Entropy;
  /** There is a new one, and it is durable: a hint. */
  readonly onDelivery: () => void;
}

/**
 * Puts what is not there yet into the ledger of deliveries, in one transaction. What is there
 * is left alone: a sweep sees the same for a day.
 * @returns how many were new. @throws what the store throws.
 */
export function recordSwept(events: readonly SweptEvent[], ledger: SweptLedger): number {
  const { entropy, onDelivery } = ledger;
  if (events.length === 0) return 0;
  const store = ledger.store();
  if (store === null) throw new OutliveError('starting', 'No store is open.');
  const startMs = entropy.now();
  const count = store.write(() => {
    const missing = events.filter(
      ({ contentKey }) => store.linearDeliveries.byKey(contentKey) === null,
    );
    return missing.filter((event, index) =>
      // Ids of one millisecond would be in any order, and a beginning comes before its prompts.
      store.linearDeliveries.record(rowOf(event, startMs + index, entropy)),
    ).length;
  });
  if (count > 0) onDelivery();
  return count;
}

function rowOf({ body, ...event }: SweptEvent, ms: number, entropy: Entropy): NewDelivery {
  return {
    ...event,
    id: uuidv7({ now: () => ms, random: entropy.random }),
    deliveryId: null,
    type: TYPE,
    source: 'sweep',
    receivedAt: timestamp(entropy),
    signedAt: null,
    body: Buffer.from(JSON.stringify(body)),
    state: 'new',
    detail: null,
  };
}
