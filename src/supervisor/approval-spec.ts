/** What an attempt is told about approvals: the policy, where decisions come from, its grants. */
import { createHash } from 'node:crypto';
import { RESUME_CAPABILITIES } from '../domain/approval.ts';
import {
  type ApprovalSpec,
  fingerprintText,
  type Grant,
  type ToolPolicy,
} from '../domain/decisions.ts';
import type { ApprovalRow } from '../store/approvals.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';

/** The first that is given: the work unit's own, its channel's, its kind's, the workspace's. */
export function toolPolicyOf(
  { settings }: Context,
  { request, channelId, kind }: Pick<WorkUnitRow, 'request' | 'channelId' | 'kind'>,
): ToolPolicy {
  const { policy, kinds, channels } = settings.policies.approvals;
  return request.toolPolicy ?? channels[channelId ?? ''] ?? kinds[kind] ?? policy;
}

/** True when what is stored is what was asked for: nothing of it was redacted or cut. */
function isWhole({ tool, arguments: given, cwd, fingerprint }: ApprovalRow): boolean {
  const text = fingerprintText({ tool, arguments: given, cwd });
  return createHash('sha256').update(text).digest('hex') === fingerprint;
}

function grantOf(runnerId: WorkUnitRow['runnerId'], row: ApprovalRow): Grant[] {
  if (row.status !== 'approved' && row.status !== 'denied') return [];
  const { hostApprovalContinuation } = RESUME_CAPABILITIES[runnerId];
  const canRun = hostApprovalContinuation.includes(row.tool) && isWhole(row);
  return [
    {
      approvalId: row.id,
      toolCallId: row.toolCallId,
      tool: row.tool,
      fingerprint: row.fingerprint,
      arguments: row.arguments,
      cwd: row.cwd,
      decision: row.status,
      reason: row.decisionReason,
      execute: row.status === 'approved' && canRun,
    },
  ];
}

/** The part of launch.json about approvals. */
export function approvalSpec(
  context: Context,
  workUnit: WorkUnitRow,
  attempt: Pick<AttemptRow, 'id' | 'createdAt'>,
  paths: { readonly decisions: string },
): ApprovalSpec {
  const { approvals } = context.store;
  return {
    policy: toolPolicyOf(context, workUnit),
    expiresMs: context.settings.policies.approvals.expireAfterMs,
    decisions: paths.decisions,
    publicKey: approvals.signingKey(attempt.createdAt).publicDer.toString('base64'),
    grants: approvals.boundTo(attempt.id).flatMap((row) => grantOf(workUnit.runnerId, row)),
  };
}
