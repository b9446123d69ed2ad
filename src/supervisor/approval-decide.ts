/** A person's answer to a question: stored first, and once; carried to the attempt afterwards. */
import { OutliveError } from '../domain/errors.ts';
import { type Actor, TERMINAL_ATTEMPT_STATUSES, type WorkUnitStatus } from '../domain/work-unit.ts';
import type { ApprovalRow } from '../store/approvals.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { approvalGate, ledgerOf } from './approval-commits.ts';
import { endWait } from './approval-ingest.ts';
import { changeApproval } from './approval-ledger.ts';
import type { Context } from './context.ts';
import { failQuestion } from './end.ts';
import type { Transaction } from './writer.ts';

export interface DecisionRequest {
  readonly decision: 'approved' | 'denied';
  /** Told to the model; null for none. */
  readonly reason: string | null;
  /** Of a denial: the work fails instead of going on without the call. */
  readonly fail: boolean;
  readonly actor: Actor;
}

const GOES_ON: ReadonlySet<WorkUnitStatus> = new Set([
  'queued',
  'claimed',
  'running',
  'waiting_for_approval',
]);

function closed(row: ApprovalRow, detail: string): OutliveError {
  return new OutliveError('approval_closed', `Approval ${row.id} ${detail}.`, {
    extra: { approvalId: row.id, status: row.status, decidedAt: row.decidedAt },
  });
}

/** @returns true when the same was decided before. @throws OutliveError `approval_closed`. */
function isRepeated(row: ApprovalRow, { decision }: DecisionRequest, now: string): boolean {
  if (row.status === decision) return true;
  if (row.status !== 'pending') {
    const by = row.decidedBy === null ? '' : ` by ${row.decidedBy} at ${row.decidedAt}`;
    throw closed(row, `is ${row.status}${by}; a decision is final`);
  }
  if (row.expiresAt <= now) throw closed(row, `expired at ${row.expiresAt}`);
  return false;
}

/** Work that a plain denial let go on is not ended by saying it again, and nobody may think so. */
function requireEnding(row: ApprovalRow, { handle, status }: WorkUnitRow): void {
  if (!GOES_ON.has(status)) return;
  throw closed(row, `is denied, and its work goes on; to end it: outlive cancel ${handle}`);
}

/** Queued beside an open question it should not be; if it is, the answer lets it go. */
const ANSWERABLE: ReadonlySet<string> = new Set([
  'queued',
  'claimed',
  'running',
  'waiting_for_approval',
]);

function requireOpenWork(row: ApprovalRow, { handle, status }: WorkUnitRow): void {
  if (ANSWERABLE.has(status)) return;
  throw new OutliveError(
    'state_conflict',
    `${handle} is ${status}: nobody waits for approval ${row.id}.`,
    { extra: { approvalId: row.id, status } },
  );
}

function liveAttempt(transaction: Transaction, workUnit: WorkUnitRow): AttemptRow | null {
  if (workUnit.activeAttemptId === null) return null;
  const attempt = transaction.attempt(workUnit.activeAttemptId);
  return TERMINAL_ATTEMPT_STATUSES.has(attempt.status) ? null : attempt;
}

/** Goes on where every question is answered: the attempt that lives, or another one. */
function goOn(context: Context, transaction: Transaction, workUnit: WorkUnitRow): void {
  const attempt = liveAttempt(transaction, workUnit);
  if (attempt) {
    endWait(context, transaction, attempt);
    return;
  }
  const rows = context.store.approvals.open(workUnit.id);
  const isPending = rows.some(({ status }) => status === 'pending');
  if (isPending || workUnit.status !== 'waiting_for_approval') return;
  transaction.moveWorkUnit(workUnit, 'approval_resume', {
    actor: 'system',
    data: { reason: 'approval_resume' },
  });
}

/** Whoever may act on the answer lives, and nothing that it writes is seen any more. */
function isUnseen({ store }: Context, { boundAttemptId, attemptId }: ApprovalRow): boolean {
  const acting = store.attempts.get(boundAttemptId ?? attemptId);
  return acting?.spoolCut === true && !TERMINAL_ATTEMPT_STATUSES.has(acting.status);
}

/**
 * Stores the decision. The same one again changes nothing; to end work after a plain denial
 * is another one.
 * @throws OutliveError `not_found`, `approval_closed`, `state_conflict`.
 */
export function decide(context: Context, id: string, request: DecisionRequest): ApprovalRow {
  const row = context.writer.commit((transaction) =>
    decideWithin(context, transaction, id, request),
  );
  context.fault('approval_decided');
  return row;
}

/** {@link decide} as part of a larger transaction; its event carries it to who waits. */
export function decideWithin(
  context: Context,
  transaction: Transaction,
  id: string,
  request: DecisionRequest,
): ApprovalRow {
  const { approvals } = context.store;
  const asked = approvals.get(id);
  if (!asked) throw new OutliveError('not_found', `There is no approval "${id}".`);
  const workUnit = transaction.workUnit(asked.workUnitId);
  if (isRepeated(asked, request, transaction.at)) {
    if (request.fail) requireEnding(asked, workUnit);
    return asked;
  }
  requireOpenWork(asked, workUnit);
  const { decision, reason, actor } = request;
  changeApproval(
    ledgerOf(context, transaction),
    asked,
    {
      status: decision,
      decidedAt: transaction.at,
      decidedBy: actor,
      decisionReason: reason,
      ...(decision === 'approved' && isUnseen(context, asked) ? { doubted: 1 as const } : {}),
    },
    'decided',
  );
  context.store.queue.wakeEvery(approvalGate(id));
  if (decision === 'denied' && request.fail) {
    failQuestion(context, transaction, workUnit.id, 'approval_denied', reason);
  } else goOn(context, transaction, workUnit);
  return approvals.get(id) ?? asked;
}

/**
 * Ends every question whose time is over, and its work with it.
 * @returns the work units whose watches have to hear of it.
 */
export function expireApprovals(context: Context): readonly string[] {
  const { approvals } = context.store;
  const now = new Date(context.entropy.now()).toISOString();
  return approvals.expired(now).map(({ id, workUnitId }) => {
    context.writer.commit((transaction) => {
      const row = approvals.get(id);
      if (row?.status !== 'pending') return;
      const patch = { status: 'expired', checkpoint: 'closed' } as const;
      changeApproval(ledgerOf(context, transaction), row, patch, 'expired');
      const { status } = transaction.workUnit(workUnitId);
      if (status !== 'waiting_for_approval') return;
      const reason = `nobody answered approval ${id} (${row.tool}) before ${row.expiresAt}`;
      failQuestion(context, transaction, workUnitId, 'approval_expired', reason);
    });
    return workUnitId;
  });
}
