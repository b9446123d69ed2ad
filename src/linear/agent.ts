/**
 * Drives turns: starts the work of the next one of each issue, interrupts and cancels what a
 * person no longer wants, and hands every end to the voice. Holds nothing: all of it may die
 * at any instruction, and `start()` looks at everything once more.
 */
import type { StartWorkUnitInput } from '../domain/request.ts';
import { startWorkUnitSchema } from '../domain/request.ts';
import { workUnitCell } from '../domain/states.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { EventRow } from '../store/events.ts';
import type { LinearSessionRow, LinearTurnRow, TurnState } from '../store/linear-turns.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from '../supervisor/context.ts';
import { createHint } from '../supervisor/signal.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import { beginAnew, conversationOf, isGone } from './conversation.ts';
import { type Heard, hearing } from './heard.ts';
import { promptOf } from './turn-prompt.ts';
import { nextTurn, openChannels, type TurnOrders } from './turns.ts';

/** Without any hint everything is looked at again after this long. */
const LOOK_MS = 30_000;
const RETRY_MS = 2_000;

/** What is said to Linear; each call enqueues durably, none posts, all may be repeated. */
export interface Voice {
  /** Tells what is new in the work's events, and breaks a long silence. */
  follow(turn: LinearTurnRow): void;
  /** Tells the rest, and the one last word. */
  conclude(turn: LinearTurnRow): void;
  /** The last word of a turn that no work unit speaks for: why it could not begin. */
  fail(turn: LinearTurnRow, message: string): void;
  /** The last word of a turn that goes on with a person's help only. */
  askForHelp(turn: LinearTurnRow, message: string): void;
  /** True once the last word was posted, or nobody tries any more. */
  isSettled(turn: LinearTurnRow): boolean;
}

/** Where a turn works. */
export type Place =
  | { readonly kind: 'ready'; readonly cwd: string }
  /** A person is asked which repository it is about. */
  | { readonly kind: 'asked' }
  | { readonly kind: 'failed'; readonly message: string };

export interface LinearAgentOptions {
  readonly context: Context;
  readonly supervisor: Pick<Supervisor, 'submit' | 'interrupt' | 'cancel'>;
  readonly voice: Voice;
  /** Makes the work tree of a session's issue. Repeatable. */
  readonly place: (session: LinearSessionRow) => Promise<Place>;
  /** Further fields of the request: model, policies, timeouts. */
  readonly request: Partial<Pick<StartWorkUnitInput, 'timeoutPolicy' | 'priority'>> & {
    readonly model?: string;
  };
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

/** What is found before a turn begins: where it works, and what its conversation knows. */
interface Beginning {
  readonly cwd: string;
  readonly heard: Heard;
}

/** As what a turn ends, once its last word is out. */
function endOf(workUnit: WorkUnitRow | null, session: LinearSessionRow | null): TurnState {
  if (workUnit?.status === 'succeeded') return 'done';
  if (workUnit?.status !== 'cancelled') return 'failed';
  // Words after the stop have taken the session's mark away.
  const isStopped = session?.stoppedAt != null || workUnit.errorMessage === STOPPED;
  return isStopped ? 'stopped' : 'failed';
}

/** See {@link LinearAgent}. */
class Driver implements LinearAgent {
  readonly #options: LinearAgentOptions;
  readonly #hint = createHint();
  /** Issues that are looked at just now; those wanted once more have changed meanwhile. */
  readonly #looking = new Map<string, { isWanted: boolean; done: Promise<void> }>();
  #closing = false;
  #running: Promise<void> = Promise.resolve();
  #unsubscribe: () => void = () => undefined;

  constructor(options: LinearAgentOptions) {
    this.#options = options;
  }

  obey(orders: TurnOrders): void {
    for (const id of orders.interrupt) this.#interruptWork(id);
    for (const id of orders.cancel) this.#cancelWork(id, STOPPED);
    this.hint();
  }

  hint(): void {
    this.#hint.raise();
  }

  async look(): Promise<void> {
    await Promise.all(openChannels(this.#rows).map((key) => this.#lookAt(key)));
  }

  /** One issue that waits for Linear or for git holds no other up. */
  #lookAt(channelKey: string): Promise<void> {
    const before = this.#looking.get(channelKey);
    if (before) {
      before.isWanted = true;
      return before.done;
    }
    const looking = { isWanted: false, done: Promise.resolve() };
    const done = async (): Promise<void> => {
      do {
        looking.isWanted = false;
        await this.#tryAdvance(channelKey);
      } while (looking.isWanted && !this.#closing);
      this.#looking.delete(channelKey);
    };
    this.#looking.set(channelKey, looking);
    looking.done = done();
    return looking.done;
  }

  start(): void {
    this.#unsubscribe = this.#options.context.hub.subscribe((events) => {
      if (events.some((event) => this.#concerns(event))) this.hint();
    });
    this.#running = this.#run();
  }

  async close(): Promise<void> {
    this.#closing = true;
    this.#unsubscribe();
    this.hint();
    await this.#running;
  }

  get #rows(): Context['store']['linear'] {
    return this.#options.context.store.linear;
  }

  #concerns({ type, workUnitId }: EventRow): boolean {
    return ENDS.has(type) && this.#rows.turnOfWork(workUnitId) !== null;
  }

