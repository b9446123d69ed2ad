/** Rows of the store as the API shows them. */
import type { LiveState } from '../domain/attempt-files.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { DependencyRows } from '../store/dependencies.ts';
import type { StoredEvent } from '../store/event-slices.ts';
import type { OutcomeRow } from '../store/outcomes.ts';
import type { ListedWorkUnit, WorkUnitRow } from '../store/work-units.ts';
import { type Explained, possible } from '../supervisor/explain.ts';
import type { SpendState } from '../supervisor/spend-gate.ts';
import { spendView } from './providers.ts';
import type { AttemptView, EventView, OutcomeView, WorkUnitView } from './schemas.ts';
import type { Explanation } from './schemas-explain.ts';

export function attemptView(row: AttemptRow): AttemptView {
  return {
    id: row.id,
    workUnitId: row.workUnitId,
    attemptNumber: row.attemptNumber,
    runtimeInstanceId: row.runtimeInstanceId,
    runnerId: row.runnerId,
    providerPresetId: row.providerPresetId,
    status: row.status,
    createdAt: row.createdAt,
    startedAt: row.startedAt,
    endedAt: row.endedAt,
    lastEventAt: row.lastEventAt,
    lastHeartbeatAt: row.lastHeartbeatAt,
    abortRequestedAt: row.abortRequestedAt,
    errorCode: row.errorCode,
    errorMessage: row.errorMessage,
    resumesAttemptId: row.resumesAttemptId,
    unit: row.unit,
    invocationId: row.invocationId,
    bootId: row.bootId,
    controlGroup: row.controlGroup,
    executor: row.executor,
    reattached: row.reattached,
    exit: row.exit,
    result: row.lastWord,
    decidedByRule: row.decidedByRule,
  };
}

/** The part of a work unit's view that tells what it waits for. */
export const afterView = (
  rows: DependencyRows | null,
): Pick<WorkUnitView, 'after' | 'afterNeeded'> => ({
  after: rows?.on.map(({ id, handle, state }) => ({ workUnitId: id, handle, state })) ?? [],
  afterNeeded: rows?.needed ?? null,
});

function outcomeView({ state, code, message, verifyId, result }: OutcomeRow): OutcomeView {
  return {
    state,
    code,
    message,
    verify: verifyId,
    result: result === null ? null : (JSON.parse(result) as unknown),
  };
}

export interface Shown {
  readonly attempts: readonly AttemptRow[];
  readonly live: LiveState | null;
  readonly spend: SpendState;
  /** Of its newest end. */
  readonly outcome: OutcomeRow | null;
  /** What it waits for. */
  readonly after: DependencyRows | null;
}

export function workUnitView(
  row: ListedWorkUnit | WorkUnitRow,
  { attempts, live, spend, outcome, after }: Shown,
): WorkUnitView {
  const {
    request: _request,
    neverStartedCount: _count,
    neverStartedAt: _since,
    lastSeq: _seq,
    resume: _note,
    hardLeftMs: _left,
    conversation: _conversation,
    ...shown
  } = {
    request: null,
    ...row,
  };
  const { idleTimeoutMs, hardTimeoutMs } = row.timeoutPolicy;
  return {
    ...shown,
    idleTimeoutMs,
    hardTimeoutMs,
    ...afterView(after),
    // One of an end that a retry undid is none.
    outcome: outcome && TERMINAL_STATUSES.has(row.status) ? outcomeView(outcome) : null,
    spend: spendView(spend),
    live,
    attempts: attempts.map(attemptView),
  };
}

export function eventView(row: StoredEvent): EventView {
  return {
    id: `${row.workUnitId}:${row.seq}`,
    workUnitId: row.workUnitId,
    attemptId: row.attemptId,
    seq: row.seq,
    position: row.position,
    ts: row.ts,
    type: row.type,
    actor: row.actor,
    data: JSON.parse(row.data) as EventView['data'],
  };
}

export function explanationView(explained: Explained): Explanation {
  const { workUnit, summary, waiting, attempts, spend } = explained;
  return {
    workUnitId: workUnit.id,
    handle: workUnit.handle,
    status: workUnit.status,
    summary,
    waiting,
    spend: spendView(spend),
    attempts: attempts.map(({ attempt, rule, evidence }) => ({
      attemptId: attempt.id,
      attemptNumber: attempt.attemptNumber,
      unit: attempt.unit,
      status: attempt.status,
      startedAt: attempt.startedAt,
      endedAt: attempt.endedAt,
      errorCode: attempt.errorCode,
      errorMessage: attempt.errorMessage,
      rule,
      evidence: [...evidence],
    })),
    ...possible(workUnit.status),
  };
}
