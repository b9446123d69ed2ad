/**
 * Sends what lies in the outbox, and survives whatever happens to it.
 *
 * A row's id was made and stored before its first try, so a row that was posted by a daemon
 * which died before it could say so is posted again and is the same activity. The row stays
 * `pending` until its outcome is stored; what is on its way is known to the process alone.
 */
import type { OutboxHead, OutboxRow } from '../store/linear-outbox.ts';
import type { Context } from '../supervisor/context.ts';
import { createHint } from '../supervisor/signal.ts';
import type { Transaction } from '../supervisor/writer.ts';
import { createSpeech, REFUSED } from './activities.ts';
import { sayInstead } from './enqueue.ts';
import { type AuthProblem, Gates } from './outbox-gates.ts';
import { type LinearApi, LinearError, type LinearProblem, type Priority } from './port.ts';
import { activityBodySchema, issueBodySchema, sessionBodySchema } from './shapes.ts';

export interface OutboxPolicy {
  /** Rows on their way at once; as many more for what a person waits for. */
  readonly parallel: number;
  /** First and longest wait after a failure that may pass, milliseconds. */
  readonly backoffMs: number;
  readonly backoffMaxMs: number;
  /** Rows of one session that wait, above which passing ones are left out. */
  readonly crowded: number;
  /** Looked at again after this long at the latest: the clock may be set. */
  readonly lookMs: number;
  /** After the store could not be written. */
  readonly troubleMs: number;
  /** How long settled rows are kept. */
  readonly keepMs: number;
}

export const OUTBOX_POLICY: OutboxPolicy = {
  parallel: 4,
  backoffMs: 1_000,
  backoffMaxMs: 5 * 60_000,
  crowded: 4,
  lookMs: 30_000,
  troubleMs: 5_000,
  keepMs: 30 * 24 * 3_600_000,
};

export interface OutboxParts
  extends Pick<Context, 'store' | 'writer' | 'entropy' | 'log' | 'workspace'> {
  readonly api: LinearApi;
  readonly policy?: Partial<OutboxPolicy>;
  /** A row was delivered or given up: a turn may wait for that. */
  readonly onSettled?: (row: OutboxRow) => void;
}

export interface OutboxStatus {
  readonly pending: number;
  /** RFC 3339 of the oldest row that waits. */
  readonly oldest: string | null;
  readonly failed: number;
  readonly expired: number;
  /** Nobody may call; a person has to do something. */
  readonly auth: AuthProblem | null;
  /** The budget is used up until then, milliseconds since the epoch. */
  readonly retryAt: number | null;
}

export interface Outbox {
  /** Something was put into the outbox. */
  wake(): void;
  /** Credentials may work again: a try at once. */
  resume(): void;
  /** Less should be told: the budget is used up, or nobody may call. */
  pressed(): boolean;
  status(): OutboxStatus;
  /** Takes no further row; resolves once what is on its way has arrived and that is stored. */
  stop(): Promise<void>;
}

const AT_ONCE = 500;
const TIDY_MS = 3_600_000;

type Outcome = { readonly kind: 'delivered' } | LinearProblem;

class Sender implements Outbox {
  readonly #parts: OutboxParts;
  readonly #policy: OutboxPolicy;
  readonly #hint = createHint();
  readonly #gates = new Gates();
  /** By lane: what is on its way, and whether a person waits for it. */
  readonly #sending = new Map<string, { urgent: boolean; done: Promise<void> }>();
  /** Lanes that wait because an outcome could not be stored, until when. */
  readonly #resting = new Map<string, number>();
  readonly #running: Promise<void>;
  #stopping = false;
  #tidyAt = 0;

  constructor(parts: OutboxParts) {
    this.#parts = parts;
    this.#policy = { ...OUTBOX_POLICY, ...parts.policy };
    this.#running = this.#run();
  }

  wake(): void {
    this.#hint.raise();
  }

  resume(): void {
    this.#gates.probeNow();
    this.#hint.raise();
  }

  pressed(): boolean {
    return this.#gates.auth !== null || this.#gates.retryAt(this.#now()) !== null;
  }

  status(): OutboxStatus {
    const counts = new Map(this.#table.counts().map((row) => [row.state, row]));
    return {
      pending: counts.get('pending')?.n ?? 0,
      oldest: counts.get('pending')?.oldest ?? null,
      failed: counts.get('failed')?.n ?? 0,
      expired: counts.get('expired')?.n ?? 0,
      auth: this.#gates.auth,
      retryAt: this.#gates.retryAt(this.#now()),
    };
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    this.#hint.raise();
    await this.#running;
  }

  get #table() {
    return this.#parts.store.linearOutbox;
  }

