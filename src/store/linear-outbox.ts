/**
 * Statements about what is to be told to Linear.
 *
 * Rows go out by lane: the activities of a session are one, what changes the session or its
 * issue is another, so that a plan which cannot be stored holds no answer up. Within a lane
 * only the first pending row may go.
 */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';

export const OUTBOX_KINDS = ['activity', 'session', 'issue'] as const;
export type OutboxKind = (typeof OUTBOX_KINDS)[number];

const OUTBOX_STATES = ['pending', 'delivered', 'failed', 'expired', 'dropped'] as const;

const flag = z.int().transform((value) => value === 1);
const rowSchema = z.object({
  seq: z.int(),
  id: z.string(),
  sessionId: z.string(),
  turnId: z.string().nullable(),
  kind: z.enum(OUTBOX_KINDS),
  ephemeral: flag,
  terminal: flag,
  priority: z.int(),
  body: z.string().transform((text) => JSON.parse(text) as unknown),
  state: z.enum(OUTBOX_STATES),
  tries: z.int(),
  notBefore: z.string().nullable(),
  expiresAt: z.string(),
  createdAt: z.string(),
  sentAt: z.string().nullable(),
  errorCode: z.string().nullable(),
  errorMessage: z.string().nullable(),
});
export type OutboxRow = z.output<typeof rowSchema>;

const COLUMNS = `seq, id, session_id AS sessionId, turn_id AS turnId, kind, ephemeral, terminal,
  priority, body_json AS body, state, tries, not_before AS notBefore, expires_at AS expiresAt,
  created_at AS createdAt, sent_at AS sentAt, error_code AS errorCode,
  error_message AS errorMessage`;

const headSchema = z.object({
  lane: z.string(),
  seq: z.int(),
  /** The most urgent of what waits in the lane: the first row is in its way. */
  urgency: z.int(),
  waiting: z.int(),
  notBefore: z.string().nullable(),
});
export type OutboxHead = z.output<typeof headSchema>;

/** How the facts begin that hold how far a turn was told. */
export const CURSOR_PREFIX = 'narration ';

const LANE = `session_id || CASE kind WHEN 'activity' THEN '/said' ELSE '/changed' END`;

export interface NewOutboxRow {
  /** UUID v4; of an activity the one that Linear is given. */
  readonly id: string;
  readonly sessionId: string;
  readonly turnId: string | null;
  readonly kind: OutboxKind;
  readonly ephemeral: boolean;
  readonly priority: 0 | 1 | 2;
  readonly body: unknown;
  readonly expiresAt: string;
  readonly at: string;
}

const turnSchema = z.object({
  id: z.string(),
  sessionId: z.string(),
  workUnitId: z.string().nullable(),
  interruptedBy: z.string().nullable(),
  terminalId: z.string().nullable(),
});
/** What the outbox has to know of a turn. */
export type OutboxTurn = z.output<typeof turnSchema>;

export type LinearOutbox = ReturnType<typeof linearOutboxStatements>;

