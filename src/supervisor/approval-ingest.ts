/**
 * What spool lines say of approvals: a question asked, dropped, heard; a call begun or ended.
 * Runs in the transaction that stores the lines, so each counts exactly once.
 */
import { z } from 'zod';
import { uuidv7 } from '../domain/ids.ts';
import { attemptCell, workUnitCell } from '../domain/states.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { ApprovalRow } from '../store/approvals.ts';
import type { AttemptRow } from '../store/attempts.ts';
import { ledgerOf } from './approval-commits.ts';
import { changeApproval } from './approval-ledger.ts';
import type { Context } from './context.ts';
import type { ParsedLine } from './spool-reader.ts';
import { waitedUntil } from './time-left.ts';
import type { Transaction } from './writer.ts';

const requestedSchema = z.object({
  toolCallId: z.string(),
  tool: z.string(),
  arguments: z.unknown(),
  fingerprint: z.string(),
  cwd: z.string(),
  diff: z.string().nullable(),
  reason: z.string().nullable(),
  expiresAt: z.iso.datetime(),
});
const resolvedSchema = z.object({
  toolCallId: z.string(),
  resolution: z.enum(['approved', 'denied', 'expired', 'dropped']),
});
const startSchema = z.object({
  toolCallId: z.string(),
  approvalId: z.string(),
  fingerprint: z.string(),
});
const endSchema = z.object({ toolCallId: z.string() });

/** Who said it. */
interface Speaker {
  readonly id: string;
  readonly workUnitId: string;
}

const TELLING: ReadonlySet<string> = new Set([
  'approval.requested',
  'approval.resolved',
  'tool.start',
  'tool.end',
  'agent.message',
]);

/** The attempt begins to wait: from here on only the question's own time counts. */
function beginToWait(context: Context, transaction: Transaction, speaker: Speaker): void {
  const attempt = transaction.attempt(speaker.id);
  const workUnit = transaction.workUnit(speaker.workUnitId);
  if (workUnit.activeAttemptId !== attempt.id) return;
  // Not yet seen to run, or being ended: then its end decides, and the question is there.
  if (workUnitCell(workUnit.status, 'approval_requested').kind !== 'move') return;
  if (attemptCell(attempt.status, 'approval_requested').kind !== 'move') return;
  transaction.moveAttempt(attempt, 'approval_requested', { waitingSince: transaction.at });
  transaction.moveWorkUnit(workUnit, 'approval_requested', {
    actor: 'runner',
    attemptId: attempt.id,
    data: { open: context.store.approvals.open(workUnit.id).length },
  });
}

/** No question of it is open any more: the attempt goes on. */
export function endWait(context: Context, transaction: Transaction, attempt: AttemptRow): void {
  const { workUnitId } = attempt;
  const isPending = context.store.approvals
    .open(workUnitId)
    .some(({ status }) => status === 'pending');
  if (isPending) return;
  // One that is being suspended stays that; its work unit waits for nobody any more.
  if (attempt.status === 'waiting_for_approval') {
    const waitedMs = waitedUntil(attempt, transaction.at);
    transaction.moveAttempt(attempt, 'approval_approved', { waitedMs, waitingSince: null });
  }
  const workUnit = transaction.workUnit(workUnitId);
  if (workUnit.status !== 'waiting_for_approval') return;
  transaction.moveWorkUnit(workUnit, 'approval_approved', {
    actor: 'system',
    attemptId: attempt.id,
    data: { reason: 'answered' },
  });
}

function requested(context: Context, transaction: Transaction, speaker: Speaker, line: Line): void {
  const parsed = requestedSchema.safeParse(line.data);
  if (!parsed.success) return;
  const { arguments: given, ...asked } = parsed.data;
  const { approvals } = context.store;
  const { status } = transaction.workUnit(speaker.workUnitId);
  const id = uuidv7(context.entropy);
  const isNew = approvals.insert({
    ...asked,
    id,
    workUnitId: speaker.workUnitId,
    attemptId: speaker.id,
    argumentsJson: JSON.stringify(given ?? null),
    requestedAt: line.ts,
    at: transaction.at,
  });
  if (!isNew) return;
  const row = approvals.get(id);
  if (row && TERMINAL_STATUSES.has(status)) {
    const patch = { status: 'dropped', checkpoint: 'closed' } as const;
    changeApproval(ledgerOf(context, transaction), row, patch, 'work_ended');
    return;
  }
  beginToWait(context, transaction, speaker);
}

function closeRow(
  context: Context,
  transaction: Transaction,
  row: ApprovalRow,
  cause: string,
): void {
  if (row.checkpoint !== 'waiting' && row.checkpoint !== 'resume_pending') return;
  const checkpoint = row.checkpoint === 'resume_pending' ? 'resumed' : 'closed';
  changeApproval(ledgerOf(context, transaction), row, { checkpoint }, cause);
}

