/** Questions as a wrapper's spool tells of them, put into a store without a wrapper. */
import type { SpoolEventType } from '../../src/domain/events.ts';
import type { ApprovalRow } from '../../src/store/approvals.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import { heedApprovals } from '../../src/supervisor/approval-ingest.ts';
import type { Context } from '../../src/supervisor/context.ts';

type Speaker = Pick<AttemptRow, 'id' | 'workUnitId'>;

/** Commits one spool line of an attempt, as ingest does. */
export function say(
  context: Context,
  attempt: Speaker,
  type: SpoolEventType,
  data: Readonly<Record<string, unknown>>,
): void {
  const ts = new Date(context.entropy.now()).toISOString();
  context.writer.commit((transaction) => {
    const line = { v: 1 as const, n: 1, ts, type, data };
    transaction.append(attempt.workUnitId, [
      { type, ts, data, actor: 'runner', attemptId: attempt.id },
    ]);
    heedApprovals(context, transaction, attempt, [{ kind: 'line', line }]);
  });
}

export const FINGERPRINT = 'f'.repeat(64);

export interface Question {
  readonly toolCallId?: string;
  readonly tool?: string;
  readonly fingerprint?: string;
  readonly expiresAt?: string;
}

/** The attempt asks. @returns the stored question. */
export function ask(context: Context, attempt: Speaker, question: Question = {}): ApprovalRow {
  const toolCallId = question.toolCallId ?? 'call_1';
  const inAnHour = new Date(context.entropy.now() + 3_600_000).toISOString();
  say(context, attempt, 'approval.requested', {
    tool: 'bash',
    arguments: { command: 'make deploy' },
    fingerprint: FINGERPRINT,
    cwd: '/',
    diff: null,
    reason: null,
    expiresAt: inAnHour,
    ...question,
    toolCallId,
  });
  const row = context.store.approvals.getByCall(attempt.id, toolCallId);
  if (!row) throw new Error('the question was not stored');
  return row;
}

/** The attempt begins the approved call. */
export function begin(
  context: Context,
  attempt: Speaker,
  row: Pick<ApprovalRow, 'id' | 'toolCallId' | 'fingerprint' | 'tool'>,
): void {
  const { id: approvalId, toolCallId, fingerprint, tool } = row;
  const data = { toolCallId, tool, fingerprint, approvalId, fenced: true, arguments: {} };
  say(context, attempt, 'tool.start', data);
}

/** The attempt ends it. */
export function finish(
  context: Context,
  attempt: Speaker,
  { toolCallId, tool }: Pick<ApprovalRow, 'toolCallId' | 'tool'>,
): void {
  say(context, attempt, 'tool.end', { toolCallId, tool, isError: false, result: 'done' });
}
