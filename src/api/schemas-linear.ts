/** What the API says of the Linear agent. */
import { z } from 'zod';

const count = z.int().min(0);
const when = z.iso.datetime().nullable();

const poolSchema = z.object({
  limit: count,
  remaining: z.int(),
  resetAt: z.iso.datetime(),
});

const problemSchema = z.object({
  /** `rate_limited`, `auth`, `rejected`, `transient`, or a code of OAuth's. */
  code: z.string(),
  /** What to do; never a secret. */
  message: z.string(),
  since: z.iso.datetime(),
});

const detailsSchema = z.object({
  /** Null while a token works, or was never needed. */
  authProblem: problemSchema.nullable(),
  /** Who the app is in Linear; null before it was asked. */
  appUserId: z.string().nullable(),
  organizationId: z.string().nullable(),
  deliveries: z.object({
    /** The newest webhook of a session that was stored, sweeps not counted. */
    lastReceivedAt: when,
    new: count,
    failed: count,
  }),
  outbox: z.object({
    pending: count,
    failed: count,
    oldestPendingAt: when,
  }),
  /** What the app may see, as Linear said last; null before it did. */
  permissions: z
    .object({
      at: z.iso.datetime(),
      canAccessAllPublicTeams: z.boolean().nullable(),
      addedTeamIds: z.array(z.string()),
      removedTeamIds: z.array(z.string()),
    })
    .nullable(),
  openSessions: count,
  openTurns: count,
  sweep: z.object({ lastAt: when, problem: problemSchema.nullable() }),
  /** As Linear's last answer told; null before there was one. */
  budget: z.object({
    requests: poolSchema.nullable(),
    complexity: poolSchema.nullable(),
    /** Nothing is called before; null when nothing is closed. */
    closedUntil: when,
  }),
});
export type LinearDetails = z.infer<typeof detailsSchema>;

export const linearStatusSchema = z.object({
  /** False: config.json has no section `linear`; then the rest is null. */
  configured: z.boolean(),
  status: detailsSchema.nullable(),
});
export type LinearStatusView = z.infer<typeof linearStatusSchema>;
