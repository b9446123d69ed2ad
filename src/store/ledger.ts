/** The ledger's lines, read from attempts, their work units and outcomes. Writes nothing. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import {
  DRIVER_OWNER,
  type LedgerEnd,
  type LedgerResult,
  type LedgerVerify,
  ledgerRc,
  ledgerResult,
  ledgerVerify,
  OWN_WORK,
  outcomeWord,
} from '../domain/ledger.ts';
import { OUTCOME_STATES } from '../domain/outcome.ts';
import { ATTEMPT_STATUSES, MAKERS, type Maker } from '../domain/work-unit.ts';
import { statementCache } from './statement-cache.ts';

/** One attempt that has ended. */
export interface LedgerLine {
  readonly handle: string;
  readonly workUnitId: string;
  readonly attemptId: string;
  readonly attemptNumber: number;
  /** The driver whose work it was. */
  readonly driver: string | null;
  readonly subject: string | null;
  readonly unit: string;
  readonly invocationId: string | null;
  readonly executor: 'systemd' | 'direct' | null;
  readonly startedAt: string | null;
  readonly endedAt: string;
  readonly result: LedgerResult;
  readonly rc: number | null;
  readonly outcome: string | null;
  readonly verify: LedgerVerify | null;
  readonly reattached: boolean;
  /** US dollars; null where no cost is known. */
  readonly costUsd: number | null;
  /** Processes that were still there when the runner had ended; null without its last word. */
  readonly leftovers: number | null;
  readonly createdByActor: Maker;
}

const rowSchema = z.object({
  handle: z.string(),
  workUnitId: z.string(),
  attemptId: z.string(),
  attemptNumber: z.int(),
  ownerType: z.string(),
  ownerId: z.string(),
  subject: z.string().nullable(),
  unit: z.string(),
  invocationId: z.string().nullable(),
  executor: z.enum(['systemd', 'direct']).nullable(),
  startedAt: z.string().nullable(),
  endedAt: z.string(),
  status: z.enum(ATTEMPT_STATUSES),
  errorCode: z.string().nullable(),
  hasLastWord: z.int(),
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  saidCost: z.number().nullable(),
  leftovers: z.int().nullable(),
  processStatus: z.int().nullable(),
  processSignal: z.string().nullable(),
  reattached: z.int(),
  spentMicroUsd: z.int(),
  createdByActor: z.enum(MAKERS),
  outcomeState: z.enum(OUTCOME_STATES).nullable(),
  outcomeCode: z.string().nullable(),
  verifyId: z.string().nullable(),
});
type Row = z.output<typeof rowSchema>;

// Of the last word and the evidence only what a line needs leaves SQLite: each may hold much text.
const COLUMNS = `w.handle, a.work_unit_id AS workUnitId, a.id AS attemptId,
  a.attempt_number AS attemptNumber, w.owner_type AS ownerType, w.owner_id AS ownerId,
  w.external_subject AS subject, a.unit, a.invocation_id AS invocationId, a.executor,
  a.started_at AS startedAt, a.ended_at AS endedAt, a.status, a.error_code AS errorCode,
  a.last_word_json IS NOT NULL AS hasLastWord,
  a.last_word_json ->> '$.exitCode' AS exitCode, a.last_word_json ->> '$.signal' AS signal,
  a.last_word_json ->> '$.costUsd' AS saidCost,
  json_array_length(a.last_word_json, '$.leftovers') AS leftovers,
  a.evidence_json ->> '$.end.status' AS processStatus,
  a.evidence_json ->> '$.end.signal' AS processSignal,
  a.reattached, a.spent_micro_usd AS spentMicroUsd, w.created_by_actor AS createdByActor,
  o.state AS outcomeState, o.code AS outcomeCode, o.verify_id AS verifyId`;

function endOf(row: Row): LedgerEnd {
  return {
    status: row.status,
    errorCode: row.errorCode,
    outcome:
      row.outcomeState === null
        ? null
        : { state: row.outcomeState, code: row.outcomeCode, verifyId: row.verifyId },
    lastWord: row.hasLastWord === 1 ? { exitCode: row.exitCode, signal: row.signal } : null,
    process: { status: row.processStatus, signal: row.processSignal },
  };
}

