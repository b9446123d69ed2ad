/** Small facts about Linear that outlive the daemon, each under a name. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';

const rowSchema = z.object({ name: z.string(), value: z.string(), updatedAt: z.string() });

export interface LinearFact {
  readonly name: string;
  /** As it was put; whoever reads it checks its shape. */
  readonly value: unknown;
  /** RFC 3339. */
  readonly updatedAt: string;
}

export type LinearFacts = ReturnType<typeof linearFactStatements>;

/** All statements of one workspace. */
export function linearFactStatements(db: Database, workspace: string) {
  const columns = 'name, value_json AS value, updated_at AS updatedAt';
  const get = db.prepare<[string, string]>(
    `SELECT ${columns} FROM linear_facts WHERE workspace_id = ? AND name = ?`,
  );
  const list = db.prepare<[string]>(
    `SELECT ${columns} FROM linear_facts WHERE workspace_id = ? ORDER BY name`,
  );
  const put = db.prepare<[string, string, string, string]>(
    `INSERT INTO linear_facts (workspace_id, name, value_json, updated_at) VALUES (?, ?, ?, ?)
     ON CONFLICT (workspace_id, name) DO UPDATE SET value_json = excluded.value_json,
       updated_at = excluded.updated_at`,
  );
  const remove = db.prepare<[string, string]>(
    'DELETE FROM linear_facts WHERE workspace_id = ? AND name = ?',
  );
  const fact = (found: unknown): LinearFact => {
    const row = rowSchema.parse(found);
    return { ...row, value: JSON.parse(row.value) as unknown };
  };
  return {
    /** Null when it was never put, or was removed. */
    get: (name: string): LinearFact | null => {
      const row = get.get(workspace, name);
      return row === undefined ? null : fact(row);
    },
    /** By name. */
    list: (): LinearFact[] => list.all(workspace).map(fact),
    put: (name: string, value: unknown, at: string): void => {
      put.run(workspace, name, JSON.stringify(value), at);
    },
    /** @returns false when there was none. */
    remove: (name: string): boolean => remove.run(workspace, name).changes > 0,
  };
}
