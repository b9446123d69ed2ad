/** Recovery at start, and the census that repeats it: observe, plan, apply, report. */
import { timestamp } from '../domain/ids.ts';
import type { Context } from '../supervisor/context.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import type { Applied } from './apply.ts';
import { apply } from './apply.ts';
import { repairApprovals } from './approvals.ts';
import { observe } from './observe.ts';
import type { RecoveryAction } from './plan.ts';
import { planRecovery } from './plan.ts';
import { sweep } from './sweep.ts';

export interface RecoveryReport {
  readonly at: string;
  readonly runtimeInstanceId: string;
  /** Units of attempts that are followed on. */
  readonly reattached: readonly string[];
  /** Units of attempts that were not there any more. */
  readonly settled: readonly string[];
  /** Dead units that were let go. */
  readonly released: readonly string[];
  /** Ended attempts that gave back what they held. */
  readonly releasedHolders: readonly string[];
  /** Handles of work without an attempt. */
  readonly orphans: readonly string[];
  /** Work units whose open questions were closed, because they had ended. */
  readonly closedApprovals: readonly string[];
  readonly foreignUnits: readonly string[];
  /** What could not be done; it is tried again by the census. */
  readonly failed: readonly {
    readonly step: string;
    readonly what: string;
    readonly error: string;
  }[];
}

const subjectOf = (action: RecoveryAction): string => {
  if ('attempt' in action) return action.attempt.unit;
  if ('work' in action) return action.work.handle;
  return 'unit' in action ? action.unit : action.attemptId;
};

function reportOf(context: Context, applied: readonly Applied[]): RecoveryReport {
  const done = (kind: RecoveryAction['kind']): string[] =>
    applied.flatMap(({ action, error }) =>
      action.kind === kind && error === null ? [subjectOf(action)] : [],
    );
  return {
    at: timestamp(context.entropy),
    runtimeInstanceId: context.runtimeInstanceId,
    reattached: done('reattach'),
    settled: done('settle'),
    released: done('release_unit'),
    releasedHolders: done('release_resources'),
    orphans: done('settle_work'),
    closedApprovals: [],
    foreignUnits: done('report_foreign'),
    failed: applied.flatMap(({ action, error }) =>
      error === null ? [] : [{ step: action.kind, what: subjectOf(action), error }],
    ),
  };
}

/** Counts units against rows, both ways, and does what is to be done. Repeatable. */
export interface Census {
  run(): Promise<RecoveryReport>;
}

export function createCensus(
  context: Context,
  supervisor: Pick<Supervisor, 'attach' | 'watched'>,
): Census {
  const reported = new Set<string>();
  let running: Promise<RecoveryReport> | null = null;
  const once = async (): Promise<RecoveryReport> => {
    const view = await observe(context, supervisor, reported);
    const applied = await apply(context, supervisor, planRecovery(view));
    // A unit that is gone is told again when it comes back.
    const loaded = new Set(view.units.map(({ unit }) => unit));
    for (const unit of reported) if (!loaded.has(unit)) reported.delete(unit);
    for (const { action } of applied) {
      if (action.kind === 'report_foreign') reported.add(action.unit);
    }
    return reportOf(context, applied);
  };
  return {
    // Two at once would report everything twice: the second joins the first.
    run: () => {
      running ??= once().finally(() => {
        running = null;
      });
      return running;
    },
  };
}

/** How often the census is taken without any hint, milliseconds. */
const CENSUS_MS = 60_000;

/** Takes the census every minute and whenever the bus came back. @returns what ends that. */
export function keepCensus(context: Context, census: Census): () => Promise<void> {
  let current: Promise<unknown> = Promise.resolve();
  const take = (): void => {
    current = census.run().catch((error: unknown) => {
      context.log.warn({ err: error }, 'the census failed; it is taken again');
    });
  };
  const timer = setInterval(take, CENSUS_MS);
  const unsubscribe = context.executor.onHint((unit) => {
    if (unit === null) take();
  });
  return async () => {
    clearInterval(timer);
    unsubscribe();
    await current;
  };
}

/**
 * Barrier A at the start of a daemon: units, attempts, leases, slots. Nothing new is
 * started before this returns. A second run finds the same and changes nothing.
 */
export async function recover(context: Context, census: Census): Promise<RecoveryReport> {
  context.writer.commit(({ at }) => context.store.approvals.signingKey(at));
  const closedApprovals = repairApprovals(context);
  const report = { ...(await census.run()), closedApprovals };
  context.store.saveReport(context.runtimeInstanceId, report);
  context.log.info(report, 'recovery');
  await sweep(context);
  return report;
}
