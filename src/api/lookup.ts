/** Finds the work unit a path names: by id, else by handle. */
import { z } from 'zod';
import { OutliveError } from '../domain/errors.ts';
import type { ListedWorkUnit, WorkUnitRow } from '../store/work-units.ts';
import type { ApiContext } from './context.ts';
import type { WorkUnitView } from './schemas.ts';
import { workUnitView } from './views.ts';

const cursorSchema = z.uuid();

/** Id of the last row of the page before; null for the first page. @throws OutliveError `invalid_cursor`. */
export function parseCursor(cursor: string | undefined): string | null {
  if (cursor === undefined) return null;
  if (cursorSchema.safeParse(cursor).success) return cursor.toLowerCase(); // As ids are compared.
  throw new OutliveError('invalid_cursor', 'Use a nextCursor of an earlier answer, unchanged.');
}

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
  const attempts = context.store.attempts.listByWorkUnit(row.id);
  const outcome = context.store.outcomes.latest(row.id);
  const after = context.store.dependencies.of(row.id);
  return workUnitView(row, { attempts, live, spend, outcome, after });
}
