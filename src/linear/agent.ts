/**
 * Drives turns: starts the work of the next one of each issue, interrupts and cancels what a
 * person no longer wants, and hands every end to the voice. Holds nothing: all of it may die
 * at any instruction, and `start()` looks at everything once more.
 */
import type { StartWorkUnitInput } from '../domain/request.ts';
import { startWorkUnitSchema } from '../domain/request.ts';
import type { WorkUnitStatus } from '../domain/work-unit.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { EventRow } from '../store/events.ts';
import type { LinearSessionRow, LinearTurnRow, TurnState } from '../store/linear-turns.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from '../supervisor/context.ts';
import { createHint } from '../supervisor/signal.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import type { Transaction } from '../supervisor/writer.ts';
import { promptOf } from './turn-prompt.ts';
import { nextTurn, openChannels, type TurnOrders } from './turns.ts';

/** Without any hint everything is looked at again after this long. */
const LOOK_MS = 30_000;
const RETRY_MS = 2_000;

/** How a turn ends, for whoever words it. */
export type TurnEnd =
  | { readonly how: 'answered'; readonly text: string }
  | { readonly how: 'failed'; readonly code: string; readonly message: string }
  | { readonly how: 'stopped' };

/** What is said to Linear; each call enqueues, none posts. */
export interface Voice {
  /** From here on the work's events are told in the session. */
  follow(turn: LinearTurnRow): void;
  /** The turn's one terminal activity, in this very transaction. @returns its id. */
  conclude(transaction: Transaction, turn: LinearTurnRow, end: TurnEnd): string;
  /** True once the terminal activity was posted, or nobody tries any more. */
  isSettled(terminalId: string): boolean;
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

function endOf(
  context: Context,
  turn: LinearTurnRow,
  workUnit: WorkUnitRow,
  session: LinearSessionRow | null,
): TurnEnd | null {
  const { status, errorCode, errorMessage } = workUnit;
  if (status === 'succeeded') {
    const last = context.store.attempts.listByWorkUnit(workUnit.id).at(-1);
    return { how: 'answered', text: last?.lastWord?.text ?? '' };
  }
  // What was taken over by another turn says nothing, least of all that it failed.
  if (turn.interruptedBy !== null) return null;
  if (session?.stoppedAt != null && status === 'cancelled') return { how: 'stopped' };
  return { how: 'failed', code: errorCode ?? status, message: errorMessage ?? status };
}

const ENDED_AS: Readonly<Record<TurnEnd['how'], TurnState>> = {
  answered: 'done',
  failed: 'failed',
  stopped: 'stopped',
};

/** See {@link LinearAgent}. */
class Driver implements LinearAgent {
  readonly #options: LinearAgentOptions;
  readonly #hint = createHint();
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
    await Promise.all(openChannels(this.#rows).map((key) => this.#tryAdvance(key)));
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
      await this.look();
      await this.#hint.wait(LOOK_MS);
    }
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
    if (found.kind === 'ready') this.#begin(next, session, found.cwd);
    else if (found.kind === 'failed') this.#fail(next, found.message);
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

  /** Submits the work of a turn; the turn's id makes a second submit the same one. */
  #begin(turn: LinearTurnRow, session: LinearSessionRow, cwd: string): void {
    const { context, supervisor, voice } = this.#options;
    // Stopped, or joined by a later prompt, while its place was made.
    if (this.#rows.turn(turn.id)?.state !== 'pending') return;
    const input = startWorkUnitSchema.parse(requestOf(this.#options, turn, session, cwd));
    const { workUnit } = supervisor.submit(input, { idempotencyKey: turn.id, actor: 'system' });
    context.writer.commit(({ at }) => {
      const patch = { state: 'running', workUnitId: workUnit.id, startedAt: at } as const;
      this.#rows.moveTurn({ id: turn.id, state: 'pending' }, patch);
    });
    const now = this.#rows.turn(turn.id);
    if (now?.state === 'running') voice.follow(now);
    else this.#cancelWork(workUnit.id, STOPPED);
  }

  #fail(turn: LinearTurnRow, message: string): void {
    const { context, voice } = this.#options;
    context.writer.commit((transaction) => {
      const now = this.#rows.turn(turn.id);
      if (now?.state !== 'pending') return;
      const end = { how: 'failed', code: 'cwd_missing', message } as const;
      const terminalId = voice.conclude(transaction, now, end);
      this.#rows.moveTurn(now, { state: 'awaiting_activity', terminalId });
    });
  }

  /** The work of a running turn is over: its end is stored with what is said about it. */
  #conclude(turn: LinearTurnRow, workUnit: WorkUnitRow): void {
    const { context, voice } = this.#options;
    context.writer.commit((transaction) => {
      const now = this.#rows.turn(turn.id);
      if (now?.state !== 'running') return;
      const end = endOf(context, now, workUnit, this.#rows.session(now.sessionId));
      if (end === null) {
        this.#rows.moveTurn(now, { state: 'interrupted', endedAt: transaction.at });
        return;
      }
      const terminalId = voice.conclude(transaction, now, end);
      this.#rows.moveTurn(now, { state: 'awaiting_activity', terminalId });
    });
    if (isStuck(workUnit)) this.#cancelWork(workUnit.id, 'nobody in Linear can decide it');
  }

  /** Its terminal activity is out, or given up: the issue is free for the next turn. */
  #settle(turn: LinearTurnRow): void {
    const { context, voice } = this.#options;
    if (turn.terminalId !== null && !voice.isSettled(turn.terminalId)) return;
    const { workUnits } = context.store;
    const workUnit = turn.workUnitId === null ? null : workUnits.get(turn.workUnitId);
    const end = workUnit && endOf(context, turn, workUnit, this.#rows.session(turn.sessionId));
    context.writer.commit(({ at }) => {
      this.#rows.moveTurn(turn, { state: end ? ENDED_AS[end.how] : 'failed', endedAt: at });
    });
  }

  #cancelWork(workUnitId: string, reason: string): void {
    const status = this.#options.context.store.workUnits.statusOf(workUnitId);
    if (status === null || TERMINAL_STATUSES.has(status)) return;
    this.#options.supervisor.cancel(workUnitId, { actor: 'system', reason });
  }

  /** An interrupt is for what runs; what only waits is over at once. */
  #interruptWork(workUnitId: string): void {
    const status = this.#options.context.store.workUnits.statusOf(workUnitId);
    if (status === null || TERMINAL_STATUSES.has(status) || status === 'cancelling') return;
    const request = { actor: 'system', reason: INTERRUPTED } as const;
    if (RUNS.has(status)) this.#options.supervisor.interrupt(workUnitId, request);
    else this.#options.supervisor.cancel(workUnitId, request);
  }
}

export const createLinearAgent = (options: LinearAgentOptions): LinearAgent => new Driver(options);

const ENDS: ReadonlySet<string> = new Set([
  'work_unit.succeeded',
  'work_unit.failed',
  'work_unit.cancelled',
  'work_unit.stale',
]);

/** States in which there is, or may be, a process to interrupt. */
const RUNS: ReadonlySet<WorkUnitStatus> = new Set(['claimed', 'running', 'waiting_for_approval']);

/** Linear's ids are UUIDs; a conversation's name is made of small letters, digits and dashes. */
const conversationOf = ({ id }: LinearSessionRow): string =>
  `linear-${id.toLowerCase().replaceAll(/[^a-z0-9._-]/g, '-')}`.slice(0, 128);

function requestOf(
  { request, context }: LinearAgentOptions,
  turn: LinearTurnRow,
  session: LinearSessionRow,
  cwd: string,
): StartWorkUnitInput {
  return {
    ...request,
    kind: 'external_work_step',
    ownerType: 'linear_session',
    ownerId: session.id,
    createdByClientId: 'linear',
    runnerId: 'pi',
    prompt: promptOf(context.store, turn),
    conversation: conversationOf(session),
    cwd,
    externalSubject: `linear:${turn.channelKey}`,
    leases: [{ type: 'external_workspace', key: `linear:${turn.channelKey}` }],
  };
}
