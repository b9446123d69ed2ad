/**
 * Claim and suspension, and what becomes of questions where neither fits. With the terminal
 * commit (approval-ledger.ts) the only writers of checkpoints. A caller whose view is stale
 * gets a typed conflict, and nothing of its transaction stays.
 */
import { judgeCheckpoint, type Suspension, suspensionOf } from '../domain/approval.ts';
import { TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import type { ApprovalRow } from '../store/approvals.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitPatch, WorkUnitRow } from '../store/work-units.ts';
import { changeApproval, conflict, endOfRow, type Ledger } from './approval-ledger.ts';
import type { Context } from './context.ts';
import type { Transaction } from './writer.ts';

/** What a change of a checkpoint needs of a transaction. */
export const ledgerOf = (context: Context, transaction: Transaction): Ledger => ({
  store: context.store,
  at: transaction.at,
  append: transaction.append,
});

/** Why a checkpoint's lineage does not hold; null when it does. */
function brokenLineage(context: Context, row: ApprovalRow): string | null {
  const asked = context.store.attempts.get(row.attemptId);
  if (asked?.workUnitId !== row.workUnitId) return 'the attempt that asked is not of its work unit';
  if (row.boundAttemptId === null) return null;
  const bound = context.store.attempts.get(row.boundAttemptId);
  return bound?.workUnitId === row.workUnitId
    ? null
    : 'the attempt bound to it is not of its work unit';
}

/**
 * The quarantine variant of a terminal commit: a checkpoint whose lineage cannot be proved is
 * closed for good. It takes a reason and a revision, and has no say over work unit or attempt.
 */
function quarantine(context: Context, transaction: Transaction, row: ApprovalRow): void {
  const failureCode = 'lineage_broken';
  const patch = { checkpoint: 'resume_failed', failureCode } as const;
  changeApproval(ledgerOf(context, transaction), row, patch, 'checkpoint_quarantine');
}

/** Open rows of a work unit with a lineage that holds; the others are quarantined. */
function provenRows(context: Context, transaction: Transaction, workUnitId: string): ApprovalRow[] {
  return context.store.approvals.open(workUnitId).filter((row) => {
    if (brokenLineage(context, row) === null) return true;
    quarantine(context, transaction, row);
    return false;
  });
}

/** Why nobody may be bound to it now; null when somebody may. */
function unclear({ store }: Context, row: ApprovalRow): string | null {
  if (row.status === 'pending') return 'it is not decided';
  if (row.startAttemptId !== null) return 'its call was begun before';
  const acting = store.attempts.get(row.boundAttemptId ?? row.attemptId);
  return acting === null || TERMINAL_ATTEMPT_STATUSES.has(acting.status)
    ? null
    : `attempt ${acting.id} may still act on it`;
}

/** The question because of which queued work cannot be claimed, and why; null as a rule. */
export function unclearApproval(
  context: Context,
  workUnitId: string,
): { readonly id: string; readonly why: string } | null {
  for (const row of context.store.approvals.open(workUnitId)) {
    const why = brokenLineage(context, row) === null ? unclear(context, row) : null;
    if (why !== null) return { id: row.id, why };
  }
  return null;
}

/** What work is set aside under until this question is settled. */
export const approvalGate = (approvalId: string): string => `approval ${approvalId}`;

/**
 * commitApprovalResumeClaim: binds what was decided and not acted on to a replacement attempt.
 * Must run in the transaction that makes that attempt and takes its leases and slots.
 * @throws OutliveError `checkpoint_conflict` when a question is pending, when another attempt
 *   that may still act is bound, or when the call was begun before.
 */
export function commitApprovalResumeClaim(
  context: Context,
  transaction: Transaction,
  workUnit: Pick<WorkUnitRow, 'id' | 'activeAttemptId'>,
  attempt: Pick<AttemptRow, 'id' | 'workUnitId'>,
): readonly ApprovalRow[] {
  const rows = provenRows(context, transaction, workUnit.id);
  for (const row of rows) {
    if (workUnit.activeAttemptId !== attempt.id || attempt.workUnitId !== row.workUnitId) {
      throw conflict(row, 'the replacement is not the active attempt of its work unit');
    }
    const why = unclear(context, row);
    if (why !== null) throw conflict(row, why);
    // The last lock: whatever let the work go on, a call that may have been made is not handed out.
    if (judgeCheckpoint(row) === 'effect_unknown') {
      const failed = { checkpoint: 'resume_failed', failureCode: 'effect_unknown' } as const;
      changeApproval(ledgerOf(context, transaction), row, failed, 'effect_unknown');
      continue;
    }
    const patch = { checkpoint: 'resume_pending', boundAttemptId: attempt.id } as const;
    changeApproval(ledgerOf(context, transaction), row, patch, 'resume_claim');
  }
  return rows;
}

/** What a suspension was decided on, to be compared once more. */
export interface SuspensionInput {
  readonly workUnit: WorkUnitRow;
  readonly attempt: Pick<AttemptRow, 'id' | 'workUnitId'>;
  readonly rows: readonly ApprovalRow[];
  /** What goes with it into the work unit's row: the note for the next attempt, the time left. */
  readonly patch: WorkUnitPatch;
  readonly data: Readonly<Record<string, unknown>>;
}

function requireSuspendable(context: Context, transaction: Transaction, input: SuspensionInput) {
  const { workUnit, attempt, rows } = input;
  const [first] = rows;
  if (!first) throw new Error('a suspension without a checkpoint');
  const now = transaction.workUnit(workUnit.id);
  const kind = suspensionOf({ workUnit: now.status, checkpoints: rows });
  if (kind === null) {
    const states = rows.map(({ status, checkpoint }) => `${status}/${checkpoint}`).join(', ');
    throw conflict(first, `${states} beside a work unit that is ${now.status} must not be`);
  }
  if (now.activeAttemptId !== attempt.id || attempt.workUnitId !== now.id) {
    throw conflict(first, 'the attempt is not the active one of its work unit');
  }
  if (!TERMINAL_ATTEMPT_STATUSES.has(transaction.attempt(attempt.id).status)) {
    throw conflict(first, 'its attempt has not ended');
  }
  const known = new Map(context.store.approvals.open(now.id).map((row) => [row.id, row.revision]));
  for (const row of rows) {
    if (known.get(row.id) !== row.revision) throw conflict(row, 'it was changed meanwhile');
  }
  return kind;
}

/**
 * commitApprovalResumeSuspension: lets the work wait, or puts it back into the queue once
 * every question is answered. Its attempt was committed as lost and has given everything back
 * in this very transaction. Everything is compared before the first write.
 * @throws OutliveError `checkpoint_conflict`.
 */
export function commitApprovalResumeSuspension(
  context: Context,
  transaction: Transaction,
  input: SuspensionInput,
): Suspension {
  const kind = requireSuspendable(context, transaction, input);
  const { workUnit, attempt, rows } = input;
  for (const row of rows) {
    const patch =
      row.checkpoint === 'waiting' ? ({ boundAttemptId: null } as const) : ({} as const);
    changeApproval(ledgerOf(context, transaction), row, patch, `suspended:${kind}`);
  }
  const patch = { activeAttemptId: null, errorCode: null, errorMessage: null, ...input.patch };
  if (rows.some(({ status }) => status === 'pending')) {
    context.store.workUnits.patch(workUnit.id, patch, transaction.at);
    return kind;
  }
  transaction.moveWorkUnit(workUnit, 'approval_resume', {
    actor: 'system',
    attemptId: attempt.id,
    data: { ...input.data, suspension: kind },
    patch,
  });
  return kind;
}

/**
 * The attempt is over and its work goes on without it and without a suspension (its provider
 * failed it): what it asked and nobody answered is dropped, what it began is not done again.
 */
export function dropQuestions(
  context: Context,
  transaction: Transaction,
  workUnitId: string,
): void {
  const ledger = ledgerOf(context, transaction);
  for (const row of context.store.approvals.open(workUnitId)) {
    if (row.status !== 'pending' && row.startAttemptId === null) continue;
    changeApproval(ledger, row, endOfRow(row), 'attempt_ended');
  }
}
