/**
 * Puts into the outbox what is to be told. Everything here must run in a write transaction,
 * the one that stores why it is told; `at` is its time.
 */
import { type Entropy, uuidv4 } from '../domain/ids.ts';
import type { NewOutboxRow } from '../store/linear-outbox.ts';
import type { Store } from '../store/store.ts';
import type { Said } from './activities.ts';
import type { ActivityContent, SessionUpdate } from './port.ts';
import type { ActivityBody, IssueBody } from './shapes.ts';

/** How long a last word or a question may wait. */
export const LAST_WORD_MS = 24 * 3_600_000;
/** Progress that is older tells nobody anything. */
export const PROGRESS_MS = 10 * 60_000;

export interface Desk {
  readonly store: Pick<Store, 'linearOutbox'>;
  readonly entropy: Pick<Entropy, 'random'>;
}

export interface Addressee {
  readonly sessionId: string;
  /** The turn that speaks; null for the session as such. */
  readonly turnId: string | null;
}

export type OfTurn = Addressee & { readonly turnId: string };

const after = (at: string, ms: number): string => new Date(Date.parse(at) + ms).toISOString();

const rowOf = (
  { entropy }: Desk,
  at: string,
  { sessionId, turnId }: Addressee,
  row: Pick<NewOutboxRow, 'kind' | 'body' | 'priority'> & { ephemeral?: boolean; ms: number },
): NewOutboxRow => {
  const { kind, body, priority, ephemeral = false, ms } = row;
  const expiresAt = after(at, ms);
  return {
    id: uuidv4(entropy),
    sessionId,
    turnId,
    kind,
    body,
    priority,
    ephemeral,
    expiresAt,
    at,
  };
};

const PROGRESS: ReadonlySet<ActivityContent['type']> = new Set(['thought', 'action']);

/**
 * Something that is no last word. `urgent` for what a person waits for; a question always is.
 * @returns false when the turn has had its last word: nothing is told after that.
 */
export function say(desk: Desk, at: string, to: Addressee, said: Said, urgent = false): boolean {
  const { ephemeral, ...body } = said;
  const isProgress = PROGRESS.has(said.content.type);
  const priority = urgent || !isProgress ? 0 : ephemeral ? 2 : 1;
  const ms = isProgress ? PROGRESS_MS : LAST_WORD_MS;
  const row = { kind: 'activity', body, priority, ephemeral: ephemeral === true, ms } as const;
  return desk.store.linearOutbox.enqueue(rowOf(desk, at, to, row));
}

const lastWord = (desk: Desk, at: string, to: OfTurn, content: ActivityContent) => {
  const body: ActivityBody = { content };
  const row = { kind: 'activity', body, priority: 0, ms: LAST_WORD_MS } as const;
  return { ...rowOf(desk, at, to, row), turnId: to.turnId };
};

/**
 * The last word of a turn: a response, an error, a question. What waits before it goes out first.
 * @returns false when it has one already, or another turn took its place.
 */
export function sayLast(desk: Desk, at: string, to: OfTurn, content: ActivityContent): boolean {
  return desk.store.linearOutbox.enqueueTerminal(lastWord(desk, at, to, content));
}

/** Another last word in the place of the one with this id, which Linear refused. */
export function sayInstead(
  desk: Desk,
  at: string,
  to: OfTurn,
  content: ActivityContent,
  refusedId: string,
): void {
  desk.store.linearOutbox.replaceTerminal(lastWord(desk, at, to, content), refusedId);
}

/** Links for the session, or its plan: a later plan takes the place of one that waits. */
export function changeSession(desk: Desk, at: string, to: Addressee, body: SessionUpdate): void {
  const isPlan = body.plan !== undefined;
  if (isPlan) desk.store.linearOutbox.dropPlans(to.sessionId);
  const row = isPlan
    ? ({ kind: 'session', body, priority: 2, ephemeral: true, ms: PROGRESS_MS } as const)
    : ({ kind: 'session', body, priority: 1, ms: LAST_WORD_MS } as const);
  desk.store.linearOutbox.enqueue(rowOf(desk, at, to, row));
}

/** A change of the issue itself. */
export function changeIssue(desk: Desk, at: string, to: Addressee, body: IssueBody): void {
  const row = { kind: 'issue', body, priority: 1, ms: LAST_WORD_MS } as const;
  desk.store.linearOutbox.enqueue(rowOf(desk, at, to, row));
}
