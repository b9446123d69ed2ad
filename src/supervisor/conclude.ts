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
import { dropQuestions } from './approval-commits.ts';
import { settleApprovals } from './approval-loss.ts';
import { recordArtifacts } from './artifacts.ts';
import type { Context } from './context.ts';
import { holdSubject } from './driver-holds.ts';
import type { Gathered } from './evidence.ts';
import { type LossEvidence, settleLoss } from './lost.ts';
import { heedProvider } from './provider-backoff.ts';
import { requeue } from './start-backoff.ts';
import type { EventFields, Transaction } from './writer.ts';

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
        message: [
          describeOutcome('never_started'),
          ...(outcome.reason ? [outcome.reason] : []),
        ].join(': '),
        actor: 'system',
      };
  }
}

/** A work unit that was already given up as stale ends by reconciling, not by a late word. */
function workUnitEvent(workUnit: WorkUnitRow, end: End): WorkUnitEvent {
  if (workUnit.status !== 'stale') return end.workUnit;
  return end.workUnit === 'runner_cancelled' ? 'reconcile_cancelled' : 'reconcile_failed';
}

/** What came too late, or from an attempt that was replaced: kept, and it decides nothing. */
function keepStale(transaction: Transaction, attempt: AttemptRow, outcome: Outcome): void {
  transaction.append(attempt.workUnitId, [
    {
      type: 'diagnostic.stale_event',
      actor: 'system',
      attemptId: attempt.id,
      data: { outcome },
    },
  ]);
}

function endWorkUnit(
  context: Context,
  transaction: Transaction,
  attempt: AttemptRow,
  verdict: Verdict,
  loss: LossEvidence | null,
): void {
  const workUnit = transaction.workUnit(attempt.workUnitId);
  const { outcome } = verdict;
  if (workUnit.activeAttemptId !== attempt.id) {
    keepStale(transaction, attempt, outcome);
    return;
  }
  if (outcome.kind === 'never_started' && workUnit.status !== 'stale') {
    requeue(context, transaction, workUnit, attempt.id, outcome);
    return;
  }
  if (outcome.kind === 'lost' && loss) {
    if (settleApprovals(context, transaction, workUnit, attempt, outcome.code, loss)) return;
  }
  const end = endOf(outcome);
  const event = workUnitEvent(workUnit, end);
  const lost = event === 'runner_lost';
  const moved = transaction.moveWorkUnit(workUnit, event, {
    actor: end.actor,
    attemptId: attempt.id,
    data: { errorCode: end.code, errorMessage: end.message, rule: verdict.rule },
    patch: {
      errorCode: end.code,
      errorMessage: end.message,
      neverStartedCount: 0,
      ...(lost ? {} : { endedAt: transaction.at, activeAttemptId: null, resume: null }),
    },
  });
  if (verdict.outcome.kind === 'lost' && loss) {
    settleLoss(context, transaction, moved, attempt, verdict.outcome.code, loss);
  }
}

function diagnosticsOf(attempt: AttemptRow, { disagreement, unusable }: Gathered): EventFields[] {
  const common = { actor: 'system', attemptId: attempt.id } as const;
  const events: EventFields[] = [];
  if (disagreement) {
    events.push({ type: 'diagnostic.evidence_disagrees', ...common, data: disagreement });
  }
  if (unusable !== null) {
    const data = { reason: unusable };
    events.push({ type: 'diagnostic.exit_record_unusable', ...common, data });
  }
  return events;
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
    ...diagnosticsOf(attempt, gathered),
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

/** Work that somebody ends is not called a success any more, whatever its runner says. */
function tooLate(workUnit: WorkUnitRow, attempt: AttemptRow): boolean {
  if (workUnit.activeAttemptId !== attempt.id) return false;
  return workUnit.status === 'cancelling' || workUnit.status === 'stale';
}

const CANCELLED: Outcome = {
  kind: 'cancelled',
  code: 'cancelled_by_request',
  actor: 'system',
  message: describeOutcome('cancelled_by_request'),
};

function decide(transaction: Transaction, attempt: AttemptRow, { evidence }: Gathered): Verdict {
  const verdict = classify({ ...evidence, intent: attempt.intent });
  const late = tooLate(transaction.workUnit(attempt.workUnitId), attempt);
  const said = classify({ ...evidence, intent: null });
  if (late && said.outcome.kind === 'succeeded') keepStale(transaction, attempt, said.outcome);
  return late && verdict.outcome.kind === 'succeeded'
    ? { ...verdict, outcome: CANCELLED }
    : verdict;
}

/**
 * Decides and commits the outcome. The intent is read again inside the transaction, so
 * a cancellation that was stored a moment ago still counts. Repeatable: an attempt that
 * has ended stays as it is.
 * @returns the verdict; null when the attempt had ended before; `again` when the evidence
 *   has to be gathered anew.
 */
export function conclude(
  context: Context,
  attemptId: string,
  gathered: Gathered,
): Verdict | null | 'again' {
  context.fault('evidence_read');
  const verdict = context.writer.commit((transaction): Verdict | null | 'again' => {
    const attempt = transaction.attempt(attemptId);
    if (TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) return null;
    const decided = decide(transaction, attempt, gathered);
    // Decided otherwise a moment ago (a suspension was asked for): what a loss needs is not read yet.
    if (decided.outcome.kind === 'lost' && gathered.loss === null) return 'again';
    recordArtifacts(context, transaction, attempt, gathered.artifacts);
    endAttempt(context, transaction, attempt, decided, gathered);
    if (gathered.evidence.haltMarker) {
      const workUnit = transaction.workUnit(attempt.workUnitId);
      holdSubject({ store: context.store, at: transaction.at }, workUnit, 'halted');
    }
    const ending = heedProvider(context, transaction, attempt, decided);
    if (ending) endWorkUnit(context, transaction, attempt, ending, gathered.loss);
    else dropQuestions(context, transaction, attempt.workUnitId);
    return decided;
  });
  context.fault('concluded');
  return verdict;
}
