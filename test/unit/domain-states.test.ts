import { describe, expect, it } from 'vitest';
import type { AttemptEvent, WorkUnitEvent } from '../../src/domain/states.ts';
import { allCells, attemptCell, workUnitCell } from '../../src/domain/states.ts';
import type { AttemptStatus, WorkUnitStatus } from '../../src/domain/work-unit.ts';
import {
  ATTEMPT_STATUSES,
  defaultTimeouts,
  WORK_UNIT_KINDS,
  WORK_UNIT_STATUSES,
} from '../../src/domain/work-unit.ts';

/** The transitions of the checklist, one by one, with its numbers. */
const LISTED: readonly (readonly [string, WorkUnitStatus, WorkUnitEvent, WorkUnitStatus])[] = [
  ['043', 'queued', 'claim', 'claimed'],
  ['044', 'claimed', 'runner_started', 'running'],
  ['045', 'running', 'approval_requested', 'waiting_for_approval'],
  ['046', 'waiting_for_approval', 'approval_approved', 'running'],
  ['047', 'waiting_for_approval', 'approval_denied', 'failed'],
  ['048', 'waiting_for_approval', 'approval_expired', 'failed'],
  ['049', 'running', 'runner_succeeded', 'succeeded'],
  ['050', 'running', 'runner_failed', 'failed'],
  ['051', 'running', 'idle_timeout', 'cancelling'],
  ['052', 'running', 'hard_timeout', 'cancelling'],
  ['053', 'running', 'runner_lost', 'stale'],
  ['054', 'cancelling', 'runner_cancelled', 'cancelled'],
  ['055', 'cancelling', 'cancel_timeout', 'stale'],
  ['056', 'stale', 'reconcile_failed', 'failed'],
  ['057', 'stale', 'reconcile_cancelled', 'cancelled'],
  ['058', 'failed', 'retry', 'queued'],
];

/** What recovery and systemd need beyond those. */
const ADDED: readonly (readonly [WorkUnitStatus, WorkUnitEvent, WorkUnitStatus])[] = [
  ['claimed', 'never_started', 'queued'],
  ['claimed', 'launch_failed', 'failed'],
  ['running', 'never_started', 'queued'],
  ['claimed', 'runner_succeeded', 'succeeded'],
  ['claimed', 'runner_failed', 'failed'],
  ['claimed', 'runner_cancelled', 'cancelled'],
  ['claimed', 'runner_lost', 'stale'],
  ['waiting_for_approval', 'runner_lost', 'stale'],
  ['waiting_for_approval', 'runner_failed', 'failed'],
  ['waiting_for_approval', 'runner_cancelled', 'cancelled'],
  ['cancelling', 'runner_lost', 'stale'],
  ['cancelling', 'runner_failed', 'failed'],
  ['cancelling', 'never_started', 'cancelled'],
  ['running', 'runner_cancelled', 'cancelled'],
  ['running', 'launch_failed', 'failed'],
  ['waiting_for_approval', 'launch_failed', 'failed'],
  ['waiting_for_approval', 'never_started', 'queued'],
  ['waiting_for_approval', 'runner_succeeded', 'succeeded'],
  ['waiting_for_approval', 'budget_exceeded', 'cancelling'],
  ['queued', 'interrupt', 'cancelling'],
  ['claimed', 'interrupt', 'cancelling'],
  ['running', 'interrupt', 'cancelling'],
  ['waiting_for_approval', 'interrupt', 'cancelling'],
  ['running', 'heartbeat_timeout', 'cancelling'],
  ['running', 'tool_timeout', 'cancelling'],
  ['running', 'budget_exceeded', 'cancelling'],
  ['claimed', 'provider_backoff', 'queued'],
  ['running', 'approval_resume', 'queued'],
  ['waiting_for_approval', 'approval_resume', 'queued'],
  ['waiting_for_approval', 'approval_failed', 'cancelling'],
  ['running', 'provider_backoff', 'queued'],
  ['stale', 'resume', 'queued'],
  ['stale', 'reconcile_alive', 'running'],
];

const LIVE = ['queued', 'claimed', 'running', 'waiting_for_approval', 'stale'] as const;

