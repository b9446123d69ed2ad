/** The ledger of Linear's webhooks: what came, once each by its content, and what became of it. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';

const DELIVERY_STATES = ['new', 'processed', 'ignored', 'failed'] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

const rowSchema = z.object({
  id: z.string(),
  contentKey: z.string(),
  deliveryId: z.string().nullable(),
  type: z.string(),
  action: z.string(),
  organizationId: z.string().nullable(),
  sessionId: z.string().nullable(),
  source: z.enum(['webhook', 'sweep']),
  receivedAt: z.string(),
  signedAt: z.string().nullable(),
  body: z.custom<Uint8Array>((value) => value instanceof Uint8Array),
  state: z.enum(DELIVERY_STATES),
  processedAt: z.string().nullable(),
  detail: z.string().nullable(),
  repeats: z.int(),
});
export type DeliveryRow = z.output<typeof rowSchema>;

/** What a delivery is stored with. Its id is a UUIDv7 of the time it came: rows are read in its order. */
export type NewDelivery = Omit<DeliveryRow, 'processedAt' | 'repeats'>;

export interface DeliveryCounts extends Readonly<Record<DeliveryState, number>> {
  readonly repeats: number;
}

const COLUMNS = `id, content_key AS contentKey, delivery_id AS deliveryId, type, action,
  organization_id AS organizationId, session_id AS sessionId, source,
  received_at AS receivedAt, signed_at AS signedAt, body, state,
  processed_at AS processedAt, detail, repeats`;

export type LinearDeliveries = ReturnType<typeof linearDeliveryStatements>;

function reads(db: Database, workspace: string) {
  const byId = db.prepare<[string]>(`SELECT ${COLUMNS} FROM linear_deliveries WHERE id = ?`);
  const byKey = db.prepare<[string, string]>(
    `SELECT ${COLUMNS} FROM linear_deliveries WHERE workspace_id = ? AND content_key = ?`,
  );
  const next = db.prepare<[string, string]>(
    `SELECT ${COLUMNS} FROM linear_deliveries
     WHERE workspace_id = ? AND state = 'new' AND id > ? ORDER BY id LIMIT 1`,
  );
  const waiting = db.prepare<[string], { count: number; id: string | null }>(
    `SELECT count(*) AS count, min(id) AS id FROM linear_deliveries
     WHERE workspace_id = ? AND state = 'new'`,
  );
  const counts = db.prepare<[string], { state: DeliveryState; count: number; repeats: number }>(
    `SELECT state, count(*) AS count, sum(repeats) AS repeats FROM linear_deliveries
     WHERE workspace_id = ? GROUP BY state`,
  );
  const one = (row: unknown): DeliveryRow | null =>
    row === undefined ? null : rowSchema.parse(row);
  return {
    get: (id: string): DeliveryRow | null => one(byId.get(id)),
    byKey: (contentKey: string): DeliveryRow | null => one(byKey.get(workspace, contentKey)),
    /** The oldest that nobody has settled yet, after the one with this id. */
    next: (after = ''): DeliveryRow | null => one(next.get(workspace, after)),
    /** How many are not settled, and since when the oldest; cheap however large the ledger is. */
    waiting: (): { readonly count: number; readonly since: string | null } => {
      const { count, id } = waiting.get(workspace) ?? { count: 0, id: null };
      return { count, since: id === null ? null : (one(byId.get(id))?.receivedAt ?? null) };
    },
    /** By state; reads the whole ledger. */
    counts: (): DeliveryCounts => {
      const result = { new: 0, processed: 0, ignored: 0, failed: 0, repeats: 0 };
      for (const { state, count, repeats } of counts.all(workspace)) {
        result[state] = count;
        result.repeats += repeats;
      }
      return result;
    },
  };
}

/** All statements about deliveries of one workspace. Those that write want a transaction around them. */
export function linearDeliveryStatements(db: Database, workspace: string) {
  const insert = db.prepare<NewDelivery & { workspace: string; processedAt: string | null }>(
    `INSERT INTO linear_deliveries (id, workspace_id, content_key, delivery_id, type, action,
       organization_id, session_id, source, received_at, signed_at, body, state, processed_at, detail)
     VALUES (@id, @workspace, @contentKey, @deliveryId, @type, @action, @organizationId,
       @sessionId, @source, @receivedAt, @signedAt, @body, @state, @processedAt, @detail)
     ON CONFLICT (workspace_id, content_key) DO NOTHING`,
  );
  const repeat = db.prepare<[string, string]>(
    `UPDATE linear_deliveries SET repeats = repeats + 1 WHERE workspace_id = ? AND content_key = ?`,
  );
  const settle = db.prepare<Record<string, string | null>>(
    `UPDATE linear_deliveries SET state = @state, detail = @detail, processed_at = @at
     WHERE id = @id AND workspace_id = @workspace AND state = 'new'`,
  );
  const drop = db.prepare<Record<string, string | number>>(
    `DELETE FROM linear_deliveries WHERE id IN (
       SELECT id FROM linear_deliveries WHERE id < @before AND workspace_id = @workspace
         AND state <> 'new' ORDER BY id LIMIT @limit)`,
  );
  return {
    ...reads(db, workspace),
    /** Stores it, or counts a repeat of what has the same key. @returns false for a repeat. */
    record: (row: NewDelivery): boolean => {
      const processedAt = row.state === 'new' ? null : row.receivedAt;
      if (insert.run({ ...row, workspace, processedAt }).changes === 1) return true;
      repeat.run(workspace, row.contentKey);
      return false;
    },
    /** What became of a new one. @returns false when that was said before. */
    settle: (
      id: string,
      state: Exclude<DeliveryState, 'new'>,
      detail: string | null,
      at: string,
    ): boolean => settle.run({ id, workspace, state, detail, at }).changes === 1,
    /** Removes settled ones with smaller ids, oldest first, at most `limit`. @returns how many. */
    drop: (before: string, limit: number): number => drop.run({ workspace, before, limit }).changes,
  };
}
