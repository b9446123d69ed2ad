/**
 * The rows of approvals: every change is a compare-and-set on the revision, in the transaction
 * of what it belongs to, with one `approval.changed` event.
 */
import { type CheckpointFailure, judgeCheckpoint } from '../domain/approval.ts';
import { OutliveError } from '../domain/errors.ts';
import type { ApprovalPatch, ApprovalRow } from '../store/approvals.ts';
import type { Store } from '../store/store.ts';

/** Tells of a change; whoever shows approvals loads the row again. */
interface ApprovalChanged {
  readonly type: 'approval.changed';
  readonly actor: 'system';
  readonly attemptId: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** What a change needs; the writer itself has no context yet. */
export interface Ledger {
  readonly store: Pick<Store, 'approvals'>;
  readonly at: string;
  append(workUnitId: string, events: readonly ApprovalChanged[]): void;
}

/** The refusal of a writer whose view is stale. */
export function conflict(row: Pick<ApprovalRow, 'id'>, why: string): OutliveError {
  return new OutliveError('checkpoint_conflict', `Approval ${row.id}: ${why}. Look again.`, {
    extra: { approvalId: row.id },
  });
}

/**
 * Changes one row and tells of it.
 * @throws OutliveError `checkpoint_conflict` when the row is another one by now.
 */
export function changeApproval(
  { store, at, append }: Ledger,
  row: ApprovalRow,
  patch: ApprovalPatch,
  cause: string,
): void {
  if (!store.approvals.move(row, patch, at)) throw conflict(row, 'it was changed meanwhile');
  append(row.workUnitId, [
    {
      type: 'approval.changed',
      actor: 'system',
      attemptId: patch.boundAttemptId ?? row.boundAttemptId ?? row.attemptId,
      data: {
        approvalId: row.id,
        cause,
        status: patch.status ?? row.status,
        checkpoint: patch.checkpoint ?? row.checkpoint,
        revision: row.revision + 1,
        ...(patch.failureCode ? { failureCode: patch.failureCode } : {}),
      },
    },
  ]);
}

/** What the end of its work means for an open checkpoint. */
export function endOfRow(row: ApprovalRow): ApprovalPatch {
  const failed = (failureCode: CheckpointFailure): ApprovalPatch => ({
    checkpoint: 'resume_failed',
    failureCode,
  });
  if (row.status === 'pending') return { status: 'dropped', checkpoint: 'closed' };
  if (judgeCheckpoint(row) === 'effect_unknown') return failed('effect_unknown');
  if (row.checkpoint === 'resume_pending') {
    return row.ended || row.status === 'denied' ? { checkpoint: 'resumed' } : failed('work_ended');
  }
  return { checkpoint: 'closed' };
}

/**
 * commitApprovalResumeTerminal: nothing of ended work stays open. Called by the writer in
 * the transaction that moves a work unit to an end, whoever moves it.
 */
export function commitApprovalResumeTerminal(ledger: Ledger, workUnitId: string): void {
  for (const row of ledger.store.approvals.open(workUnitId)) {
    changeApproval(ledger, row, endOfRow(row), 'work_ended');
  }
}
