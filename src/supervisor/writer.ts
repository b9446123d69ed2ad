/**
 * The one writer: every change of a state goes through here, as a compare-and-set in
 * one transaction together with its events, published after the commit.
 */
import { OutliveError } from '../domain/errors.ts';
import type { EventType } from '../domain/events.ts';
import type { Entropy } from '../domain/ids.ts';
import { timestamp } from '../domain/ids.ts';
import type { AttemptEvent, WorkUnitEvent } from '../domain/states.ts';
import { attemptCell, workUnitCell } from '../domain/states.ts';
import { type Actor, TERMINAL_STATUSES, type WorkUnitStatus } from '../domain/work-unit.ts';
import type { AttemptPatch, AttemptRow } from '../store/attempts.ts';
import type { EventRow } from '../store/events.ts';
import type { Store } from '../store/store.ts';
import type { WorkUnitPatch, WorkUnitRow } from '../store/work-units.ts';
import { commitApprovalResumeTerminal } from './approval-ledger.ts';
import { tendDependents } from './dependencies.ts';
import { holdStopped, releaseRetried } from './driver-holds.ts';
import type { Hub } from './hub.ts';
import { declareOutcome } from './outcome-record.ts';

/** The event that tells of an arrival in a state. */
const ARRIVAL: Readonly<Record<WorkUnitStatus, EventType>> = {
  queued: 'work_unit.queued',
  claimed: 'work_unit.claimed',
  running: 'work_unit.started',
  waiting_for_approval: 'work_unit.approval_requested',
  cancelling: 'work_unit.cancelling',
  succeeded: 'work_unit.succeeded',
  failed: 'work_unit.failed',
  cancelled: 'work_unit.cancelled',
  stale: 'work_unit.stale',
};

export interface EventFields {
  readonly type: EventType;
  readonly actor: Actor;
  readonly attemptId?: string | null;
  readonly data?: Readonly<Record<string, unknown>>;
  /** When it happened, if not now. */
  readonly ts?: string;
}

export interface MoveFields {
  readonly actor: Actor;
  readonly attemptId?: string | null;
  readonly data?: Readonly<Record<string, unknown>>;
  readonly patch?: WorkUnitPatch;
}

/** What a transaction may do. Rows handed in are what the caller saw; a stale one is a conflict. */
export interface Transaction {
  /** Now, the same for the whole transaction. */
  readonly at: string;
  append(workUnitId: string, events: readonly EventFields[]): void;
  /**
   * Applies a state event. A no-op of the table changes nothing and returns the row.
   * @throws OutliveError `state_conflict` when the table refuses or the row has moved on.
   */
  moveWorkUnit(row: WorkUnitRow, event: WorkUnitEvent, fields: MoveFields): WorkUnitRow;
  moveAttempt(row: AttemptRow, event: AttemptEvent, patch?: AttemptPatch): AttemptRow;
  /** Fresh rows, inside the transaction. @throws OutliveError `not_found`. */
  workUnit(id: string): WorkUnitRow;
  attempt(id: string): AttemptRow;
}

export interface Writer {
  /** Runs `work` in one transaction and publishes its events once they are durable. */
  commit<Result>(work: (transaction: Transaction) => Result): Result;
}

const conflict = (
  what: string,
  id: string,
  from: string,
  event: string,
  why: string,
): OutliveError =>
  new OutliveError('state_conflict', `${what} ${id} is ${from}; "${event}" ${why}.`, {
    extra: { id, status: from, event },
  });

function present<Row>(row: Row | null, what: string, id: string): Row {
  if (row) return row;
  throw new OutliveError('not_found', `There is no ${what} "${id}".`);
}

function createTransaction(store: Store, at: string, published: EventRow[]): Transaction {
  const append: Transaction['append'] = (workUnitId, events) => {
    const rows = events.map((event) => ({
      workUnitId,
      attemptId: event.attemptId ?? null,
      ts: event.ts ?? at,
      type: event.type,
      actor: event.actor,
      data: event.data ?? {},
    }));
    published.push(...store.events.append(workUnitId, rows));
  };
  const workUnit: Transaction['workUnit'] = (id) =>
    present(store.workUnits.get(id), 'work unit', id);
  const attempt: Transaction['attempt'] = (id) => present(store.attempts.get(id), 'attempt', id);

  const moveWorkUnit: Transaction['moveWorkUnit'] = (row, event, fields) => {
    const cell = workUnitCell(row.status, event);
    if (cell.kind === 'stay') return row;
    if (cell.kind === 'refuse')
      throw conflict('Work unit', row.handle, row.status, event, 'is not possible then');
    if (!store.workUnits.move(row, cell.to, fields.patch ?? {}, at)) {
      throw conflict('Work unit', row.handle, workUnit(row.id).status, event, 'came too late');
    }
    const { actor, attemptId = null } = fields;
    const moved = workUnit(row.id);
    let data = fields.data ?? {};
    if (TERMINAL_STATUSES.has(cell.to)) {
      commitApprovalResumeTerminal({ store, at, append }, row.id);
      data = { ...data, ...declareOutcome({ store, at }, moved, attemptId) };
      holdStopped({ store, at }, moved, fields);
    } else if (event === 'retry') releaseRetried(store, moved);
    append(row.id, [{ type: ARRIVAL[cell.to], actor, attemptId, data }]);
    return workUnit(row.id);
  };

  const moveAttempt: Transaction['moveAttempt'] = (row, event, patch = {}) => {
    const cell = attemptCell(row.status, event);
    if (cell.kind === 'stay') return row;
    if (cell.kind === 'refuse')
      throw conflict('Attempt', row.id, row.status, event, 'is not possible then');
    if (!store.attempts.move(row, cell.to, patch)) {
      throw conflict('Attempt', row.id, attempt(row.id).status, event, 'came too late');
    }
    return attempt(row.id);
  };

  return { at, append, moveWorkUnit, moveAttempt, workUnit, attempt };
}

export function createWriter(store: Store, hub: Hub, entropy: Entropy): Writer {
  return {
    commit: (work) => {
      const published: EventRow[] = [];
      const result = store.write(() => {
        const transaction = createTransaction(store, timestamp(entropy), published);
        const done = work(transaction);
        tendDependents({ store, append: transaction.append }, published);
        return done;
      });
      hub.publish(published);
      return result;
    },
  };
}
