import { describe, expect, it } from 'vitest';
import type { UnitFacts } from '../../src/executor/port.ts';
import type { RecoveryAction, RecoveryView } from '../../src/recovery/plan.ts';
import { planRecovery } from '../../src/recovery/plan.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';

const attempt = (unit: string, nonce: string): AttemptRow => ({
  id: `attempt of ${unit}`,
  workUnitId: 'w',
  attemptNumber: 1,
  runtimeInstanceId: 'r',
  runnerId: 'command',
  providerPresetId: null,
  status: 'started',
  unit,
  nonce,
  executor: 'systemd',
  invocationId: null,
  controlGroup: null,
  bootId: null,
  manager: null,
  reattached: 0,
  spoolOffset: 0,
  spoolLines: 0,
  opened: null,
  saidDeadline: false,
  toldToStop: false,
  lastWord: null,
  intent: null,
  startProblem: null,
  exit: null,
  decidedByRule: null,
  createdAt: '2026-01-01T00:00:00.000Z',
  startedAt: null,
  endedAt: null,
  lastEventAt: null,
  lastHeartbeatAt: null,
  abortRequestedAt: null,
  errorCode: null,
  errorMessage: null,
  resumesAttemptId: null,
  hardTimeoutMs: null,
  conversation: null,
  waitedMs: 0,
  waitingSince: null,
  spoolCut: false,
});

const unit = (name: string, nonce: string | null, state: UnitFacts['state'] = 'active') =>
  ({
    unit: name,
    nonce,
    state,
    jobPending: false,
    everRan: true,
    frozen: false,
    invocationId: null,
    controlGroup: null,
    mainPid: null,
    result: 'success',
    exit: { how: 'unknown', status: null, signal: null, elapsedMs: null },
    leavesExitRecord: true,
  }) satisfies UnitFacts;

const A = 'outlive-main-a-1.service';
const B = 'outlive-main-b-1.service';

const nothing: RecoveryView = {
  attempts: [],
  work: [],
  endedHolders: [],
  units: [],
  endedNonces: new Set(),
  watched: new Set(),
  suspended: new Set(),
  reported: new Set(),
};

function line(action: RecoveryAction): string {
  if ('attempt' in action) return `${action.kind} ${action.attempt.unit}`;
  if ('work' in action) return `${action.kind} ${action.work.handle}`;
  return `${action.kind} ${'unit' in action ? action.unit : action.attemptId}`;
}

/** The plan, each action as one line. */
const plan = (
  attempts: readonly AttemptRow[],
  units: readonly UnitFacts[],
  ended: readonly string[] = [],
): string[] => planRecovery({ ...nothing, attempts, units, endedNonces: new Set(ended) }).map(line);

describe('the recovery plan', () => {
  it('is empty when there is nothing', () => {
    expect(plan([], [])).toEqual([]);
  });

  it.each(['activating', 'active', 'reloading', 'deactivating', 'inactive', 'failed'] as const)(
    'row 144: follows on a unit of its name and nonce that is %s',
    (state) => {
      expect(plan([attempt(A, 'n')], [unit(A, 'n', state)])).toEqual([`reattach ${A}`]);
    },
  );

  it('settles an attempt whose unit is not loaded', () => {
    expect(plan([attempt(A, 'n')], [])).toEqual([`settle ${A}`]);
  });

  it('never adopts by the name alone: another nonce is settled and reported', () => {
    expect(plan([attempt(A, 'n')], [unit(A, 'other')])).toEqual([
      `settle ${A}`,
      `report_foreign ${A}`,
    ]);
    expect(plan([attempt(A, 'n')], [unit(A, null)])).toEqual([
      `settle ${A}`,
      `report_foreign ${A}`,
    ]);
  });

  it('never adopts by the nonce alone: under another name it is not ours', () => {
    expect(plan([attempt(A, 'n')], [unit(B, 'n')])).toEqual([`settle ${A}`, `report_foreign ${B}`]);
  });

  it('lets go of a dead unit whose attempt had ended', () => {
    expect(plan([], [unit(A, 'n', 'failed')], ['n'])).toEqual([`release_unit ${A}`]);
    expect(plan([], [unit(A, 'n', 'inactive')], ['n'])).toEqual([`release_unit ${A}`]);
  });

  it('reports a living unit whose attempt had ended, and does not touch it', () => {
    expect(plan([], [unit(A, 'n', 'active')], ['n'])).toEqual([`report_foreign ${A}`]);
  });

  it('does not let go of one whose start job is still queued: it is not dead', () => {
    const heldBack = { ...unit(A, 'n', 'inactive'), jobPending: true };
    expect(plan([], [heldBack], ['n'])).toEqual([`report_foreign ${A}`]);
    expect(plan([attempt(A, 'n')], [heldBack])).toEqual([`reattach ${A}`]);
  });

  it('reports a unit of which the store knows nothing, dead or alive', () => {
    expect(plan([], [unit(A, 'n', 'failed'), unit(B, null)])).toEqual([
      `report_foreign ${A}`,
      `report_foreign ${B}`,
    ]);
  });

  it('has nothing to say about names that are not of an attempt', () => {
    expect(plan([], [unit('outlived-main.service', null), unit('foo.service', 'n')])).toEqual([]);
  });

  it('has one action for each attempt and each unit that nobody owns', () => {
    const lines = plan(
      [attempt(A, 'a'), attempt(B, 'b')],
      [unit(A, 'a'), unit('outlive-main-c-1.service', 'c')],
    );
    expect(lines).toEqual([
      `reattach ${A}`,
      `settle ${B}`,
      'report_foreign outlive-main-c-1.service',
    ]);
  });
});
