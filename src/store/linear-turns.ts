/** Statements about Linear's agent sessions and the turns that answer them. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { statementCache } from './statement-cache.ts';

export const TURN_STATES = [
  'held',
  'pending',
  'running',
  'awaiting_activity',
  'done',
  'failed',
  'interrupted',
  'stopped',
] as const;
export type TurnState = (typeof TURN_STATES)[number];
export const TURN_KINDS = ['created', 'prompted', 'continuation'] as const;

const bool = z.int().transform((value) => value === 1);
const sessionSchema = z.object({
  id: z.string(),
  organizationId: z.string(),
  channelKey: z.string(),
  issueId: z.string().nullable(),
  identifier: z.string().nullable(),
  title: z.string().nullable(),
  url: z.string().nullable(),
  teamId: z.string().nullable(),
  creatorId: z.string().nullable(),
  known: bool,
  own: bool,
  stoppedAt: z.string().nullable(),
  workTree: z.string().nullable(),
  firstActivityAt: z.string().nullable(),
  lastActivityAt: z.string().nullable(),
  createdAt: z.string(),
});
/** A thread of Linear's: one agent session. */
export type LinearSessionRow = z.output<typeof sessionSchema>;

const turnSchema = z.object({
  id: z.string(),
  sessionId: z.string(),
  channelKey: z.string(),
  sourceKey: z.string(),
  kind: z.enum(TURN_KINDS),
  state: z.enum(TURN_STATES),
  prompt: z.string(),
  workUnitId: z.string().nullable(),
  interruptedBy: z.string().nullable(),
  /** Somebody stopped it while it ran. */
  stopped: bool,
  /** By Linear's clock. */
  saidAt: z.string().nullable(),
  terminalId: z.string().nullable(),
  createdAt: z.string(),
  startedAt: z.string().nullable(),
  endedAt: z.string().nullable(),
});
/** One answer of the agent: from a prompt to its terminal activity. */
export type LinearTurnRow = z.output<typeof turnSchema>;

const SESSION = `id, organization_id AS organizationId, channel_key AS channelKey,
  issue_id AS issueId, identifier, title, url, team_id AS teamId, creator_id AS creatorId, known,
  own, stopped_at AS stoppedAt, work_tree AS workTree, first_activity_at AS firstActivityAt,
  last_activity_at AS lastActivityAt, created_at AS createdAt`;
const TURN = `id, session_id AS sessionId, channel_key AS channelKey, source_key AS sourceKey, kind,
  state, prompt, work_unit_id AS workUnitId, interrupted_by AS interruptedBy, stopped, said_at AS saidAt,
  terminal_id AS terminalId, created_at AS createdAt, started_at AS startedAt, ended_at AS endedAt`;

/** What is known of a session; fields that are absent stay as they are. */
export interface SessionFacts {
  readonly id: string;
  readonly organizationId: string;
  readonly channelKey: string;
  readonly issueId: string | null;
  readonly identifier: string | null;
  readonly title: string | null;
  readonly url: string | null;
  readonly teamId: string | null;
  readonly creatorId: string | null;
  readonly known: boolean;
  readonly own: boolean;
}

export interface NewTurn {
  readonly id: string;
  readonly sessionId: string;
  readonly channelKey: string;
  readonly sourceKey: string;
  readonly kind: LinearTurnRow['kind'];
  readonly state: TurnState;
  readonly prompt: string;
  /** When a person said it, by Linear's clock, ISO 8601. */
  readonly saidAt?: string | null;
}

export interface TurnPatch {
  readonly state?: TurnState;
  readonly prompt?: string;
  readonly channelKey?: string;
  readonly workUnitId?: string;
  readonly interruptedBy?: string;
  readonly stopped?: 1;
  readonly terminalId?: string;
  readonly startedAt?: string;
  readonly endedAt?: string;
}

const TURN_COLUMNS: Readonly<Record<keyof TurnPatch, string>> = {
  state: 'state',
  prompt: 'prompt',
  channelKey: 'channel_key',
  workUnitId: 'work_unit_id',
  interruptedBy: 'interrupted_by',
  stopped: 'stopped',
  terminalId: 'terminal_id',
  startedAt: 'started_at',
  endedAt: 'ended_at',
};

export type LinearTurns = ReturnType<typeof linearTurnStatements>;

