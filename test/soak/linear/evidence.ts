/** What a run has left: in the store and in Pi's session files. Reads only. */
import path from 'node:path';
import Database from 'better-sqlite3';
import { STORE_FILE } from '../../../src/store/open.ts';
import type { LinearScene } from '../../support/linear-scene.ts';

export interface StoredAttempt {
  readonly id: string;
  readonly workUnitId: string;
  readonly number: number;
  readonly unit: string;
  readonly status: string;
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly errorCode: string | null;
}

/** A deed as it was acted on. */
export interface LedgerRow {
  readonly id: string;
  readonly sessionId: string;
  /** Of the prompt or stop; null for a beginning. */
  readonly activityId: string | null;
  readonly source: string;
  readonly state: string;
  readonly detail: string | null;
  readonly repeats: number;
  readonly receivedAt: string;
  readonly processedAt: string | null;
}

export interface StoredTurn {
  readonly id: string;
  readonly sessionId: string;
  readonly channelKey: string;
  readonly sourceKey: string;
  readonly kind: string;
  readonly state: string;
  readonly prompt: string;
  readonly workUnitId: string | null;
  readonly interruptedBy: string | null;
  readonly terminalId: string | null;
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
}

export interface OutboxEntry {
  readonly id: string;
  readonly sessionId: string;
  readonly turnId: string | null;
  readonly kind: string;
  readonly terminal: number;
  readonly state: string;
  readonly tries: number;
  readonly body: string;
  readonly createdAt: string;
  readonly sentAt: string | null;
  readonly errorMessage: string | null;
}

export interface StoredWork {
  readonly id: string;
  readonly handle: string;
  readonly status: string;
  readonly errorCode: string | null;
  readonly errorMessage: string | null;
}

export interface Evidence {
  readonly ledger: readonly LedgerRow[];
  readonly turns: readonly StoredTurn[];
  readonly outbox: readonly OutboxEntry[];
  readonly work: readonly StoredWork[];
  readonly attempts: readonly StoredAttempt[];
}

function reading<Result>(directory: string, read: (db: Database.Database) => Result): Result {
  const db = new Database(path.join(directory, STORE_FILE), { readonly: true });
  try {
    return read(db);
  } finally {
    db.close();
  }
}

const ATTEMPTS = `SELECT id, work_unit_id AS workUnitId, attempt_number AS number, unit, status,
  created_at AS createdAt, started_at AS startedAt, ended_at AS endedAt, error_code AS errorCode
  FROM work_unit_attempts ORDER BY created_at, id`;
const LEDGER = `SELECT id, session_id AS sessionId,
  json_extract(CAST(body AS TEXT), '$.agentActivity.id') AS activityId, source, state, detail,
  repeats, received_at AS receivedAt, processed_at AS processedAt
  FROM linear_deliveries ORDER BY processed_at, id`;
const TURNS = `SELECT id, session_id AS sessionId, channel_key AS channelKey,
  source_key AS sourceKey, kind, state, prompt, work_unit_id AS workUnitId,
  interrupted_by AS interruptedBy, terminal_id AS terminalId, created_at AS createdAt,
  started_at AS startedAt, ended_at AS endedAt FROM linear_turns ORDER BY id`;
const OUTBOX = `SELECT id, session_id AS sessionId, turn_id AS turnId, kind, terminal, state, tries,
  body_json AS body, created_at AS createdAt, sent_at AS sentAt, error_message AS errorMessage
  FROM linear_outbox ORDER BY seq`;
const WORK = `SELECT id, handle, status, error_code AS errorCode, error_message AS errorMessage
  FROM work_units ORDER BY created_at, id`;

export const readAttempts = (directory: string): StoredAttempt[] =>
  reading(directory, (db) => db.prepare<[], StoredAttempt>(ATTEMPTS).all());

export const readEvidence = (directory: string): Evidence =>
  reading(directory, (db) => ({
    ledger: db.prepare<[], LedgerRow>(LEDGER).all(),
    turns: db.prepare<[], StoredTurn>(TURNS).all(),
    outbox: db.prepare<[], OutboxEntry>(OUTBOX).all(),
    work: db.prepare<[], StoredWork>(WORK).all(),
    attempts: db.prepare<[], StoredAttempt>(ATTEMPTS).all(),
  }));

const UNREST = `SELECT
  (SELECT count(*) FROM linear_deliveries WHERE state <> 'new') AS settled,
  (SELECT count(*) FROM linear_deliveries WHERE state = 'new') AS deliveries,
  (SELECT count(*) FROM linear_turns
    WHERE state IN ('held', 'pending', 'running', 'awaiting_activity')) AS turns,
  (SELECT count(*) FROM linear_outbox WHERE state = 'pending') AS outbox,
  (SELECT count(*) FROM work_units
    WHERE status NOT IN ('succeeded', 'failed', 'cancelled')) AS work`;

/** What is left to do, by what it is; `settled` is what was acted on. */
export type Unrest = Readonly<
  Record<'settled' | 'deliveries' | 'turns' | 'outbox' | 'work', number>
>;

export const readUnrest = (directory: string): Unrest =>
  reading(directory, (db) => {
    const row = db.prepare<[], Unrest>(UNREST).get();
    if (!row) throw new Error('a count without a row');
    return row;
  });

/** All that was said to the model in the conversation of a session, in the order of its files. */
export function saidToModel(scene: LinearScene, sessionId: string): string[] {
  const lines = scene
    .conversations()
    .filter(({ file }) => file.includes(sessionId.toLowerCase()))
    .flatMap(({ text }) => text.split('\n').filter((line) => line !== ''));
  return lines.flatMap((line) => {
    const { message } = JSON.parse(line) as { message?: { role?: string; content?: unknown } };
    return message?.role === 'user' ? [JSON.stringify(message.content)] : [];
  });
}
