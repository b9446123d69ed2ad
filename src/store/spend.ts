/** Statements about what work has cost: by attempt, work unit, channel and day. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import {
  type Ceiling,
  NO_CEILING,
  NOTHING_SPENT,
  type Spend,
  spendCeilingSchema,
} from '../domain/spend.ts';

const spendSchema = z.object({ microUsd: z.int(), tokens: z.int(), unpricedTokens: z.int() });
const ceilingSchema = z.object({ microUsd: z.int().nullable(), tokens: z.int().nullable() });

export type Spending = ReturnType<typeof spendStatements>;

const SUMS = `coalesce(sum(micro_usd), 0) AS microUsd, coalesce(sum(tokens), 0) AS tokens,
  coalesce(sum(unpriced_tokens), 0) AS unpricedTokens`;

/** Queued work that waits for a ceiling to be raised or a day to end. */
function waitingForMoney(db: Database, workspace: string) {
  const waiting = db.prepare<[string], { n: number }>(
    `SELECT count(*) AS n FROM work_units
     WHERE workspace_id = ? AND status = 'queued'
       AND blocked_on >= 'spend ' AND blocked_on < 'spend!'`,
  );
  const wake = db.prepare<[string]>(
    `UPDATE work_units SET blocked_on = NULL, woken_by = NULL
     WHERE workspace_id = ? AND status = 'queued'
       AND blocked_on >= 'spend ' AND blocked_on < 'spend!'`,
  );
  return {
    /** True when queued work waits for money. */
    isWaitedFor: (): boolean => (waiting.get(workspace)?.n ?? 0) > 0,
    wakeWaiting: (): void => {
      wake.run(workspace);
    },
  };
}

/** All statements of one workspace. */
export function spendStatements(db: Database, workspace: string) {
  const ofUnit = db.prepare<[string]>(
    `SELECT spent_micro_usd AS microUsd, spent_tokens AS tokens, unpriced_tokens AS unpricedTokens
     FROM work_units WHERE id = ?`,
  );
  const ofAttempt = db.prepare<[string]>(
    `SELECT spent_micro_usd AS microUsd, spent_tokens AS tokens, 0 AS unpricedTokens
     FROM work_unit_attempts WHERE id = ?`,
  );
  // Looked for as text first: a prompt may be megabytes, and most work has no ceiling of its own.
  const ownCeiling = db.prepare<[string], { ceiling: string | null }>(
    `SELECT CASE WHEN instr(request_json, '"spendCeiling"') > 0
       THEN json_extract(request_json, '$.spendCeiling') END AS ceiling
     FROM work_units WHERE id = ?`,
  );
  const ofDay = db.prepare<[string, string]>(
    `SELECT ${SUMS} FROM spend_by_day WHERE workspace_id = ? AND day = ?`,
  );
  const ofChannel = db.prepare<[string, string, string]>(
    `SELECT ${SUMS} FROM spend_by_day WHERE workspace_id = ? AND day = ? AND channel_id = ?`,
  );
  const addUnit = db.prepare<[number, number, number, string]>(
    `UPDATE work_units SET spent_micro_usd = spent_micro_usd + ?, spent_tokens = spent_tokens + ?,
       unpriced_tokens = unpriced_tokens + ? WHERE id = ?`,
  );
  const addAttempt = db.prepare<[number, number, string]>(
    `UPDATE work_unit_attempts SET spent_micro_usd = spent_micro_usd + ?,
       spent_tokens = spent_tokens + ? WHERE id = ?`,
  );
  const addDay = db.prepare<[string, string, string, number, number, number]>(
    `INSERT INTO spend_by_day (workspace_id, day, channel_id, micro_usd, tokens, unpriced_tokens)
     VALUES (?, ?, ?, ?, ?, ?)
     ON CONFLICT (workspace_id, day, channel_id) DO UPDATE SET
       micro_usd = micro_usd + excluded.micro_usd, tokens = tokens + excluded.tokens,
       unpriced_tokens = unpriced_tokens + excluded.unpriced_tokens`,
  );
  const ceiling = db.prepare<[string, string]>(
    `SELECT day_micro_usd AS microUsd, day_tokens AS tokens FROM channels
     WHERE workspace_id = ? AND id = ?`,
  );
  const setCeiling = db.prepare<[number | null, number | null, string, string]>(
    'UPDATE channels SET day_micro_usd = ?, day_tokens = ? WHERE workspace_id = ? AND id = ?',
  );
  const one = (row: unknown): Spend => (row === undefined ? NOTHING_SPENT : spendSchema.parse(row));
  return {
    /** Of all its attempts together. */
    ofWorkUnit: (id: string): Spend => one(ofUnit.get(id)),
    ofAttempt: (id: string): Spend => one(ofAttempt.get(id)),
    /** The ceiling that was asked for with the work itself. */
    ownCeiling: (id: string): z.output<typeof spendCeilingSchema> => {
      const text = ownCeiling.get(id)?.ceiling ?? null;
      return text === null ? {} : spendCeilingSchema.parse(JSON.parse(text));
    },
    /** `day` as dayOf() writes it. */
    ofDay: (day: string): Spend => one(ofDay.get(workspace, day)),
    ofChannel: (channelId: string, day: string): Spend =>
      one(ofChannel.get(workspace, day, channelId)),
    /** Must run in the transaction that stores what was spent on. */
    add: (
      where: { workUnitId: string; attemptId: string; channelId: string | null; day: string },
      { microUsd, tokens, unpricedTokens }: Spend,
    ): void => {
      addUnit.run(microUsd, tokens, unpricedTokens, where.workUnitId);
      addAttempt.run(microUsd, tokens, where.attemptId);
      addDay.run(workspace, where.day, where.channelId ?? '', microUsd, tokens, unpricedTokens);
    },
    /** A channel's ceiling for one day. */
    channelCeiling: (channelId: string): Ceiling => {
      const row = ceiling.get(workspace, channelId);
      return row === undefined ? NO_CEILING : ceilingSchema.parse(row);
    },
    setChannelCeiling: (channelId: string, { microUsd, tokens }: Ceiling): void => {
      setCeiling.run(microUsd, tokens, workspace, channelId);
    },
    ...waitingForMoney(db, workspace),
  };
}
