/** What a line of the ledger says: total over every code, and the same on every path. */
import { constants } from 'node:os';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { outcomeExitCode } from '../../src/commands/exit-code.ts';
import { EXIT } from '../../src/domain/errors.ts';
import {
  LEDGER_RESULTS,
  type LedgerEnd,
  type LedgerOutcome,
  type LedgerResult,
  ledgerRc,
  ledgerResult,
  ledgerVerify,
  outcomeWord,
} from '../../src/domain/ledger.ts';
import { OUTCOME_REASONS, OUTCOME_STATES } from '../../src/domain/outcome.ts';
import { CANCELLATIONS, FAILURES, LOSSES, RESUME_BLOCKS } from '../../src/domain/outcome-codes.ts';
import { ATTEMPT_STATUSES } from '../../src/domain/work-unit.ts';

const end = (known: Partial<LedgerEnd>): LedgerEnd => ({
  status: 'failed',
  errorCode: null,
  outcome: null,
  lastWord: null,
  process: { status: null, signal: null },
  ...known,
});
const failed = (errorCode: string, known: Partial<LedgerEnd> = {}): LedgerEnd =>
  end({ errorCode, ...known });
const outcome = (known: Partial<LedgerOutcome>): LedgerOutcome => ({
  state: 'satisfied',
  code: null,
  verifyId: null,
  ...known,
});

const BY_RESULT: Partial<Record<LedgerResult, readonly string[]>> = {
  timeout: ['hard_timeout', 'idle_timeout', 'heartbeat_timeout', 'tool_timeout'],
  signal: ['killed', 'crashed', 'watchdog'],
  oom: ['oom'],
  'spawn-error': ['spawn_error', 'launch_failed', 'cwd_missing', 'sandbox_unavailable'],
  stopped: ['approval_expired', 'approval_denied', 'budget_exceeded', 'aborted'],
  lost: ['approval_resume_effect_unknown', 'runtime_interrupted_no_checkpoint'],
};
const said = { lastWord: { exitCode: 0, signal: null } };

describe('the result', () => {
  const expected = (code: string): string =>
    Object.entries(BY_RESULT).find(([, codes]) => codes.includes(code))?.[0] ?? 'exit';

  it.each(Object.keys(FAILURES))('of an attempt that failed with %s', (code) => {
    expect(ledgerResult(failed(code, said))).toBe(expected(code));
  });
  it.each(Object.keys(CANCELLATIONS))('of one that was cancelled with %s is stopped', (code) => {
    expect(ledgerResult(end({ status: 'cancelled', errorCode: code }))).toBe('stopped');
  });
  it.each([...Object.keys(LOSSES), ...Object.keys(RESUME_BLOCKS)])(
    'of one that was lost with %s is lost',
    (code) => {
      expect(ledgerResult(end({ status: 'lost', errorCode: code }))).toBe('lost');
    },
  );
  it('of one that found no room for its spool is that nothing was started', () => {
    expect(ledgerResult(failed('disk_full'))).toBe('spawn-error');
    expect(ledgerResult(failed('disk_full', said))).toBe('exit');
  });
  it('of one that ended well is phantom only where what it had to leave behind is not there', () => {
    const well = (known: Partial<LedgerOutcome> | null) =>
      ledgerResult(end({ status: 'succeeded', outcome: known && outcome(known) }));
    expect(well(null)).toBe('exit');
    expect(well({})).toBe('exit');
    expect(well({ state: 'refuted', code: 'verify_failed' })).toBe('exit');
    expect(well({ state: 'blocked', code: 'verify_not_run' })).toBe('exit');
    expect(well({ state: 'blocked', code: 'delegated_outcome_missing' })).toBe('phantom');
  });
  it('is there for every row, whatever it says, and running only for what has not ended', () => {
    const codes = { ...FAILURES, ...CANCELLATIONS, ...LOSSES, ...RESUME_BLOCKS };
    const maybe = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: null });
    const rows: fc.Arbitrary<LedgerEnd> = fc.record({
      status: fc.constantFrom(...ATTEMPT_STATUSES),
      errorCode: maybe(
        fc.constantFrom(...Object.keys(codes), 'of_a_later_outlive', 'constructor', ''),
      ),
      outcome: maybe(
        fc.record({
          state: fc.constantFrom(...OUTCOME_STATES),
          code: maybe(fc.constantFrom(...Object.keys(OUTCOME_REASONS))),
          verifyId: maybe(fc.string()),
        }),
      ),
      lastWord: maybe(
        fc.record({ exitCode: maybe(fc.nat({ max: 255 })), signal: maybe(fc.string()) }),
      ),
      process: fc.record({
        status: maybe(fc.nat({ max: 255 })),
        signal: maybe(fc.constantFrom('TERM', 'SEGV', 'RTMIN+3', '?', '')),
      }),
    });
    fc.assert(
      fc.property(rows, (row) => {
        const result = ledgerResult(row);
        expect(Object.keys(LEDGER_RESULTS)).toContain(result);
        const alive = ['created', 'started', 'waiting_for_approval', 'cancelling'];
        expect(result === 'running').toBe(alive.includes(row.status));
        const rc = ledgerRc(row);
        expect(rc === null || (Number.isInteger(rc) && rc >= 0 && rc <= 255), String(rc)).toBe(
          true,
        );
        expect(rc === 0, String(rc)).toBe(row.status === 'succeeded');
        expect(outcomeWord(row.outcome) === null).toBe(row.outcome === null);
        ledgerVerify(row.outcome);
      }),
      { numRuns: 2_000 },
    );
  });
});

