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
import type { AttemptRow } from '../store/attempts.ts';
import type { AttemptPaths } from './attempt-directory.ts';
import { attemptPaths, revokeClaim, sweepAttempt } from './attempt-directory.ts';
import { conclude } from './conclude.ts';
import type { Context } from './context.ts';
import { fail } from './end.ts';
import { gatherEvidence } from './evidence.ts';
import type { Ingest } from './ingest.ts';
import { createIngest } from './ingest.ts';
import { type Listening, listen } from './listening.ts';
import { markStale, recordLateStart, recordStart } from './record-start.ts';
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
const SIGKILL = 9;

const DEAD = new Set(['inactive', 'failed']);

export interface AttemptWatch {
  readonly attemptId: string;
  readonly unit: string;
  readonly live: LiveState | null;
  /** Something may have changed about the unit. */
  hint(): void;
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
  /** Called once, after the end is committed and the unit is let go. */
  readonly onEnded: (attemptId: string) => void;
}

class Watch implements AttemptWatch {
  readonly attemptId: string;
  readonly unit: string;
  readonly ended: Promise<void>;
  private readonly context: Context;
  private readonly nonce: string;
  private readonly paths: AttemptPaths;
  private readonly ingest: Ingest;
  private readonly hints = createHint();
  private readonly unsubscribe: () => void;
  private readonly options: WatchOptions;
  private listening: Listening | null = null;
  private held = false;
  private readonly onLooked = new Set<() => void>();
  /** The order to end it that was carried out last, by its time; null before the first. */
  private pursued: string | null = null;
  /** When that was, monotonic. */
  private pursuedAt = 0;
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
      if (unit === null || unit === this.unit) this.hint();
    });
    this.ended = this.run();
  }

  get live(): LiveState | null {
    return this.listening?.live ?? null;
  }

  hint(): void {
    this.hints.raise();
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
          await this.hints.wait(retryMs);
          retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
        }
      }
    } finally {
      this.unsubscribe();
      this.detach();
    }
    if (!this.stopped) this.options.onEnded(this.attemptId);
  }

  /** One look at the unit. @returns true when the attempt has ended. */
  private async step(): Promise<boolean> {
    const attempt = this.context.store.attempts.get(this.attemptId);
    if (!attempt || TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) return this.letGo();
    const facts = await this.context.executor.read(this.unit);
    const ours = facts?.nonce === this.nonce ? facts : null;
    if (ours && !DEAD.has(ours.state)) return this.follow(attempt, ours);
    return this.settle(attempt, ours);
  }

  private async follow(attempt: AttemptRow, facts: UnitFacts): Promise<boolean> {
    if (!this.held) this.held = await this.context.executor.hold(this.unit);
    if (!this.held) return false; // It went away in between; the next look settles it.
    if (!this.listening) await this.attach(attempt, facts);
    this.listening?.observe(facts, attempt);
    const next = attempt.intent ? await this.pursue(attempt) : null;
    for (const looked of this.onLooked) looked();
    this.onLooked.clear();
    await this.hints.wait(Math.min(REREAD_MS, next ?? REREAD_MS));
    return false;
  }

  /** First sight of a living unit: store who it is, then listen to it. */
  private async attach(attempt: AttemptRow, facts: UnitFacts): Promise<void> {
    const { context, paths, ingest } = this;
    recordStart(context, attempt, facts, await context.executor.host(), this.options.reattach);
    const onSilence = (code: SilenceCode, silentMs: number): void =>
      this.endSilence(code, silentMs);
    this.listening = listen({ context, attempt, paths, ingest, onSilence });
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
    const { executor, entropy } = this.context;
    const order = attempt.abortRequestedAt ?? attempt.createdAt;
    const first = this.pursued !== order;
    if (first) this.pursuedAt = entropy.monotonic();
    this.pursued = order;
    if (attempt.intent?.kind === 'interrupt') return this.interrupt(attempt, first);
    // Once per order: each further StopUnit would only raise hints that lead here again.
    if (first) await executor.stop(this.unit);
    const deadline = this.staleDeadline(attempt);
    if (deadline !== null && deadline <= 0) markStale(this.context, attempt);
    return deadline;
  }

  /** The wrapper is told and has five seconds; then every process of the unit is killed. */
  private async interrupt(attempt: AttemptRow, first: boolean): Promise<number | null> {
    const { executor, entropy } = this.context;
    const told = first && (this.listening?.tell('interrupt', INTERRUPT_GRACE_MS) ?? false);
    // A wrapper that cannot be told over its socket can still be told by systemd.
    if (first && !told) await executor.stop(this.unit);
    const left = this.pursuedAt + INTERRUPT_GRACE_MS - entropy.monotonic();
    if (left > 0) return left;
    await executor.kill(this.unit, SIGKILL);
    const deadline = this.staleDeadline(attempt);
    if (deadline !== null && deadline <= 0) markStale(this.context, attempt);
    return deadline ?? REREAD_MS;
  }

  /** Milliseconds until a stopped attempt that is still alive becomes stale; null when nobody stopped it or it is. */
  private staleDeadline(attempt: AttemptRow): number | null {
    const { store, entropy } = this.context;
    const workUnit = store.workUnits.get(attempt.workUnitId);
    if (workUnit?.status !== 'cancelling' || attempt.abortRequestedAt === null) return null;
    const limit = workUnit.timeoutPolicy.cancelGraceMs + STOP_MARGIN_MS + STALE_AFTER_MS;
    return Math.max(0, Date.parse(attempt.abortRequestedAt) + limit - entropy.now());
  }

  /** The unit is dead or not there: prove that nothing runs, then conclude. */
  private async settle(attempt: AttemptRow, facts: UnitFacts | null): Promise<boolean> {
    const { context, paths } = this;
    const { executor } = context;
    if (!facts) {
      const claim = await revokeClaim(paths, attempt, context.runtimeInstanceId);
      context.fault('claim_decided');
      if (claim === 'wrapper' && (await this.appeared())) return false;
    }
    const group = attempt.controlGroup;
    if (group !== null && !(await executor.waitEmpty(group, EMPTY_WAIT_MS))) {
      context.log.error({ unit: this.unit, group }, 'the unit is dead but its cgroup is not empty');
      return false;
    }
    this.detach();
    await this.ingest.finish();
    const host = await executor.host();
    recordLateStart(context, attempt.id, facts);
    const fresh = context.store.attempts.get(attempt.id) ?? attempt;
    const verdict = conclude(
      context,
      attempt.id,
      await gatherEvidence(context, fresh, paths, facts, host),
    );
    context.log.info({ unit: this.unit, verdict }, 'attempt ended');
    return this.letGo();
  }

  /** A late start may have claimed between our read and our revocation: look once more. */
  private async appeared(): Promise<boolean> {
    const facts = await this.context.executor.read(this.unit);
    return facts?.nonce === this.nonce;
  }

  private async letGo(): Promise<boolean> {
    // The exit record is in the store by now; an ended unit of ours must not stay loaded.
    const facts = await this.context.executor.read(this.unit);
    if (facts?.nonce === this.nonce) await this.context.executor.release(this.unit);
    await sweepAttempt(this.paths);
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
