/**
 * Turns: what a session's prompts become. Bookkeeping in the transaction of
 * the delivery that it comes from: no process is touched and nothing is posted here;
 * {@link TurnOrders} says what is to follow.
 *
 * One issue is worked on by one turn at a time. A prompt interrupts the turn that runs; a
 * stop ends everything of its session and is remembered until the next prompt.
 */
import { uuidv7 } from '../domain/ids.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { LinearSessionRow, LinearTurnRow, SessionFacts } from '../store/linear-turns.ts';
import type { Store } from '../store/store.ts';
import type { Context } from '../supervisor/context.ts';
import type { Transaction } from '../supervisor/writer.ts';

/** What is to be done after the commit. Who finds a turn interrupted or stopped does it again. */
export interface TurnOrders {
  /** Work units whose turn was interrupted by a prompt. */
  readonly interrupt: readonly string[];
  /** Work units to cancel. */
  readonly cancel: readonly string[];
}

const NOTHING: TurnOrders = { interrupt: [], cancel: [] };

/** What is said at once; enqueued in the transaction that gives the reason for it. */
export interface Ear {
  /** The first sign that somebody was heard, due within ten seconds, however full the queue is. */
  acknowledge(transaction: Transaction, sessionId: string): void;
  /** A stop that found nothing to stop: one answer by this source. */
  confirmStop(transaction: Transaction, sessionId: string, source: string): void;
}

export interface TurnContext extends Pick<Context, 'store' | 'entropy'> {
  readonly ear: Ear;
}

/** What a person said. */
export interface Prompt {
  readonly activityId: string;
  readonly body: string;
  readonly isStop: boolean;
}

type Rows = Store['linear'];

const isActive = ({ state }: LinearTurnRow): boolean => state === 'running';

const join = (...parts: readonly string[]): string =>
  parts.filter((part) => part.trim() !== '').join('\n\n');

/** Prompts that came before their session was known become part of its first turn, in order. */
function takeHeld(rows: Rows, sessionId: string, at: string): string {
  const held = rows.turnsOfSession(sessionId).filter(({ state }) => state === 'held');
  for (const turn of held) rows.moveTurn(turn, { state: 'done', endedAt: at });
  return held.map(({ prompt }) => prompt).join('\n\n');
}

/**
 * A session begins. One that we made ourselves starts nothing; one that was stopped before
 * it was known starts nothing either.
 */
export function sessionCreated(
  { store, entropy, ear }: TurnContext,
  transaction: Transaction,
  facts: SessionFacts,
  prompt: string,
): TurnOrders {
  const { at } = transaction;
  const rows = store.linear;
  const before = rows.session(facts.id);
  rows.putSession(facts, at);
  if (before?.known || facts.own || before?.own) return NOTHING;
  const held = takeHeld(rows, facts.id, at);
  const isStopped = before?.stoppedAt != null && held === '';
  const made = rows.insertTurn(
    {
      id: uuidv7(entropy),
      sessionId: facts.id,
      channelKey: facts.channelKey,
      sourceKey: `created:${facts.id}`,
      kind: 'created',
      state: isStopped ? 'stopped' : 'pending',
      prompt: join(prompt, held),
    },
    at,
  );
  // Others of the same issue may be at work: this one waits, but it is heard.
  if (made && !isStopped) ear.acknowledge(transaction, facts.id);
  return NOTHING;
}

/** The newest turn of the session that has not begun: a burst of prompts is one turn. */
function waitingTurn(rows: Rows, session: LinearSessionRow): LinearTurnRow | undefined {
  return rows
    .openOfChannel(session.channelKey)
    .filter(({ sessionId, state }) => sessionId === session.id && state === 'pending')
    .at(-1);
}

/**
 * Interrupts what runs for the issue. A turn of another session is gone on with later, once.
 * @returns the work units to interrupt.
 */
function interruptRunning(
  { store, entropy }: Pick<Context, 'store' | 'entropy'>,
  session: LinearSessionRow,
  byTurn: string,
  at: string,
): string[] {
  const rows = store.linear;
  return rows
    .openOfChannel(session.channelKey)
    .filter(isActive)
    .flatMap((turn) => {
      const status = turn.workUnitId && store.workUnits.statusOf(turn.workUnitId);
      // Its answer is there already, and is told first.
      const isOver = status && TERMINAL_STATUSES.has(status);
      if (turn.interruptedBy !== null || isOver) return [];
      // A stop ends it already, and nothing of it is gone on with.
      if (turn.sessionId !== session.id && rows.session(turn.sessionId)?.stoppedAt != null)
        return [];
      rows.moveTurn(turn, { interruptedBy: byTurn });
      if (turn.sessionId !== session.id) {
        rows.insertTurn(
          {
            id: uuidv7(entropy),
            sessionId: turn.sessionId,
            channelKey: turn.channelKey,
            sourceKey: `continue:${turn.id}`,
            kind: 'continuation',
            state: 'pending',
            prompt: CONTINUE_AFTER_INTERRUPT,
          },
          at,
        );
      }
      return turn.workUnitId === null ? [] : [turn.workUnitId];
    });
}

