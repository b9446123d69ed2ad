/** Upkeep of a workspace: retention on a timer and on demand, and backups. One run of each at a time. */
import { OutliveError } from '../domain/errors.ts';
import type { RetentionPolicy } from '../domain/retention.ts';
import type { BackupReport } from '../store/backup.ts';
import { type CollectReport, collect } from './collect.ts';
import type { Context } from './context.ts';
import { createHint } from './signal.ts';

export interface MaintenanceOptions {
  readonly policy: RetentionPolicy;
  /** Between two runs by itself, milliseconds. */
  readonly intervalMs: number;
}

export interface Maintenance {
  /** Begins to run by itself: once now, then at every interval. */
  start(): void;
  /** Runs now. `maxAgeMs` takes the place of the configured age. @throws OutliveError `maintenance_running`. */
  collect(options: { dryRun: boolean; maxAgeMs?: number | undefined }): Promise<CollectReport>;
  /**
   * Copies the store while it is in use.
   * @throws OutliveError `maintenance_running`, `target_exists`, `backup_failed`, `disk_full`.
   */
  backup(target: string, options: { force: boolean }): Promise<BackupReport>;
  /** What a person should hear of, in a sentence that begins with its code. */
  problems(): readonly string[];
  /** Ends a run between two steps and waits for it. */
  close(): Promise<void>;
}

/** At most one of a kind. */
function exclusive(what: string) {
  let running: Promise<unknown> | null = null;
  return {
    run: async <Result>(work: () => Promise<Result>): Promise<Result> => {
      if (running) throw new OutliveError('maintenance_running', `${what} is already under way.`);
      const own = work();
      running = own;
      try {
        return await own;
      } finally {
        running = null;
      }
    },
    settled: async (): Promise<void> => {
      await running?.catch(() => undefined);
    },
  };
}

const mebibytes = (bytes: number): string => `${Math.ceil(bytes / 1024 / 1024)} MiB`;

function excessOf({ usage }: CollectReport): string | null {
  if (usage.excessBytes === 0 || usage.budgetBytes === null) return null;
  return `disk_budget_exceeded: work that is live or just ended takes ${mebibytes(usage.excessBytes)} more than the ${mebibytes(usage.budgetBytes)} of retention.diskBudgetBytes`;
}

/** The upkeep of one daemon. */
export function createMaintenance(context: Context, options: MaintenanceOptions): Maintenance {
  const { log, store } = context;
  const collecting = exclusive('A run of retention');
  const backingUp = exclusive('A backup');
  const hint = createHint();
  let closing = false;
  let loop: Promise<void> = Promise.resolve();
  let excess: string | null = null;

  const run = (dryRun: boolean, policy: RetentionPolicy): Promise<CollectReport> =>
    collecting.run(async () => {
      const report = await collect(context, { dryRun, policy, stopped: () => closing });
      if (dryRun) return report;
      excess = excessOf(report);
      if (excess) log.error({ usage: report.usage }, excess);
      for (const problem of report.problems) log.warn({ problem }, 'retention left something');
      log.info(report, 'retention');
      return report;
    });

  const byItself = async (): Promise<void> => {
    while (!closing) {
      try {
        await run(false, options.policy);
      } catch (error) {
        log.error({ err: error }, 'retention failed; it is tried again after its interval');
      }
      if (!closing) await hint.wait(options.intervalMs);
    }
  };

  return {
    start: () => {
      loop = byItself();
    },
    collect: ({ dryRun, maxAgeMs }) =>
      run(dryRun, maxAgeMs === undefined ? options.policy : { ...options.policy, maxAgeMs }),
    backup: (target, { force }) =>
      backingUp.run(() =>
        store.backup(target, { force, mark: context.runtimeInstanceId, stopped: () => closing }),
      ),
    problems: () => (excess ? [excess] : []),
    close: async () => {
      closing = true;
      hint.raise();
      await loop;
      await collecting.settled();
      await backingUp.settled();
    },
  };
}
