/** Declared outcomes, the parts without a store: what an end means, what decides, where JSON is found. */
import { describe, expect, it } from 'vitest';
import { type EventView, startWorkUnitSchema } from '../../src/api/schemas.ts';
import { outcomeExitCode } from '../../src/commands/exit-code.ts';
import { RunOutcome } from '../../src/commands/run-outcome.ts';
import {
  OUTCOME_REASONS,
  OUTCOME_STATES,
  outcomeContractSchema,
} from '../../src/domain/outcome.ts';
import {
  CANCELLATIONS,
  FAILURES,
  type FailureCode,
  LOSSES,
  RESUME_BLOCKS,
} from '../../src/domain/outcome-codes.ts';
import { outcomeAtEnd } from '../../src/domain/outcome-end.ts';
import { findResult } from '../../src/domain/outcome-result.ts';
import {
  decideByEvidence,
  decideByVerify,
  skippedBecause,
  type VerifyEnd,
  verifyNotRun,
} from '../../src/domain/outcome-verdict.ts';
import { objectionTo, requireResultSchema } from '../../src/supervisor/result-schema.ts';
import { anEvent } from '../cli/fake-daemon.ts';
import { refusal } from '../store/rig.ts';

describe('what an end means for its outcome', () => {
  const of = (
    errorCode: string | null,
    status: 'succeeded' | 'failed' | 'cancelled' = 'failed',
  ) => {
    const end = outcomeAtEnd({ status, errorCode, attemptCount: 1 });
    return end.state === 'pending' ? 'pending' : end.code;
  };
  const SKIPPED: Partial<Record<FailureCode, string>> = {
    hard_timeout: 'timed_out',
    idle_timeout: 'timed_out',
    heartbeat_timeout: 'timed_out',
    tool_timeout: 'timed_out',
    budget_exceeded: 'timed_out',
    approval_expired: 'was_lost',
    approval_denied: 'was_lost',
    approval_resume_effect_unknown: 'was_lost',
    runtime_interrupted_no_checkpoint: 'was_lost',
    aborted: 'was_cancelled',
    launch_failed: 'never_ran',
    spawn_error: 'never_ran',
    cwd_missing: 'never_ran',
    sandbox_unavailable: 'never_ran',
  };

  it.each(Object.keys(FAILURES) as FailureCode[])('failed, %s', (code) => {
    expect(of(code)).toBe(SKIPPED[code] ?? 'pending');
  });

  it.each([...Object.keys(LOSSES), ...Object.keys(RESUME_BLOCKS), 'of_another_outlive', null])(
    'failed, %s: lost, whoever gave it up',
    (code) => {
      expect(of(code)).toBe('was_lost');
    },
  );

  it.each([...Object.keys(CANCELLATIONS), null])('cancelled, %s', (code) => {
    expect(of(code, 'cancelled')).toBe('was_cancelled');
  });

  it('succeeded is to be looked at', () => {
    expect(of(null, 'succeeded')).toBe('pending');
  });

  it('without an attempt nothing ran, however it ended', () => {
    for (const status of ['succeeded', 'failed', 'cancelled'] as const) {
      const end = outcomeAtEnd({ status, errorCode: 'exit_code', attemptCount: 0 });
      expect(end).toEqual({ state: 'skipped', code: 'never_ran' });
    }
  });
});

