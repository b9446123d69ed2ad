/** Statements about drivers and their ticks. Rows are parsed on the way out. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import {
  DRIVER_SOURCES,
  DRIVER_STATES,
  type DriverSource,
  type DriverSpec,
  driverSpecSchema,
  type TickReport,
  tickReportSchema,
} from '../domain/driver.ts';
import { OutliveError } from '../domain/errors.ts';
import { guardStatements } from './driver-guard.ts';

const json = <Schema extends z.ZodType>(schema: Schema) =>
  z
    .string()
    .transform((text) => JSON.parse(text) as unknown)
    .pipe(schema);

const rowSchema = z.object({
  name: z.string(),
  source: z.enum(DRIVER_SOURCES),
  state: z.enum(DRIVER_STATES),
  spec: json(driverSpecSchema),
  revision: z.int(),
  /** Of the tick that began last; 0 before the first. */
  tick: z.int(),
  /** The census of the tick that is under way; null between two. */
  censusId: z.string().nullable(),
  tickAt: z.string().nullable(),
  nextAt: z.string().nullable(),
  failures: z.int(),
  /** Of the last tick that ended. */
  report: json(tickReportSchema).nullable(),
  createdAt: z.string(),
  updatedAt: z.string(),
});
export type DriverRow = z.output<typeof rowSchema>;

const headSchema = rowSchema.pick({ name: true, source: true, state: true });
type DriverHead = z.output<typeof headSchema>;

const SELECT = `SELECT name, source, state, spec_json AS spec, revision, tick,
  census_id AS censusId, tick_at AS tickAt, next_at AS nextAt, failures, report_json AS report,
  created_at AS createdAt, updated_at AS updatedAt FROM drivers`;

export interface PutDriver {
  readonly name: string;
  readonly source: DriverSource;
  readonly spec: DriverSpec;
  /** Null: only by request. */
  readonly nextAt: string | null;
  readonly at: string;
}

/** How a tick ended. */
export interface TickDone {
  /** As it was seen: of the tick that is under way, or none for one that could not begin. */
  readonly row: Pick<DriverRow, 'name' | 'tick' | 'censusId'>;
  readonly report: TickReport;
  readonly failures: number;
  readonly nextAt: string | null;
  readonly at: string;
}

export type Drivers = ReturnType<typeof driverStatements>;

function reads(db: Database, workspace: string) {
  const get = db.prepare<[string, string]>(`${SELECT} WHERE workspace_id = ? AND name = ?`);
  const list = db.prepare<[string]>(
    `${SELECT} WHERE workspace_id = ? AND state <> 'removed' ORDER BY name`,
  );
  const open = db.prepare<[string]>(
    `${SELECT} WHERE workspace_id = ? AND census_id IS NOT NULL ORDER BY name`,
  );
  const byCensus = db.prepare<[string]>(`${SELECT} WHERE census_id = ?`);
  const ready = db.prepare<[string]>(
    `${SELECT} WHERE workspace_id = ? AND state = 'active' AND census_id IS NULL
       AND next_at IS NOT NULL ORDER BY next_at`,
  );
  const head = db.prepare<[string, string], unknown>(
    'SELECT name, source, state FROM drivers WHERE workspace_id = ? AND name = ?',
  );
  const names = db.prepare<[string]>(`${SELECT} WHERE workspace_id = ? AND state <> 'removed'`);
  const parsed = (row: unknown): DriverRow | null => rowSchema.safeParse(row).data ?? null;
  const many = (rows: readonly unknown[]): DriverRow[] =>
    rows.map(parsed).filter((row) => row !== null);
  return {
    /** A removed one too. @throws OutliveError `state_conflict` for one that this build cannot read. */
    get: (name: string): DriverRow | null => {
      const row = get.get(workspace, name);
      if (row === undefined) return null;
      const known = parsed(row);
      if (known) return known;
      throw new OutliveError(
        'state_conflict',
        `The driver "${name}" was stored by another outlive, which knew other fields. Remove it and make it again.`,
      );
    },
    /** What can be told of any, removed or unreadable. */
    head: (name: string): DriverHead | null => {
      const row = head.get(workspace, name);
      return row === undefined ? null : headSchema.parse(row);
    },
    /** All that can be read, but removed ones; by name. */
    list: (): DriverRow[] => many(list.all(workspace)),
    /** Names of those that cannot be read. */
    unreadable: (): string[] =>
      names
        .all(workspace)
        .filter((row) => parsed(row) === null)
        .map((row) => headSchema.parse(row).name),
    /** Whose tick is under way. */
    open: (): DriverRow[] => many(open.all(workspace)),
    byCensus: (workUnitId: string): DriverRow | null => {
      const row = byCensus.get(workUnitId);
      return row === undefined ? null : parsed(row);
    },
    /** Who ticks by the clock and is not in a tick; who is due first comes first. */
    ready: (): DriverRow[] => many(ready.all(workspace)),
  };
}

