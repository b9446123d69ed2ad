/** Everything a store holds, for comparing it before and after. */
import type Database from 'better-sqlite3';

/** All rows of all tables, in their order. */
export function dump(db: Database.Database): Readonly<Record<string, readonly unknown[]>> {
  const tables = db
    .prepare<[], { name: string }>(
      `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`,
    )
    .all();
  return Object.fromEntries(
    tables.map(({ name }) => [name, db.prepare(`SELECT * FROM "${name}"`).raw().all()]),
  );
}