function reads(db: Database, workspace: string) {
  const byId = db.prepare<[string]>(`SELECT ${COLUMNS} FROM linear_outbox WHERE id = ?`);
  const bySeq = db.prepare<[number]>(`SELECT ${COLUMNS} FROM linear_outbox WHERE seq = ?`);
  const heads = db.prepare<[string]>(
    `SELECT first.lane, first.seq, first.urgency, first.waiting, row.not_before AS notBefore
     FROM (SELECT ${LANE} AS lane, min(seq) AS seq, min(priority) AS urgency, count(*) AS waiting
           FROM linear_outbox WHERE workspace_id = ? AND state = 'pending' GROUP BY 1) AS first
     JOIN linear_outbox AS row ON row.seq = first.seq
     ORDER BY first.urgency, first.seq`,
  );
  const backlog = db.prepare<[string, string], { n: number }>(
    `SELECT count(*) AS n FROM linear_outbox
     WHERE workspace_id = ? AND session_id = ? AND state = 'pending' AND kind = 'activity'`,
  );
  const counts = db.prepare<[string], { state: string; n: number; oldest: string }>(
    `SELECT state, count(*) AS n, min(created_at) AS oldest FROM linear_outbox
     WHERE workspace_id = ? GROUP BY state`,
  );
  const lastActivity = db.prepare<{ sessionId: string }>(
    `SELECT max(at) AS at FROM (
       SELECT max(coalesce(sent_at, created_at)) AS at FROM linear_outbox
         WHERE session_id = @sessionId AND kind = 'activity' AND state IN ('pending', 'delivered')
       UNION ALL SELECT last_activity_at FROM linear_sessions WHERE id = @sessionId)`,
  );
  const lastType = db.prepare<[string]>(
    `SELECT json_extract(body_json, '$.content.type') AS type FROM linear_outbox
     WHERE session_id = ? AND kind = 'activity' AND state IN ('pending', 'delivered')
     ORDER BY seq DESC LIMIT 1`,
  );
  const terminal = db.prepare<[string]>(
    `SELECT ${COLUMNS} FROM linear_outbox
     WHERE id = (SELECT terminal_id FROM linear_turns WHERE id = ?)`,
  );
  const turn = db.prepare<[string]>(
    `SELECT id, session_id AS sessionId, work_unit_id AS workUnitId,
       interrupted_by AS interruptedBy, terminal_id AS terminalId FROM linear_turns WHERE id = ?`,
  );
  const said = db.prepare<[string, string | null, string | null], { n: number }>(
    `SELECT count(*) AS n FROM linear_outbox WHERE session_id = ? AND kind = 'activity'
       AND state IN ('pending', 'delivered') AND (? IS NULL OR turn_id = ?)`,
  );
  const linked = db.prepare<[string, string], { n: number }>(
    `SELECT count(*) AS n FROM linear_outbox WHERE session_id = ? AND kind = 'session'
       AND state IN ('pending', 'delivered') AND instr(body_json, ?) > 0`,
  );
  const one = (row: unknown): OutboxRow | null => (row === undefined ? null : rowSchema.parse(row));
  return {
    get: (id: string): OutboxRow | null => one(byId.get(id)),
    getBySeq: (seq: number): OutboxRow | null => one(bySeq.get(seq)),
    /** The first pending row of every lane, most urgent first, then oldest. */
    heads: (): OutboxHead[] => heads.all(workspace).map((row) => headSchema.parse(row)),
    /** Activities of a session that wait. */
    backlog: (sessionId: string): number => backlog.get(workspace, sessionId)?.n ?? 0,
    counts: (): { state: string; n: number; oldest: string }[] => counts.all(workspace),
    /** When something was last told in a session, or was stored to be; null for never. */
    lastActivity: (sessionId: string): string | null =>
      (lastActivity.get({ sessionId }) as { at: string | null } | undefined)?.at ?? null,
    /** The type of what was said last in a session, or is to be; null before anything was. */
    lastType: (sessionId: string): string | null =>
      (lastType.get(sessionId) as { type: string } | undefined)?.type ?? null,
    /** The one terminal of a turn, whatever became of it; null while it has none. */
    terminalOf: (turnId: string): OutboxRow | null => one(terminal.get(turnId)),
    turn: (id: string): OutboxTurn | null => {
      const row = turn.get(id);
      return row === undefined ? null : turnSchema.parse(row);
    },
    /** Whether the session has this link, or is to have it. */
    hasLink: (sessionId: string, url: string): boolean =>
      (linked.get(sessionId, JSON.stringify({ url }).slice(1, -1))?.n ?? 0) > 0,
    /** Whether anything was said in the session, or in this turn of it, or is to be. */
    hasSpoken: (sessionId: string, turnId: string | null): boolean =>
      (said.get(sessionId, turnId, turnId)?.n ?? 0) > 0,
  };
}