  async #run(): Promise<void> {
    while (!this.#closing) {
      this.look().catch((error: unknown) => {
        this.#options.context.log.error({ err: error }, 'turns cannot be read; again later');
      });
      await this.#hint.wait(LOOK_MS);
    }
    await Promise.all([...this.#looking.values()].map(({ done }) => done));
  }

  async #tryAdvance(channelKey: string): Promise<void> {
    try {
      await this.#advance(channelKey);
    } catch (error) {
      const { log } = this.#options.context;
      log.error({ err: error, channel: channelKey }, 'a turn could not be driven; again later');
      setTimeout(() => this.hint(), RETRY_MS).unref();
    }
  }

  async #advance(channelKey: string): Promise<void> {
    for (const turn of this.#rows.openOfChannel(channelKey)) this.#look(turn);
    const next = nextTurn(this.#rows, channelKey);
    const session = next && this.#rows.session(next.sessionId);
    if (this.#closing || !next || !session) return;
    const found = await this.#options.place(session);
    if (found.kind === 'ready') {
      const heard = await hearing(this.#options.context, session);
      this.#begin(next, session, { cwd: found.cwd, heard });
    }
    if (found.kind === 'failed') this.#fail(next, found.message);
  }

  #look(turn: LinearTurnRow): void {
    if (turn.state === 'awaiting_activity') this.#settle(turn);
    if (turn.state !== 'running' || turn.workUnitId === null) return;
    const { context, voice } = this.#options;
    const workUnit = context.store.workUnits.get(turn.workUnitId);
    if (workUnit === null) return;
    const isOver = TERMINAL_STATUSES.has(workUnit.status) || isStuck(workUnit);
    if (isOver) this.#conclude(turn, workUnit);
    else if (turn.interruptedBy !== null) this.#interruptWork(workUnit.id);
    else if (this.#rows.session(turn.sessionId)?.stoppedAt != null) {
      this.#cancelWork(workUnit.id, STOPPED);
    } else voice.follow(turn);
  }

  /** Submits the work of a turn, which is running in the same transaction. */
  #begin(turn: LinearTurnRow, session: LinearSessionRow, where: Beginning): void {
    const { context, supervisor, voice } = this.#options;
    // Stopped, or joined by a later prompt, while its place was made.
    if (this.#rows.turn(turn.id)?.state !== 'pending') return;
    if (isGone(context, session)) {
      this.#beginAnew(session);
      this.#askForHelp(turn, 'pending', CONVERSATION_GONE);
      return;
    }
    const input = startWorkUnitSchema.parse(requestOf(this.#options, turn, session, where));
    supervisor.submit(input, {
      idempotencyKey: turn.id,
      actor: 'system',
      // Work that no turn knows of would run on whatever is said, and its words be said twice.
      within: ({ at }, { id }) => {
        const patch = { state: 'running', workUnitId: id, startedAt: at } as const;
        this.#rows.moveTurn({ id: turn.id, state: 'pending' }, patch);
      },
    });
    const now = this.#rows.turn(turn.id);
    if (now?.state === 'running') voice.follow(now);
  }

  #fail(turn: LinearTurnRow, message: string): void {
    this.#options.voice.fail(turn, message);
    this.#move(turn.id, 'pending', 'awaiting_activity');
  }

  #askForHelp(turn: LinearTurnRow, from: TurnState, message: string): void {
    this.#options.voice.askForHelp(turn, message);
    this.#move(turn.id, from, 'awaiting_activity');
  }

  #beginAnew(session: Pick<LinearSessionRow, 'id'>): void {
    const { writer, store } = this.#options.context;
    writer.commit(({ at }) => beginAnew(store, session, at));
  }

  /** The work of a running turn is over: it waits for its last word to be out. */
  #conclude(turn: LinearTurnRow, workUnit: WorkUnitRow): void {
    const { voice } = this.#options;
    // What was taken over by another turn says nothing, least of all that it failed.
    if (this.#rows.turn(turn.id)?.interruptedBy != null) {
      this.#move(turn.id, 'running', 'interrupted');
    } else if (isStuck(workUnit)) {
      const isLost = NO_CONVERSATION.has(workUnit.errorCode ?? '');
      if (isLost) this.#beginAnew({ id: turn.sessionId });
      const why = workUnit.errorMessage ?? workUnit.errorCode ?? '';
      this.#askForHelp(turn, 'running', `${why}. ${isLost ? WRITE_TO_BEGIN : WRITE_TO_GO_ON}`);
    } else {
      voice.conclude(turn);
      this.#move(turn.id, 'running', 'awaiting_activity');
    }
    if (isStuck(workUnit)) this.#cancelWork(workUnit.id, 'nobody in Linear can decide it');
  }

  /** Its last word is out, or given up: the issue is free for the next turn. */
  #settle(turn: LinearTurnRow): void {
    const { context, voice } = this.#options;
    if (!voice.isSettled(turn)) return;
    const { workUnits } = context.store;
    const workUnit = turn.workUnitId === null ? null : workUnits.get(turn.workUnitId);
    const end = endOf(workUnit, this.#rows.session(turn.sessionId));
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

function requestOf(
  { request, context }: LinearAgentOptions,
  turn: LinearTurnRow,
  session: LinearSessionRow,
  { cwd, heard }: Beginning,
): StartWorkUnitInput {
  return {
    ...request,
    kind: 'external_work_step',
    ownerType: 'linear_session',
    ownerId: session.id,
    createdByClientId: 'linear',
    runnerId: 'pi',
    prompt: promptOf(context.store, turn, session, heard),
    conversation: conversationOf(context.store, session),
    cwd,
    externalSubject: `linear:${turn.channelKey}`,
    leases: [{ type: 'external_workspace', key: `linear:${turn.channelKey}` }],
  };
}
