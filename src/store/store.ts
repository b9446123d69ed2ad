/** The store as the supervisor sees it: statements in groups, and one way to write. */
import { OutliveError } from '../domain/errors.ts';
import type { Attempts } from './attempts.ts';
import { attemptStatements } from './attempts.ts';
import { type Channels, channelStatements } from './channels.ts';
import { type Diagnostics, diagnosticStatements } from './diagnostics.ts';
import type { Events } from './events.ts';
import { eventStatements } from './events.ts';
import { openDatabase, storeError } from './open.ts';
import { type Queue, queueStatements } from './queue.ts';
import { type Resources, resourceStatements } from './resources.ts';
import type { WorkUnits } from './work-units.ts';
import { workUnitStatements } from './work-units.ts';

export interface RuntimeInstance {
  readonly id: string;
  readonly pid: number;
  readonly version: string;
  readonly startedAt: string;
}

export interface Store {
  readonly file: string;
  readonly schemaVersion: number;
  readonly workUnits: WorkUnits;
  readonly attempts: Attempts;
  readonly events: Events;
  readonly resources: Resources;
  readonly queue: Queue;
  readonly channels: Channels;
  readonly diagnostics: Diagnostics;
  /**
   * Runs `work` in one `BEGIN IMMEDIATE` transaction: all of it or nothing.
   * @throws OutliveError for what SQLite says; whatever `work` throws passes through.
   */
  write<Result>(work: () => Result): Result;
  recordInstance(instance: RuntimeInstance): void;
  saveReport(instanceId: string, report: unknown): void;
  /** A read that touches the disk's pages; used by health checks. */
  probe(): void;
  close(): void;
}

/** Opens the store of a workspace. @throws OutliveError, see openDatabase. */
export function openStore(directory: string, workspace: string, at: string): Store {
  const { db, file, schemaVersion } = openDatabase(directory, at);
  const instance = db.prepare<RuntimeInstance>(
    `INSERT INTO runtime_instances (id, pid, version, started_at) VALUES (@id, @pid, @version, @startedAt)`,
  );
  const report = db.prepare<[string, string]>(
    'UPDATE runtime_instances SET report_json = ? WHERE id = ?',
  );
  const probe = db.prepare('SELECT count(*) FROM migrations');
  return {
    file,
    schemaVersion,
    workUnits: workUnitStatements(db, workspace),
    attempts: attemptStatements(db, workspace),
    events: eventStatements(db),
    resources: resourceStatements(db, workspace),
    queue: queueStatements(db, workspace),
    channels: channelStatements(db, workspace),
    diagnostics: diagnosticStatements(db, workspace),
    write: (work) => {
      try {
        return db.transaction(work).immediate();
      } catch (error) {
        const ours = error instanceof OutliveError || !isSqliteError(error);
        throw ours ? error : storeError(error, file);
      }
    },
    recordInstance: (row) => {
      instance.run(row);
    },
    saveReport: (instanceId, value) => {
      report.run(JSON.stringify(value), instanceId);
    },
    probe: () => {
      probe.get();
    },
    close: () => db.close(),
  };
}

const isSqliteError = (error: unknown): boolean =>
  error instanceof Error && error.name === 'SqliteError';