function adds(db: Database, workspace: string) {
  // Nothing of a turn is said after its last word, nor once another turn took its place.
  const insert = db.prepare(
    `INSERT INTO linear_outbox (id, workspace_id, session_id, turn_id, kind, ephemeral, terminal,
       priority, body_json, state, expires_at, created_at)
     SELECT @id, @workspace, @sessionId, @turnId, @kind, @ephemeral, @terminal, @priority,
       @bodyJson, 'pending', @expiresAt, @at
     WHERE @terminal = 1 OR @kind <> 'activity' OR NOT EXISTS (SELECT 1 FROM linear_turns
       WHERE id = @turnId AND (terminal_id IS NOT NULL OR interrupted_by IS NOT NULL))`,
  );
  const claimTerminal = db.prepare(
    `UPDATE linear_turns SET terminal_id = @id
     WHERE id = @turnId AND terminal_id IS NULL AND interrupted_by IS NULL`,
  );
  const replaceTerminal = db.prepare(
    'UPDATE linear_turns SET terminal_id = @id WHERE id = @turnId AND terminal_id = @replaced',
  );
  const dropOfTurn = db.prepare<[string]>(
    `UPDATE linear_outbox SET state = 'dropped'
     WHERE turn_id = ? AND state = 'pending' AND kind = 'activity' AND terminal = 0`,
  );
  const dropPassing = db.prepare<[string]>(
    `UPDATE linear_outbox SET state = 'dropped'
     WHERE turn_id = ? AND state = 'pending' AND kind = 'activity' AND ephemeral = 1`,
  );
  const values = ({ body, ephemeral, ...row }: NewOutboxRow, terminal: 0 | 1) => ({
    ...row,
    workspace,
    terminal,
    ephemeral: ephemeral ? 1 : 0,
    bodyJson: JSON.stringify(body),
  });
  return {
    /** @returns false when its turn has had its last word: then nothing is stored. */
    enqueue: (row: NewOutboxRow): boolean => insert.run(values(row, 0)).changes === 1,
    /**
     * The one last word of a turn. What waits before it still goes out, in order, but for what
     * only says that work is under way. Must run in a write transaction. @returns false when it has one, or another turn took its place.
     */
    enqueueTerminal: (row: NewOutboxRow & { readonly turnId: string }): boolean => {
      const { id, turnId } = row;
      if (claimTerminal.run({ id, turnId }).changes === 0) return false;
      dropPassing.run(turnId);
      insert.run(values(row, 1));
      return true;
    },
    /** Another last word in the place of one that was refused. Must run in a write transaction. */
    replaceTerminal: (row: NewOutboxRow & { readonly turnId: string }, replaced: string): void => {
      const { id, turnId } = row;
      if (replaceTerminal.run({ id, turnId, replaced }).changes === 0) return;
      insert.run(values(row, 1));
    },
    /** What of a turn still waits and is not its last word. @returns how many were dropped. */
    dropOfTurn: (turnId: string): number => dropOfTurn.run(turnId).changes,
  };
}

