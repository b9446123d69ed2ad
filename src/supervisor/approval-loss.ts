/**
 * What becomes of lost work that somebody was asked about: it waits, goes on with what was
 * decided, or fails because nobody can know what was done. Evidence only; called with the
 * old cgroup empty, its claim taken and its spool read to the end.
 */
import { type CheckpointVerdict, judgeCheckpoint } from '../domain/approval.ts';
import { timestamp } from '../domain/ids.ts';
import { describeOutcome, type LossCode, type ResumeBlock } from '../domain/outcome-codes.ts';
import type { ApprovalRow } from '../store/approvals.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { commitApprovalResumeSuspension, ledgerOf } from './approval-commits.ts';
import { changeApproval } from './approval-ledger.ts';
import type { Context } from './context.ts';
import { type LossEvidence, lossDecision, noteOf, resumeKey } from './lost.ts';
import { timeLeft } from './time-left.ts';
import type { Transaction } from './writer.ts';

interface Judged {
  readonly row: ApprovalRow;
  readonly verdict: CheckpointVerdict;
}

const UNKNOWN = 'approval_resume_effect_unknown';

/** What a person is told of calls nobody knows the effect of. */
function unknownMessage(rows: readonly ApprovalRow[]): string {
  const calls = rows.map(({ tool, id }) => `${tool} (approval ${id})`).join(', ');
  return `${describeOutcome(UNKNOWN)}: ${calls}. Find out, then retry it or leave it.`;
}

/** How work has to fail that would go on otherwise; null when every approved call is accounted for. */
export function unknownCalls(
  { store }: Context,
  attempt: AttemptRow,
): { code: typeof UNKNOWN; message: string } | null {
  const rows = store.approvals
    .open(attempt.workUnitId)
    .filter((row) => judgeCheckpoint(row) === 'effect_unknown');
  return rows.length === 0 ? null : { code: UNKNOWN, message: unknownMessage(rows) };
}

function failUnknown(
  context: Context,
  transaction: Transaction,
  workUnit: WorkUnitRow,
  attempt: AttemptRow,
  judged: readonly Judged[],
): void {
  const unknown = judged.flatMap(({ row, verdict }) => (verdict === 'effect_unknown' ? [row] : []));
  for (const row of unknown) {
    const patch = { checkpoint: 'resume_failed', failureCode: 'effect_unknown' } as const;
    changeApproval(ledgerOf(context, transaction), row, patch, 'effect_unknown');
  }
  const failure = { errorCode: UNKNOWN, errorMessage: unknownMessage(unknown) };
  transaction.moveWorkUnit(workUnit, 'runner_failed', {
    actor: 'system',
    attemptId: attempt.id,
    data: failure,
    patch: { ...failure, endedAt: transaction.at, activeAttemptId: null, resume: null },
  });
}

/** Waiting for an answer, and no question is there: nothing to go on from, and nothing is guessed. */
export function blockMissing(
  context: Context,
  transaction: Transaction,
  workUnit: WorkUnitRow,
  attempt: AttemptRow | null,
): void {
  const code = 'approval_resume_checkpoint_missing';
  const message = describeOutcome(code);
  const stale = transaction.moveWorkUnit(workUnit, 'runner_lost', {
    actor: 'system',
    attemptId: attempt?.id ?? null,
    data: { errorCode: code, errorMessage: message },
    patch: { activeAttemptId: null, errorCode: code, errorMessage: message },
  });
  transaction.append(stale.id, [
    {
      type: 'work_unit.progress',
      actor: 'system',
      attemptId: attempt?.id ?? null,
      data: { kind: 'resume_blocked', code, message },
    },
  ]);
  context.log.error({ handle: workUnit.handle }, message);
}

