/**
 * Keeps the clocks of one attempt and says when its silence is too long. Knows when
 * something was heard, not what becomes of it.
 */
import { type ClockVerdict, judgeSilence, type SilenceCode } from '../domain/clocks.ts';
import { PROGRESS_EVENT_TYPES } from '../domain/events.ts';
import type { TimeoutPolicy } from '../domain/work-unit.ts';
import type { EventFields } from './writer.ts';

const UNSURE_RETRY_MS = 5_000;
/** A wrapper says hello as soon as it is connected to. One that has not by then is asked for. */
const GREETING_MS = 30_000;

export interface ClockOptions {
  readonly policy: TimeoutPolicy;
  /** Monotonic clock, milliseconds. */
  readonly now: () => number;
  /** Reads the spool to its end and asks the wrapper for a sign of life, before anything is believed. */
  readonly makeSure: () => Promise<void>;
  /** False while there are lines that cannot be read: they may hold the progress that is missed. */
  readonly ingestCurrent?: () => boolean;
  /** False when nobody listens on its control socket: it cannot be heard at all. */
  readonly reachable: () => boolean;
  readonly onExpired: (code: SilenceCode, silentMs: number) => void;
  readonly onProblem: (error: unknown) => void;
}

export class AttemptClocks {
  readonly #options: ClockOptions;
  readonly #openTools = new Map<string, number>();
  readonly #startedAt: number;
  #heardAt: number | null = null;
  #deaf = false;
  #spoolGrewAt: number;
  #progressAt: number;
  #frozen = false;
  #waiting = false;
  #timer: NodeJS.Timeout | null = null;
  #stopped = false;
  #makingSure = false;

  constructor(options: ClockOptions) {
    this.#options = options;
    this.#startedAt = options.now();
    this.#spoolGrewAt = options.now();
    this.#progressAt = options.now();
  }

  /** A tool call that was already under way when this daemon took the attempt up, for `ageMs` so far. */
  resumeTool(toolCallId: string, ageMs: number): void {
    this.#openTools.set(toolCallId, this.#options.now() - Math.max(0, ageMs));
  }

  start(): void {
    this.#plan();
  }

  /** The wrapper said something on the control socket. */
  heard(): void {
    this.#heardAt = this.#options.now();
    this.#plan();
  }

  /** Lines of the spool were committed. */
  spoolGrew(events: readonly EventFields[]): void {
    const now = this.#options.now();
    this.#spoolGrewAt = now;
    for (const { type, data } of events) {
      if (PROGRESS_EVENT_TYPES.has(type)) this.#progressAt = now;
      const toolCallId = data?.['toolCallId'];
      if (typeof toolCallId !== 'string') continue;
      if (type === 'tool.start') this.#openTools.set(toolCallId, now);
      if (type === 'tool.end') this.#openTools.delete(toolCallId);
    }
    this.#plan();
  }

  /** A frozen unit is not silent by choice; what it owed starts anew when it thaws. */
  setFrozen(frozen: boolean): void {
    if (frozen === this.#frozen) return;
    this.#frozen = frozen;
    if (!frozen) this.#startOver();
    this.#plan();
  }

  /** A person is asked: the clocks stand until the answer. */
  setWaiting(waiting: boolean): void {
    if (waiting === this.#waiting) return;
    this.#waiting = waiting;
    if (!waiting) this.#startOver();
    this.#plan();
  }

  stop(): void {
    this.#stopped = true;
    if (this.#timer) clearTimeout(this.#timer);
  }

  #startOver(): void {
    const now = this.#options.now();
    if (this.#heardAt !== null) this.#heardAt = now;
    this.#spoolGrewAt = now;
    this.#progressAt = now;
    for (const id of this.#openTools.keys()) this.#openTools.set(id, now);
  }

  #judge(): ClockVerdict {
    const { policy, now } = this.#options;
    return judgeSilence({
      now: now(),
      policy,
      heardAt: this.#heardAt,
      deaf: this.#deaf,
      spoolGrewAt: this.#spoolGrewAt,
      progressAt: this.#progressAt,
      toolSince: this.#openTools.size === 0 ? null : Math.min(...this.#openTools.values()),
      frozen: this.#frozen,
      waiting: this.#waiting,
      ingestCurrent: this.#options.ingestCurrent?.() ?? true,
    });
  }

  #plan(): void {
    const verdict = this.#judge();
    this.#planIn(verdict.kind === 'wait' ? verdict.ms : 0);
  }

  #planIn(ms: number): void {
    if (this.#timer) clearTimeout(this.#timer);
    if (this.#stopped) return;
    this.#timer = setTimeout(() => void this.#due(), Math.max(1, ms));
  }

  /** Something is due: what was not read or asked yet may still excuse it. */
  async #due(): Promise<void> {
    if (this.#stopped || this.#makingSure) return;
    try {
      if (this.#isUngreeted()) await this.#greet();
      if (this.#judge().kind === 'expired') await this.#makeSure();
      if (this.#stopped) return;
      const verdict = this.#judge();
      if (verdict.kind === 'expired') {
        // Stopped only afterwards: what cannot be told now has to be told later.
        this.#options.onExpired(verdict.code, verdict.silentMs);
        this.stop();
      } else {
        this.#plan();
      }
    } catch (error) {
      // Nothing could be made sure of, so nothing is concluded; not at once again either.
      this.#options.onProblem(error);
      this.#planIn(UNSURE_RETRY_MS);
    }
  }

  #isUngreeted(): boolean {
    if (this.#heardAt !== null || this.#deaf || this.#frozen) return false;
    return this.#options.now() - this.#startedAt >= GREETING_MS;
  }

  /** It has never been heard: asked once more, its silence counts from now on. */
  async #greet(): Promise<void> {
    await this.#makeSure();
    if (!this.#isUngreeted()) return;
    if (this.#options.reachable()) this.#heardAt = this.#options.now();
    else this.#deaf = true;
    this.#startOver();
  }

  async #makeSure(): Promise<void> {
    this.#makingSure = true;
    try {
      await this.#options.makeSure();
    } finally {
      this.#makingSure = false;
    }
  }
}
