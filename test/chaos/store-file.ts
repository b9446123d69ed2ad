/** Reads the store's file beside the daemon, without its code. */
import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import type { Workshop } from './workshop.ts';

export const storeFile = ({ config }: Workshop): string =>
  path.join(config.directories.store, 'outlive.db');

/** All rows of a query; the caller says what their columns are. */
export function query<Row>(file: string, sql: string, ...values: readonly string[]): Row[] {
  try {
    return ask(file, sql, values);
  } catch (error) {
    if (!String((error as { code?: unknown }).code).startsWith('SQLITE_IOERR')) throw error;
    // Even a reader makes a file beside the store; on a full disk it reads a copy elsewhere.
    return askCopy(file, sql, values);
  }
}

function askCopy<Row>(file: string, sql: string, values: readonly string[]): Row[] {
  const place = mkdtempSync(path.join(os.tmpdir(), 'chaos-store-'));
  try {
    const copy = path.join(place, 'outlive.db');
    for (const end of ['', '-wal']) {
      if (existsSync(file + end)) copyFileSync(file + end, copy + end);
    }
    return ask(copy, sql, values);
  } finally {
    rmSync(place, { recursive: true });
  }
}

function ask<Row>(file: string, sql: string, values: readonly string[]): Row[] {
  const database = new Database(file, { readonly: true, timeout: 5_000 });
  try {
    return database.prepare(sql).all(...values) as Row[];
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
