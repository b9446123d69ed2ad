/** Time, for questions: they expire, and an attempt that waits is suspended before it is ended. */
import type { AttemptRow } from '../store/attempts.ts';
import { expireApprovals } from './approval-decide.ts';
import type { Context } from './context.ts';
import { suspend } from './end.ts';
import { createHint } from './signal.ts';
import { timeoutsOf } from './time-left.ts';

/** Before a deadline an attempt needs its grace to stop, and this much for the rest. */
const AHEAD_MS = 30_000;
/** Looked at again after this long at the latest: the clock may be set. */
const LOOK_MS = 30_000;
/** A call that runs beside a question is not cut off for it; looked at again then. */
const BUSY_MS = 5_000;

export interface ApprovalClock {
  /** Something was asked or answered. */
  wake(): void;
  close(): Promise<void>;
}

/** When a waiting attempt is to be suspended, milliseconds since the epoch; null for never. */
function suspensionDue(context: Context, attempt: AttemptRow): number | null {
  const workUnit = context.store.workUnits.get(attempt.workUnitId);
  if (!workUnit || attempt.waitingSince === null || attempt.intent !== null) return null;
  const { hardTimeoutMs, cancelGraceMs } = timeoutsOf(workUnit, attempt);
  const long =
    Date.parse(attempt.waitingSince) + context.settings.policies.approvals.suspendAfterMs;
  const start =
    attempt.startedAt === null ? Number.POSITIVE_INFINITY : Date.parse(attempt.startedAt);
  const deadline = start + hardTimeoutMs - cancelGraceMs - AHEAD_MS;
  const now = context.entropy.now();
  if (deadline <= now) return now;
  const { events } = context.store;
  const isBusy = events.openToolCalls(attempt.workUnitId, attempt.id).length > 0;
  return Math.min(deadline, isBusy ? Math.max(long, now + BUSY_MS) : long);
}

/**
 * Keeps the time of all questions.
 * `onEnding` is told of each work unit whose attempt is to end, so that its watch looks.
 */
export function keepApprovalClock(
  context: Context,
  onEnding: (workUnitId: string) => void,
): ApprovalClock {
  const hint = createHint();
  let closing = false;

  /** @returns milliseconds until something is due. */
  const look = (): number => {
    for (const workUnitId of expireApprovals(context)) onEnding(workUnitId);
    const now = context.entropy.now();
    const next = context.store.approvals.nextExpiry();
    let due = next === null ? now + LOOK_MS : Date.parse(next);
    for (const attempt of context.store.attempts.listWaiting()) {
      const at = suspensionDue(context, attempt);
      if (at === null) continue;
      if (at > now) {
        due = Math.min(due, at);
      } else if (suspend(context, attempt.id, 'approval_wait')) {
        context.log.info({ unit: attempt.unit }, 'it waits for a person and is suspended');
        onEnding(attempt.workUnitId);
      }
    }
    return Math.min(LOOK_MS, Math.max(1, due - now));
  };

  const run = async (): Promise<void> => {
    while (!closing) {
      try {
        await hint.wait(look());
      } catch (error) {
        context.log.error({ err: error }, 'the time of approvals cannot be kept; trying again');
        await hint.wait(BUSY_MS);
      }
    }
  };
  const running = run();
  return {
    wake: () => hint.raise(),
    close: async () => {
      closing = true;
      hint.raise();
      await running;
    },
  };
}
