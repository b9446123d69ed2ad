/** The row of an outcome, made in the transaction that ends its work unit. */
import { outcomeAtEnd, type WorkUnitEnd } from '../domain/outcome-end.ts';
import { skippedBecause } from '../domain/outcome-verdict.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { Store } from '../store/store.ts';
import type { WorkUnitRow } from '../store/work-units.ts';

/**
 * What the terminal event says of it: `outcome`, the attempt's number in `outcomeOf` and, where
 * it is settled, `outcomeCode`;
 * nothing for work that declared none. Where this attempt has a row already (it was retried,
 * and ended before another attempt was made) that one stays.
 */
export function declareOutcome(
  { store, at }: { readonly store: Store; readonly at: string },
  workUnit: WorkUnitRow,
  attemptId: string | null,
): Readonly<Record<string, unknown>> {
  if (!workUnit.request.outcome || !TERMINAL_STATUSES.has(workUnit.status)) return {};
  const { id: workUnitId, attemptCount: attemptNumber, errorCode } = workUnit;
  const status = workUnit.status as WorkUnitEnd['status'];
  const end = outcomeAtEnd({ status, errorCode, attemptCount: attemptNumber });
  const { state } = end;
  const { code, message } =
    state === 'skipped' ? skippedBecause(end.code) : { code: null, message: null };
  const newest = store.attempts.listByWorkUnit(workUnitId).at(-1)?.id ?? null;
  store.outcomes.insert({
    ...{ workUnitId, attemptNumber, attemptId: attemptId ?? newest },
    ...{ state, code, message, at },
  });
  const row = store.outcomes.get({ workUnitId, attemptNumber });
  if (row === null) return {};
  const why = row.code === null ? {} : { outcomeCode: row.code };
  return { outcome: row.state, outcomeOf: attemptNumber, ...why };
}
