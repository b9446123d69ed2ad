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
  const ready = `workspace_id = ? AND state = 'active' AND census_id IS NULL AND next_at IS NOT NULL`;
  const due = db.prepare<[string, string]>(
    `${SELECT} WHERE ${ready} AND next_at <= ? ORDER BY next_at`,
  );
  const nextDue = db
    .prepare<[string], string | null>(`SELECT min(next_at) FROM drivers WHERE ${ready}`)
    .pluck();
  const one = (row: unknown): DriverRow | null => (row === undefined ? null : rowSchema.parse(row));
  const many = (rows: readonly unknown[]): DriverRow[] => rows.map((row) => rowSchema.parse(row));
  return {
    /** A removed one too. */
    get: (name: string): DriverRow | null => one(get.get(workspace, name)),
    /** All but removed ones, by name. */
    list: (): DriverRow[] => many(list.all(workspace)),
    /** Whose tick is under way; removed ones too. */
    open: (): DriverRow[] => many(open.all(workspace)),
    byCensus: (workUnitId: string): DriverRow | null => one(byCensus.get(workUnitId)),
    /** Whose tick is due at that moment, and who is not in one. */
    due: (at: string): DriverRow[] => many(due.all(workspace, at)),
    /** The earliest moment at which one is due. */
    nextDue: (): string | null => nextDue.get(workspace) ?? null,
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
