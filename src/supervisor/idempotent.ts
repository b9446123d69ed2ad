/** Commands with an idempotency key: carried out once, however often they are asked for. */
import { OutliveError } from '../domain/errors.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';

/** Carries nothing: the command behind an idempotency key was carried out before. */
export class Repeated extends Error {}

/**
 * A context whose one commit also records the key, in the same transaction.
 * `workUnitId` is the approval's id for what is said of one.
 * @throws Repeated, OutliveError `idempotency_mismatch`.
 */
export function keyed(
  context: Context,
  key: string | undefined,
  command: string,
  workUnitId: string,
): Context {
  if (key === undefined) return context;
  const { diagnostics } = context.store;
  // Asked at once as well: a look at a stale unit may refuse what was long done.
  refuseRepeated(context, key, command, workUnitId);
  return {
    ...context,
    writer: {
      commit: (work) =>
        context.writer.commit((transaction) => {
          refuseRepeated(context, key, command, workUnitId);
          const result = work(transaction);
          diagnostics.recordCommand(key, { command, workUnitId }, transaction.at);
          return result;
        }),
    },
  };
}

/** What the commands that are not about a work unit are about. */
const SUBJECTS: Readonly<Record<string, 'approval'>> = { approve: 'approval', deny: 'approval' };

/** @throws Repeated for the same command, OutliveError `idempotency_mismatch` for another. */
function refuseRepeated(context: Context, key: string, command: string, workUnitId: string): void {
  const prior = context.store.diagnostics.command(key);
  if (!prior) return;
  if (prior.command === command && prior.workUnitId === workUnitId) throw new Repeated();
  const subject = SUBJECTS[prior.command];
  const id = prior.workUnitId;
  throw new OutliveError(
    'idempotency_mismatch',
    `Idempotency key "${key}" was used to ${prior.command} ${subject ?? 'work unit'} ${id}. Use a new key.`,
    {
      extra: {
        command: prior.command,
        ...(subject === undefined ? { workUnitId: id } : { approvalId: id }),
      },
    },
  );
}

/** @throws OutliveError `not_found`. */
export function current(context: Context, id: string): WorkUnitRow {
  const row = context.store.workUnits.get(id);
  if (row) return row;
  throw new OutliveError('not_found', `There is no work unit "${id}".`);
}

/** What `act` returns; the work unit as it is when that was carried out before. */
export function unlessRepeated(context: Context, id: string, act: () => WorkUnitRow): WorkUnitRow {
  try {
    return act();
  } catch (error) {
    if (error instanceof Repeated) return current(context, id);
    throw error;
  }
}
