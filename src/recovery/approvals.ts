/**
 * Barrier A2 at the start of a daemon: questions whose work has ended are closed, and a
 * lineage that does not hold is put aside. It moves no attempt and gives no slot back: what a
 * lost attempt means is decided where its end is committed, and nowhere else.
 */
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import { ledgerOf } from '../supervisor/approval-commits.ts';
import { commitApprovalResumeTerminal } from '../supervisor/approval-ledger.ts';
import type { Context } from '../supervisor/context.ts';

/** Repeatable. @returns ids of the work units whose questions were closed. */
export function repairApprovals(context: Context): readonly string[] {
  const { approvals, workUnits } = context.store;
  const owners = new Set(approvals.listOpen().map(({ workUnitId }) => workUnitId));
  return [...owners].filter((workUnitId) => {
    const status = workUnits.statusOf(workUnitId);
    if (status !== null && !TERMINAL_STATUSES.has(status)) return false;
    context.writer.commit((transaction) =>
      commitApprovalResumeTerminal(ledgerOf(context, transaction), workUnitId),
    );
    return true;
  });
}
