/** Statements about events: appended once, never changed. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import type { EventType } from '../domain/events.ts';
import { eventTypeSchema } from '../domain/events.ts';
import type { Actor } from '../domain/work-unit.ts';
import { ACTORS } from '../domain/work-unit.ts';

export interface NewEvent {
  readonly workUnitId: string;
  readonly attemptId: string | null;
  readonly ts: string;
  readonly type: EventType;
  readonly actor: Actor;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface EventRow extends NewEvent {
  readonly position: number;
  readonly seq: number;
}

export const eventRowSchema = z.object({
  position: z.int(),
  workUnitId: z.string(),
  attemptId: z.string().nullable(),
  seq: z.int(),
  ts: z.string(),
  type: eventTypeSchema,
  actor: z.enum(ACTORS),
  data: z.string().transform((text) => JSON.parse(text) as Record<string, unknown>),
});

const toolSchema = z.object({
  attemptId: z.string().nullable(),
  type: z.enum(['tool.start', 'tool.end']),
  data: z
    .string()
    .transform((text) => JSON.parse(text) as unknown)
    .pipe(
      z.looseObject({
        toolCallId: z.string(),
        tool: z.string(),
        arguments: z.unknown(),
        isError: z.boolean().default(false),
        result: z.string().default(''),
      }),
    ),
});
const openToolSchema = z.object({ toolCallId: z.string(), ts: z.string() });

export const EVENT_COLUMNS = `position, work_unit_id AS workUnitId, attempt_id AS attemptId, seq, ts, type,
  actor, data_json AS data`;

export type Events = ReturnType<typeof eventStatements>;

export function eventStatements(db: Database) {
  const allocate = db.prepare<[number, string], { last: number }>(
    'UPDATE work_units SET last_seq = last_seq + ? WHERE id = ? RETURNING last_seq AS last',
  );
  const insert = db.prepare<[string, string | null, number, string, string, string, string]>(
    `INSERT INTO runtime_events (work_unit_id, attempt_id, seq, ts, type, actor, data_json)
     VALUES (?, ?, ?, ?, ?, ?, ?)`,
  );
  const page = db.prepare<[string, number, number]>(
    `SELECT ${EVENT_COLUMNS} FROM runtime_events WHERE work_unit_id = ? AND seq > ? ORDER BY seq LIMIT ?`,
  );
  const openTools = db.prepare<{ workUnitId: string; attemptId: string }>(
    `SELECT json_extract(data_json, '$.toolCallId') AS toolCallId, max(ts) AS ts
     FROM runtime_events
     WHERE work_unit_id = @workUnitId AND attempt_id = @attemptId AND type IN ('tool.start', 'tool.end')
     GROUP BY toolCallId HAVING sum(CASE type WHEN 'tool.start' THEN 1 ELSE -1 END) > 0`,
  );
  const toolCalls = db.prepare<[string]>(
    `SELECT attempt_id AS attemptId, type, data_json AS data FROM runtime_events
     WHERE work_unit_id = ? AND type IN ('tool.start', 'tool.end') ORDER BY seq`,
  );
  const span = db.prepare<[string], { floor: number; last: number }>(
    'SELECT floor_seq AS floor, last_seq AS last FROM work_units WHERE id = ?',
  );
  const rangeCount = db.prepare<[number, number, number], { n: number }>(
    `SELECT count(*) AS n FROM (SELECT 1 FROM runtime_events
     WHERE position > ? AND position <= ? LIMIT ?)`,
  );
  // The counter and the stored floor, not the rows: retention removes them from the middle.
  const window = db.prepare<[], { floor: number; last: number }>(
    `SELECT floor_position AS floor, coalesce(
       (SELECT seq FROM sqlite_sequence WHERE name = 'runtime_events'), 0) AS last FROM store_state`,
  );

  return {
    /**
     * Appends events of one work unit and gives them the next sequence numbers.
     * Must run inside a write transaction: the number and the row belong together.
     */
    append: (workUnitId: string, events: readonly NewEvent[]): EventRow[] => {
      if (events.length === 0) return [];
      const last = allocate.get(events.length, workUnitId)?.last;
      if (last === undefined) throw new Error(`no work unit ${workUnitId} to append events to`);
      return events.map((event, index) => {
        const seq = last - events.length + 1 + index;
        const { lastInsertRowid } = insert.run(
          workUnitId,
          event.attemptId,
          seq,
          event.ts,
          event.type,
          event.actor,
          JSON.stringify(event.data),
        );
        return { ...event, seq, position: Number(lastInsertRowid) };
      });
    },
    /** Events after `afterSeq`, in order, at most `limit`. */
    page: (workUnitId: string, afterSeq: number, limit: number): EventRow[] =>
      page.all(workUnitId, afterSeq, limit).map((row) => eventRowSchema.parse(row)),
    /** Tool calls of an attempt that began and did not end, with the time they began. */
    openToolCalls: (workUnitId: string, attemptId: string): { toolCallId: string; ts: string }[] =>
      openTools.all({ workUnitId, attemptId }).map((row) => openToolSchema.parse(row)),
    /** Beginnings and ends of all tool calls of a work unit, in their order. */
    toolCalls: (workUnitId: string) =>
      toolCalls.all(workUnitId).flatMap((row) => {
        const call = toolSchema.safeParse(row);
        return call.success ? [call.data] : [];
      }),
    /** How many there are in (after, upTo]; does not count beyond `limit`. */
    rangeCount: (after: number, upTo: number, limit: number): number =>
      rangeCount.get(after, upTo, limit)?.n ?? 0,
    /**
     * Positions of the whole workspace: `last` is the newest that was given out, `floor`
     * the oldest cursor whose followers are all kept.
     */
    window: (): { floor: number; last: number } => window.get() ?? { floor: 0, last: 0 },
    /** The same for the sequence numbers of one work unit. */
    span: (workUnitId: string): { floor: number; last: number } =>
      span.get(workUnitId) ?? { floor: 0, last: 0 },
  };
}