/** Rows whose call is over are closed; the open ones are returned. */
function closeFinished(
  context: Context,
  transaction: Transaction,
  judged: readonly Judged[],
): ApprovalRow[] {
  return judged.flatMap(({ row, verdict }) => {
    if (verdict !== 'finished') return [row];
    const checkpoint = row.checkpoint === 'resume_pending' ? 'resumed' : 'closed';
    changeApproval(ledgerOf(context, transaction), row, { checkpoint }, 'finished');
    return [];
  });
}

/** A question whose first lines the store met only now: its work unit waits from here on. */
function asWaiting(transaction: Transaction, workUnit: WorkUnitRow, rows: readonly ApprovalRow[]) {
  const isPending = rows.some(({ status }) => status === 'pending');
  if (!isPending || workUnit.status !== 'running') return workUnit;
  const actor = 'system';
  return transaction.moveWorkUnit(workUnit, 'approval_requested', { actor, data: {} });
}

/** Beside a pending question nothing is bound: what was handed out comes back with its attempt. */
function unbind(
  context: Context,
  transaction: Transaction,
  workUnitId: string,
  rows: readonly ApprovalRow[],
): readonly ApprovalRow[] {
  if (!rows.some(({ status }) => status === 'pending')) return rows;
  for (const row of rows.filter(({ checkpoint }) => checkpoint === 'resume_pending')) {
    const patch = { checkpoint: 'waiting', boundAttemptId: null } as const;
    changeApproval(ledgerOf(context, transaction), row, patch, 'handed_back');
  }
  return context.store.approvals.open(workUnitId);
}

/** Reasons to have a person look, who is asked already: nothing goes on without the answer. */
const waits = ({ code }: { code: ResumeBlock }): boolean =>
  code === 'resume_too_old' || code === 'resume_budget_exhausted';

/**
 * Commits what becomes of work with open questions, whose attempt was just committed as lost.
 * @returns false when no question is open, or when something beside them decides (a damaged
 *   conversation, a work tree that is gone): then it is a loss like any other.
 */
export function settleApprovals(
  context: Context,
  transaction: Transaction,
  seen: WorkUnitRow,
  attempt: AttemptRow,
  cause: LossCode,
  evidence: LossEvidence,
): boolean {
  const { store, entropy } = context;
  const isAsking = seen.status === 'running' || seen.status === 'waiting_for_approval';
  if (!isAsking && seen.status !== 'claimed') return false;
  const judged = store.approvals
    .open(seen.id)
    .map((row) => ({ row, verdict: judgeCheckpoint(row) }));
  if (judged.some(({ verdict }) => verdict === 'effect_unknown')) {
    failUnknown(context, transaction, seen, attempt, judged);
    return true;
  }
  // Never seen to run: a loss like any other, and what it was to act on is bound anew.
  if (!isAsking) return false;
  const open = closeFinished(context, transaction, judged);
  if (open.length === 0) {
    if (seen.status !== 'waiting_for_approval') return false;
    blockMissing(context, transaction, seen, attempt);
    return true;
  }
  const decision = lossDecision(context, seen, attempt, { policy: 'resume', cause, evidence });
  const isAsked = open.some(({ status }) => status === 'pending');
  if (decision.kind !== 'resume' && !(isAsked && decision.kind === 'block' && waits(decision))) {
    return false;
  }
  const workUnit = asWaiting(transaction, seen, open);
  const rows = unbind(context, transaction, seen.id, open);
  commitApprovalResumeSuspension(context, transaction, {
    workUnit,
    attempt,
    rows,
    patch: {
      resume: noteOf(context, attempt, cause, evidence),
      hardLeftMs: timeLeft(workUnit, attempt, transaction.at),
    },
    data: { reason: 'approval_resume', cause, after: attempt.id },
  });
  store.diagnostics.recordCommand(
    resumeKey(attempt.id),
    { command: 'resume', workUnitId: workUnit.id },
    transaction.at,
  );
  if (decision.kind === 'resume' && decision.delayMs > 0) {
    const due = entropy.now() + decision.delayMs;
    store.queue.delay(workUnit.id, timestamp({ now: () => due }));
  }
  return true;
}
