/** What `outlive linear` says to people. */
import { describe, expect, it } from 'vitest';
import type { LinearDetails } from '../../src/api/schemas-linear.ts';
import { linearLines } from '../../src/commands/linear.ts';
import type { Step } from '../../src/commands/linear-checks.ts';
import { nextStep } from '../../src/commands/linear-setup.ts';

const AT = '2027-02-03T10:00:00.000Z';
const NOW = Date.parse('2027-02-03T10:05:00.000Z');
const QUIET: LinearDetails = {
  authProblem: null,
  permissions: null,
  appUserId: null,
  organizationId: null,
  deliveries: { lastReceivedAt: null, new: 0, failed: 0 },
  outbox: { pending: 0, failed: 0, oldestPendingAt: null },
  openSessions: 0,
  openTurns: 0,
  sweep: { lastAt: null, problem: null },
  budget: { requests: null, complexity: null, closedUntil: null },
};

describe('the status in lines', () => {
  it('says what is not known yet', () => {
    const text = linearLines(QUIET, NOW).join('\n');
    expect(text).toContain('auth          ok');
    expect(text).toContain('last webhook  never');
    expect(text).toContain('requests      not known yet');
  });

  it('says since when something is wrong, and what to do, on one line each', () => {
    const requests = { limit: 5_000, remaining: 12, resetAt: '2027-02-03T10:35:00.000Z' };
    const lines = linearLines(
      {
        ...QUIET,
        authProblem: { code: 'invalid_client', message: 'rotate\nit', since: AT },
        outbox: { pending: 3, failed: 1, oldestPendingAt: AT },
        sweep: { lastAt: AT, problem: { code: 'auth', message: 'no token', since: AT } },
        budget: { ...QUIET.budget, requests },
      },
      NOW,
    );
    expect(lines).toHaveLength(11);
    const text = lines.join('\n');
    expect(text).toMatch(/auth +PROBLEM for 5m.*invalid_client.*setup --check/);
    expect(text).toMatch(/outbox +3 pending, 1 failed, the oldest from 5m.* ago/);
    expect(text).toMatch(/last sweep +5m.* ago, failing: no token/);
    expect(text).toMatch(/requests +12 of 5000 left for 30m/);
  });
});

describe('the next step', () => {
  const step = (verdict: Step['verdict'], advice: string | null): Step => ({
    ...{ step: 'x', verdict, found: 'y', advice },
  });

  it('is that of the first problem, else of the first note that has one', () => {
    const steps = [step('ok', null), step('note', 'a'), step('problem', 'b'), step('problem', 'c')];
    expect(nextStep(steps)).toBe('Next: b');
    expect(nextStep(steps.slice(0, 2))).toBe('Next: a');
    expect(nextStep(steps.slice(0, 1))).toMatch(/as it should be/);
  });
});
