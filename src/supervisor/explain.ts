/** Why work is where it is: what queued work waits for, which rule ended an attempt, what a submit would do. */
import { RULES } from '../domain/classify.ts';
import { newNonce, uuidv7 } from '../domain/ids.ts';
import { unitName } from '../domain/names.ts';
import type { StartWorkUnit } from '../domain/request.ts';
import { workUnitCell } from '../domain/states.ts';
import { type Maker, TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { ApprovalRow } from '../store/approvals.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { DependencyRows } from '../store/dependencies.ts';
import type { OutcomeRow } from '../store/outcomes.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { findBlocker } from './admission.ts';
import type { Context } from './context.ts';
import { memoryGate } from './gates.ts';
import { sandboxNow } from './sandbox.ts';
import { type SpendState, spendOfUnit } from './spend-gate.ts';
import { startsInARow } from './start-backoff.ts';
import { startRequest } from './start-request.ts';
import { submit } from './submit.ts';

export interface NamedValue {
  readonly name: string;
  readonly value: string;
}

export interface Waiting {
  readonly why: 'admission' | 'delayed' | 'blocked' | 'in_line';
  /** A sentence for a person. */
  readonly reason: string;
  readonly since: string;
  readonly resource: string | null;
  /** Handle of the work unit in the way. */
  readonly heldBy: string | null;
  readonly nextStartAt: string | null;
}

export interface AttemptReason {
  readonly attempt: AttemptRow;
  readonly rule: { readonly number: number; readonly when: string } | null;
  readonly evidence: readonly NamedValue[];
}

export interface Explained {
  readonly workUnit: WorkUnitRow;
  readonly summary: string;
  readonly waiting: Waiting | null;
  readonly attempts: readonly AttemptReason[];
  readonly spend: SpendState;
}

const later = (a: string, b: string): string => [a, b].sort().at(-1) ?? b;

/** Why delayed work is delayed: starts that ran nothing, or its provider. */
function delayReason({ store }: Context, workUnit: WorkUnitRow, notBefore: string): string {
  if (workUnit.neverStartedCount > 0) {
    return `it is backing off until ${notBefore}: ${startsInARow(workUnit.neverStartedCount)}`;
  }
  const when = `starts at ${notBefore} at the earliest`;
  const { failures } = store.providers.failing(workUnit.id);
  if (failures === 0) return `it is delayed and ${when}`;
  const last = store.attempts.listByWorkUnit(workUnit.id).at(-1);
  return `its provider failed it ${failures}× (${last?.errorCode ?? 'unknown'}), it ${when}`;
}

/** What stands between queued work and its start, found afresh; null for work that is not queued. */
export function waitingOf(context: Context, workUnit: WorkUnitRow): Waiting | null {
  if (workUnit.status !== 'queued') return null;
  const { store, entropy } = context;
  const { queue, channels, diagnostics, resources, workUnits } = store;
  const queuedAt = workUnit.updatedAt;
  const nothing = { resource: null, heldBy: null, nextStartAt: null };
  const admission = channels.admission();
  if (admission !== 'open') {
    const told = diagnostics.admissionSince() ?? queuedAt;
    const reason = `the workspace is ${admission} and takes no queued work (outlive resume)`;
    return { ...nothing, why: 'admission', reason, since: later(told, queuedAt) };
  }
  const now = new Date(entropy.now()).toISOString();
  const row = queue.waitingFor(workUnit.id);
  if (row?.notBefore && row.notBefore > now) {
    const reason = delayReason(context, workUnit, row.notBefore);
    return { ...nothing, why: 'delayed', reason, since: queuedAt, nextStartAt: row.notBefore };
  }
  const blocker = findBlocker(context, workUnit.id, resources.needsOf(workUnit.id));
  if (blocker) {
    return {
      why: 'blocked',
      reason: blocker.reason,
      since: row?.blockedSince ?? queuedAt,
      resource: blocker.waitFor,
      heldBy:
        blocker.heldBy === null ? null : (workUnits.get(blocker.heldBy)?.handle ?? blocker.heldBy),
      nextStartAt: null,
    };
  }
  const memory = memoryGate(context);
  if (memory) {
    const { waitFor: resource, reason } = memory;
    return { ...nothing, why: 'blocked', reason, since: queuedAt, resource };
  }
  const ahead = diagnostics.aheadOf(workUnit.id, now);
  const reason = ahead === 0 ? NEXT : `${ahead} queued before it`;
  return { ...nothing, why: 'in_line', reason, since: queuedAt };
}

const NEXT = 'it is next in line';
const isNext = (waiting: Waiting | null): boolean => waiting?.reason === NEXT;

/** Not shown: identities nobody can read anything from, and texts as long as a run. */
const UNTOLD: ReadonlySet<string> = new Set(['nonce', 'text', 'usage', 'leftovers']);

/** Nested facts as `end.status = 3`; what is absent or empty is left out. */
function flatten(prefix: string, facts: unknown): NamedValue[] {
  if (facts === null || facts === undefined || facts === false) return [];
  if (typeof facts === 'string') return [{ name: prefix, value: facts }];
  if (typeof facts !== 'object') return [{ name: prefix, value: JSON.stringify(facts) }];
  return Object.entries(facts)
    .filter(([name]) => !UNTOLD.has(name))
    .flatMap(([name, value]) => flatten(prefix === '' ? name : `${prefix}.${name}`, value));
}

/** What is known of an attempt that has not ended. */
function knownNow(attempt: AttemptRow): NamedValue[] {
  return flatten('', {
    intent: attempt.intent,
    startProblem: attempt.startProblem,
    opened: attempt.opened !== null,
    saidDeadline: attempt.saidDeadline,
    toldToStop: attempt.toldToStop,
    lastEventAt: attempt.lastEventAt,
    lastHeartbeatAt: attempt.lastHeartbeatAt,
    abortRequestedAt: attempt.abortRequestedAt,
  });
}

/** Which lost attempt it goes on from, and why that was lost. */
function resumption({ store }: Context, { resumesAttemptId }: AttemptRow): NamedValue[] {
  const lost = resumesAttemptId === null ? null : store.attempts.get(resumesAttemptId);
  if (!lost) return [];
  return [{ name: 'resumes', value: `attempt ${lost.attemptNumber} (${lost.errorCode})` }];
}

function attemptReason(context: Context, attempt: AttemptRow): AttemptReason {
  const stored = context.store.diagnostics.evidenceOf(attempt.id);
  const rule = RULES.find(({ number }) => number === attempt.decidedByRule);
  return {
    attempt,
    rule: rule ? { number: rule.number, when: rule.when } : null,
    evidence: [
      ...resumption(context, attempt),
      ...(stored === null ? knownNow(attempt) : flatten('', stored)),
    ],
  };
}

/** What a person is asked, and until when. */
function waitsFor(questions: readonly ApprovalRow[]): string {
  const asked = questions
    .filter(({ status }) => status === 'pending')
    .map(({ id, tool, expiresAt }) => `${tool}, until ${expiresAt} (outlive approve ${id})`);
  return `It waits for a person: ${asked.join('; ')}.`;
}

/** What it had to leave behind; nothing of an end that a retry undid. */
function outcomeWords(status: WorkUnitRow['status'], outcome: OutcomeRow | null): string {
  if (outcome === null || !TERMINAL_STATUSES.has(status)) return '';
  const { state, code, message } = outcome;
  const name = code === null ? state : `${state}(${code})`;
  return ` Its outcome is ${name}${message === null ? '' : `: ${message}`}.`;
}

function summaryOf(
  workUnit: WorkUnitRow,
  waiting: Waiting | null,
  last: AttemptReason | null,
  questions: readonly ApprovalRow[],
  outcome: OutcomeRow | null,
) {
  const { status, errorCode, errorMessage } = workUnit;
  if (waiting) return `It is queued: ${waiting.reason}.`;
  const rule = last?.rule ? ` (rule ${last.rule.number}: ${last.rule.when})` : '';
  if (TERMINAL_STATUSES.has(status) || status === 'stale') {
    const why = [errorCode, errorMessage].filter((part) => part !== null).join(', ');
    return `It is ${status}${why === '' ? '' : `: ${why}`}${rule}.${outcomeWords(status, outcome)}`;
  }
  const since = workUnit.startedAt ?? workUnit.updatedAt;
  if (status === 'waiting_for_approval') return waitsFor(questions);
  return `It is ${status}, attempt ${workUnit.attemptCount}, since ${since}.`;
}

/** The chain of reasons of one work unit. Reads only. */
export function explain(context: Context, workUnit: WorkUnitRow): Explained {
  const rows = context.store.attempts.listByWorkUnit(workUnit.id);
  const attempts = rows.map((attempt) => attemptReason(context, attempt));
  const waiting = waitingOf(context, workUnit);
  const questions = context.store.approvals.open(workUnit.id);
  return {
    workUnit,
    waiting,
    attempts,
    spend: spendOfUnit(context, workUnit),
    summary: summaryOf(
      workUnit,
      waiting,
      attempts.at(-1) ?? null,
      questions,
      context.store.outcomes.latest(workUnit.id),
    ),
  };
}

/** What a person may do with it in this state. */
export function possible(status: WorkUnitRow['status']): { canCancel: boolean; canRetry: boolean } {
  return {
    canCancel: workUnitCell(status, 'cancel').kind === 'move',
    canRetry: status === 'stale' || workUnitCell(status, 'retry').kind === 'move',
  };
}

export interface Preview {
  readonly workUnit: WorkUnitRow;
  readonly created: boolean;
  /** Null when it would start at once. */
  readonly waiting: Waiting | null;
  /** What it would wait for of other work. */
  readonly after: DependencyRows | null;
  /** Handles of live work that would be cancelled for it. */
  readonly supersedes: readonly string[];
  readonly unit: { readonly name: string; readonly properties: readonly NamedValue[] };
}

/** Carries the result out of a transaction that must not be kept. */
class RolledBack extends Error {
  readonly preview: Preview;
  constructor(preview: Preview) {
    super('rolled back on purpose');
    this.preview = preview;
  }
}

/** An attempt as the next claim would make it; nothing of it is kept. */
function imagined(context: Context, workUnit: WorkUnitRow) {
  const { store, entropy, workspace } = context;
  const { handle, id: workUnitId } = workUnit;
  return {
    id: uuidv7(entropy),
    workUnitId,
    attemptNumber: workUnit.attemptCount + 1,
    unit: unitName({ workspace, handle, counter: store.attempts.nextCounter(handle) }),
    nonce: newNonce(entropy),
    hardTimeoutMs: null,
    conversation: workUnit.conversation,
  };
}

/**
 * What a submit would do: the real submit, in a transaction that is rolled back, so it
 * refuses exactly what the real one refuses.
 */
export function preview(
  context: Context,
  input: StartWorkUnit,
  options: { idempotencyKey?: string | undefined; actor: Maker },
): Preview {
  const { store, executor, writer } = context;
  const { externalSubject } = input;
  const older = externalSubject === undefined ? [] : store.workUnits.listBySubject(externalSubject);
  const isEnding = (id: string): boolean => {
    const status = store.workUnits.get(id)?.status;
    return status === 'cancelled' || status === 'cancelling';
  };
  try {
    return writer.commit((transaction) => {
      const inside: Context = { ...context, writer: { commit: (work) => work(transaction) } };
      const { workUnit, created } = submit(inside, input, options);
      const ended = older.filter(({ id, status }) => status !== 'cancelling' && isEnding(id));
      const waiting = waitingOf(context, workUnit);
      const request = startRequest(
        context,
        workUnit,
        imagined(context, workUnit),
        sandboxNow(context, workUnit),
      );
      throw new RolledBack({
        workUnit,
        created,
        waiting: isNext(waiting) ? null : waiting,
        after: store.dependencies.of(workUnit.id),
        supersedes: ended.map(({ handle }) => handle),
        unit: { name: request.unit, properties: executor.describeStart(request) },
      });
    });
  } catch (error) {
    if (error instanceof RolledBack) return error.preview;
    throw error;
  }
}
