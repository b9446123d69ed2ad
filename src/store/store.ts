/** The store as the supervisor sees it: statements in groups, and one way to write. */
import type { Database } from 'better-sqlite3';
import { type Approvals, approvalStatements } from './approvals.ts';
import { type Artifacts, artifactStatements } from './artifacts.ts';
import type { Attempts } from './attempts.ts';
import { attemptStatements } from './attempts.ts';
import { type BackupOptions, type BackupReport, backupTo } from './backup.ts';
import { type Channels, channelStatements } from './channels.ts';
import { type Dependencies, dependencyStatements } from './dependencies.ts';
import { type Diagnostics, diagnosticStatements } from './diagnostics.ts';
import { type Drivers, driverStatements } from './drivers.ts';
import { type EventSlices, sliceStatements } from './event-slices.ts';
import type { Events } from './events.ts';
import { eventStatements } from './events.ts';
import { type Executors, executorStatements } from './executors.ts';
import { instanceStatements, type RuntimeInstance, type Takeover } from './instances.ts';
import { type LedgerLines, ledgerStatements } from './ledger.ts';
import { type LinearDeliveries, linearDeliveryStatements } from './linear-deliveries.ts';
import { type LinearFacts, linearFactStatements } from './linear-facts.ts';
import { type LinearOutbox, linearOutboxStatements } from './linear-outbox.ts';
import { type LinearCounts, linearCountStatements } from './linear-status.ts';
import { type LinearTurns, linearTurnStatements } from './linear-turns.ts';
import { openDatabase, storeError } from './open.ts';
import { type Outcomes, outcomeStatements } from './outcomes.ts';
import type { RuntimeOwner } from './owner-file.ts';
import { type Providers, providerStatements } from './providers.ts';
import { type Queue, queueStatements } from './queue.ts';
import { type Resources, resourceStatements } from './resources.ts';
import { type Retention, retentionStatements } from './retention.ts';
import { type Spending, spendStatements } from './spend.ts';
import type { WorkUnits } from './work-units.ts';
import { workUnitStatements } from './work-units.ts';

export interface Store {
  readonly file: string;
  readonly schemaVersion: number;
  readonly workUnits: WorkUnits;
  readonly attempts: Attempts;
  readonly approvals: Approvals;
  readonly artifacts: Artifacts;
  readonly events: Events & EventSlices;
  readonly executors: Executors;
  readonly resources: Resources;
  readonly queue: Queue;
  readonly channels: Channels;
  readonly dependencies: Dependencies;
  readonly diagnostics: Diagnostics;
  readonly drivers: Drivers;
  readonly ledger: LedgerLines;
  readonly retention: Retention;
  readonly providers: Providers;
  readonly outcomes: Outcomes;
  readonly linear: LinearTurns;
  readonly spend: Spending;
  readonly linearDeliveries: LinearDeliveries;
  readonly linearOutbox: LinearOutbox;
  readonly linearFacts: LinearFacts;
  readonly linearCounts: LinearCounts;
  /**
   * Runs `work` in one `BEGIN IMMEDIATE` transaction: all of it or nothing.
   * @throws OutliveError for what SQLite says; whatever `work` throws passes through.
   */
  write<Result>(work: () => Result): Result;
  /** Remembers a start, and from which dead owners it took over. @throws OutliveError `internal` for an id that was used before. */
  recordInstance(instance: RuntimeInstance, deadOwners?: readonly RuntimeOwner[]): void;
  /** The newest takeovers, newest first. */
  takeovers(limit: number): readonly Takeover[];
  saveReport(instanceId: string, report: unknown): void;
  /** Copies the store while it is in use; see backup.ts. */
  backup(target: string, options: BackupOptions): Promise<BackupReport>;
  /** A read that touches the disk's pages; used by health checks. */
  probe(): void;
  close(): void;
}

/** Opens the store of a workspace. @throws OutliveError, see openDatabase. */
export function openStore(directory: string, workspace: string, at: string, mayMake = true): Store {
  const { db, file, schemaVersion } = openDatabase(directory, at, mayMake);
  const instances = instanceStatements(db);
  const report = db.prepare<[string, string]>(
    'UPDATE runtime_instances SET report_json = ? WHERE id = ?',
  );
  inOurWords(file, () => nameOwner(db, workspace));
  const probe = db.prepare('SELECT count(*) FROM migrations');
  return {
    file,
    schemaVersion,
    workUnits: speaking(workUnitStatements(db, workspace), file),
    attempts: speaking(attemptStatements(db, workspace), file),
    approvals: speaking(approvalStatements(db, workspace), file),
    artifacts: speaking(artifactStatements(db), file),
    events: speaking({ ...eventStatements(db), ...sliceStatements(db) }, file),
    executors: speaking(executorStatements(db), file),
    resources: speaking(resourceStatements(db, workspace), file),
    queue: speaking(queueStatements(db, workspace), file),
    channels: speaking(channelStatements(db, workspace), file),
    dependencies: speaking(dependencyStatements(db), file),
    diagnostics: speaking(diagnosticStatements(db, workspace), file),
    drivers: speaking(driverStatements(db, workspace), file),
    ledger: speaking(ledgerStatements(db, workspace), file),
    retention: speaking(retentionStatements(db, workspace), file),
    outcomes: speaking(outcomeStatements(db), file),
    linear: speaking(linearTurnStatements(db, workspace), file),
    providers: speaking(providerStatements(db, workspace), file),
    spend: speaking(spendStatements(db, workspace), file),
    linearDeliveries: speaking(linearDeliveryStatements(db, workspace), file),
    linearOutbox: speaking(linearOutboxStatements(db, workspace), file),
    linearFacts: speaking(linearFactStatements(db, workspace), file),
    linearCounts: speaking(linearCountStatements(db, workspace), file),
    write: (work) => inOurWords(file, () => db.transaction(work).immediate()),
    recordInstance: (row, deadOwners = []) => {
      inOurWords(file, () => instances.record(row, deadOwners));
    },
    takeovers: (limit) => inOurWords(file, () => instances.takeovers(limit)),
    saveReport: (instanceId, value) => {
      inOurWords(file, () => report.run(JSON.stringify(value), instanceId));
    },
    probe: () => {
      inOurWords(file, () => probe.get());
    },
    backup: (target, options) => backupTo(db, target, options),
    close: () => db.close(),
  };
}

/** Whose store it is, for a restore to check. Written once; later opens only read. */
function nameOwner(db: Database, workspace: string): void {
  const owner = db.prepare('SELECT workspace_id FROM store_state').pluck().get();
  if (owner !== null) return;
  db.prepare('UPDATE store_state SET workspace_id = ? WHERE workspace_id IS NULL').run(workspace);
}

/** Runs `work`; what SQLite throws becomes the error of the table, anything else passes. */
function inOurWords<Result>(file: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw isSqliteError(error) ? storeError(error, file) : error;
  }
}

/** A group of statements that says in our words what is wrong with the store, also in reads. */
function speaking<Group extends Record<string, (...args: never[]) => unknown>>(
  group: Group,
  file: string,
): Group {
  const entries = Object.entries(group).map(([name, statement]) => [
    name,
    (...args: never[]) => inOurWords(file, () => statement(...args)),
  ]);
  return Object.fromEntries(entries) as Group;
}

const isSqliteError = (error: unknown): boolean =>
  error instanceof Error && error.name === 'SqliteError';