describe('the table of work units', () => {
  it.each(LISTED)('row %s: %s --%s--> %s', (_row, from, event, to) => {
    expect(workUnitCell(from, event)).toEqual({ kind: 'move', to });
  });

  it.each(ADDED)('beyond those: %s --%s--> %s', (from, event, to) => {
    expect(workUnitCell(from, event)).toEqual({ kind: 'move', to });
  });

  it.each(LIVE)('row 059: %s --cancel--> cancelling', (from) => {
    expect(workUnitCell(from, 'cancel')).toEqual({ kind: 'move', to: 'cancelling' });
  });

  it('moves nowhere else: every other cell stays or refuses', () => {
    const listed = new Set([
      ...LISTED.map(([, from, event]) => `${from} ${event}`),
      ...ADDED.map(([from, event]) => `${from} ${event}`),
      ...LIVE.map((from) => `${from} cancel`),
    ]);
    const moves = allCells().workUnits.filter(({ cell }) => cell.kind === 'move');
    expect(moves.map(({ from, event }) => `${from} ${event}`).sort()).toEqual([...listed].sort());
  });

  it('row 064: a late success of cancelled, failed or stale work changes nothing', () => {
    for (const from of ['cancelled', 'failed', 'stale', 'cancelling'] as const) {
      expect(workUnitCell(from, 'runner_succeeded').kind, from).toBe('stay');
    }
  });

  it('cancelling twice is once', () => {
    expect(workUnitCell('cancelling', 'cancel').kind).toBe('stay');
    expect(workUnitCell('cancelled', 'cancel').kind).toBe('stay');
  });

  it('cancelling what has succeeded or failed is refused, not swallowed', () => {
    expect(workUnitCell('succeeded', 'cancel')).toEqual({ kind: 'refuse' });
    expect(workUnitCell('failed', 'cancel')).toEqual({ kind: 'refuse' });
  });

  it('row 063: stale is left only by reconciling, resume or cancel', () => {
    const ways = allCells().workUnits.filter(
      ({ from, cell }) => from === 'stale' && cell.kind === 'move',
    );
    expect(ways.map(({ event }) => event).sort()).toEqual([
      'cancel',
      'reconcile_alive',
      'reconcile_cancelled',
      'reconcile_failed',
      'resume',
    ]);
  });

  it('a person who thinks an approval over costs the run no timeout', () => {
    expect(workUnitCell('waiting_for_approval', 'idle_timeout').kind).toBe('stay');
    expect(workUnitCell('waiting_for_approval', 'hard_timeout').kind).toBe('stay');
  });

  it('row 061: a pair nobody thought of is refused', () => {
    expect(workUnitCell('queued', 'runner_succeeded')).toEqual({ kind: 'refuse' });
    expect(workUnitCell('running', 'claim')).toEqual({ kind: 'refuse' });
    expect(workUnitCell('cancelled', 'retry')).toEqual({ kind: 'refuse' });
    expect(workUnitCell('succeeded', 'retry')).toEqual({ kind: 'refuse' });
  });
});

describe('the table of attempts', () => {
  const MOVES: readonly (readonly [AttemptStatus, AttemptEvent, AttemptStatus])[] = [
    ['created', 'started', 'started'],
    ['created', 'cancel', 'cancelling'],
    ['created', 'succeeded', 'succeeded'],
    ['created', 'failed', 'failed'],
    ['created', 'cancelled', 'cancelled'],
    ['created', 'lost', 'lost'],
    ['started', 'approval_requested', 'waiting_for_approval'],
    ['started', 'cancel', 'cancelling'],
    ['started', 'succeeded', 'succeeded'],
    ['started', 'failed', 'failed'],
    ['started', 'cancelled', 'cancelled'],
    ['started', 'lost', 'lost'],
    ['waiting_for_approval', 'approval_approved', 'started'],
    ['waiting_for_approval', 'cancel', 'cancelling'],
    ['waiting_for_approval', 'succeeded', 'succeeded'],
    ['waiting_for_approval', 'failed', 'failed'],
    ['waiting_for_approval', 'cancelled', 'cancelled'],
    ['waiting_for_approval', 'lost', 'lost'],
    ['cancelling', 'failed', 'failed'],
    ['cancelling', 'cancelled', 'cancelled'],
    ['cancelling', 'lost', 'lost'],
  ];

  it.each(MOVES)('%s --%s--> %s', (from, event, to) => {
    expect(attemptCell(from, event)).toEqual({ kind: 'move', to });
  });

  it('moves nowhere else', () => {
    const moves = allCells().attempts.filter(({ cell }) => cell.kind === 'move');
    expect(moves.map(({ from, event }) => `${from} ${event}`).sort()).toEqual(
      MOVES.map(([from, event]) => `${from} ${event}`).sort(),
    );
  });
});

describe('the vocabulary', () => {
  it('row 022: names the seven kinds of work', () => {
    expect([...WORK_UNIT_KINDS].sort()).toEqual([
      'channel_ai_reply',
      'channel_turn_dispatch',
      'external_work_action',
      'external_work_step',
      'media_job',
      'task_run',
      'teammate_direct_reply',
    ]);
  });

  it('row 023: names the nine states of work', () => {
    expect([...WORK_UNIT_STATUSES].sort()).toEqual([
      'cancelled',
      'cancelling',
      'claimed',
      'failed',
      'queued',
      'running',
      'stale',
      'succeeded',
      'waiting_for_approval',
    ]);
  });

  it('row 037: names the eight states of an attempt', () => {
    expect([...ATTEMPT_STATUSES].sort()).toEqual([
      'cancelled',
      'cancelling',
      'created',
      'failed',
      'lost',
      'started',
      'succeeded',
      'waiting_for_approval',
    ]);
  });

  it.each([
    ['task_run', 600_000, 3_600_000],
    ['channel_ai_reply', 120_000, 900_000],
    ['teammate_direct_reply', 120_000, 900_000],
    ['external_work_step', 600_000, 5_400_000],
  ] as const)('rows 096-101: %s is idle after %i ms and over after %i ms', (kind, idle, hard) => {
    expect(defaultTimeouts(kind)).toMatchObject({
      heartbeatIntervalMs: 10_000,
      heartbeatTimeoutMs: 45_000,
      idleTimeoutMs: idle,
      hardTimeoutMs: hard,
      cancelGraceMs: 15_000,
    });
  });
});
