/**
 * Drives turns: starts the work of the next one of each issue, interrupts and cancels what a
 * person no longer wants, and hands every end to the voice. Holds nothing: all of it may die
 * at any instruction, and `start()` looks at everything once more.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { startWorkUnitSchema } from '../domain/request.ts';
import { workUnitCell } from '../domain/states.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { EventRow } from '../store/events.ts';
import type { LinearSessionRow, LinearTurnRow, TurnState } from '../store/linear-turns.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from '../supervisor/context.ts';
import { createHint } from '../supervisor/signal.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import type { Transaction } from '../supervisor/writer.ts';
import { beginAnew, isGone } from './conversation.ts';
import { Pace, type Trouble } from './pace.ts';
import { LinearError } from './port.ts';
import { promptOf } from './turn-prompt.ts';
import { refusalOf, requestOf, type TurnDefaults } from './turn-request.ts';
import { nextTurn, openChannels, type TurnOrders } from './turns.ts';

/** Without any hint everything is looked at again after this long. */
const LOOK_MS = 30_000;
/** So often in a row, over half an hour, a turn may fail to begin before a person is told why. */
const TELL_AFTER = 13;
/** How long an end waits for what is under way. */
const CLOSE_MS = 500;

/** What is said to Linear; each call enqueues durably, none posts, all may be repeated. */
export interface Voice {
  /** Breaks a long silence of a turn that has not begun. */
  wait(turn: LinearTurnRow): void;
  /** Tells what is new in the work's events, and breaks a long silence. */
  follow(turn: LinearTurnRow): void;
  /** Tells the rest, and the one last word. */
  conclude(turn: LinearTurnRow): void;
  /** The last word of a turn that no work unit speaks for: why it could not begin. */
  fail(transaction: Transaction, turn: LinearTurnRow, message: string): void;
  /** The last word of a turn that goes on with a person's help only. */
  askForHelp(transaction: Transaction, turn: LinearTurnRow, message: string): void;
  /** Nothing more is told of it. */
  forget(turn: LinearTurnRow): void;
  /** True once the last word was posted, or nobody tries any more. */
  isSettled(turn: LinearTurnRow): boolean;
}

/** Where a turn works. */
export type Place =
  | { readonly kind: 'ready'; readonly cwd: string }
  /** Not yet: a person was asked which repository it is about, or something is done there before. */
  | { readonly kind: 'waits'; readonly isOver: () => boolean }
  | { readonly kind: 'failed'; readonly message: string };

export interface LinearAgentOptions {
  readonly context: Context;
  readonly supervisor: Pick<Supervisor, 'submit' | 'interrupt' | 'cancel'>;
  readonly voice: Voice;
  /** Makes the work tree of a session's issue, for its next turn. Repeatable. */
  readonly place: (session: LinearSessionRow, turn: LinearTurnRow) => Promise<Place>;
  /** Further fields of the request: model, policies, timeouts. */
  readonly request: TurnDefaults;
}

export interface LinearAgent {
  /** Carries orders out, which may have been carried out before. */
  obey(orders: TurnOrders): void;
  /** Something may have changed. */
  hint(): void;
  /** Looks at every issue once; resolves when what was due is done. */
  look(): Promise<void>;
  start(): void;
  /** Begins nothing more; resolves when what is under way is done. */
  close(): Promise<void>;
}

const INTERRUPTED = 'somebody wrote into a session of the same issue';
const STOPPED = 'a person stopped the session in Linear';
/** Waits for a person, and in Linear nobody can answer that: an end, as far as the turn goes. */
const isStuck = ({ status, activeAttemptId, errorCode }: WorkUnitRow): boolean =>
  status === 'stale' && activeAttemptId === null && errorCode !== null;

/** Stuck because nothing is left to go on from. */
const NO_CONVERSATION: ReadonlySet<string> = new Set([
  'resume_session_corrupt',
  'resume_session_missing',
]);
const WRITE_TO_GO_ON = 'Write here, and it goes on from its conversation.';
const WRITE_TO_BEGIN =
  'Write here to begin anew: what was asked first and its files are there, the conversation is not.';
const CONVERSATION_GONE = `The conversation of this thread is not on this machine any more. ${WRITE_TO_BEGIN}`;

const AWAITING = { state: 'awaiting_activity' } as const;

interface Help {
  readonly message: string;
  /** What comes next begins another conversation. */
  readonly isAnew: boolean;
}

/** See {@link LinearAgent}. */
class Driver implements LinearAgent {
  readonly #options: LinearAgentOptions;
  readonly #hint = createHint();
  readonly #pace: Pace;
  #closing = false;
  #running: Promise<void> = Promise.resolve();
  #unsubscribe: () => void = () => undefined;

