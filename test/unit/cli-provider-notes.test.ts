import { describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import { noteOf } from '../../src/commands/event-notes.ts';
import { psTable } from '../../src/commands/ps.ts';
import { RunOutcome } from '../../src/commands/run-outcome.ts';
import { anEvent, aWorkUnit } from '../cli/fake-daemon.ts';

const BACKOFF = {
  reason: 'provider_backoff',
  errorCode: 'rate_limited',
  errorMessage: '429: slow\u001b[2J down',
  failures: 2,
  maxAttempts: 5,
  nextStartAt: '2026-01-02T03:04:05.678Z',
};
const queued = (data: EventView['data']): EventView => ({
  ...anEvent(1, 'work_unit.queued'),
  data,
});

describe('work that backs off', () => {
  it('is a note for who waits, safe for a terminal', () => {
    expect(noteOf(queued(BACKOFF))).toBe(
      'backing off until 2026-01-02T03:04:05.678Z, attempt 2 of 5 failed (rate_limited: 429: slow\\x1b[2J down)',
    );
    expect(noteOf(queued({ handle: 'issue42' })), 'the first time it is queued').toBeNull();
    expect(noteOf(queued({ reason: 'never_started' }))).toBeNull();
  });

  it('has not ended', () => {
    const outcome = new RunOutcome();
    outcome.push(queued(BACKOFF));
    expect([outcome.status, outcome.errorCode]).toEqual(['running', null]);
  });
});

describe('ps', () => {
  it('shows what all attempts cost, and what they may', () => {
    const { spend } = aWorkUnit();
    const money = { ...spend, tokens: 5, costUsd: 0.4 };
    const rows = psTable(
      [
        aWorkUnit({ handle: 'a', spend: money }),
        aWorkUnit({ handle: 'b', spend: { ...money, maxCostUsd: 2.5 } }),
      ],
      Date.parse('2026-11-29T20:03:00.000Z'),
    );
    expect(rows.slice(1).map((row) => row.split(/ +/)[6])).toEqual(['$0.40', '$0.40/$2.50']);
  });
});
