/** A real store in a directory of its own, rows for it, and processes that share it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import { OutliveError } from '../../src/domain/errors.ts';
import { defaultTimeouts } from '../../src/domain/work-unit.ts';
import type { NewEvent } from '../../src/store/events.ts';
import { STORE_FILE } from '../../src/store/open.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { type NewWorkUnit, workUnitStatements } from '../../src/store/work-units.ts';

export const AT = '2026-01-02T03:04:05.678Z';
export const WORKSPACE = 'main';

const leftovers: (() => void | Promise<void>)[] = [];

/** To be called in afterEach: closes, kills and removes what the test made, newest first. */
export async function cleanUp(): Promise<void> {
  for (const undo of leftovers.splice(0).reverse()) await undo();
}

export function temporaryDirectory(): string {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-store-'));
  leftovers.push(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export function open(directory: string = temporaryDirectory()): Store {
  const store = openStore(directory, WORKSPACE, AT);
  leftovers.push(() => store.close());
  return store;
}

/** A second connection to a store's file, for looking behind its back. */
export function raw(directory: string): Database.Database {
  const db = new Database(path.join(directory, STORE_FILE));
  leftovers.push(() => {
    db.close();
  });
  return db;
}

/** How SQLite carries out the first statement that `work` runs. */
export function planOf(directory: string, work: (db: Database.Database) => void): string {
  const statements: string[] = [];
  const db = new Database(path.join(directory, STORE_FILE), {
    verbose: (sql) => statements.push(String(sql)),
  });
  leftovers.push(() => {
    db.close();
  });
  work(db);
  const [sql = ''] = statements;
  const plan = db.prepare<[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`).all();
  return plan.map(({ detail }) => detail).join('\n');
}

/** The same of the statement that takes the next queued work unit. */
export const planOfNextQueued = (directory: string): string =>
  planOf(directory, (db) => {
    workUnitStatements(db, WORKSPACE).nextQueued();
  });

let made = 0;

/** Ids in the order they are asked for, as UUIDs that sort the same way. */
export const nextId = (): string => `018f0000-0000-7000-8000-${String(++made).padStart(12, '0')}`;

export function newWorkUnit(known: Partial<NewWorkUnit> = {}): NewWorkUnit {
  const id = known.id ?? nextId();
  return {
    id,
    workspaceId: WORKSPACE,
    handle: `h${id.slice(-6)}`,
    kind: 'task_run',
    ownerType: 'user',
    ownerId: 'ada',
    runnerId: 'command',
    idempotencyKey: `key of ${id}`,
    priority: 0,
    createdByClientId: null,
    createdByActor: 'user',
    requestJson: '{"argv":["true"],"runnerId":"command"}',
    timeoutPolicyJson: JSON.stringify(defaultTimeouts('task_run')),
    cwd: '/',
    model: null,
    channelId: null,
    taskId: null,
    teammateId: null,
    providerPresetId: null,
    externalSubject: null,
    conversation: null,
    at: AT,
    ...known,
  };
}

/** Inserts a work unit and returns its id. */
export function insertWorkUnit(store: Store, known: Partial<NewWorkUnit> = {}): string {
  const row = newWorkUnit(known);
  store.write(() => store.workUnits.insert(row));
  return row.id;
}

/** Inserts an attempt of a work unit and returns its id. */
export function insertAttempt(
  store: Store,
  workUnitId: string,
  known: { attemptNumber?: number; unit?: string; nonce?: string } = {},
): string {
  const id = nextId();
  store.write(() =>
    store.attempts.insert({
      id,
      workUnitId,
      attemptNumber: 1,
      runtimeInstanceId: 'instance',
      runnerId: 'command',
      providerPresetId: null,
      unit: `outlive-main-x-${made}.service`,
      nonce: `nonce ${id}`,
      executor: 'systemd',
      resumesAttemptId: null,
      hardTimeoutMs: null,
      conversation: null,
      at: AT,
      ...known,
    }),
  );
  return id;
}

export const newEvent = (workUnitId: string, data: Record<string, unknown> = {}): NewEvent => ({
  workUnitId,
  attemptId: null,
  ts: AT,
  type: 'work_unit.progress',
  actor: 'system',
  data,
});

/** The refusal that `work` throws. */
export function refusal(work: () => unknown): OutliveError {
  try {
    work();
  } catch (error) {
    if (error instanceof OutliveError) return error;
    throw error;
  }
  throw new Error('it was not refused');
}

export interface Child {
  readonly process: ChildProcess;
  /** The next line it prints, parsed. */
  next(): Promise<Record<string, unknown>>;
  say(line: string): void;
  /** Resolves with its exit status once it has ended. */
  ended(): Promise<number | null>;
}

/** Starts `children/<name>.ts`; it ends with its stdin, and is killed at the end of the test. */
export function startChild(name: string, args: readonly string[]): Child {
  const script = fileURLToPath(new URL(`./children/${name}.ts`, import.meta.url));
  const child = spawn(process.execPath, [script, ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const exit = once(child, 'exit');
  const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  leftovers.push(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await exit;
  });
  return {
    process: child,
    next: async () => {
      const line = await lines.next();
      if (line.done) throw new Error(`${name} ended without a word`);
      return JSON.parse(line.value) as Record<string, unknown>;
    },
    say: (line) => {
      child.stdin.write(`${line}\n`);
    },
    ended: async () => {
      await exit;
      return child.exitCode;
    },
  };
}
