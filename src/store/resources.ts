/** Statements about needs, leases and slots. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import {
  LEASE_TYPES,
  type LeaseNeed,
  type Need,
  needSchema,
  SLOT_TYPES,
  type SlotNeed,
} from '../domain/resources.ts';

const held = {
  id: z.string(),
  key: z.string(),
  workUnitId: z.string(),
  attemptId: z.string(),
  status: z.string(),
  acquiredAt: z.string(),
  lastRenewedAt: z.string(),
  releasedAt: z.string().nullable(),
  releaseReason: z.string().nullable(),
};
const leaseSchema = z.object({ ...held, type: z.enum(LEASE_TYPES), expiresAt: z.string() });
export type LeaseRow = z.infer<typeof leaseSchema>;
const slotSchema = z.object({ ...held, type: z.enum(SLOT_TYPES) });
export type SlotRow = z.infer<typeof slotSchema>;

const HELD = `id, resource_type AS type, resource_key AS key, work_unit_id AS workUnitId,
  attempt_id AS attemptId, status, acquired_at AS acquiredAt, last_renewed_at AS lastRenewedAt,
  released_at AS releasedAt, release_reason AS releaseReason`;

/** Who takes a resource, and when. */
export interface Holder {
  readonly id: string;
  readonly workUnitId: string;
  readonly attemptId: string;
  readonly at: string;
}

export interface Released {
  readonly leases: readonly LeaseRow[];
  readonly slots: readonly SlotRow[];
}

export type Resources = ReturnType<typeof resourceStatements>;

function needs(db: Database) {
  const insert = db.prepare<[string, string, string, string]>(
    'INSERT INTO work_unit_needs (work_unit_id, form, resource_type, resource_key) VALUES (?, ?, ?, ?)',
  );
  const list = db.prepare<[string]>(
    'SELECT form, resource_type AS type, resource_key AS key FROM work_unit_needs WHERE work_unit_id = ?',
  );
  return {
    insertNeeds: (workUnitId: string, wanted: readonly Need[]): void => {
      for (const { form, type, key } of wanted) insert.run(workUnitId, form, type, key);
    },
    needsOf: (workUnitId: string): Need[] =>
      list.all(workUnitId).map((row) => needSchema.parse(row)),
  };
}

function leases(db: Database, workspace: string) {
  const byType = db.prepare<[string, string]>(`SELECT ${HELD}, expires_at AS expiresAt
    FROM resource_leases WHERE workspace_id = ? AND resource_type = ? AND released_at IS NULL`);
  const byKey = db.prepare<[string, string, string]>(`SELECT ${HELD}, expires_at AS expiresAt
    FROM resource_leases
    WHERE workspace_id = ? AND resource_type = ? AND resource_key = ? AND released_at IS NULL`);
  const all = db.prepare<[string]>(`SELECT ${HELD}, expires_at AS expiresAt
    FROM resource_leases WHERE workspace_id = ? AND released_at IS NULL ORDER BY acquired_at, id`);
  const insert = db.prepare<Record<string, string>>(`INSERT INTO resource_leases
    (id, workspace_id, resource_type, resource_key, work_unit_id, attempt_id, status,
     acquired_at, expires_at, last_renewed_at)
    VALUES (@id, @workspace, @type, @key, @workUnitId, @attemptId, 'active', @at, @expiresAt, @at)`);
  const renew = db.prepare<[string, string, string]>(`UPDATE resource_leases
    SET last_renewed_at = ?, expires_at = ?, status = 'active'
    WHERE attempt_id = ? AND released_at IS NULL`);
  const suspect = db.prepare<[string]>(
    "UPDATE resource_leases SET status = 'suspect' WHERE id = ? AND released_at IS NULL",
  );
  const release = db.prepare<[string, string, string, string]>(`UPDATE resource_leases
    SET status = ?, released_at = ?, release_reason = ?
    WHERE attempt_id = ? AND released_at IS NULL
    RETURNING ${HELD}, expires_at AS expiresAt`);
  const many = (rows: readonly unknown[]): LeaseRow[] => rows.map((row) => leaseSchema.parse(row));
  return {
    leasesHeld: (): LeaseRow[] => many(all.all(workspace)),
    /** Held leases that could conflict: all paths for a path, else those of the very key. */
    leasesNear: ({ type, key }: Pick<LeaseNeed, 'type' | 'key'>): LeaseRow[] =>
      many(type === 'bound_path' ? byType.all(workspace, type) : byKey.all(workspace, type, key)),
    takeLease: ({ type, key }: LeaseNeed, holder: Holder, expiresAt: string): void => {
      insert.run({ workspace, type, key, expiresAt, ...holder });
    },
    /** Renews all leases of an attempt; a suspect one is trusted again. */
    renewLeases: (attemptId: string, at: string, expiresAt: string): void => {
      renew.run(at, expiresAt, attemptId);
    },
    suspectLease: (id: string): void => {
      suspect.run(id);
    },
    releaseLeases: (attemptId: string, status: string, at: string, reason: string): LeaseRow[] =>
      many(release.all(status, at, reason, attemptId)),
  };
}

