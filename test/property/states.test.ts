import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  ATTEMPT_EVENTS,
  type AttemptEvent,
  allCells,
  attemptCell,
  type Cell,
  WORK_UNIT_EVENTS,
  type WorkUnitEvent,
  workUnitCell,
} from '../../src/domain/states.ts';
import {
  ATTEMPT_STATUSES,
  type AttemptStatus,
  TERMINAL_ATTEMPT_STATUSES,
  TERMINAL_STATUSES,
  WORK_UNIT_STATUSES,
  type WorkUnitStatus,
} from '../../src/domain/work-unit.ts';

const workUnitEvent = fc.constantFrom(...WORK_UNIT_EVENTS);
const attemptEvent = fc.constantFrom(...ATTEMPT_EVENTS);
const step = <State extends string>(from: State, cell: Cell<State>): State =>
  cell.kind === 'move' ? cell.to : from;

/** All states on the way of a sequence of events, the first included. */
function path<State extends string, Event extends string>(
  start: State,
  events: readonly Event[],
  cell: (from: State, event: Event) => Cell<State>,
): State[] {
  const states = [start];
  for (const event of events) {
    const from = states.at(-1) ?? start;
    states.push(step(from, cell(from, event)));
  }
  return states;
}

describe('row 061: every cell of both tables', () => {
  const { workUnits, attempts } = allCells();

  it('is decided: one for each state and event, none twice', () => {
    const of = (cells: readonly { from: string; event: string }[]) =>
      new Set(cells.map(({ from, event }) => `${from} ${event}`)).size;
    expect(of(workUnits)).toBe(WORK_UNIT_STATUSES.length * WORK_UNIT_EVENTS.length);
    expect(of(attempts)).toBe(ATTEMPT_STATUSES.length * ATTEMPT_EVENTS.length);
    expect(workUnits).toHaveLength(of(workUnits));
    expect(attempts).toHaveLength(of(attempts));
  });

  it('is a move to a known state, a stay with a reason, or a refusal', () => {
    const states: readonly string[] = [...WORK_UNIT_STATUSES, ...ATTEMPT_STATUSES];
    for (const { from, event, cell } of [...workUnits, ...attempts]) {
      const where = `${from} × ${event}`;
      if (cell.kind === 'move') expect(states, where).toContain(cell.to);
      else if (cell.kind === 'stay') expect(cell.reason.length, where).toBeGreaterThan(5);
      else expect(cell, where).toEqual({ kind: 'refuse' });
    }
  });

  it('never moves a state to itself: that would be an event for nothing', () => {
    const loops = [...workUnits, ...attempts].filter(
      ({ from, cell }) => cell.kind === 'move' && cell.to === from,
    );
    expect(loops).toEqual([]);
  });
});

describe('random sequences of events', () => {
  it('never leave the table of work units', () => {
    fc.assert(
      fc.property(fc.array(workUnitEvent, { maxLength: 60 }), (events) => {
        for (const state of path<WorkUnitStatus, WorkUnitEvent>('queued', events, workUnitCell)) {
          expect(WORK_UNIT_STATUSES).toContain(state);
        }
      }),
    );
  });

  it('never leave the table of attempts', () => {
    fc.assert(
      fc.property(fc.array(attemptEvent, { maxLength: 60 }), (events) => {
        for (const state of path<AttemptStatus, AttemptEvent>('created', events, attemptCell)) {
          expect(ATTEMPT_STATUSES).toContain(state);
        }
      }),
    );
  });

  it('reach every state of both machines', () => {
    const reach = <State extends string, Event extends string>(
      start: State,
      events: readonly Event[],
      cell: (from: State, event: Event) => Cell<State>,
    ): Set<State> => {
      const seen = new Set([start]);
      for (const from of seen) for (const event of events) seen.add(step(from, cell(from, event)));
      return seen;
    };
    expect(reach<WorkUnitStatus, WorkUnitEvent>('queued', WORK_UNIT_EVENTS, workUnitCell)).toEqual(
      new Set(WORK_UNIT_STATUSES),
    );
    expect(reach<AttemptStatus, AttemptEvent>('created', ATTEMPT_EVENTS, attemptCell)).toEqual(
      new Set(ATTEMPT_STATUSES),
    );
  });

  it('can end from every state that is not final: nothing is a dead end', () => {
    for (const from of WORK_UNIT_STATUSES) {
      const seen = new Set<WorkUnitStatus>([from]);
      for (const state of seen) {
        for (const event of WORK_UNIT_EVENTS) seen.add(step(state, workUnitCell(state, event)));
      }
      expect(
        [...seen].some((state) => TERMINAL_STATUSES.has(state)),
        from,
      ).toBe(true);
    }
  });
});

