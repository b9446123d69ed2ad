/**
 * Follows one attempt from its start (or from the daemon's) to its committed end.
 *
 * One loop: read the unit afresh; while it lives wait for a hint; once it is dead or
 * gone make sure that nothing of it can still run, then conclude. Every step may be
 * repeated, so it does not matter where the daemon dies.
 */

import type { LiveState } from '../domain/attempt-files.ts';
import type { SilenceCode } from '../domain/clocks.ts';
import { TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import type { UnitFacts } from '../executor/port.ts';
import { isDead, isHeldBack, isPending } from '../executor/unit-state.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { AttemptPaths } from './attempt-directory.ts';
import { attemptPaths, readClaim, removeCredentials, sweepAttempt } from './attempt-directory.ts';
import { conclude } from './conclude.ts';
import type { Context } from './context.ts';
import { fail } from './end.ts';
import { gatherEvidence } from './evidence.ts';
import type { Ingest } from './ingest.ts';
import { createIngest } from './ingest.ts';
import { type Listening, listen } from './listening.ts';
import { proveDead, readOwn } from './prove-dead.ts';
import {
  markStale,
  recordHeldBack,
  recordIdentity,
  recordLateStart,
  recordStart,
} from './record-start.ts';
import { createHint } from './signal.ts';

/** Without any hint the unit is read again after this long: hints may get lost. */
const REREAD_MS = 60_000;
/** After a failed look: the bus may be away for hours, and each try is a line in the log. */
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 30_000;
/** TimeoutStopSec is the cancel grace plus this (properties.ts), then 2 s for the kernel. */
const STOP_MARGIN_MS = 5_000;
const STALE_AFTER_MS = 2_000;
const EMPTY_WAIT_MS = 10_000;
const INTERRUPT_GRACE_MS = 5_000;
/** A start that systemd holds back for so long is taken back, and made again later. */
const START_WAIT_MS = 10 * 60_000;
const SIGKILL = 9;

export interface AttemptWatch {
  readonly attemptId: string;
  readonly unit: string;
  readonly live: LiveState | null;
  /** Something may have changed about the unit. */
  hint(): void;
  /** Tells the wrapper that a decision lies in its directory; it looks by itself, too. */
  tellDecision(): void;
  /** Looks at the unit afresh; resolves when that look has been acted upon, or after `ms`. */
  look(ms: number): Promise<void>;
  /** Resolves when the attempt's end is committed (or watching was stopped). */
  readonly ended: Promise<void>;
  /** Stops watching; the attempt runs on. */
  stop(): void;
}

export interface WatchOptions {
  /** A daemon that finds this attempt at its start. */
  readonly reattach: boolean;
  /** Called when a living wrapper is listened to: what waits for it can be carried over. */
  readonly onAttached: (attempt: AttemptRow) => void;
  /** Called once, after the end is committed and the unit is let go. */
  readonly onEnded: (attemptId: string) => void;
}

/** What tells one order to end an attempt from the next. */
const orderOf = (attempt: AttemptRow): string => attempt.abortRequestedAt ?? attempt.createdAt;

class Watch implements AttemptWatch {
  readonly attemptId: string;
  readonly unit: string;
  readonly ended: Promise<void>;
  private readonly context: Context;
  private readonly nonce: string;
  private readonly paths: AttemptPaths;
  private readonly ingest: Ingest;
  /** Anything that may have changed: what systemd said of the unit, and {@link orders}. */
  private readonly hints = createHint();
  /**
   * The same without what systemd said of this unit: reading an unloaded unit makes it say
   * so, and a wait after a failed look must not be ended by the look itself.
   */
  private readonly orders = createHint();
  private readonly unsubscribe: () => void;
  private readonly options: WatchOptions;
  private listening: Listening | null = null;
  private held = false;
  private readonly onLooked = new Set<() => void>();
  /** The order to end it that was carried out last, by its time; null before the first. */
  private pursued: string | null = null;
  /** When that was accepted, monotonic: what a daemon before this one did proves nothing now. */
  private pursuedAt = 0;
  /** The order that the wrapper was told over its socket. */
  private told: string | null = null;
  /** When its start was first seen to be held back or under way, monotonic. */
  private pendingSince: number | null = null;
  private stopped = false;

  constructor(context: Context, attempt: AttemptRow, options: WatchOptions) {
    this.context = context;
    this.options = options;
    this.attemptId = attempt.id;
    this.unit = attempt.unit;
    this.nonce = attempt.nonce;
    this.paths = attemptPaths(context.settings, attempt);
    this.ingest = createIngest(context, attempt.id, this.paths.spool, (events) =>
      this.listening?.spoolGrew(events),
    );
    this.unsubscribe = context.executor.onHint((unit) => {
      // A new bus connection knows nothing of the references the old one held.
      if (unit === null) this.held = false;
      if (unit === null) this.hint();
      else if (unit === this.unit) this.hints.raise();
    });
    this.ended = this.run();
  }

  get live(): LiveState | null {
    return this.listening?.live ?? null;
  }

  hint(): void {
    this.hints.raise();
    this.orders.raise();
  }

  async look(ms: number): Promise<void> {
    let late: NodeJS.Timeout | undefined;
    const looked = new Promise<void>((resolve) => {
      this.onLooked.add(resolve);
      late = setTimeout(resolve, ms);
    });
    this.hint();
    await Promise.race([looked, this.ended]);
    clearTimeout(late);
  }

  tellDecision(): void {
    this.listening?.look();
  }

  stop(): void {
    this.stopped = true;
    this.hint();
  }

  private async run(): Promise<void> {
    let retryMs = RETRY_FIRST_MS;
    try {
      while (!this.stopped) {
        try {
          if (await this.step()) break;
          retryMs = RETRY_FIRST_MS;
        } catch (error) {
          this.context.log.warn(
            { err: error, unit: this.unit },
            'watching an attempt failed; trying again',
          );
          this.tellWithoutBus();
          await this.orders.wait(retryMs);
          retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
        }
      }
    } finally {
      this.unsubscribe();
      this.detach();
      await this.ingest.stop();
    }
    if (!this.stopped) this.options.onEnded(this.attemptId);
  }

  /** One look at the unit. @returns true when the attempt has ended. */
  private async step(): Promise<boolean> {
    const attempt = this.context.store.attempts.get(this.attemptId);
    if (!attempt || TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) return this.letGo();
    const facts = await readOwn(this.context, attempt);
    if (facts && !isDead(facts)) return this.follow(attempt, facts);
    return this.settle(attempt);
  }

  private async follow(attempt: AttemptRow, facts: UnitFacts): Promise<boolean> {
    if (!this.held) this.held = await this.context.executor.hold(this.unit);
    if (!this.held) return false; // It went away in between; the next look settles it.
    if (isPending(facts)) await this.awaitStart(attempt, facts);
    else if (!this.listening) await this.attach(attempt, facts);
    this.listening?.observe(facts, attempt);
    const next = attempt.intent ? await this.pursue(attempt) : null;
    this.tellLooked();
    await this.hints.wait(Math.min(REREAD_MS, next ?? REREAD_MS));
    return false;
  }

  private tellLooked(): void {
    for (const looked of this.onLooked) looked();
    this.onLooked.clear();
  }

  /** Its start is still to come: nothing may be concluded, and it is not waited for without end. */
  private async awaitStart(attempt: AttemptRow, facts: UnitFacts): Promise<void> {
    const { executor, entropy, log } = this.context;
    recordIdentity(this.context, attempt, facts, await executor.host());
    this.pendingSince ??= entropy.monotonic();
    const heldMs = entropy.monotonic() - this.pendingSince;
    if (!isHeldBack(facts) || heldMs < START_WAIT_MS || attempt.intent) return;
    log.warn({ unit: this.unit, heldMs }, 'a start is held back for too long; it is taken back');
    recordHeldBack(this.context, attempt, heldMs);
    await executor.stop(this.unit);
  }

  /**
   * First sight of a living unit: store who it is, then listen to it. Its main process is
   * executed, so systemd has made its copy of the credentials: ours must not lie about.
   */
  private async attach(attempt: AttemptRow, facts: UnitFacts): Promise<void> {
    const { context, paths, ingest } = this;
    await removeCredentials(paths);
    const host = await context.executor.host();
    await recordStart(context, attempt, facts, host, this.options.reattach);
    const onSilence = (code: SilenceCode, silentMs: number): void =>
      this.endSilence(code, silentMs);
    this.listening = listen({ context, attempt, paths, ingest, onSilence });
    this.options.onAttached(attempt);
  }

  private endSilence(code: SilenceCode, silentMs: number): void {
    const { context, unit, attemptId } = this;
    context.log.warn({ unit, code, silentMs }, 'silent for too long');
    const attempt = context.store.attempts.get(attemptId);
    if (!attempt) return;
    fail(context, attempt.workUnitId, code, `silent for ${Math.round(silentMs / 1000)} s`);
    this.hint();
  }

  /**
   * Carries a stored decision about its end out, also when a daemon before this one took
   * it. @returns milliseconds until the next step is due, null when there is none.
   */
  private async pursue(attempt: AttemptRow): Promise<number | null> {
    const interrupted = attempt.intent?.kind === 'interrupt';
    if (this.pursued !== orderOf(attempt)) await this.order(attempt);
    if (interrupted) {
      const left = this.pursuedAt + INTERRUPT_GRACE_MS - this.context.entropy.monotonic();
      if (left > 0) return left;
      await this.context.executor.kill(this.unit, SIGKILL);
    }
    const deadline = this.staleDeadline(attempt);
    if (deadline !== null && deadline <= 0) markStale(this.context, attempt);
    return deadline ?? (interrupted ? REREAD_MS : null);
  }

  /**
   * Once per order: each further StopUnit would only raise hints that lead here again. One
   * that was not accepted throws, and the order is still to be carried out.
   */
  private async order(attempt: AttemptRow): Promise<void> {
    const interrupted = attempt.intent?.kind === 'interrupt';
    // Interrupted, the wrapper is told and has five seconds; then the whole unit is killed.
    const told = interrupted && (this.listening?.tell('interrupt', INTERRUPT_GRACE_MS) ?? false);
    // A wrapper that cannot be told over its socket can still be told by systemd.
    if (!told) await this.context.executor.stop(this.unit);
    this.noteOrder(attempt);
  }

  private noteOrder(attempt: AttemptRow): void {
    this.pursued = orderOf(attempt);
    this.pursuedAt = this.context.entropy.monotonic();
  }

  /** The manager cannot be reached, the wrapper perhaps can: the stop of its unit follows later. */
  private tellWithoutBus(): void {
    const { store } = this.context;
    const attempt = store.attempts.get(this.attemptId);
    if (!attempt?.intent || TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) return;
    const order = orderOf(attempt);
    if (this.told === order || this.pursued === order) return;
    const { cancelGraceMs = 0 } = store.workUnits.get(attempt.workUnitId)?.timeoutPolicy ?? {};
    const { kind } = attempt.intent;
    const graceMs = kind === 'interrupt' ? INTERRUPT_GRACE_MS : cancelGraceMs;
    if (this.listening?.tell(kind, graceMs)) this.told = order;
  }

  /** Milliseconds until a stopped attempt that is still alive becomes stale; null when nobody stopped it or it is. */
  private staleDeadline(attempt: AttemptRow): number | null {
    const { store, entropy } = this.context;
    const workUnit = store.workUnits.get(attempt.workUnitId);
    if (workUnit?.status !== 'cancelling' || attempt.abortRequestedAt === null) return null;
    const limit = workUnit.timeoutPolicy.cancelGraceMs + STOP_MARGIN_MS + STALE_AFTER_MS;
    return Math.max(0, this.pursuedAt + limit - entropy.monotonic());
  }

  /** The unit is dead or not there: prove that nothing runs, then conclude. */
  private async settle(seen: AttemptRow): Promise<boolean> {
    const { context, paths } = this;
    // What the wrapper has said tells whether it began at all.
    await this.ingest.catchUp();
    const attempt = context.store.attempts.get(this.attemptId) ?? seen;
    const proof = await proveDead(context, attempt, EMPTY_WAIT_MS);
    if (!proof.dead) {
      if (proof.why === 'group_not_empty') this.outlived(attempt);
      return false;
    }
    const { facts } = proof;
    this.detach();
    await this.ingest.finish((await readClaim(paths)) !== 'revoked');
    if (this.ingest.newer !== null && attempt.intent === null) {
      // Its last word is there and cannot be read: an end decided without it would be a guess.
      this.tellLooked();
      await this.hints.wait(REREAD_MS);
      return false;
    }
    const host = await context.executor.host();
    recordLateStart(context, attempt.id, facts);
    const fresh = context.store.attempts.get(attempt.id) ?? attempt;
    const verdict = conclude(
      context,
      attempt.id,
      await gatherEvidence(context, fresh, paths, facts, host),
    );
    if (verdict === 'again') return false;
    context.log.info({ unit: this.unit, verdict }, 'attempt ended');
    return this.letGo();
  }

  /** systemd has given the unit up, and processes of it live on: nothing is released before they end. */
  private outlived(attempt: AttemptRow): void {
    const { unit, context } = this;
    const { controlGroup: group } = attempt;
    context.log.error({ unit, group }, 'the unit is dead but its cgroup is not empty');
    if (!attempt.intent) return;
    if (this.pursued !== orderOf(attempt)) this.noteOrder(attempt); // There is no unit left to stop.
    if (this.staleDeadline(attempt) === 0) markStale(context, attempt);
  }

  private async letGo(): Promise<boolean> {
    // The exit record is in the store by now; an ended unit of ours must not stay loaded.
    const { context, unit, nonce } = this;
    if (await readOwn(context, { unit, nonce })) await context.executor.release(unit);
    await sweepAttempt(context, this.paths);
    return true;
  }

  private detach(): void {
    this.listening?.stop();
    this.listening = null;
  }
}

/** Begins to follow an attempt. */
export function watchAttempt(
  context: Context,
  attempt: AttemptRow,
  options: WatchOptions,
): AttemptWatch {
  return new Watch(context, attempt, options);
}
