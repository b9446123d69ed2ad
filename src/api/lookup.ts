/** Finds the work unit a path names: by id, else by handle. */
import { OutliveError } from '../domain/errors.ts';
import type { ListedWorkUnit, WorkUnitRow } from '../store/work-units.ts';
import type { ApiContext } from './context.ts';
import type { WorkUnitView } from './schemas.ts';
import { workUnitView } from './views.ts';

/** @throws OutliveError `not_found`. */
export function findWorkUnit(context: ApiContext, idOrHandle: string): WorkUnitRow {
  const { workUnits } = context.store;
  const row = workUnits.get(idOrHandle) ?? workUnits.getByHandle(idOrHandle);
  if (row) return row;
  throw new OutliveError(
    'not_found',
    `There is no work unit "${idOrHandle}". See: outlive ps --all.`,
  );
}

/** A row with its attempts and live figures. */
export function showWorkUnit(context: ApiContext, row: ListedWorkUnit | WorkUnitRow): WorkUnitView {
  const live = row.activeAttemptId ? context.supervisor.live(row.activeAttemptId) : null;
  const spend = context.supervisor.spend.unit(row);
  return workUnitView(row, context.store.attempts.listByWorkUnit(row.id), live, spend);
}
