/** The budget by itself: headers that a server rarely sends, and clocks that disagree. */
import { describe, expect, it } from 'vitest';
import { Budget } from '../../src/linear/budget.ts';
import { LinearError, type Priority } from '../../src/linear/port.ts';

const HOUR = 3_600_000;
const START = Date.parse('2026-01-02T03:04:05.678Z');

/** A budget on a clock that the test moves. */
function made() {
  let now = START;
  let monotonic = 7;
  const budget = new Budget({ now: () => now, monotonic: () => monotonic });
  return {
    budget,
    advance: (ms: number) => {
      now += ms;
      monotonic += ms;
    },
    /** Somebody sets the clock. */
    set: (ms: number) => {
      now += ms;
    },
    /** Milliseconds until such a call may begin; 0 when it just has. */
    wait: (priority: Priority = 0, operation = 'issue'): number => {
      try {
        budget.begin(operation, priority);
        budget.ended();
        return 0;
      } catch (error) {
        const problem = error instanceof LinearError ? error.problem : null;
        if (problem?.kind !== 'rate_limited') throw error;
        return problem.retryAt - now;
      }
    },
  };
}

const headers = (prefix: string, remaining: number, resetAt: number): Headers =>
  new Headers({
    [`x-ratelimit-${prefix}-limit`]: '100',
    [`x-ratelimit-${prefix}-remaining`]: String(remaining),
    [`x-ratelimit-${prefix}-reset`]: String(resetAt),
  });

describe('the budget', () => {
  it('lets everything through that it knows nothing about', () => {
    const { wait } = made();
    expect([wait(0), wait(1), wait(2)]).toEqual([0, 0, 0]);
  });

  it.each([
    [21, [0, 0, 0]],
    [20, [0, 0, HOUR]],
    [6, [0, 0, HOUR]],
    [5, [0, HOUR, HOUR]],
    [1, [0, HOUR, HOUR]],
    [0, [HOUR, HOUR, HOUR]],
  ])('of 100 with %d left lets through by priority', (left, expected) => {
    const { budget, wait } = made();
    budget.observe('issue', headers('requests', left, START + HOUR));
    expect([wait(0), wait(1), wait(2)]).toEqual(expected);
  });

  it('is unknown again after its reset', () => {
    const { budget, wait, advance } = made();
    budget.observe('issue', headers('requests', 0, START + HOUR));
    advance(HOUR);
    expect(wait(2)).toBe(0);
  });

  it('of one operation closes only that', () => {
    const { budget, wait } = made();
    budget.observe('issue', headers('endpoint-requests', 0, START + 9_000));
    expect([wait(0, 'issue'), wait(2, 'viewer')]).toEqual([9_000, 0]);
  });

  it('waits after a refusal for the pool that is used up, not for another', () => {
    const { budget } = made();
    budget.observe('issue', headers('complexity', 50, START + HOUR));
    expect(budget.refused('issue', headers('requests', 0, START + 5_000))).toBe(START + 5_000);
  });

  it('takes a reset that has passed for a clock that is set otherwise', () => {
    const { budget } = made();
    expect(budget.refused('issue', headers('requests', 0, START - 1))).toBe(START + 60_000);
  });

  it('never waits longer than the hour that Linear counts by', () => {
    const { budget, wait } = made();
    budget.observe('issue', headers('requests', 0, START + 30 * HOUR));
    expect(wait(0)).toBe(HOUR);
    const far = new Headers({ 'retry-after': '999999' });
    expect(budget.refused('issue', far)).toBe(START + HOUR);
  });

  it('a clock that is set back holds nothing up for longer', () => {
    const { budget, wait, advance, set } = made();
    budget.observe('issue', headers('requests', 0, START + HOUR));
    set(-5 * HOUR);
    expect(wait(0)).toBe(HOUR);
    advance(HOUR);
    expect(wait(0)).toBe(0);
    budget.refused('issue', new Headers({ 'retry-after': '60' }));
    set(-5 * HOUR);
    advance(60_000);
    expect(wait(0)).toBe(0);
  });

  it('takes no header that is not a number', () => {
    const { budget, wait } = made();
    const odd = new Headers({
      'x-ratelimit-requests-limit': '100',
      'x-ratelimit-requests-remaining': '',
      'x-ratelimit-requests-reset': 'soon',
      'retry-after': 'Wed, 21 Oct 2026 07:28:00 GMT',
    });
    budget.observe('issue', odd);
    expect([wait(2), budget.view().requests]).toEqual([0, null]);
    expect(budget.refused('issue', odd)).toBe(START + 60_000);
  });

  it('says what it knows and until when it is closed', () => {
    const { budget, advance } = made();
    const closedUntil = budget.refused('issue', headers('requests', 0, START + 5_000));
    expect(budget.view()).toEqual({
      requests: { limit: 100, remaining: 0, resetAt: START + 5_000 },
      complexity: null,
      closedUntil,
    });
    advance(5_000);
    expect(budget.view().closedUntil).toBe(null);
  });
});