function drops(db: Database, workspace: string) {
  const progress = db.prepare<[string, string]>(
    `UPDATE linear_outbox SET state = 'dropped' WHERE workspace_id = ? AND session_id = ?
       AND state = 'pending' AND kind = 'activity' AND terminal = 0`,
  );
  const overtaken = db.prepare<[string, string | null, string | null]>(
    `UPDATE linear_outbox SET state = 'dropped'
     WHERE workspace_id = ? AND state = 'pending' AND ephemeral = 1 AND kind = 'activity'
       AND (? IS NULL OR session_id = ?)
       AND EXISTS (SELECT 1 FROM linear_outbox AS later
         WHERE later.session_id = linear_outbox.session_id AND later.seq > linear_outbox.seq
           AND later.kind = 'activity' AND later.state IN ('pending', 'delivered'))`,
  );
  const plans = db.prepare<[string]>(
    `UPDATE linear_outbox SET state = 'dropped'
     WHERE session_id = ? AND state = 'pending' AND kind = 'session' AND ephemeral = 1`,
  );
  const settled = db.prepare<[string, string, number]>(
    `DELETE FROM linear_outbox WHERE seq IN (SELECT seq FROM linear_outbox
       WHERE workspace_id = ? AND state <> 'pending' AND created_at <= ? ORDER BY seq LIMIT ?)`,
  );
  const cursors = db.prepare(
    `DELETE FROM linear_facts WHERE workspace_id = @workspace AND updated_at <= @before
       AND substr(name, 1, length(@prefix)) = @prefix`,
  );
  return {
    /** Everything of a session that waits and is no last word. @returns how many were dropped. */
    dropProgress: (sessionId: string): number => progress.run(workspace, sessionId).changes,
    /** Passing activities that a later one of their session has overtaken; of one session or of all. */
    dropOvertaken: (sessionId: string | null = null): number =>
      overtaken.run(workspace, sessionId, sessionId).changes,
    /** Plans of a session that wait: a later one replaces them whole. */
    dropPlans: (sessionId: string): number => plans.run(sessionId).changes,
    /** Removes rows that were settled and made before. @returns how many, at most `limit`. */
    dropSettled: (before: string, limit: number): number =>
      settled.run(workspace, before, limit).changes,
    /** Removes the cursors of turns that nothing was told of since. @returns how many. */
    dropCursors: (before: string): number =>
      cursors.run({ workspace, before, prefix: CURSOR_PREFIX }).changes,
  };
}

function outcomes(db: Database, workspace: string) {
  // Given up while it was on its way: it arrived all the same.
  const delivered = db.prepare(
    `UPDATE linear_outbox SET state = 'delivered', sent_at = @at, tries = tries + 1,
       error_code = NULL, error_message = NULL
     WHERE seq = @seq AND state IN ('pending', 'dropped', 'expired')`,
  );
  const spoken = db.prepare(
    `UPDATE linear_sessions SET last_activity_at = @at, updated_at = @at,
       first_activity_at = coalesce(first_activity_at, @at)
     WHERE id = (SELECT session_id FROM linear_outbox WHERE seq = @seq AND kind = 'activity')`,
  );
  const failed = db.prepare(
    `UPDATE linear_outbox SET state = 'failed', tries = tries + 1, error_code = @code,
       error_message = @message WHERE seq = @seq AND state IN ('pending', 'dropped')`,
  );
  const later = db.prepare(
    `UPDATE linear_outbox SET tries = tries + 1, not_before = @notBefore, error_code = @code,
       error_message = @message WHERE seq = @seq AND state = 'pending'`,
  );
  const expire = db.prepare<[string, string]>(
    `UPDATE linear_outbox SET state = 'expired'
     WHERE workspace_id = ? AND state = 'pending' AND expires_at <= ? RETURNING seq`,
  );
  const nextExpiry = db.prepare<[string], { at: string | null }>(
    `SELECT min(expires_at) AS at FROM linear_outbox WHERE workspace_id = ? AND state = 'pending'`,
  );
  return {
    /** When the next row is given up, null when none waits. */
    nextExpiry: (): string | null => nextExpiry.get(workspace)?.at ?? null,
    delivered: (seq: number, at: string): void => {
      delivered.run({ seq, at });
      spoken.run({ seq, at });
    },
    failed: (seq: number, code: string, message: string): void => {
      failed.run({ seq, code, message });
    },
    /** It is tried again, not before `notBefore`. */
    later: (seq: number, notBefore: string, code: string, message: string): void => {
      later.run({ seq, notBefore, code, message });
    },
    /** Gives up what waited too long. @returns which, by `seq`. */
    expire: (now: string): number[] =>
      expire.all(workspace, now).map((row) => (row as { seq: number }).seq),
  };
}

/** All statements of one workspace's outbox. */
export function linearOutboxStatements(db: Database, workspace: string) {
  return {
    ...reads(db, workspace),
    ...adds(db, workspace),
    ...drops(db, workspace),
    ...outcomes(db, workspace),
  };
}
