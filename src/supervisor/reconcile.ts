/** Looks afresh at active work: reads units, carries out what is due, tells what came of it. */
import type { WorkUnitStatus } from '../domain/work-unit.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { ListedWorkUnit } from '../store/work-units.ts';
import type { Context } from './context.ts';
import type { AttemptWatch } from './watch.ts';

/** What one look may take; what is not done by then goes on by itself. */
const LOOK_MS = 10_000;

export interface ReconcileItem {
  readonly workUnitId: string;
  readonly handle: string;
  readonly unit: string | null;
  readonly before: WorkUnitStatus;
  readonly after: WorkUnitStatus;
  /** `looked`: a watch read the unit; `taken_up`: nobody watched it, somebody does now; `nothing_runs`: it has no attempt. */
  readonly action: 'looked' | 'taken_up' | 'nothing_runs';
}

export interface ReconcileReport {
  readonly items: readonly ReconcileItem[];
}

interface Hands {
  readonly watches: ReadonlyMap<string, AttemptWatch>;
  attach(attempt: AttemptRow): void;
}

async function reconcileOne(
  context: Context,
  before: ListedWorkUnit,
  hands: Hands,
): Promise<ReconcileItem> {
  const { attempts, workUnits } = context.store;
  const attempt = before.activeAttemptId === null ? null : attempts.get(before.activeAttemptId);
  const watch = attempt && hands.watches.get(attempt.id);
  if (attempt && !watch) hands.attach(attempt);
  if (attempt) await (watch ?? hands.watches.get(attempt.id))?.look(LOOK_MS);
  return {
    workUnitId: before.id,
    handle: before.handle,
    unit: attempt?.unit ?? null,
    before: before.status,
    after: workUnits.get(before.id)?.status ?? before.status,
    action: !attempt ? 'nothing_runs' : watch ? 'looked' : 'taken_up',
  };
}

/** Reconciles these work units, or all that are neither queued nor ended. Parallel, and bounded in time. */
export async function reconcile(
  context: Context,
  ids: readonly string[] | null,
  hands: Hands,
): Promise<ReconcileReport> {
  const { workUnits } = context.store;
  const rows = ids === null ? workUnits.listActive() : ids.flatMap((id) => workUnits.get(id) ?? []);
  return { items: await Promise.all(rows.map((row) => reconcileOne(context, row, hands))) };
}
