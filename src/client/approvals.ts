/** The client's methods about approvals. */
import { randomUUID } from 'node:crypto';
import {
  type ApprovalPage,
  type ApprovalView,
  type ApproveInput,
  approvalPageSchema,
  approvalViewSchema,
  type DenyInput,
} from '../api/schemas-approvals.ts';
import type { ApprovalStatus } from '../domain/approval.ts';
import { sendAgainWhenLost } from './resend.ts';
import type { Wire } from './wire.ts';

export interface ApprovalFilter {
  readonly status?: ApprovalStatus;
  /** Id or handle of a work unit. */
  readonly workUnit?: string;
  readonly limit?: number;
  readonly cursor?: string;
}

export interface ApprovalCalls {
  listApprovals(filter?: ApprovalFilter): Promise<ApprovalPage>;
  /** All that somebody still has to answer. */
  pendingApprovals(): Promise<ApprovalView[]>;
  getApproval(id: string): Promise<ApprovalView>;
  /** Sent again, with the same key, when the answer is lost: it has one effect. */
  approve(id: string, input?: ApproveInput, idempotencyKey?: string): Promise<ApprovalView>;
  deny(id: string, input?: DenyInput, idempotencyKey?: string): Promise<ApprovalView>;
}

const approvalPath = (id: string): string => `/approvals/${encodeURIComponent(id)}`;

export function createApprovalCalls(wire: Wire, timeoutMs: number): ApprovalCalls {
  const decide = (
    id: string,
    verb: 'approve' | 'deny',
    body: ApproveInput | DenyInput,
    idempotencyKey: string = randomUUID(),
  ): Promise<ApprovalView> => {
    const parts = { method: 'POST', path: `${approvalPath(id)}/${verb}`, body, idempotencyKey };
    return sendAgainWhenLost(
      () => wire.sendFor(approvalViewSchema, { ...parts, method: 'POST' }),
      timeoutMs,
    );
  };
  const listApprovals: ApprovalCalls['listApprovals'] = (filter = {}) =>
    wire.get(approvalPageSchema, '/approvals', { ...filter });
  return {
    listApprovals,
    pendingApprovals: () => allPending(listApprovals),
    getApproval: (id) => wire.get(approvalViewSchema, approvalPath(id)),
    approve: (id, input = {}, key) => decide(id, 'approve', input, key),
    deny: (id, input = {}, key) => decide(id, 'deny', input, key),
  };
}

async function allPending(list: ApprovalCalls['listApprovals']): Promise<ApprovalView[]> {
  const items: ApprovalView[] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const filter = { status: 'pending', limit: 1_000, ...(cursor ? { cursor } : {}) } as const;
    const page = await list(filter);
    items.push(...page.items);
    cursor = page.nextCursor;
  }
  return items;
}
