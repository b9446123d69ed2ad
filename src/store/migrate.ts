/** Numbered .sql migrations, each applied once, each remembered with its checksum. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Database } from 'better-sqlite3';
import { OutliveError } from '../domain/errors.ts';

export interface Migration {
  readonly id: number;
  readonly name: string;
  readonly sql: string;
  readonly checksum: string;
}

const DIRECTORY = path.join(path.dirname(fileURLToPath(import.meta.url)), 'migrations');

/** The migrations this build knows, in order. */
export function readMigrations(directory: string = DIRECTORY): readonly Migration[] {
  return readdirSync(directory)
    .filter((name) => /^\d{3}_.+\.sql$/.test(name))
    .sort()
    .map((name) => {
      const sql = readFileSync(path.join(directory, name), 'utf8');
      const checksum = createHash('sha256').update(sql).digest('hex');
      return { id: Number(name.slice(0, 3)), name, sql, checksum };
    });
}

interface AppliedRow {
  id: number;
  name: string;
  checksum: string;
}

function refuseUnknown(
  file: string,
  applied: readonly AppliedRow[],
  known: readonly Migration[],
): void {
  const newest = known.at(-1)?.id ?? 0;
  const newer = applied.find((row) => row.id > newest);
  if (newer) {
    throw new OutliveError(
      'store_newer',
      `${file} has schema ${newer.id} (${newer.name}), this outlive knows up to ${newest}. Start the newer outlive again.`,
    );
  }
  for (const row of applied) {
    const migration = known.find((candidate) => candidate.id === row.id);
    if (migration?.checksum === row.checksum) continue;
    throw new OutliveError(
      'store_damaged',
      `${file}: migration ${row.id} (${row.name}) is not the one this outlive has. The store was made by another build; use that one.`,
    );
  }
}

/**
 * Brings the store to this build's schema; does nothing when it is there already.
 * All in one exclusive transaction: two racers cannot apply one migration twice,
 * and a crash leaves the old schema.
 * @returns the schema version, the number of the newest migration.
 * @throws OutliveError `store_newer` or `store_damaged`.
 */
export function migrate(db: Database, at: string, known = readMigrations()): number {
  const apply = db.transaction(() => {
    db.exec(`CREATE TABLE IF NOT EXISTS migrations (
      id INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at TEXT NOT NULL
    ) STRICT`);
    const applied = db
      .prepare<[], AppliedRow>('SELECT id, name, checksum FROM migrations ORDER BY id')
      .all();
    refuseUnknown(db.name, applied, known);
    const insert = db.prepare(
      'INSERT INTO migrations (id, name, checksum, applied_at) VALUES (?, ?, ?, ?)',
    );
    for (const migration of known) {
      if (applied.some((row) => row.id === migration.id)) continue;
      insert.run(migration.id, migration.name, migration.checksum, at);
      db.exec(migration.sql);
    }
  });
  apply.exclusive();
  return known.at(-1)?.id ?? 0;
}