function resolved(context: Context, transaction: Transaction, speaker: Speaker, line: Line): void {
  const parsed = resolvedSchema.safeParse(line.data);
  const row = parsed.success
    ? context.store.approvals.getByCall(speaker.id, parsed.data.toolCallId)
    : null;
  if (!parsed.success || !row) return;
  const { resolution } = parsed.data;
  if (resolution === 'denied' && row.status === 'denied') {
    closeRow(context, transaction, row, 'denial_heard');
  }
  // Heard an answer that the store does not know: it was put back from before it.
  const isForgotten = resolution === 'denied' && row.status === 'pending';
  if ((resolution !== 'dropped' && !isForgotten) || row.checkpoint !== 'waiting') return;
  const status = row.status === 'pending' ? 'dropped' : row.status;
  const patch = { status, checkpoint: 'closed' } as const;
  changeApproval(ledgerOf(context, transaction), row, patch, 'dropped');
  endWait(context, transaction, transaction.attempt(speaker.id));
}

/** A call begins that spends an approval: from here on it is never begun again. */
function begun(context: Context, transaction: Transaction, speaker: Speaker, line: Line): void {
  const parsed = startSchema.safeParse(line.data);
  if (!parsed.success) return;
  const { approvalId, toolCallId, fingerprint } = parsed.data;
  // The file with the decision names the call, the row is found by either.
  const { approvals } = context.store;
  const row = approvals.get(approvalId);
  if (row?.workUnitId !== speaker.workUnitId || row.startAttemptId !== null) return;
  if (row.fingerprint !== fingerprint) return;
  // Begun without an answer: the store was put back from before it. The question is over, and
  // the word of the spool is none of a person's: it is not called approved.
  const status = row.status === 'pending' ? 'dropped' : row.status;
  const patch = { status, startAttemptId: speaker.id, startCallId: toolCallId } as const;
  changeApproval(ledgerOf(context, transaction), row, patch, 'call_begun');
  if (row.status === 'pending') endWait(context, transaction, transaction.attempt(speaker.id));
}

/**
 * Lines of this attempt are lost: whether one of them was the start of a call that it might
 * begin nobody can know. A start that is seen later ends the doubt.
 */
export function doubtStarts(context: Context, transaction: Transaction, speaker: Speaker): void {
  for (const row of context.store.approvals.open(speaker.workUnitId)) {
    const isActing = (row.boundAttemptId ?? row.attemptId) === speaker.id;
    if (!isActing || row.status !== 'approved' || row.startAttemptId !== null || row.doubted)
      continue;
    changeApproval(ledgerOf(context, transaction), row, { doubted: 1 }, 'spool_damaged');
  }
}

function ended(context: Context, transaction: Transaction, speaker: Speaker, line: Line): void {
  const parsed = endSchema.safeParse(line.data);
  if (!parsed.success) return;
  const { id, workUnitId } = speaker;
  for (const row of context.store.approvals.begunBy(workUnitId, id, parsed.data.toolCallId)) {
    if (row.ended) continue;
    const isOpen = row.checkpoint === 'waiting' || row.checkpoint === 'resume_pending';
    const done = row.checkpoint === 'resume_pending' ? ('resumed' as const) : ('closed' as const);
    const patch = { ended: 1, ...(isOpen ? { checkpoint: done } : {}) } as const;
    changeApproval(ledgerOf(context, transaction), row, patch, 'call_ended');
  }
}

/** The model has answered the prompt that told it of a denial. */
function heardDenials(context: Context, transaction: Transaction, speaker: Speaker): void {
  for (const row of context.store.approvals.boundTo(speaker.id)) {
    if (row.status === 'denied') closeRow(context, transaction, row, 'denial_told');
  }
}

interface Line {
  readonly ts: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Takes what the lines of one chunk say of approvals into the store. */
export function heedApprovals(
  context: Context,
  transaction: Transaction,
  speaker: Speaker,
  lines: readonly ParsedLine[],
): void {
  let modelSpoke = false;
  for (const parsed of lines) {
    if (parsed.kind !== 'line' || !TELLING.has(parsed.line.type)) continue;
    const { line } = parsed;
    if (line.type === 'approval.requested') requested(context, transaction, speaker, line);
    else if (line.type === 'approval.resolved') resolved(context, transaction, speaker, line);
    else if (line.type === 'tool.start') begun(context, transaction, speaker, line);
    else if (line.type === 'tool.end') ended(context, transaction, speaker, line);
    else modelSpoke = true;
  }
  if (modelSpoke) heardDenials(context, transaction, speaker);
}