describe('the exit status', () => {
  it('is the one the program exited with, also where only its unit or record tells', () => {
    const lastWord = { exitCode: 3, signal: null };
    expect(ledgerRc(failed('exit_code', { lastWord, process: { status: 1, signal: null } }))).toBe(
      3,
    );
    expect(ledgerRc(failed('exit_code', { process: { status: 7, signal: null } }))).toBe(7);
    expect(ledgerRc(end({ status: 'succeeded', lastWord: { exitCode: null, signal: null } }))).toBe(
      0,
    );
  });
  it('is never 0 for a failure, not where the program itself exited with 0', () => {
    const process = { status: 0, signal: null };
    expect(ledgerRc(failed('model_error', { ...said, process }))).toBe(1);
    expect(ledgerRc(failed('runner_no_result', { process }))).toBe(1);
  });
  it.each(BY_RESULT.timeout ?? [])(
    'is 124 for %s, whatever the process said, as outlive run exits; row 304, row 136',
    (code) => {
      expect(outcomeExitCode('failed', code)).toBe(124);
      for (const status of [0, 1, 143]) {
        const lastWord = { exitCode: status, signal: 'SIGTERM' };
        expect(ledgerRc(failed(code, { lastWord, process: { status, signal: 'KILL' } }))).toBe(124);
      }
    },
  );
  it('is 127 where nothing was started, and 130, as outlive run exits, where it was stopped', () => {
    const lastWord = { exitCode: 126, signal: null };
    expect(ledgerRc(failed('spawn_error', { lastWord }))).toBe(127);
    expect(ledgerRc(failed('launch_failed', { process: { status: 203, signal: null } }))).toBe(127);
    expect(ledgerRc(end({ status: 'cancelled', process: { status: null, signal: 'TERM' } }))).toBe(
      EXIT.cancelled,
    );
  });
  it('is 128 and the number of the signal, by either of its names', () => {
    // Names that Linux has two of, and those that this machine's libc lacks, are the same numbers.
    for (const [name, number] of Object.entries(constants.signals)) {
      if (name === 'SIGIOT' || name === 'SIGPOLL' || name === 'SIGUNUSED') continue;
      expect(ledgerRc(failed('killed', { lastWord: { exitCode: null, signal: name } })), name).toBe(
        128 + number,
      );
      const process = { status: null, signal: name.replace('SIG', '') };
      expect(ledgerRc(failed('crashed', { process })), name).toBe(128 + number);
    }
    const real = { status: null, signal: 'RTMIN+3' };
    expect(ledgerRc(failed('killed', { process: real }))).toBe(128 + 37);
    expect(ledgerRc(failed('oom'))).toBe(137);
  });
  it('is null where nobody knows', () => {
    expect(ledgerRc(end({ status: 'lost', process: { status: 0, signal: null } }))).toBeNull();
    expect(ledgerRc(failed('killed', { process: { status: null, signal: '?' } }))).toBeNull();
    expect(ledgerRc(end({ status: 'started' }))).toBeNull();
  });
});

describe('outcome and verification', () => {
  it.each([
    [null, null, null],
    [outcome({}), 'satisfied', null],
    [outcome({ verifyId: 'v' }), 'satisfied', 'ok'],
    [outcome({ state: 'pending', verifyId: 'v' }), 'pending', 'pending'],
    [
      outcome({ state: 'refuted', code: 'verify_failed', verifyId: 'v' }),
      'refuted(verify_failed)',
      'failed',
    ],
    [
      outcome({ state: 'blocked', code: 'delegated_outcome_missing' }),
      'blocked(delegated_outcome_missing)',
      'not_run',
    ],
    [
      outcome({ state: 'blocked', code: 'verify_not_run', verifyId: 'v' }),
      'blocked(verify_not_run)',
      'not_run',
    ],
    [outcome({ state: 'skipped', code: 'timed_out' }), 'skipped(timed_out)', 'skipped'],
  ])('%j reads %s and %s', (found, word, verify) => {
    expect([outcomeWord(found), ledgerVerify(found)]).toEqual([word, verify]);
  });
});
