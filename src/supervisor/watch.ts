/**
 * Follows one attempt from its start (or from the daemon's) to its committed end.
 *
 * One loop: read the unit afresh; while it lives wait for a hint; once it is dead or
 * gone make sure that nothing of it can still run, then conclude. Every step may be
 * repeated, so it does not matter where the daemon dies.
 */

import type { LiveState } from '../domain/attempt-files.ts';
import { uuidv7 } from '../domain/ids.ts';
import { TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import type { UnitFacts } from '../executor/port.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { AttemptPaths } from './attempt-directory.ts';
import { attemptPaths, revokeClaim, sweepAttempt } from './attempt-directory.ts';
import { conclude } from './conclude.ts';
import type { Context } from './context.ts';
import type { ControlLink } from './control-link.ts';
import { openControlLink } from './control-link.ts';
import { gatherEvidence } from './evidence.ts';
import type { Ingest } from './ingest.ts';
import { createIngest } from './ingest.ts';
import { markStale, recordLateStart, recordStart } from './record-start.ts';
import { createHint } from './signal.ts';
import { watchSpool } from './spool-watch.ts';

/** Without any hint the unit is read again after this long: hints may get lost. */
const REREAD_MS = 60_000;
/** After a failed look: the bus may be away for hours, and each try is a line in the log. */
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 30_000;
/** TimeoutStopSec is the cancel grace plus this (properties.ts), then 2 s for the kernel. */
const STOP_MARGIN_MS = 5_000;
const STALE_AFTER_MS = 2_000;
const EMPTY_WAIT_MS = 10_000;

const DEAD = new Set(['inactive', 'failed']);

export interface AttemptWatch {
  readonly attemptId: string;
  readonly unit: string;
  readonly live: LiveState | null;
  /** Something may have changed about the unit. */
  hint(): void;
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
  private link: ControlLink | null = null;
  private unwatchSpool: (() => void) | null = null;
  private attached = false;
  private held = false;
  private stopSent = false;
  private stopped = false;

  constructor(context: Context, attempt: AttemptRow, options: WatchOptions) {
    this.context = context;
    this.options = options;
    this.attemptId = attempt.id;
    this.unit = attempt.unit;
    this.nonce = attempt.nonce;
    this.paths = attemptPaths(context.settings, attempt);
    this.ingest = createIngest(context, attempt.id, this.paths.spool);
    this.unsubscribe = context.executor.onHint((unit) => {
      // A new bus connection knows nothing of the references the old one held.
      if (unit === null) this.held = false;
      if (unit === null || unit === this.unit) this.hint();
    });
    this.ended = this.run();
  }

  get live(): LiveState | null {
    return this.link?.live ?? null;
  }

  hint(): void {
    this.hints.raise();
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
    if (!this.attached) await this.attach(attempt, facts);
    if (attempt.intent) await this.pursue(attempt);
    const deadline = this.staleDeadline(attempt);
    await this.hints.wait(Math.min(REREAD_MS, deadline ?? REREAD_MS));
    return false;
  }

  /** First sight of a living unit: store who it is, then listen to it. */
  private async attach(attempt: AttemptRow, facts: UnitFacts): Promise<void> {
    const { context } = this;
    recordStart(context, attempt, facts, await context.executor.host(), this.options.reattach);
    this.attached = true;
    this.unwatchSpool = watchSpool(
      this.paths.directory,
      () => this.catchUp(),
      (error) => context.log.warn({ err: error, unit: this.unit }, 'cannot watch the spool'),
    );
    this.link = openControlLink(this.paths.controlSocket, this.nonce, {
      onHeartbeat: (message) => {
        this.heartbeat(message.ts, message.live);
        this.catchUp();
      },
      onProblem: (reason) => context.log.warn({ unit: this.unit, reason }, 'control socket'),
    });
    this.catchUp();
  }

  private catchUp(): void {
    this.ingest.catchUp().catch((error: unknown) => {
      this.context.log.error(
        { err: error, unit: this.unit },
        'ingest failed; the spool keeps everything',
      );
    });
  }

  private heartbeat(ts: string, live: LiveState): void {
    const { context, attemptId } = this;
    const attempt = context.store.attempts.get(attemptId);
    if (!attempt) return;
    context.writer.commit(() => {
      context.store.attempts.patch(attemptId, { lastHeartbeatAt: ts });
      context.store.workUnits.touchHeartbeat(attempt.workUnitId, ts);
      context.store.attempts.heartbeat({
        id: uuidv7(context.entropy),
        workUnitId: attempt.workUnitId,
        attemptId,
        runtimeInstanceId: context.runtimeInstanceId,
        ts,
        source: 'wrapper',
        detail: JSON.stringify(live),
      });
    });
  }

  /** A stored decision about its end is carried out again: the daemon may have died before it was. */
  private async pursue(attempt: AttemptRow): Promise<void> {
    // Once per watch: each further StopUnit would only raise hints that lead here again.
    if (!this.stopSent) await this.context.executor.stop(this.unit);
    this.stopSent = true;
    const deadline = this.staleDeadline(attempt);
    if (deadline !== null && deadline <= 0) markStale(this.context, attempt);
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
    this.link?.close();
    this.unwatchSpool?.();
    this.link = null;
    this.unwatchSpool = null;
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