  constructor(options: LinearAgentOptions) {
    const { entropy } = options.context;
    this.#options = options;
    this.#pace = new Pace({
      monotonic: () => entropy.monotonic(),
      look: (key) => this.#advance(key),
      onTrouble: (trouble) => this.#troubled(trouble),
    });
  }

  obey(orders: TurnOrders): void {
    for (const id of orders.interrupt) this.#try(() => this.#interruptWork(id));
    for (const id of orders.cancel) this.#try(() => this.#cancelWork(id, STOPPED));
    this.hint();
  }

  /** What fails is done again by the next look, as the turns say. */
  #try(order: () => void): void {
    try {
      order();
    } catch (error) {
      this.#trouble(error);
    }
  }

  hint(): void {
    this.#hint.raise();
  }

  async look(): Promise<void> {
    await this.#pace.lookAt(openChannels(this.#rows));
  }

  start(): void {
    const { context } = this.#options;
    this.#unsubscribe = context.hub.subscribe((events) => {
      if (events.some((event) => this.#concerns(event))) this.hint();
    });
    this.#running = this.#run();
  }

  async close(): Promise<void> {
    this.#closing = true;
    this.#unsubscribe();
    this.hint();
    await this.#running;
    // A git that hangs holds nobody up: what it was for is made again by the next daemon.
    await Promise.race([this.#pace.close(), pause(CLOSE_MS, undefined, { ref: false })]);
  }

  get #rows(): Context['store']['linear'] {
    return this.#options.context.store.linear;
  }

  #concerns({ type, workUnitId }: EventRow): boolean {
    return ENDS.has(type) && this.#rows.turnOfWork(workUnitId) !== null;
  }

  async #run(): Promise<void> {
    while (!this.#closing) {
      try {
        // Not waited for: an issue whose place takes long holds no other up.
        this.look().catch((error: unknown) => this.#trouble(error));
      } catch (error) {
        this.#trouble(error);
      }
      await this.#hint.wait(LOOK_MS);
    }
  }

  #trouble(error: unknown): void {
    this.#options.context.log.error({ err: error }, 'turns could not be looked at; again later');
  }

  async #advance(channelKey: string): Promise<void> {
    for (const turn of this.#rows.openOfChannel(channelKey)) this.#look(turn);
    if (this.#closing) return;
    const mayBegin = ({ id }: LinearTurnRow): boolean => this.#pace.mayBegin(channelKey, id);
    const next = nextTurn(this.#rows, channelKey, mayBegin);
    const session = next && this.#rows.session(next.sessionId);
    if (!next || !session) return;
    const found = await this.#options.place(session, next);
    // Stopped, or joined by a later prompt, while its place was made.
    if (this.#closing || !this.#isWaiting(next)) return;
    if (found.kind === 'ready') await this.#begin(next, session, found.cwd);
    else if (found.kind === 'failed') this.#fail(next, found.message);
    else {
      this.#pace.park(channelKey, next.id, found.isOver);
      // Another one of the issue may begin meanwhile.
      this.hint();
    }
  }

  #isWaiting({ id }: LinearTurnRow): boolean {
    return this.#rows.turn(id)?.state === 'pending';
  }

  #troubled({ key, turnId, error, failures }: Trouble): void {
    const said = { err: error, channel: key, failures };
    // Once a row of failures: they are one thing that does not work.
    if (failures > 1) this.#options.context.log.debug(said, 'a turn could not be driven');
    else this.#options.context.log.error(said, 'a turn could not be driven; again later');
    // Linear that is away comes back by itself; anything else a person has to hear of.
    const turn = turnId === null || failures < TELL_AFTER ? null : this.#rows.turn(turnId);
    if (turn === null || error instanceof LinearError) return;
    const why = error instanceof Error ? error.message : String(error);
    this.#try(() => this.#fail(turn, `It could not begin: ${why}`));
  }

  #look(turn: LinearTurnRow): void {
    const { context, voice } = this.#options;
    if (turn.state === 'awaiting_activity') this.#settle(turn);
    if (turn.state === 'pending') voice.wait(turn);
    if (turn.state !== 'running') return;
    const workUnit = turn.workUnitId === null ? null : context.store.workUnits.get(turn.workUnitId);
    if (workUnit === null) this.#fail(turn, 'What it was to do is not known any more.', 'running');
    else if (TERMINAL_STATUSES.has(workUnit.status) || isStuck(workUnit)) {
      this.#conclude(turn, workUnit);
    } else if (turn.stopped) this.#cancelWork(workUnit.id, STOPPED);
    else if (turn.interruptedBy !== null) this.#interruptWork(workUnit.id);
    else voice.follow(turn);
  }

  /** Submits the work of a turn; the turn's id makes a second submit the same one. */
  async #begin(turn: LinearTurnRow, session: LinearSessionRow, cwd: string): Promise<void> {
    const { context } = this.#options;
    const prompt = await promptOf(context, turn, session);
    if (this.#closing || !this.#isWaiting(turn)) return;
    if (isGone(context, session)) {
      this.#askForHelp(turn, 'pending', { message: CONVERSATION_GONE, isAnew: true });
      return;
    }
    try {
      this.#submit(turn, session, { prompt, cwd });
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal === null) throw error;
      this.#fail(turn, refusal);
    }
  }

  #submit(
    turn: LinearTurnRow,
    session: LinearSessionRow,
    work: { readonly prompt: string; readonly cwd: string },
  ): void {
    const { context, supervisor, voice, request } = this.#options;
    const input = startWorkUnitSchema.parse(requestOf(context.store, request, session, work));
    supervisor.submit(input, {
      idempotencyKey: turn.id,
      actor: 'system',
      // In one commit: work that no turn knew of would be missed by a stop, and done twice.
      within: ({ at }, { id: workUnitId }) => {
        const patch = { state: 'running', workUnitId, startedAt: at } as const;
        this.#rows.moveTurn({ id: turn.id, state: 'pending' }, patch);
      },
    });
    const now = this.#rows.turn(turn.id);
    if (now) voice.follow(now);
  }

  #fail(turn: LinearTurnRow, message: string, from: TurnState = 'pending'): void {
    this.#options.context.writer.commit((transaction) => {
      const isMoved = this.#rows.moveTurn({ id: turn.id, state: from }, AWAITING);
      if (isMoved) this.#options.voice.fail(transaction, turn, message);
    });
    this.hint();
  }

  /** The question, and that what comes next begins anew, are one commit with the turn's state. */
  #askForHelp(turn: LinearTurnRow, from: TurnState, help: Help): void {
    const { writer, store } = this.#options.context;
    writer.commit((transaction) => {
      if (!this.#rows.moveTurn({ id: turn.id, state: from }, AWAITING)) return;
      if (help.isAnew) beginAnew(store, { id: turn.sessionId }, transaction.at);
      this.#options.voice.askForHelp(transaction, turn, help.message);
    });
    this.hint();
  }

  /** The work of a running turn is over: it waits for its last word to be out. */
  #conclude(turn: LinearTurnRow, workUnit: WorkUnitRow): void {
    const { voice } = this.#options;
    if (isStuck(workUnit)) {
      this.#unstick(turn, workUnit);
      return;
    }
    // What was taken over by another turn says nothing, least of all that it failed.
    const isOvertaken = this.#rows.turn(turn.id)?.interruptedBy != null;
    voice.conclude(turn);
    this.#move(turn.id, 'running', isOvertaken ? 'interrupted' : 'awaiting_activity');
  }

  /** It waits for a person at the machine: a person in Linear is told, and writes another turn. */
  #unstick(turn: LinearTurnRow, { id, errorCode, errorMessage }: WorkUnitRow): void {
    const { voice } = this.#options;
    const isAnew = NO_CONVERSATION.has(errorCode ?? '');
    const help = isAnew ? WRITE_TO_BEGIN : WRITE_TO_GO_ON;
    const message = `${errorMessage ?? errorCode ?? ''}. ${help}`;
    const isOvertaken = this.#rows.turn(turn.id)?.interruptedBy != null;
    // What it did goes out before the question.
    voice.follow(turn);
    // Before the turn moves on: whoever finds it stuck again does the same.
    this.#cancelWork(id, 'nobody in Linear can decide it');
    if (!isOvertaken) {
      this.#askForHelp(turn, 'running', { message, isAnew });
    } else {
      const { writer, store } = this.#options.context;
      if (isAnew) writer.commit(({ at }) => beginAnew(store, { id: turn.sessionId }, at));
      this.#move(turn.id, 'running', 'interrupted');
    }
    voice.forget(turn);
  }

  /** Its last word is out, or given up: the issue is free for the next turn. */
  #settle(turn: LinearTurnRow): void {
    const { context, voice } = this.#options;
    if (!voice.isSettled(turn)) return;
    const { workUnits } = context.store;
    const status = turn.workUnitId === null ? null : workUnits.statusOf(turn.workUnitId);
    const end = status === 'succeeded' ? 'done' : turn.stopped ? 'stopped' : 'failed';
    this.#move(turn.id, 'awaiting_activity', end);
  }

  /** Does nothing when the turn is in another state by now. */
  #move(id: string, from: TurnState, state: TurnState): void {
    this.#options.context.writer.commit(({ at }) => {
      const isOver = state !== 'awaiting_activity';
      this.#rows.moveTurn({ id, state: from }, { state, ...(isOver ? { endedAt: at } : {}) });
    });
  }

  #cancelWork(workUnitId: string, reason: string): void {
    const status = this.#options.context.store.workUnits.statusOf(workUnitId);
    if (status === null || TERMINAL_STATUSES.has(status)) return;
    this.#options.supervisor.cancel(workUnitId, { actor: 'system', reason });
  }

  #interruptWork(workUnitId: string): void {
    const status = this.#options.context.store.workUnits.statusOf(workUnitId);
    if (status === null || workUnitCell(status, 'interrupt').kind !== 'move') return;
    const request = { actor: 'system', reason: INTERRUPTED } as const;
    this.#options.supervisor.interrupt(workUnitId, request);
  }
}

export const createLinearAgent = (options: LinearAgentOptions): LinearAgent => new Driver(options);

const ENDS: ReadonlySet<string> = new Set([
  'work_unit.succeeded',
  'work_unit.failed',
  'work_unit.cancelled',
  'work_unit.stale',
]);
