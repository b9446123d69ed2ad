/** What the API says of questions to a person. */
import { z } from 'zod';
import { APPROVAL_STATUSES, CHECKPOINT_FAILURES, CHECKPOINT_STATES } from '../domain/approval.ts';
import { ACTORS } from '../domain/work-unit.ts';
import { page, whole } from './schemas.ts';

const time = z.iso.datetime();

export const approvalViewSchema = z.object({
  id: z.string(),
  workUnitId: z.string(),
  handle: z.string(),
  /** The attempt that asked. */
  attemptId: z.string(),
  status: z.enum(APPROVAL_STATUSES),
  tool: z.string(),
  /** Redacted, long texts cut in the middle; what is decided on is the call of this fingerprint. */
  arguments: z.unknown(),
  /** SHA-256, hex, of tool, arguments and working directory as they are. */
  fingerprint: z.string(),
  toolCallId: z.string(),
  cwd: z.string(),
  /** What an edit or a write would change; null for other tools. */
  diff: z.string().nullable(),
  /** Of the rule that asks. */
  reason: z.string().nullable(),
  requestedAt: time,
  expiresAt: time,
  decidedAt: time.nullable(),
  decidedBy: z.enum(ACTORS).nullable(),
  decisionReason: z.string().nullable(),
  /** What became of the answer. */
  checkpoint: z.enum(CHECKPOINT_STATES),
  /** The attempt that acts on it in place of the one that asked. */
  boundAttemptId: z.string().nullable(),
  /** Why nobody ever will act on it. */
  failureCode: z
    .enum(Object.keys(CHECKPOINT_FAILURES) as [keyof typeof CHECKPOINT_FAILURES])
    .nullable(),
  /** Rises with every change. */
  revision: z.int(),
});
export type ApprovalView = z.infer<typeof approvalViewSchema>;

export const approvalPageSchema = page(approvalViewSchema);
export type ApprovalPage = z.infer<typeof approvalPageSchema>;

/** Query of GET /approvals. */
export const approvalQuerySchema = z.strictObject({
  status: z.enum(APPROVAL_STATUSES).optional(),
  /** Id or handle of a work unit. */
  workUnit: z.string().min(1).max(4096).optional(),
  limit: whole(1, 1000).default(100),
  cursor: z.string().max(200).optional(),
});

export const approvalParamsSchema = z.strictObject({ id: z.string().min(1).max(4096) });

/** Body of POST /approvals/:id/approve. */
export const approveSchema = z.strictObject({ reason: z.string().max(1000).optional() });
export type ApproveInput = z.input<typeof approveSchema>;

/** Body of POST /approvals/:id/deny. */
export const denySchema = z.strictObject({
  /** Told to the model. */
  reason: z.string().max(1000).optional(),
  /** The work fails, instead of going on without the call. */
  fail: z.boolean().default(false),
});
export type DenyInput = z.input<typeof denySchema>;