function sessions(db: Database, workspace: string) {
  const byId = db.prepare<[string]>(`SELECT ${SESSION} FROM linear_sessions WHERE id = ?`);
  const upsert = db.prepare<Record<string, unknown>>(`INSERT INTO linear_sessions
    (id, workspace_id, organization_id, channel_key, issue_id, identifier, title, url, team_id,
     creator_id, known, own, created_at, updated_at)
    VALUES (@id, @workspace, @organizationId, @channelKey, @issueId, @identifier, @title, @url,
     @teamId, @creatorId, @known, @own, @at, @at)
    ON CONFLICT (id) DO UPDATE SET channel_key = @channelKey,
      issue_id = coalesce(@issueId, issue_id), identifier = coalesce(@identifier, identifier),
      title = coalesce(@title, title), url = coalesce(@url, url),
      team_id = coalesce(@teamId, team_id), creator_id = coalesce(@creatorId, creator_id),
      known = max(known, @known), own = max(own, @own), updated_at = @at`);
  const stop = db.prepare<[string | null, string, string]>(
    'UPDATE linear_sessions SET stopped_at = ?, updated_at = ? WHERE id = ?',
  );
  const tree = db.prepare<[string | null, string]>(
    'UPDATE linear_sessions SET work_tree = ? WHERE id = ?',
  );
  const spoke = db.prepare<[string, string, string]>(`UPDATE linear_sessions
    SET first_activity_at = coalesce(first_activity_at, ?), last_activity_at = ? WHERE id = ?`);
  const list = db.prepare<[string]>(
    `SELECT ${SESSION} FROM linear_sessions WHERE workspace_id = ? ORDER BY created_at, id`,
  );
  const parse = (row: unknown): LinearSessionRow | null =>
    row === undefined ? null : sessionSchema.parse(row);
  return {
    session: (id: string): LinearSessionRow | null => parse(byId.get(id)),
    listSessions: (): LinearSessionRow[] =>
      list.all(workspace).map((row) => sessionSchema.parse(row)),
    /** Makes the session, or learns more of it. */
    putSession: ({ known, own, ...facts }: SessionFacts, at: string): void => {
      upsert.run({ ...facts, workspace, known: known ? 1 : 0, own: own ? 1 : 0, at });
    },
    /** Null takes the tombstone away: somebody has spoken again. */
    setStopped: (id: string, stoppedAt: string | null, at: string): void => {
      stop.run(stoppedAt, at, id);
    },
    setWorkTree: (id: string, place: string | null): void => {
      tree.run(place, id);
    },
    /** Something was posted. */
    spoke: (id: string, at: string): void => {
      spoke.run(at, at, id);
    },
  };
}

const OPEN = `state IN ('held', 'pending', 'running', 'awaiting_activity')`;

/** All statements of one workspace. */
export function linearTurnStatements(db: Database, workspace: string) {
  const prepared = statementCache(db);
  // In the order they were made: ids of one millisecond, or of a clock that was set back, are not.
  const query = (where: string, index = '') =>
    db.prepare<unknown[]>(
      `SELECT ${TURN} FROM linear_turns ${index} WHERE ${where} ORDER BY rowid`,
    );
  const byId = query('id = ?');
  const bySource = query('workspace_id = ? AND source_key = ?');
  const byWork = query('work_unit_id = ?');
  const ofChannel = query(`workspace_id = ? AND channel_key = ? AND ${OPEN}`);
  const ofSession = query('session_id = ?');
  const allOpen = query(`workspace_id = ? AND ${OPEN}`, 'INDEXED BY idx_linear_turns_open');
  const insert = db.prepare<
    NewTurn & { workspace: string; at: string; saidAt: string | null }
  >(`INSERT OR IGNORE
    INTO linear_turns (id, workspace_id, session_id, channel_key, source_key, kind, state, prompt,
      said_at, created_at)
    VALUES (@id, @workspace, @sessionId, @channelKey, @sourceKey, @kind, @state, @prompt,
      @saidAt, @at)`);
  // What a session began with stays: a conversation that is lost begins anew from it.
  const drop = db.prepare<Record<string, string | number>>(`DELETE FROM linear_turns WHERE id IN (
    SELECT id FROM linear_turns AS old WHERE workspace_id = @workspace AND kind <> 'created'
      AND created_at < @before AND NOT EXISTS (SELECT 1 FROM linear_turns AS later
        WHERE later.session_id = old.session_id
          AND (later.${OPEN} OR later.created_at >= @before OR later.ended_at >= @before))
    LIMIT @limit)`);
  const one = (row: unknown): LinearTurnRow | null =>
    row === undefined ? null : turnSchema.parse(row);
  const many = (rows: readonly unknown[]): LinearTurnRow[] =>
    rows.map((row) => turnSchema.parse(row));
  return {
    ...sessions(db, workspace),
    turn: (id: string): LinearTurnRow | null => one(byId.get(id)),
    turnOfSource: (sourceKey: string): LinearTurnRow | null =>
      one(bySource.get(workspace, sourceKey)),
    turnOfWork: (workUnitId: string): LinearTurnRow | null => one(byWork.get(workUnitId)),
    /** Turns of an issue that are not over, oldest first. */
    openOfChannel: (channelKey: string): LinearTurnRow[] =>
      many(ofChannel.all(workspace, channelKey)),
    turnsOfSession: (sessionId: string): LinearTurnRow[] => many(ofSession.all(sessionId)),
    openTurns: (): LinearTurnRow[] => many(allOpen.all(workspace)),
    /** Removes turns of sessions in which nothing has happened since, at most `limit`. @returns how many. */
    drop: (before: string, limit: number): number => drop.run({ workspace, before, limit }).changes,
    /** @returns false when this source has made a turn before. */
    insertTurn: (turn: NewTurn, at: string): boolean =>
      insert.run({ saidAt: null, ...turn, workspace, at }).changes === 1,
    /** Compare-and-set on the state; false when it is another one by now. */
    moveTurn: (expected: Pick<LinearTurnRow, 'id' | 'state'>, patch: TurnPatch): boolean => {
      const keys = (Object.keys(patch) as (keyof TurnPatch)[]).filter(
        (key) => patch[key] !== undefined,
      );
      const sets = keys.map((key) => `${TURN_COLUMNS[key]} = @${key}`).join(', ');
      const values = Object.fromEntries(keys.map((key) => [key, patch[key]]));
      const { changes } = prepared(
        `UPDATE linear_turns SET ${sets} WHERE id = @id AND state = @from`,
      ).run({ ...values, id: expected.id, from: expected.state });
      return changes === 1;
    },
  };
}