  #now(): number {
    return this.#parts.entropy.now();
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      let ms: number;
      try {
        ms = this.#look();
      } catch (error) {
        this.#parts.log.error({ err: error }, 'the Linear outbox cannot be read; trying again');
        ms = this.#policy.troubleMs;
      }
      await this.#hint.wait(ms);
    }
    await Promise.all([...this.#sending.values()].map(({ done }) => done));
  }

  /** Sends what may go now. @returns milliseconds until something else may. */
  #look(): number {
    this.#expire();
    const now = this.#now();
    let ms = this.#policy.lookMs;
    for (const head of this.#heads()) {
      if (this.#sending.has(head.lane)) continue;
      const due = Math.max(this.#dueIn(head, now), this.#gates.wait(head.urgency, now));
      if (due > 0) ms = Math.min(ms, due);
      else if (this.#hasRoom(head.urgency)) this.#begin(head);
    }
    this.#tidy();
    return Math.max(1, ms);
  }

  #heads(): OutboxHead[] {
    const heads = this.#table.heads();
    const pressed = this.pressed();
    const isCrowded = heads.some(({ waiting }) => waiting > this.#policy.crowded);
    if (!pressed && !isCrowded) return heads;
    const dropped = this.#parts.writer.commit(() => {
      if (pressed) return this.#table.dropOvertaken();
      const crowded = heads.filter(({ waiting }) => waiting > this.#policy.crowded);
      return crowded.reduce((n, { lane }) => n + this.#table.dropOvertaken(lane.split('/')[0]), 0);
    });
    return dropped === 0 ? heads : this.#table.heads();
  }

  #dueIn({ notBefore, lane }: OutboxHead, now: number): number {
    const due = notBefore === null ? 0 : Date.parse(notBefore) - now;
    const rest = (this.#resting.get(lane) ?? 0) - now;
    // A clock that was set back must not hold a row up for longer than it ever would.
    return Math.max(0, Math.min(due, this.#policy.backoffMaxMs), rest);
  }

  /** One try at a time while nobody may call; else a room of its own for what a person waits for. */
  #hasRoom(urgency: number): boolean {
    const sending = [...this.#sending.values()];
    if (this.#gates.auth !== null) return sending.length === 0;
    const isUrgent = urgency === 0;
    return sending.filter(({ urgent }) => urgent === isUrgent).length < this.#policy.parallel;
  }

  #begin({ lane, seq, urgency }: OutboxHead): void {
    const row = this.#table.getBySeq(seq);
    if (row?.state !== 'pending') return;
    const priority = Math.min(2, Math.max(0, urgency)) as Priority;
    const done = this.#send(row, priority, lane).finally(() => {
      this.#sending.delete(lane);
      this.#hint.raise();
    });
    this.#sending.set(lane, { urgent: priority === 0, done });
  }

  async #send(row: OutboxRow, priority: Priority, lane: string): Promise<void> {
    const outcome = await this.#post(row, priority);
    try {
      this.#settle(row, priority, outcome);
      this.#resting.delete(lane);
    } catch (error) {
      // It stays pending and is posted again, under the same id.
      this.#resting.set(lane, this.#now() + this.#policy.troubleMs);
      this.#parts.log.error(
        { err: error, id: row.id },
        'what became of an activity cannot be stored',
      );
    }
  }

  async #post(row: OutboxRow, priority: Priority): Promise<Outcome> {
    try {
      const call = this.#callOf(row, priority);
      if (call === null) return { kind: 'rejected', code: 'invalid_shape', message: 'not ours' };
      await call();
      return { kind: 'delivered' };
    } catch (error) {
      if (error instanceof LinearError) return error.problem;
      this.#parts.log.error({ err: error, id: row.id }, 'an activity could not be posted');
      return { kind: 'transient', message: String(error) };
    }
  }

  /** What sends a row; null for one that must not be sent. */
  #callOf(row: OutboxRow, priority: Priority): (() => Promise<void>) | null {
    const { api } = this.#parts;
    const { id, sessionId, ephemeral } = row;
    if (row.kind === 'activity') {
      const { data } = activityBodySchema.safeParse(row.body);
      const input = { id, agentSessionId: sessionId, ...(ephemeral ? { ephemeral } : {}) };
      return data === undefined ? null : () => api.createActivity({ ...input, ...data }, priority);
    }
    if (row.kind === 'session') {
      const { data } = sessionBodySchema.safeParse(row.body);
      return data === undefined ? null : () => api.updateSession(sessionId, data, priority);
    }
    const { data } = issueBodySchema.safeParse(row.body);
    if (data === undefined) return null;
    const { issueId, ...input } = data;
    return () => api.updateIssue(issueId, input);
  }

  #settle(row: OutboxRow, priority: Priority, outcome: Outcome): void {
    if (outcome.kind === 'delivered') {
      this.#deliver(row);
    } else if (outcome.kind === 'rejected') {
      this.#refuse(row, outcome.code, outcome.message);
    } else if (outcome.kind === 'rate_limited') {
      this.#gates.exhausted(priority, outcome.retryAt, this.#now());
      this.#gates.unclear(this.#now());
    } else if (outcome.kind === 'auth') {
      this.#wait(outcome.message);
    } else {
      this.#gates.unclear(this.#now());
      this.#retry(row, outcome.message);
    }
  }

  #deliver(row: OutboxRow): void {
    this.#mayCall();
    this.#parts.writer.commit(({ at }) => this.#table.delivered(row.seq, at));
    this.#settled(row);
  }

  /** It will never be accepted: told where a person looks, and the next one goes on. */
  #refuse(row: OutboxRow, code: string, message: string): void {
    const { log, writer } = this.#parts;
    this.#mayCall();
    writer.commit((transaction) => {
      this.#table.failed(row.seq, code, message);
      this.#tell(transaction, row, { code, message });
      if (row.terminal) this.#replace(transaction, row);
    });
    log.error({ id: row.id, session: row.sessionId, code, message }, 'Linear refused an activity');
    this.#settled(row);
  }

  /** Without a last word the session would look busy for good. */
  #replace({ at }: Transaction, row: OutboxRow): void {
    if (row.turnId === null) return;
    const workUnit = this.#workUnitOf(row);
    const content = createSpeech([]).error(REFUSED(workUnit?.handle ?? ''));
    if (JSON.stringify(row.body) === JSON.stringify({ content })) return;
    const to = { sessionId: row.sessionId, turnId: row.turnId };
    sayInstead(this.#parts, at, to, content, row.id);
  }

  #workUnitOf({ turnId }: OutboxRow) {
    const id = turnId === null ? null : this.#table.turn(turnId)?.workUnitId;
    return id == null ? null : this.#parts.store.workUnits.get(id);
  }

  #tell(
    transaction: Transaction,
    row: OutboxRow,
    problem: { readonly code: string; readonly message: string },
  ): void {
    const workUnit = this.#workUnitOf(row);
    if (workUnit === null) return;
    const { id, kind, sessionId, turnId, terminal } = row;
    const data = { to: 'linear', id, kind, sessionId, turnId, terminal, ...problem };
    transaction.append(workUnit.id, [{ type: 'diagnostic.undelivered', actor: 'system', data }]);
  }

  #retry(row: OutboxRow, message: string): void {
    const { backoffMs, backoffMaxMs } = this.#policy;
    const [byte = 0] = this.#parts.entropy.random(1);
    const longest = Math.min(backoffMaxMs, backoffMs * 2 ** Math.min(row.tries, 30));
    const ms = Math.max(backoffMs, longest * (0.5 + byte / 512));
    const notBefore = new Date(this.#now() + ms).toISOString();
    this.#parts.writer.commit(() => this.#table.later(row.seq, notBefore, 'transient', message));
    this.#parts.log.warn({ id: row.id, tries: row.tries + 1, notBefore, message }, 'not posted');
  }

  #wait(message: string): void {
    const { entropy, log } = this.#parts;
    const since = new Date(entropy.now()).toISOString();
    // What a person has to do the client says, and stores; see auth-health.ts.
    if (!this.#gates.refused({ message, since }, entropy.now())) return;
    log.warn({ message }, 'nothing is told to Linear until somebody may call it');
  }

  #mayCall(): void {
    if (this.#gates.accepted()) this.#parts.log.info('Linear is told again what waited');
  }

  #expire(): void {
    const now = new Date(this.#now()).toISOString();
    if ((this.#table.nextExpiry() ?? now) >= now) return;
    const expired = this.#parts.writer.commit((transaction) => {
      const rows = this.#table.expire(now).flatMap((seq) => this.#table.getBySeq(seq) ?? []);
      for (const row of rows.filter(({ priority }) => priority === 0)) {
        this.#tell(transaction, row, { code: 'expired', message: 'It waited too long to be told' });
      }
      return rows;
    });
    for (const row of expired) {
      this.#parts.log.warn({ id: row.id, session: row.sessionId }, 'an activity waited too long');
      this.#settled(row);
    }
  }

  #tidy(): void {
    const now = this.#now();
    if (now < this.#tidyAt) return;
    const before = new Date(now - this.#policy.keepMs).toISOString();
    const { dropSettled, dropCursors } = this.#table;
    const dropped = this.#parts.writer.commit(() => {
      dropCursors(before);
      return dropSettled(before, AT_ONCE);
    });
    this.#tidyAt = dropped < AT_ONCE ? now + TIDY_MS : now;
  }

  #settled({ id }: OutboxRow): void {
    const row = this.#table.get(id);
    if (row) this.#parts.onSettled?.(row);
  }
}

/** Starts sending. A refusal by Linear never stops it; only `stop` does. */
export const createOutbox = (parts: OutboxParts): Outbox => new Sender(parts);
