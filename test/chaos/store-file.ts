/** Reads the store's file beside the daemon; without its code but for the ledger, which is what is tested. */
import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { type LedgerLine, type LedgerPlace, ledgerStatements } from '../../src/store/ledger.ts';
import type { Workshop } from './workshop.ts';

export const storeFile = ({ config }: Workshop): string =>
  path.join(config.directories.store, 'outlive.db');

type Read<Result> = (database: Database.Database) => Result;

/** All rows of a query; the caller says what their columns are. */
export const query = <Row>(file: string, sql: string, ...values: readonly string[]): Row[] =>
  reading(file, (database) => database.prepare(sql).all(...values) as Row[]);

// So small that a round has several pages.
const PAGE_LINES = 5;

/** The ledger from its first line to its last, page by page. */
export function ledgerLines(file: string, workspace: string): LedgerLine[] {
  return reading(file, (database) => {
    const ledger = ledgerStatements(database, workspace);
    const lines: LedgerLine[] = [];
    let after: LedgerPlace | null = null;
    for (;;) {
      const page = ledger.page({ order: 'oldest', limit: PAGE_LINES, after, all: true });
      lines.push(...page);
      const last = page.at(-1);
      if (!last) return lines;
      after = ledger.placeOf(last.attemptId);
    }
  });
}

function reading<Result>(file: string, read: Read<Result>): Result {
  try {
    return opened(file, read);
  } catch (error) {
    if (!String((error as { code?: unknown }).code).startsWith('SQLITE_IOERR')) throw error;
    // Even a reader makes a file beside the store; on a full disk it reads a copy elsewhere.
    return fromCopy(file, read);
  }
}

function fromCopy<Result>(file: string, read: Read<Result>): Result {
  const place = mkdtempSync(path.join(os.tmpdir(), 'chaos-store-'));
  try {
    const copy = path.join(place, 'outlive.db');
    for (const end of ['', '-wal']) {
      if (existsSync(file + end)) copyFileSync(file + end, copy + end);
    }
    return opened(copy, read);
  } finally {
    rmSync(place, { recursive: true });
  }
}

function opened<Result>(file: string, read: Read<Result>): Result {
  const database = new Database(file, { readonly: true, timeout: 5_000 });
  try {
    return read(database);
  } finally {
    database.close();
  }
}

/** A copy of the store as it is at one instant. */
export async function copyStore(file: string, copy: string): Promise<void> {
  const database = new Database(file, { readonly: true, timeout: 5_000 });
  try {
    await database.backup(copy);
  } finally {
    database.close();
  }
}