function slots(db: Database, workspace: string) {
  const count = db.prepare<[string, string, string], { n: number }>(`SELECT count(*) AS n
    FROM runtime_semaphore_slots
    WHERE workspace_id = ? AND resource_type = ? AND resource_key = ? AND status = 'active'`);
  const all = db.prepare<[string]>(`SELECT ${HELD} FROM runtime_semaphore_slots
    WHERE workspace_id = ? AND status = 'active' ORDER BY acquired_at, id`);
  const insert = db.prepare<Record<string, string>>(`INSERT INTO runtime_semaphore_slots
    (id, workspace_id, resource_type, resource_key, owner_type, owner_id, work_unit_id,
     attempt_id, status, acquired_at, last_renewed_at)
    VALUES (@id, @workspace, @type, @key, 'attempt', @attemptId, @workUnitId, @attemptId,
     'active', @at, @at)`);
  const renew = db.prepare<[string, string]>(`UPDATE runtime_semaphore_slots
    SET last_renewed_at = ? WHERE attempt_id = ? AND status = 'active'`);
  const release = db.prepare<[string, string, string, string]>(`UPDATE runtime_semaphore_slots
    SET status = ?, released_at = ?, release_reason = ?
    WHERE attempt_id = ? AND status = 'active' RETURNING ${HELD}`);
  const many = (rows: readonly unknown[]): SlotRow[] => rows.map((row) => slotSchema.parse(row));
  return {
    slotsHeld: (): SlotRow[] => many(all.all(workspace)),
    countSlots: ({ type, key }: Pick<SlotNeed, 'type' | 'key'>): number =>
      count.get(workspace, type, key)?.n ?? 0,
    takeSlot: ({ type, key }: SlotNeed, holder: Holder): void => {
      insert.run({ workspace, type, key, ...holder });
    },
    renewSlots: (attemptId: string, at: string): void => {
      renew.run(at, attemptId);
    },
    releaseSlots: (attemptId: string, status: string, at: string, reason: string): SlotRow[] =>
      many(release.all(status, at, reason, attemptId)),
  };
}

function holders(db: Database, workspace: string) {
  const ended = db.prepare<Record<string, string>, { id: string }>(`SELECT id
    FROM work_unit_attempts WHERE status IN ('succeeded', 'failed', 'cancelled', 'lost') AND id IN (
      SELECT attempt_id FROM resource_leases
      WHERE workspace_id = @workspace AND released_at IS NULL
      UNION SELECT attempt_id FROM runtime_semaphore_slots
      WHERE workspace_id = @workspace AND status = 'active')`);
  return {
    /** Ended attempts that still hold something: a store that was restored or edited. */
    endedHolders: (): string[] => ended.all({ workspace }).map(({ id }) => id),
  };
}

/** All statements about resources of one workspace. */
export function resourceStatements(db: Database, workspace: string) {
  return {
    ...needs(db),
    ...leases(db, workspace),
    ...slots(db, workspace),
    ...holders(db, workspace),
  };
}