export const CONTINUE_AFTER_INTERRUPT =
  'You were interrupted: somebody wrote to you in another thread of the same issue, and that was ' +
  'answered first. Files may have changed. Go on with what you were asked in this thread from ' +
  'where it stopped; if it was done already, say so.';

/** Somebody wrote into a session. The same activity again changes nothing. */
export function prompted(
  context: TurnContext,
  transaction: Transaction,
  facts: SessionFacts,
  prompt: Prompt,
): TurnOrders {
  const { at } = transaction;
  const { store, entropy, ear } = context;
  const rows = store.linear;
  const before = rows.session(facts.id);
  const channelKey = before?.channelKey ?? facts.channelKey;
  rows.putSession({ ...facts, known: false, channelKey }, at);
  const session = rows.session(facts.id);
  if (!session) throw new Error('a session that was just stored is not there');
  const sourceKey = `prompted:${prompt.activityId}`;
  if (rows.turnOfSource(sourceKey)) return NOTHING;
  if (prompt.isStop) return stopSession(context, transaction, session, sourceKey);
  if (session.stoppedAt !== null) rows.setStopped(session.id, null, at);
  const waiting = session.known ? waitingTurn(rows, session) : undefined;
  const id = uuidv7(entropy);
  rows.insertTurn(
    {
      id,
      sessionId: session.id,
      channelKey: session.channelKey,
      sourceKey,
      kind: 'prompted',
      state: session.known ? 'pending' : 'held',
      prompt: waiting ? join(waiting.prompt, prompt.body) : prompt.body,
    },
    at,
  );
  // It carries the older words as well, in order, and takes that one's place.
  if (waiting) rows.moveTurn(waiting, { state: 'interrupted', interruptedBy: id, endedAt: at });
  if (!session.known) return NOTHING;
  ear.acknowledge(transaction, session.id);
  return { ...NOTHING, interrupt: interruptRunning(context, session, id, at) };
}

/**
 * From now on nothing is done for the session: what waits is over, what runs is cancelled,
 * and one last activity says so.
 */
function stopSession(
  { store, entropy, ear }: TurnContext,
  transaction: Transaction,
  session: LinearSessionRow,
  sourceKey: string,
): TurnOrders {
  const { at } = transaction;
  const rows = store.linear;
  rows.setStopped(session.id, at, at);
  // Remembered as a turn of its own, which never runs: a stop seen again stops nothing later.
  rows.insertTurn(
    {
      id: uuidv7(entropy),
      sessionId: session.id,
      channelKey: session.channelKey,
      sourceKey,
      kind: 'prompted',
      state: 'stopped',
      prompt: '',
    },
    at,
  );
  const open = rows
    .openOfChannel(session.channelKey)
    .filter(({ sessionId }) => sessionId === session.id);
  for (const turn of open.filter(({ state }) => state === 'pending' || state === 'held')) {
    rows.moveTurn(turn, { state: 'stopped', endedAt: at });
  }
  const running = open.filter(isActive);
  const cancel = running.flatMap(({ workUnitId }) => workUnitId ?? []);
  // Its last word says so; one that a prompt has interrupted has none.
  const isTold = running.some(({ interruptedBy }) => interruptedBy === null);
  if (!isTold) ear.confirmStop(transaction, session.id, sourceKey);
  return { ...NOTHING, cancel };
}

/** The turn that may begin for an issue, if nothing of it is under way. */
export function nextTurn(rows: Rows, channelKey: string): LinearTurnRow | null {
  const open = rows.openOfChannel(channelKey);
  if (open.some(({ state }) => state === 'running' || state === 'awaiting_activity')) return null;
  const [next] = open.filter(({ state }) => state === 'pending').toSorted(byUrgency);
  return next ?? null;
}

/** A person's words before what only goes on with something; then by age. */
function byUrgency(one: LinearTurnRow, other: LinearTurnRow): number {
  const rank = ({ kind }: LinearTurnRow): number => (kind === 'continuation' ? 1 : 0);
  return rank(one) - rank(other) || (one.id < other.id ? -1 : 1);
}

/** Issues that have something open. */
export const openChannels = (rows: Rows): string[] => [
  ...new Set(rows.openTurns().map(({ channelKey }) => channelKey)),
];
