/**
 * The two state machines: one total table, state × event, for work units and one
 * for attempts. Every cell is a move, a no-op with its reason, or a refusal.
 */

import type { AttemptStatus, WorkUnitStatus } from './work-unit.ts';
import { ATTEMPT_STATUSES, WORK_UNIT_STATUSES } from './work-unit.ts';

export const WORK_UNIT_EVENTS = [
  'claim',
  'never_started',
  'launch_failed',
  'runner_started',
  'approval_requested',
  'approval_approved',
  'approval_denied',
  'approval_expired',
  'approval_resume',
  'approval_failed',
  'runner_succeeded',
  'runner_failed',
  'runner_cancelled',
  'runner_lost',
  'provider_backoff',
  'idle_timeout',
  'hard_timeout',
  'heartbeat_timeout',
  'tool_timeout',
  'budget_exceeded',
  'interrupt',
  'cancel',
  'cancel_timeout',
  'reconcile_alive',
  'reconcile_failed',
  'reconcile_cancelled',
  'resume',
  'retry',
] as const;
export type WorkUnitEvent = (typeof WORK_UNIT_EVENTS)[number];

export const ATTEMPT_EVENTS = [
  'started',
  'approval_requested',
  'approval_approved',
  'cancel',
  'succeeded',
  'failed',
  'cancelled',
  'lost',
] as const;
export type AttemptEvent = (typeof ATTEMPT_EVENTS)[number];

/** What a cell says: go there, stay for a reason, or refuse. */
export type Cell<State extends string> =
  | { readonly kind: 'move'; readonly to: State }
  | { readonly kind: 'stay'; readonly reason: string }
  | { readonly kind: 'refuse' };

type Row<State extends string, Event extends string> = Partial<
  Record<Event, State | { stay: string }>
>;
type Table<State extends string, Event extends string> = Record<State, Row<State, Event>>;

const ALREADY = (what: string): { stay: string } => ({ stay: `it is already ${what}` });
const LATE = { stay: 'a late word of an ended run; kept as a diagnostic event' };

/** Events that a runner sends by itself may always come late; they never undo an end. */
const ENDED: Row<WorkUnitStatus, WorkUnitEvent> = {
  runner_started: LATE,
  runner_succeeded: LATE,
  runner_failed: LATE,
  runner_cancelled: LATE,
  runner_lost: LATE,
  approval_requested: LATE,
  approval_expired: LATE,
  idle_timeout: LATE,
  hard_timeout: LATE,
  heartbeat_timeout: LATE,
  tool_timeout: LATE,
  budget_exceeded: LATE,
  interrupt: LATE,
  cancel_timeout: LATE,
};

const WORK_UNIT_TABLE: Table<WorkUnitStatus, WorkUnitEvent> = {
  queued: { claim: 'claimed', interrupt: 'cancelling', cancel: 'cancelling' },
  claimed: {
    runner_started: 'running',
    never_started: 'queued',
    launch_failed: 'failed',
    // A run can be over before the daemon that started it heard of the start.
    runner_succeeded: 'succeeded',
    runner_failed: 'failed',
    runner_cancelled: 'cancelled',
    runner_lost: 'stale',
    provider_backoff: 'queued',
    interrupt: 'cancelling',
    cancel: 'cancelling',
  },
  running: {
    runner_started: ALREADY('running'),
    // The unit was seen to run, then the machine went away before the wrapper had begun.
    never_started: 'queued',
    launch_failed: 'failed',
    approval_requested: 'waiting_for_approval',
    // Its answer came and its attempt is gone: another one acts on it.
    approval_resume: 'queued',
    runner_succeeded: 'succeeded',
    runner_failed: 'failed',
    runner_cancelled: 'cancelled',
    runner_lost: 'stale',
    // Its attempt failed for its provider's sake only: another one follows, nobody is told of an end.
    provider_backoff: 'queued',
    idle_timeout: 'cancelling',
    hard_timeout: 'cancelling',
    heartbeat_timeout: 'cancelling',
    tool_timeout: 'cancelling',
    budget_exceeded: 'cancelling',
    interrupt: 'cancelling',
    cancel: 'cancelling',
    reconcile_alive: ALREADY('running'),
  },
  waiting_for_approval: {
    approval_requested: ALREADY('waiting for an approval'),
    approval_approved: 'running',
    // Where no process waits any more; a denial fails it by request only.
    approval_denied: 'failed',
    approval_expired: 'failed',
    // The same where one does: it fails once that is gone.
    approval_failed: 'cancelling',
    approval_resume: 'queued',
    // Its first lines may be lost with a disk: what was seen of it then proves nothing.
    never_started: 'queued',
    launch_failed: 'failed',
    // The question may have been dropped by the runner itself; how it ended is still true.
    runner_succeeded: 'succeeded',
    runner_failed: 'failed',
    runner_cancelled: 'cancelled',
    runner_lost: 'stale',
    interrupt: 'cancelling',
    cancel: 'cancelling',
    heartbeat_timeout: { stay: 'waiting for a person costs no timeout' },
    tool_timeout: { stay: 'waiting for a person costs no timeout' },
    budget_exceeded: 'cancelling',
    idle_timeout: { stay: 'waiting for a person costs no timeout' },
    hard_timeout: { stay: 'a deadline with a question open is a suspension' },
  },
  cancelling: {
    runner_started: { stay: 'its end is already decided' },
    runner_cancelled: 'cancelled',
    // A timeout's intent ends as a failure, a cancellation that came too late as it ended.
    runner_failed: 'failed',
    runner_succeeded: LATE,
    runner_lost: 'stale',
    never_started: 'cancelled',
    cancel_timeout: 'stale',
    cancel: ALREADY('cancelling'),
    idle_timeout: ALREADY('being ended'),
    hard_timeout: ALREADY('being ended'),
    heartbeat_timeout: ALREADY('being ended'),
    tool_timeout: ALREADY('being ended'),
    budget_exceeded: ALREADY('being ended'),
    interrupt: ALREADY('being ended'),
    approval_requested: LATE,
    approval_expired: LATE,
    approval_failed: ALREADY('being ended'),
  },
  stale: {
    reconcile_alive: 'running',
    reconcile_failed: 'failed',
    reconcile_cancelled: 'cancelled',
    resume: 'queued',
    cancel: 'cancelling',
    runner_lost: ALREADY('stale'),
    cancel_timeout: ALREADY('stale'),
    runner_started: LATE,
    runner_succeeded: LATE,
    runner_failed: LATE,
    runner_cancelled: LATE,
    approval_requested: LATE,
    approval_expired: LATE,
    idle_timeout: LATE,
    hard_timeout: LATE,
    heartbeat_timeout: LATE,
    tool_timeout: LATE,
    budget_exceeded: LATE,
    interrupt: LATE,
  },
  succeeded: ENDED,
  failed: { ...ENDED, retry: 'queued' },
  cancelled: { ...ENDED, cancel: ALREADY('cancelled') },
};

