/**
 * The four ways outlive ends an attempt on purpose: cancel, interrupt, fail, suspend.
 * Each is a decision that is durable before the process is told; it belongs to one
 * attempt, and a later attempt never inherits it. The attempt's watch carries it out.
 */
import type { Intent } from '../domain/evidence.ts';
import { describeOutcome, type FailureCode } from '../domain/outcome-codes.ts';
import type { WorkUnitEvent } from '../domain/states.ts';
import { type Actor, TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { dropReservation, passOn } from './admission.ts';
import type { Context } from './context.ts';
import { holdSubject, isPersons } from './driver-holds.ts';
import type { Transaction } from './writer.ts';

export interface EndRequest {
  readonly actor: Actor;
  readonly reason: string | null;
}

/** Failures that outlive decides while the attempt lives, and the state event of each. */
export type FailCode = Extract<
  FailureCode,
  'idle_timeout' | 'heartbeat_timeout' | 'tool_timeout' | 'budget_exceeded'
>;

/**
 * Stores the decision; one that was stored before stays: it was first. Only a suspension
 * gives way: work that somebody ends must not be resumed.
 */
function intend(
  context: Context,
  transaction: Transaction,
  attempt: AttemptRow,
  intent: Intent,
): void {
  transaction.moveAttempt(attempt, 'cancel', { abortRequestedAt: transaction.at });
  // One that outlived its first order is being ended already; this is an order of its own.
  context.store.attempts.patch(attempt.id, {
    abortRequestedAt: transaction.at,
    ...(attempt.intent && attempt.intent.kind !== 'suspend' ? {} : { intent }),
  });
}

function activeAttempt(transaction: Transaction, workUnit: WorkUnitRow): AttemptRow | null {
  if (workUnit.activeAttemptId === null) return null;
  const attempt = transaction.attempt(workUnit.activeAttemptId);
  return TERMINAL_ATTEMPT_STATUSES.has(attempt.status) ? null : attempt;
}

/** Nothing runs, so nothing has to be stopped: over at once. */
function cancelAtOnce(
  transaction: Transaction,
  workUnit: WorkUnitRow,
  { actor, reason }: EndRequest,
  code: 'cancelled_by_request' | 'interrupted_by_prompt',
): WorkUnitRow {
  const errorMessage = describeOutcome(code);
  return transaction.moveWorkUnit(workUnit, 'runner_cancelled', {
    actor,
    data: { errorCode: code, errorMessage, reason },
    patch: { errorCode: code, errorMessage, endedAt: transaction.at, activeAttemptId: null },
  });
}

/** It wants nothing any more: what was kept free for it or had just woken it goes to the next. */
function leaveQueue(context: Context, workUnitId: string): void {
  dropReservation(context, workUnitId);
  passOn(context, context.store.queue.waitingFor(workUnitId)?.wokenBy ?? null);
}

function endWithin(
  context: Context,
  transaction: Transaction,
  id: string,
  event: WorkUnitEvent,
  request: EndRequest,
  intent: Intent,
): WorkUnitRow {
  const workUnit = transaction.workUnit(id);
  const moved = transaction.moveWorkUnit(workUnit, event, {
    actor: request.actor,
    attemptId: workUnit.activeAttemptId,
    data: { reason: request.reason, cause: event },
  });
  // Also where something else ends it already, and will give it another name.
  if (intent.kind === 'cancel' && isPersons(request.actor)) {
    holdSubject({ store: context.store, at: transaction.at }, moved, intent.code);
  }
  if (moved.status !== 'cancelling' || workUnit.status === 'cancelling') return moved;
  const attempt = activeAttempt(transaction, workUnit);
  if (attempt) intend(context, transaction, attempt, intent);
  else if (intent.kind === 'cancel' || intent.kind === 'interrupt') {
    leaveQueue(context, id);
    const code = intent.kind === 'interrupt' ? 'interrupted_by_prompt' : 'cancelled_by_request';
    return cancelAtOnce(transaction, moved, request, code);
  }
  return transaction.workUnit(id);
}

function endWorkUnit(
  context: Context,
  id: string,
  event: WorkUnitEvent,
  request: EndRequest,
  intent: Intent,
): WorkUnitRow {
  return context.writer.commit((transaction) =>
    endWithin(context, transaction, id, event, request, intent),
  );
}

/** {@link cancel} as part of a larger transaction; the caller hints the watch afterwards. */
export function cancelWithin(
  context: Context,
  transaction: Transaction,
  id: string,
  request: EndRequest,
): WorkUnitRow {
  const intent: Intent = { kind: 'cancel', code: 'cancelled_by_request', ...request };
  return endWithin(context, transaction, id, 'cancel', request, intent);
}

/**
 * Cancels a work unit in any state that is not final. Where nothing runs it is over at
 * once. Cancelling what is cancelled (or being cancelled) changes nothing.
 * @throws OutliveError `not_found`, `state_conflict` when it has succeeded or failed.
 */
export function cancel(context: Context, id: string, request: EndRequest): WorkUnitRow {
  const intent: Intent = { kind: 'cancel', code: 'cancelled_by_request', ...request };
  const after = endWorkUnit(context, id, 'cancel', request, intent);
  context.fault('cancel_intended');
  return after;
}

/**
 * Interrupts a running work unit, to go on with another prompt: the wrapper is told
 * first and has a short grace. Ends as cancelled with `interrupted_by_prompt`.
 */
export function interrupt(context: Context, id: string, request: EndRequest): WorkUnitRow {
  const intent: Intent = { kind: 'interrupt', code: 'interrupted_by_prompt', ...request };
  return endWorkUnit(context, id, 'interrupt', request, intent);
}

/** Ends a running work unit as failed with `code`: a clock ran out, a ceiling was reached. */
export function fail(
  context: Context,
  id: string,
  code: FailCode,
  reason: string | null,
): WorkUnitRow {
  const request: EndRequest = { actor: 'system', reason };
  return endWorkUnit(context, id, code, request, { kind: 'fail', code, ...request });
}

/** {@link fail} as part of a larger transaction; the caller hints the watch afterwards. */
export function failWithin(
  context: Context,
  transaction: Transaction,
  id: string,
  code: FailCode,
  reason: string | null,
): WorkUnitRow {
  const request: EndRequest = { actor: 'system', reason };
  return endWithin(context, transaction, id, code, request, { kind: 'fail', code, ...request });
}

/**
 * Fails work over a question that expired or was denied for good: once its process has ended,
 * at once where none waits any more.
 */
export function failQuestion(
  context: Context,
  transaction: Transaction,
  id: string,
  code: 'approval_expired' | 'approval_denied',
  reason: string | null,
): WorkUnitRow {
  const request: EndRequest = { actor: 'system', reason };
  const workUnit = transaction.workUnit(id);
  if (activeAttempt(transaction, workUnit) !== null) {
    const intent: Intent = { kind: 'fail', code, ...request };
    return endWithin(context, transaction, id, 'approval_failed', request, intent);
  }
  const failure = { errorCode: code, errorMessage: reason ?? describeOutcome(code) };
  return transaction.moveWorkUnit(workUnit, code, {
    actor: 'system',
    data: failure,
    patch: { ...failure, endedAt: transaction.at, activeAttemptId: null, resume: null },
  });
}

/**
 * Suspends an attempt: it is stopped and ends as lost(suspended), its work unit stays
 * recoverable. The logical state does not change before the process is proved gone.
 * @returns false when the attempt had ended already.
 */
export function suspend(context: Context, attemptId: string, reason: string): boolean {
  return context.writer.commit((transaction) => {
    const attempt = transaction.attempt(attemptId);
    if (TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) return false;
    intend(context, transaction, attempt, { kind: 'suspend', actor: 'system', reason });
    return true;
  });
}