describe('what decides', () => {
  const verified = (known: Partial<VerifyEnd>): VerifyEnd => ({
    handle: 'check',
    status: 'failed',
    errorCode: 'exit_code',
    errorMessage: 'sh exited with status 2',
    exitCode: 2,
    output: '',
    ...known,
  });

  it('missing files and a wrong result are told together, and nothing is verified', () => {
    const left = { missing: ['a is no file', 'b is no file'], result: 'the result is missing: x' };
    expect(decideByEvidence(left, true)).toEqual({
      state: 'blocked',
      code: 'delegated_outcome_missing',
      message: `${OUTCOME_REASONS.delegated_outcome_missing}: a is no file; b is no file; the result is missing: x`,
    });
  });

  it('what is there is satisfied, or goes to the verification', () => {
    const left = { missing: [], result: null };
    expect(decideByEvidence(left, false)).toMatchObject({ state: 'satisfied', code: null });
    expect(decideByEvidence(left, true)).toBe('verify');
  });

  it('a verification says yes with 0, no with another status, and nothing in any other way', () => {
    const yes = verified({ status: 'succeeded', errorCode: null, exitCode: 0 });
    expect(decideByVerify(yes)).toEqual({ state: 'satisfied', code: null, message: null });
    expect(decideByVerify(verified({ output: ' 1 failed\n' }))).toEqual({
      state: 'refuted',
      code: 'verify_failed',
      message: `${OUTCOME_REASONS.verify_failed}: check exited with status 2: 1 failed`,
    });
    const noAnswer = [
      verified({ errorCode: 'hard_timeout' }),
      verified({ errorCode: 'spawn_error', exitCode: 127 }),
      verified({ errorCode: 'killed', exitCode: null }),
      verified({ errorCode: 'exit_code', exitCode: null }),
      verified({ errorCode: 'runtime_interrupted_no_checkpoint', exitCode: null }),
      verified({ status: 'cancelled', errorCode: 'cancelled_by_request' }),
    ];
    for (const end of noAnswer) {
      const { state, code, message } = decideByVerify(end);
      expect({ state, code }).toEqual({ state: 'blocked', code: 'verify_not_run' });
      expect(message).toContain(end.errorCode);
    }
  });

  it('messages are bounded, and those of a skipped one say why', () => {
    expect(verifyNotRun('x'.repeat(100_000)).message?.length).toBeLessThanOrEqual(4_000);
    expect(skippedBecause('timed_out')).toEqual({
      state: 'skipped',
      code: 'timed_out',
      message: OUTCOME_REASONS.timed_out,
    });
  });
});

describe('the JSON of a command', () => {
  const found = (text: string, whole = true) => findResult('command', text, whole);
  const json = (value: unknown) => ({ kind: 'json', value });

  it('is its last line that is not empty', () => {
    expect(found('words\n{"a":1}\n\n \n')).toEqual(json({ a: 1 }));
    expect(found('{"a":1}\r\n')).toEqual(json({ a: 1 }));
    expect(found('null')).toEqual(json(null));
  });

  it.each([
    ['', true, 'printed nothing'],
    [' \n\n', true, 'printed nothing'],
    ['{"a":1}\ndone', true, 'is no JSON'],
    ['"a":1}', false, 'was cut'],
    ['{"a":"\n[… 4711 bytes cut …]\n"}', true, 'was cut'],
  ])('%j (whole: %s) has none: %s', (text, whole, why) => {
    expect(found(text, whole)).toMatchObject({
      kind: 'missing',
      why: expect.stringContaining(why) as string,
    });
  });
});

describe('the JSON of an agent', () => {
  const found = (text: string) => findResult('pi', text, true);
  const fence = (text: string): string => `\`\`\`json\n${text}\n\`\`\``;

  it('is the whole text, or its last block of JSON', () => {
    expect(found(' {"a":1}\n')).toEqual({ kind: 'json', value: { a: 1 } });
    const text = `First ${fence('{"a":1}')}\n\n${fence('{"a":2}')}\nBye.`;
    expect(found(text)).toEqual({ kind: 'json', value: { a: 2 } });
    const cutBefore = `Long\n[… 90000 bytes cut …]\n${fence('[3]')}`;
    expect(found(cutBefore)).toEqual({ kind: 'json', value: [3] });
  });

  it.each([
    ['', 'no final text'],
    ['All done.', 'no JSON and has no ```json block'],
    [`Here:\n${fence('{a:1}')}`, 'the last ```json block of the final text is no JSON'],
    [`Here:\n${fence('{"a":\n[… 9 bytes cut …]\n1}')}`, 'was cut'],
    ['Here:\n```json\n{"a":\n[… 9 bytes cut …]\n words', 'was cut'],
  ])('%j has none: %s', (text, why) => {
    expect(found(text)).toMatchObject({
      kind: 'missing',
      why: expect.stringContaining(why) as string,
    });
  });
});

