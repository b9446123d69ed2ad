/** Statements about channels and about settings of the whole workspace. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import {
  ADMISSIONS,
  type Admission,
  CHANNEL_STATUSES,
  SUBJECT_POLICIES,
} from '../domain/resources.ts';

const rowSchema = z.object({
  id: z.string(),
  status: z.enum(CHANNEL_STATUSES),
  maxConcurrentRuns: z.int(),
  onNewerSubject: z.enum(SUBJECT_POLICIES),
  createdAt: z.string(),
  updatedAt: z.string(),
});
export type ChannelRow = z.infer<typeof rowSchema>;
export type ChannelPolicy = Pick<ChannelRow, 'status' | 'maxConcurrentRuns' | 'onNewerSubject'>;

const COLUMNS = `id, status, max_concurrent_runs AS maxConcurrentRuns,
  on_newer_subject AS onNewerSubject, created_at AS createdAt, updated_at AS updatedAt`;

export type Channels = ReturnType<typeof channelStatements>;

export function channelStatements(db: Database, workspace: string) {
  const get = db.prepare<[string, string]>(
    `SELECT ${COLUMNS} FROM channels WHERE workspace_id = ? AND id = ?`,
  );
  const list = db.prepare<[string]>(
    `SELECT ${COLUMNS} FROM channels WHERE workspace_id = ? ORDER BY id`,
  );
  const upsert = db.prepare<Record<string, string | number>>(`INSERT INTO channels
    (id, workspace_id, status, max_concurrent_runs, on_newer_subject, created_at, updated_at)
    VALUES (@id, @workspace, @status, @maxConcurrentRuns, @onNewerSubject, @at, @at)
    ON CONFLICT (workspace_id, id) DO UPDATE SET status = excluded.status,
      max_concurrent_runs = excluded.max_concurrent_runs,
      on_newer_subject = excluded.on_newer_subject, updated_at = excluded.updated_at`);
  const setting = db.prepare<[string, string], { value: string }>(
    'SELECT value FROM workspace_settings WHERE workspace_id = ? AND name = ?',
  );
  const set = db.prepare<[string, string, string, string]>(`INSERT INTO workspace_settings
    (workspace_id, name, value, updated_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (workspace_id, name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`);
  return {
    get: (id: string): ChannelRow | null => {
      const row = get.get(workspace, id);
      return row === undefined ? null : rowSchema.parse(row);
    },
    list: (): ChannelRow[] => list.all(workspace).map((row) => rowSchema.parse(row)),
    put: (id: string, policy: ChannelPolicy, at: string): void => {
      upsert.run({ id, workspace, at, ...policy });
    },
    admission: (): Admission =>
      z.enum(ADMISSIONS).parse(setting.get(workspace, 'admission')?.value ?? 'open'),
    setAdmission: (admission: Admission, at: string): void => {
      set.run(workspace, 'admission', admission, at);
    },
  };
}
