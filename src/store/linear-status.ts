/** Counts of the Linear agent, for people to see. */
import type { Database } from 'better-sqlite3';

interface Row {
  readonly count: number;
  readonly oldest: string | null;
}

export type LinearCounts = ReturnType<typeof linearCountStatements>;

/** All statements of one workspace. */
export function linearCountStatements(db: Database, workspace: string) {
  const lastWebhook = db.prepare<[string], { at: string }>(
    `SELECT received_at AS at FROM linear_deliveries
     WHERE workspace_id = ? AND source = 'webhook' AND type = 'AgentSessionEvent' ORDER BY id DESC LIMIT 1`,
  );
  const deliveries = db.prepare<[string, string], { count: number }>(
    'SELECT count(*) AS count FROM linear_deliveries WHERE workspace_id = ? AND state = ?',
  );
  const outbox = db.prepare<[string, string], Row>(
    `SELECT count(*) AS count, min(created_at) AS oldest FROM linear_outbox
     WHERE workspace_id = ? AND state = ?`,
  );
  const turns = db.prepare<[string], { turns: number; sessions: number }>(
    `SELECT count(*) AS turns, count(DISTINCT session_id) AS sessions FROM linear_turns
     WHERE workspace_id = ? AND state IN ('held', 'pending', 'running', 'awaiting_activity')`,
  );
  return {
    /**
     * When the newest webhook of a session came, sweeps not counted; null for none. Others come
     * to an app that was not told to tell of sessions, too, and so does the set-up's own test.
     */
    lastWebhookAt: (): string | null => lastWebhook.get(workspace)?.at ?? null,
    deliveries: (state: 'new' | 'failed'): number => deliveries.get(workspace, state)?.count ?? 0,
    outbox: (state: 'pending' | 'failed'): Row =>
      outbox.get(workspace, state) ?? { count: 0, oldest: null },
    /** Turns that are not over, and the sessions they are of. */
    open: (): { readonly turns: number; readonly sessions: number } =>
      turns.get(workspace) ?? { turns: 0, sessions: 0 },
  };
}