describe('the schema of a result', () => {
  const refuse = (schema: Record<string, unknown>) =>
    refusal(() => requireResultSchema({ outcome: { result: { schema } } }));

  it.each([
    [{ type: 'nonsense' }],
    [{ minimum: 'x' }],
    [{ pattern: '(' }],
    [{ $ref: 'http://example.com/other' }],
    [{ $schema: 'http://json-schema.org/draft-07/schema#' }],
    [{ properties: { a: { type: 'strin' } } }],
  ])('%j is refused, naming the field', (schema) => {
    expect(refuse(schema)).toMatchObject({
      code: 'invalid_request',
      fields: [{ path: '/outcome/result/schema' }],
    });
  });

  it('is read as draft 2020-12 reads it', () => {
    const check = (schema: Record<string, unknown>, value: unknown) => objectionTo(schema, value);
    expect(check({ required: ['a'] }, {})).toContain("must have required property 'a'");
    expect(check({ properties: { a: { minLength: 2 } } }, { a: 'x' })).toContain('/a must NOT');
    expect(check({ prefixItems: [{ type: 'integer' }] }, ['x'])).toContain('/0 must be integer');
    expect(check({ not: { type: 'string' } }, 'x')).not.toBeNull();
    expect(check({ $ref: '#' }, 'x')).toContain('cannot be held against its schema');
    expect(check({ const: { a: [1] } }, { a: [1] })).toBeNull();
    expect(check({ $async: true, type: 'object' }, 3)).not.toBeNull();
    const twice = { $id: 'https://example.com/x', type: 'object', format: 'of-ours', note: 1 };
    expect([check(twice, {}), check(twice, {})]).toEqual([null, null]);
  });
});

describe('a request', () => {
  const request = (more: Record<string, unknown>) =>
    startWorkUnitSchema.safeParse({ ownerId: 'ada', runnerId: 'command', argv: ['true'], ...more });

  it('declares something, or nothing at all', () => {
    expect(request({ outcome: {} }).success).toBe(false);
    expect(request({ outcome: { outputs: [] } }).success).toBe(false);
    expect(request({ leftovers: 'maybe' }).success).toBe(false);
    expect(request({ outcome: { verify: { argv: ['x'] } } }).data).toMatchObject({
      outcome: { verify: { argv: ['x'], timeoutMs: 600_000 } },
    });
  });

  it.each(['../a', 'a/../../b', './..', '..'])('%s leaves the working directory', (output) => {
    expect(outcomeContractSchema.safeParse({ outputs: [output] }).success).toBe(false);
  });

  it.each(['a/../b', '/a/../../b', '..a', 'a/**/b'])('%s does not', (output) => {
    expect(outcomeContractSchema.safeParse({ outputs: [output] }).success).toBe(true);
  });
});

describe('outlive run', () => {
  const told = (...events: [EventView['type'], EventView['data']][]): RunOutcome => {
    const outcome = new RunOutcome();
    for (const [index, [type, data]] of events.entries()) {
      outcome.push(anEvent(index + 1, type, data));
    }
    return outcome;
  };
  const exit = ({ status, errorCode, left }: RunOutcome): number =>
    outcomeExitCode(status, errorCode, left?.state ?? null);

  it('succeeds only where nothing was declared or it is satisfied', () => {
    const zero = OUTCOME_STATES.filter((state) => outcomeExitCode('succeeded', null, state) === 0);
    expect(zero).toEqual(['satisfied']);
    expect(outcomeExitCode('failed', 'exit_code', 'satisfied')).toBe(1);
    expect(outcomeExitCode('failed', 'hard_timeout', 'skipped')).toBe(124);
  });

  it('knows the outcome from the events, and forgets one that a retry undid', () => {
    const ended = ['work_unit.succeeded', { outcome: 'pending' }] as const;
    const settled = { state: 'refuted', code: 'verify_failed', message: 'no' };
    expect(exit(told(['work_unit.succeeded', {}]))).toBe(0);
    expect(exit(told([...ended]))).toBe(1);
    expect(exit(told([...ended], ['outcome.settled', { state: 'satisfied' }]))).toBe(0);
    const refuted = told([...ended], ['outcome.settled', settled]);
    expect(refuted.left).toEqual(settled);
    expect(exit(refuted)).toBe(1);
    const skipped = told(['work_unit.cancelled', { outcome: 'skipped', outcomeCode: 'never_ran' }]);
    expect(skipped.left).toMatchObject({ state: 'skipped', code: 'never_ran' });
    const again = told([...ended], ['work_unit.queued', {}], ['outcome.settled', settled]);
    expect(again).toMatchObject({ status: 'running', left: null });
  });
});
