/** How the Linear agent is: what the store says, and what only the running parts know. */
import { z } from 'zod';
import type { Store } from '../store/store.ts';
import { AUTH_PROBLEM } from './auth-health.ts';
import type { BudgetView } from './budget.ts';
import { SWEEP_CURSOR, type SweepProblem } from './sweep.ts';

/** Times are milliseconds since the epoch. */
export interface LinearLive {
  readonly viewer: { readonly id: string; readonly organizationId: string } | null;
  readonly budget: BudgetView;
  readonly sweepProblem: SweepProblem | null;
}

/** Before anything of it runs. */
export const NOT_LIVE: LinearLive = {
  viewer: null,
  budget: { requests: null, complexity: null, closedUntil: null },
  sweepProblem: null,
};

const permissionsSchema = z.object({
  at: z.string(),
  canAccessAllPublicTeams: z.boolean().nullable(),
  addedTeamIds: z.array(z.string()),
  removedTeamIds: z.array(z.string()),
});
const problemSchema = z.object({ code: z.string(), message: z.string(), since: z.string() });

const text = (ms: number): string => new Date(ms).toISOString();

type Pool = BudgetView['requests'];
const poolView = (pool: Pool) => pool && { ...pool, resetAt: text(pool.resetAt) };

/** What `GET /linear/status` says where Linear is configured. @throws what the store throws. */
export function linearDetails(
  { linearFacts, linearCounts }: Pick<Store, 'linearFacts' | 'linearCounts'>,
  { viewer, budget, sweepProblem }: LinearLive = NOT_LIVE,
) {
  const cursor = linearFacts.get(SWEEP_CURSOR)?.value;
  const pending = linearCounts.outbox('pending');
  const open = linearCounts.open();
  return {
    authProblem: problemSchema.safeParse(linearFacts.get(AUTH_PROBLEM)?.value).data ?? null,
    appUserId: viewer?.id ?? null,
    organizationId: viewer?.organizationId ?? null,
    permissions: permissionsSchema.safeParse(linearFacts.get('permissions')?.value).data ?? null,
    deliveries: {
      lastReceivedAt: linearCounts.lastWebhookAt(),
      new: linearCounts.deliveries('new'),
      failed: linearCounts.deliveries('failed'),
    },
    outbox: {
      pending: pending.count,
      failed: linearCounts.outbox('failed').count,
      oldestPendingAt: pending.oldest,
    },
    openSessions: open.sessions,
    openTurns: open.turns,
    sweep: {
      lastAt: typeof cursor === 'number' ? text(cursor) : null,
      problem: sweepProblem && {
        code: sweepProblem.kind,
        message: sweepProblem.message,
        since: text(sweepProblem.since),
      },
    },
    budget: {
      requests: poolView(budget.requests),
      complexity: poolView(budget.complexity),
      closedUntil: budget.closedUntil === null ? null : text(budget.closedUntil),
    },
  };
}
