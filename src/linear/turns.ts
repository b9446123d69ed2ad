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
  /** By Linear's clock, ISO 8601: what is late is known by it. Null where Linear does not say. */
  readonly saidAt: string | null;
}

type Rows = Store['linear'];

const isActive = ({ state }: LinearTurnRow): boolean => state === 'running';

/** Said before something else was; false where either time is not known. */
const isEarlier = (one: string | null, other: string | null): boolean =>
  one !== null && other !== null && Date.parse(one) < Date.parse(other);

export const TURN_KIND = 'external_work_step';
export const TURN_OWNER = 'linear_session';

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
      if (turn.interruptedBy !== null || turn.stopped || isOver) return [];
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
  'answered first. Nothing you had started is still running, and files may have changed. Go on ' +
  'with what you were asked in this thread from where it stopped; if it was done already, say so.';

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
  if (session.own || rows.turnOfSource(sourceKey)) return NOTHING;
  if (prompt.isStop) return stopSession(context, transaction, session, { ...prompt, sourceKey });
  const isStopped = wasStopped(rows, session, prompt.saidAt);
  if (session.stoppedAt !== null && !isStopped) rows.setStopped(session.id, null, at);
  const waiting = session.known ? waitingTurn(rows, session) : undefined;
  const id = uuidv7(entropy);
  rows.insertTurn(
    {
      id,
      sessionId: session.id,
      channelKey: session.channelKey,
      sourceKey,
      kind: 'prompted',
      state: isStopped ? 'stopped' : session.known ? 'pending' : 'held',
      prompt: prompt.body,
      saidAt: prompt.saidAt,
    },
    at,
  );
  if (isStopped) return NOTHING;
  // One of the two carries the words of both, in the order in which they were said.
  if (waiting && isEarlier(prompt.saidAt, waiting.saidAt)) {
    joinInto(rows, { id, state: 'pending' }, waiting.id, at);
    return NOTHING;
  }
  if (waiting) joinInto(rows, waiting, id, at);
  if (!session.known) return NOTHING;
  ear.acknowledge(transaction, session.id);
  return { ...NOTHING, interrupt: interruptRunning(context, session, id, at) };
}

const joinInto = (
  rows: Rows,
  turn: Pick<LinearTurnRow, 'id' | 'state'>,
  interruptedBy: string,
  endedAt: string,
): boolean => rows.moveTurn(turn, { state: 'interrupted', interruptedBy, endedAt });

/**
 * From now on nothing is done for the session: what waits is over, what runs is cancelled,
 * and one last activity says so.
 */
function stopSession(
  { store, entropy, ear }: TurnContext,
  transaction: Transaction,
  session: LinearSessionRow,
  { sourceKey, saidAt }: { readonly sourceKey: string; readonly saidAt: string | null },
): TurnOrders {
  const { at } = transaction;
  const rows = store.linear;
  const isLate = rows
    .turnsOfSession(session.id)
    .some((turn) => turn.state !== 'stopped' && isEarlier(saidAt, turn.saidAt));
  if (!isLate) rows.setStopped(session.id, at, at);
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
      saidAt,
    },
    at,
  );
  // Somebody has spoken since: it is not what they mean now.
  if (isLate) return NOTHING;
  const open = rows
    .openOfChannel(session.channelKey)
    .filter(({ sessionId }) => sessionId === session.id);
  for (const turn of open.filter(({ state }) => state === 'pending' || state === 'held')) {
    rows.moveTurn(turn, { state: 'stopped', endedAt: at });
  }
  const running = open.filter(isActive);
  for (const turn of running) rows.moveTurn(turn, { stopped: 1 });
  // Whoever has a last word to come says it there, unless other words were heard since.
  const hadWaiting = open.some(({ state }) => state === 'pending');
  const willSpeak = open.some(
    ({ state, interruptedBy }) =>
      (state === 'awaiting_activity' && !hadWaiting) ||
      (state === 'running' && interruptedBy === null),
  );
  if (!willSpeak) ear.confirmStop(transaction, session.id, sourceKey);
  return { ...NOTHING, cancel: running.flatMap(({ workUnitId }) => workUnitId ?? []) };
}

/** Said before a stop, and come late, whoever has spoken since: the stop is for it too. */
function wasStopped(rows: Rows, session: LinearSessionRow, saidAt: string | null): boolean {
  return rows
    .turnsOfSession(session.id)
    .some((turn) => isStop(turn) && isEarlier(saidAt, turn.saidAt));
}

const isStop = ({ state, kind, prompt }: LinearTurnRow): boolean =>
  state === 'stopped' && kind === 'prompted' && prompt === '';

/** The app was taken away: nothing is done or said any more. @returns the work to cancel. */
export function stopAll({ store }: Pick<Context, 'store'>, at: string): string[] {
  const rows = store.linear;
  return rows.openTurns().flatMap((turn) => {
    if (turn.state === 'running') rows.moveTurn(turn, { stopped: 1 });
    else if (turn.state !== 'awaiting_activity') {
      rows.moveTurn(turn, { state: 'stopped', endedAt: at });
    }
    return turn.state === 'running' ? (turn.workUnitId ?? []) : [];
  });
}

/**
 * The turn that may begin for an issue, if nothing of it is under way. One that waits for a person
 * or for other work (`mayBegin` is false) holds no other up.
 */
export function nextTurn(
  rows: Rows,
  channelKey: string,
  mayBegin: (turn: LinearTurnRow) => boolean,
): LinearTurnRow | null {
  const open = rows.openOfChannel(channelKey);
  if (open.some(({ state }) => state === 'running' || state === 'awaiting_activity')) return null;
  const waiting = open.filter(({ state }) => state === 'pending').toSorted(byUrgency);
  return waiting.find(mayBegin) ?? null;
}

/** A person's words before what only goes on with something; then by age. */
function byUrgency(one: LinearTurnRow, other: LinearTurnRow): number {
  const rank = ({ kind }: LinearTurnRow): number => (kind === 'continuation' ? 1 : 0);
  // Sorting is stable: else in the order they were made.
  return rank(one) - rank(other);
}

/** Issues that have something open. */
export const openChannels = (rows: Rows): string[] => [
  ...new Set(rows.openTurns().map(({ channelKey }) => channelKey)),
];