function writes(db: Database, workspace: string) {
  const put = db.prepare<Record<string, string | null>>(`INSERT INTO drivers
    (workspace_id, name, source, state, spec_json, revision, next_at, created_at, updated_at)
    VALUES (@workspace, @name, @source, 'active', @spec, 1, @nextAt, @at, @at)
    ON CONFLICT (workspace_id, name) DO UPDATE SET source = excluded.source,
      spec_json = excluded.spec_json, revision = revision + 1, next_at = excluded.next_at,
      failures = 0, census_id = NULL, tick_at = NULL,
      state = iif(state = 'paused', 'paused', 'active'), updated_at = excluded.updated_at`);
  const setState = db.prepare<Record<string, string | null>>(
    `UPDATE drivers SET state = @state, updated_at = @at,
       census_id = iif(@state = 'removed', NULL, census_id),
       tick_at = iif(@state = 'removed', NULL, tick_at)
     WHERE workspace_id = @workspace AND name = @name`,
  );
  const begin = db.prepare<Record<string, string | number | null>>(`UPDATE drivers
    SET tick = tick + 1, census_id = @censusId, tick_at = @at
    WHERE workspace_id = @workspace AND name = @name AND tick = @tick AND census_id IS NULL
      AND state = 'active'`);
  const finish = db.prepare<Record<string, string | number | null>>(`UPDATE drivers
    SET tick = @reported, census_id = NULL, tick_at = NULL, failures = @failures,
      next_at = @nextAt, report_json = @report
    WHERE workspace_id = @workspace AND name = @name AND tick = @tick AND census_id IS @censusId`);
  return {
    /** New, or another spec under the name: what a tick under way finds is nobody's then. One that is paused stays so. */
    put: ({ spec, ...row }: PutDriver): void => {
      put.run({ workspace, ...row, spec: JSON.stringify(spec) });
    },
    /** Nothing comes any more of the tick of one that is removed. */
    setState: (name: string, state: DriverRow['state'], at: string): void => {
      setState.run({ workspace, name, state, at });
    },
    /** The next tick, with its census. @returns false when another began, or it may not. */
    begin: (row: Pick<DriverRow, 'name' | 'tick'>, censusId: string, at: string): boolean =>
      begin.run({ workspace, name: row.name, tick: row.tick, censusId, at }).changes === 1,
    /** @returns false when it was ended before. */
    finish: ({ row, report, failures, nextAt }: TickDone): boolean =>
      finish.run({
        ...{ workspace, name: row.name, tick: row.tick, censusId: row.censusId },
        ...{ reported: report.tick, failures, nextAt, report: JSON.stringify(report) },
      }).changes === 1,
  };
}

export function driverStatements(db: Database, workspace: string) {
  return { ...reads(db, workspace), ...writes(db, workspace), ...guardStatements(db, workspace) };
}