function lineOf(row: Row): LedgerLine {
  const end = endOf(row);
  return {
    handle: row.handle,
    workUnitId: row.workUnitId,
    attemptId: row.attemptId,
    attemptNumber: row.attemptNumber,
    driver: row.ownerType === DRIVER_OWNER ? row.ownerId : null,
    subject: row.subject,
    unit: row.unit,
    invocationId: row.invocationId,
    executor: row.executor,
    startedAt: row.startedAt,
    endedAt: row.endedAt,
    result: ledgerResult(end),
    rc: ledgerRc(end),
    outcome: outcomeWord(end.outcome),
    verify: ledgerVerify(end.outcome),
    reattached: row.reattached > 0,
    // What was stored while it ran is there also when it had no last word.
    costUsd: row.spentMicroUsd > 0 ? row.spentMicroUsd / 1e6 : row.saidCost,
    leftovers: row.leftovers,
    createdByActor: row.createdByActor,
  };
}

/** The place of a line: lines are ordered by end, then by attempt. */
export interface LedgerPlace {
  readonly endedAt: string;
  readonly attemptId: string;
}

export interface LedgerFilter {
  readonly order: 'newest' | 'oldest';
  readonly limit: number;
  /** Only lines behind this one, in the order asked for. */
  readonly after?: LedgerPlace | null;
  /** Only what ended at or after this moment: RFC 3339, UTC with milliseconds, as stored. */
  readonly since?: string | null;
  readonly driver?: string | null;
  readonly handle?: string | null;
  /** Also what outlive made for itself. */
  readonly all: boolean;
}

/** The conditions of a filter: so few texts that each is prepared once. */
function conditionsOf({ order, after, since, driver, handle, all }: LedgerFilter): string[] {
  return [
    'w.workspace_id = @workspace',
    'a.ended_at IS NOT NULL',
    ...(after
      ? [`(a.ended_at, a.id) ${order === 'newest' ? '<' : '>'} (@endedAt, @attemptId)`]
      : []),
    ...(since ? ['a.ended_at >= @since'] : []),
    ...(driver ? [`w.owner_type = '${DRIVER_OWNER}' AND w.owner_id = @driver`] : []),
    ...(handle ? ['w.handle = @handle'] : []),
    ...(all ? [] : [`w.owner_type NOT IN (${OWN_WORK.map((type) => `'${type}'`).join(', ')})`]),
  ];
}

/**
 * First which attempts, then what is told of them: only the chosen are read whole. Whose work
 * it was leads to few attempts; without that they are walked in the order of their ends.
 */
function textOf(filter: LedgerFilter): string {
  const direction = filter.order === 'newest' ? 'DESC' : 'ASC';
  const order = `ORDER BY a.ended_at ${direction}, a.id ${direction}`;
  const from =
    filter.handle || filter.driver
      ? 'work_units AS w CROSS JOIN work_unit_attempts AS a'
      : 'work_unit_attempts AS a INDEXED BY idx_attempt_ended CROSS JOIN work_units AS w';
  return `SELECT ${COLUMNS} FROM (
      SELECT a.id FROM ${from} ON w.id = a.work_unit_id
      WHERE ${conditionsOf(filter).join(' AND ')} ${order} LIMIT @limit) AS chosen
    CROSS JOIN work_unit_attempts AS a ON a.id = chosen.id
    CROSS JOIN work_units AS w ON w.id = a.work_unit_id
    LEFT JOIN outcomes AS o
      ON o.work_unit_id = a.work_unit_id AND o.attempt_number = a.attempt_number
    ${order}`;
}

export type LedgerLines = ReturnType<typeof ledgerStatements>;

/** All statements of one workspace. */
export function ledgerStatements(db: Database, workspace: string) {
  const prepared = statementCache(db);
  const place = db.prepare<[string], LedgerPlace>(
    `SELECT ended_at AS endedAt, id AS attemptId FROM work_unit_attempts
     WHERE id = ? AND ended_at IS NOT NULL`,
  );
  return {
    /** Where the line of this attempt stands; null for one that has none. */
    placeOf: (attemptId: string): LedgerPlace | null => place.get(attemptId) ?? null,
    /** At most `limit` lines. */
    page: (filter: LedgerFilter): LedgerLine[] => {
      const { limit, after, since, driver, handle } = filter;
      const rows = prepared(textOf(filter)).all({
        workspace,
        limit,
        ...after,
        ...named({ since, driver, handle }),
      });
      return rows.map((row) => lineOf(rowSchema.parse(row)));
    },
  };
}

/** Only what is set: better-sqlite3 takes no name that its statement does not have. */
function named(values: Record<string, string | null | undefined>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(values).filter((entry): entry is [string, string] => Boolean(entry[1])),
  );
}
