/** Statements whose text depends on what is set: each text is prepared once. */
import type { Database, Statement } from 'better-sqlite3';

/** @returns what prepares a text, or has it from before. There must be few texts. */
export function statementCache(db: Database): (sql: string) => Statement {
  const known = new Map<string, Statement>();
  return (sql) => {
    const statement = known.get(sql) ?? db.prepare(sql);
    known.set(sql, statement);
    return statement;
  };
}