const OVER: Row<AttemptStatus, AttemptEvent> = {
  started: LATE,
  succeeded: LATE,
  failed: LATE,
  cancelled: LATE,
  lost: LATE,
  cancel: LATE,
};

const ATTEMPT_TABLE: Table<AttemptStatus, AttemptEvent> = {
  created: {
    started: 'started',
    cancel: 'cancelling',
    succeeded: 'succeeded',
    failed: 'failed',
    cancelled: 'cancelled',
    lost: 'lost',
  },
  started: {
    started: ALREADY('started'),
    approval_requested: 'waiting_for_approval',
    cancel: 'cancelling',
    succeeded: 'succeeded',
    failed: 'failed',
    cancelled: 'cancelled',
    lost: 'lost',
  },
  waiting_for_approval: {
    approval_requested: ALREADY('waiting for an approval'),
    approval_approved: 'started',
    cancel: 'cancelling',
    succeeded: 'succeeded',
    failed: 'failed',
    cancelled: 'cancelled',
    lost: 'lost',
  },
  cancelling: {
    started: { stay: 'its end is already decided' },
    cancel: ALREADY('cancelling'),
    failed: 'failed',
    cancelled: 'cancelled',
    lost: 'lost',
  },
  succeeded: OVER,
  failed: OVER,
  cancelled: OVER,
  lost: OVER,
};

function cell<State extends string, Event extends string>(
  table: Table<State, Event>,
  from: State,
  event: Event,
): Cell<State> {
  const entry = table[from][event];
  if (entry === undefined) return { kind: 'refuse' };
  if (typeof entry === 'string') return { kind: 'move', to: entry as State };
  return { kind: 'stay', reason: (entry as { stay: string }).stay };
}

/** What `event` does to a work unit in state `from`. */
export const workUnitCell = (from: WorkUnitStatus, event: WorkUnitEvent): Cell<WorkUnitStatus> =>
  cell(WORK_UNIT_TABLE, from, event);

/** What `event` does to an attempt in state `from`. */
export const attemptCell = (from: AttemptStatus, event: AttemptEvent): Cell<AttemptStatus> =>
  cell(ATTEMPT_TABLE, from, event);

/** Every cell of both machines, for the documentation and the property tests. */
export function allCells(): {
  workUnits: { from: WorkUnitStatus; event: WorkUnitEvent; cell: Cell<WorkUnitStatus> }[];
  attempts: { from: AttemptStatus; event: AttemptEvent; cell: Cell<AttemptStatus> }[];
} {
  return {
    workUnits: WORK_UNIT_STATUSES.flatMap((from) =>
      WORK_UNIT_EVENTS.map((event) => ({ from, event, cell: workUnitCell(from, event) })),
    ),
    attempts: ATTEMPT_STATUSES.flatMap((from) =>
      ATTEMPT_EVENTS.map((event) => ({ from, event, cell: attemptCell(from, event) })),
    ),
  };
}
