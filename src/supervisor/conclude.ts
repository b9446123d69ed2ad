/** Commits how an attempt ended: classification, both rows and the events in one transaction. */

import type { Outcome, Verdict } from '../domain/classify.ts';
import { classify } from '../domain/classify.ts';
import { describeOutcome } from '../domain/outcome-codes.ts';
import type { AttemptEvent, WorkUnitEvent } from '../domain/states.ts';
import type { Actor } from '../domain/work-unit.ts';
import { TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import type { AttemptPatch, AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { releaseResources } from './admission.ts';
import type { Context } from './context.ts';
import type { Gathered } from './evidence.ts';
import { heedProvider } from './provider-backoff.ts';
import type { Transaction } from './writer.ts';

/** After so many starts in a row that ran nothing, the work fails instead of trying for ever. */
export const NEVER_STARTED_LIMIT = 5;

interface End {
  readonly attempt: AttemptEvent;
  readonly workUnit: WorkUnitEvent;
  readonly code: string | null;
  readonly message: string | null;
  readonly actor: Actor;
}

function endOf(outcome: Outcome): End {
  switch (outcome.kind) {
    case 'succeeded':
      return {
        attempt: 'succeeded',
        workUnit: 'runner_succeeded',
        code: null,
        message: null,
        actor: 'runner',
      };
    case 'failed':
      return {
        attempt: 'failed',
        workUnit: 'runner_failed',
        code: outcome.code,
        message: outcome.message,
        actor: 'system',
      };
    case 'cancelled':
      return {
        attempt: 'cancelled',
        workUnit: 'runner_cancelled',
        code: outcome.code,
        message: outcome.message,
        actor: outcome.actor,
      };
    case 'lost':
      return {
        attempt: 'lost',
        workUnit: 'runner_lost',
        code: outcome.code,
        message: outcome.message,
        actor: 'system',
      };
    case 'never_started':
      return {
        attempt: 'lost',
        workUnit: 'never_started',
        code: 'never_started',
        message: describeOutcome('never_started'),
        actor: 'system',
      };
  }
}

/** A work unit that was already given up as stale ends by reconciling, not by a late word. */
function workUnitEvent(workUnit: WorkUnitRow, end: End): WorkUnitEvent {
  if (workUnit.status !== 'stale') return end.workUnit;
  return end.workUnit === 'runner_cancelled' ? 'reconcile_cancelled' : 'reconcile_failed';
}

/** Lost work has no resumer yet: it fails visibly, and is never called a cancellation. */
function failLost(
  transaction: Transaction,
  workUnit: WorkUnitRow,
  attemptId: string,
  cause: string,
): void {
  if (workUnit.status !== 'stale') return;
  const code = 'runtime_interrupted_no_checkpoint';
  const message = `${describeOutcome(code)} (${cause})`;
  transaction.moveWorkUnit(workUnit, 'reconcile_failed', {
    actor: 'system',
    attemptId,
    data: { errorCode: code, errorMessage: message, cause },
    patch: {
      errorCode: code,
      errorMessage: message,
      endedAt: transaction.at,
      activeAttemptId: null,
    },
  });
}

function requeue(transaction: Transaction, workUnit: WorkUnitRow, attemptId: string): void {
  const neverStartedCount = workUnit.neverStartedCount + 1;
  if (workUnit.status === 'claimed' && neverStartedCount >= NEVER_STARTED_LIMIT) {
    const message = `${describeOutcome('launch_failed')}: ${neverStartedCount} starts in a row ran nothing`;
    transaction.moveWorkUnit(workUnit, 'launch_failed', {
      actor: 'system',
      attemptId,
      data: { errorCode: 'launch_failed', errorMessage: message },
      patch: {
        errorCode: 'launch_failed',
        errorMessage: message,
        endedAt: transaction.at,
        activeAttemptId: null,
        neverStartedCount,
      },
    });
    return;
  }
  const cancelled = workUnit.status === 'cancelling';
  transaction.moveWorkUnit(workUnit, 'never_started', {
    actor: 'system',
    attemptId,
    data: { reason: 'never_started' },
    patch: {
      neverStartedCount,
      activeAttemptId: null,
      ...(cancelled
        ? {
            endedAt: transaction.at,
            errorCode: 'cancelled_by_request',
            errorMessage: describeOutcome('cancelled_by_request'),
          }
        : {}),
    },
  });
}

function endWorkUnit(transaction: Transaction, attempt: AttemptRow, verdict: Verdict): void {
  const workUnit = transaction.workUnit(attempt.workUnitId);
  const end = endOf(verdict.outcome);
  if (workUnit.activeAttemptId !== attempt.id) {
    // A replaced attempt: what it says is kept, and decides nothing.
    transaction.append(workUnit.id, [
      {
        type: 'diagnostic.stale_event',
        actor: 'system',
        attemptId: attempt.id,
        data: { outcome: verdict.outcome },
      },
    ]);
    return;
  }
  if (end.workUnit === 'never_started' && workUnit.status !== 'stale') {
    requeue(transaction, workUnit, attempt.id);
    return;
  }
  const lost = end.workUnit === 'runner_lost';
  const moved = transaction.moveWorkUnit(workUnit, workUnitEvent(workUnit, end), {
    actor: end.actor,
    attemptId: attempt.id,
    data: { errorCode: end.code, errorMessage: end.message, rule: verdict.rule },
    patch: {
      errorCode: end.code,
      errorMessage: end.message,
      neverStartedCount: 0,
      ...(lost ? {} : { endedAt: transaction.at, activeAttemptId: null }),
    },
  });
  if (lost) failLost(transaction, moved, attempt.id, end.code ?? 'no_evidence');
}

function endAttempt(
  context: Context,
  transaction: Transaction,
  attempt: AttemptRow,
  verdict: Verdict,
  gathered: Gathered,
): void {
  const end = endOf(verdict.outcome);
  const patch: AttemptPatch = {
    endedAt: transaction.at,
    errorCode: end.code,
    errorMessage: end.message,
    decidedByRule: verdict.rule,
    exit: gathered.record,
    evidence: gathered.evidence,
  };
  transaction.moveAttempt(attempt, end.attempt, patch);
  releaseResources(context, transaction, attempt, end.attempt);
  transaction.append(attempt.workUnitId, [
    ...(gathered.disagreement
      ? [
          {
            type: 'diagnostic.evidence_disagrees' as const,
            actor: 'system' as const,
            attemptId: attempt.id,
            data: gathered.disagreement,
          },
        ]
      : []),
    {
      type: 'attempt.ended',
      actor: end.actor,
      attemptId: attempt.id,
      data: {
        status: end.attempt,
        errorCode: end.code,
        rule: verdict.rule,
        witness: gathered.evidence.end?.witness ?? null,
        leftovers: attempt.lastWord?.leftovers ?? [],
      },
    },
  ]);
}

/**
 * Decides and commits the outcome. The intent is read again inside the transaction, so
 * a cancellation that was stored a moment ago still counts. Repeatable: an attempt that
 * has ended stays as it is.
 * @returns the verdict, null when the attempt had ended before.
 */
export function conclude(context: Context, attemptId: string, gathered: Gathered): Verdict | null {
  context.fault('evidence_read');
  const verdict = context.writer.commit((transaction): Verdict | null => {
    const attempt = transaction.attempt(attemptId);
    if (TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) return null;
    const decided = classify({ ...gathered.evidence, intent: attempt.intent });
    endAttempt(context, transaction, attempt, decided, gathered);
    const ending = heedProvider(context, transaction, attempt, decided);
    if (ending) endWorkUnit(transaction, attempt, ending);
    return decided;
  });
  context.fault('concluded');
  return verdict;
}