describe('row 060: what is final', () => {
  it('stays: no event moves succeeded or cancelled', () => {
    for (const from of ['succeeded', 'cancelled'] as const) {
      for (const event of WORK_UNIT_EVENTS) {
        expect(workUnitCell(from, event).kind, `${from} × ${event}`).not.toBe('move');
      }
    }
  });

  it('moves only by retry out of failed, and to queued', () => {
    for (const event of WORK_UNIT_EVENTS) {
      const cell = workUnitCell('failed', event);
      if (event === 'retry') expect(cell).toEqual({ kind: 'move', to: 'queued' });
      else expect(cell.kind, event).not.toBe('move');
    }
  });

  it('holds in every sequence: after the first end only a retry changes anything', () => {
    fc.assert(
      fc.property(fc.array(workUnitEvent, { minLength: 1, maxLength: 60 }), (events) => {
        const states = path<WorkUnitStatus, WorkUnitEvent>('queued', events, workUnitCell);
        for (const [index, event] of events.entries()) {
          const from = states[index] ?? 'queued';
          if (!TERMINAL_STATUSES.has(from) || states[index + 1] === from) continue;
          expect([from, event]).toEqual(['failed', 'retry']);
        }
      }),
    );
  });

  it('never moves an attempt that has ended: a retry is another attempt', () => {
    for (const from of TERMINAL_ATTEMPT_STATUSES) {
      for (const event of ATTEMPT_EVENTS) {
        expect(attemptCell(from, event).kind, `${from} × ${event}`).not.toBe('move');
      }
    }
  });

  it('is entered by the runner or by reconciling, never by a person or a clock directly', () => {
    const enders: readonly WorkUnitEvent[] = [
      'launch_failed',
      'never_started',
      'approval_denied',
      'approval_expired',
      'runner_succeeded',
      'runner_failed',
      'runner_cancelled',
      'reconcile_failed',
      'reconcile_cancelled',
    ];
    for (const { from, event, cell } of allCells().workUnits) {
      if (cell.kind !== 'move' || !TERMINAL_STATUSES.has(cell.to)) continue;
      expect(enders, `${from} × ${event}`).toContain(event);
    }
  });

  it('is succeeded only by a runner that said so', () => {
    for (const { from, event, cell } of allCells().workUnits) {
      if (cell.kind !== 'move' || cell.to !== 'succeeded') continue;
      expect(event, from).toBe('runner_succeeded');
    }
  });
});

describe('row 041: the active attempts of a work unit', () => {
  /** Claim makes an attempt; the work unit's end, a requeue and a resume take it away. */
  it('are at most one, whatever happens', () => {
    fc.assert(
      fc.property(fc.array(workUnitEvent, { maxLength: 80 }), (events) => {
        let state: WorkUnitStatus = 'queued';
        let active = 0;
        for (const event of events) {
          const cell = workUnitCell(state, event);
          if (cell.kind !== 'move') continue;
          state = cell.to;
          if (event === 'claim') active++;
          if (state === 'queued' || TERMINAL_STATUSES.has(state)) active = 0;
          expect(active).toBeLessThanOrEqual(1);
        }
      }),
    );
  });

  it('are begun only from queued', () => {
    for (const { from, event, cell } of allCells().workUnits) {
      if (cell.kind !== 'move' || cell.to !== 'claimed') continue;
      expect([from, event]).toEqual(['queued', 'claim']);
    }
  });
});
