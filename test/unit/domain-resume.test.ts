/** What becomes of a lost attempt's work, and what the next one is told. */
import { describe, expect, test } from 'vitest';
import type { Loss } from '../../src/domain/resume.ts';
import {
  continuationPrompt,
  decideLoss,
  RESUME_LIMITS,
  resumeDelayMs,
  sortCalls,
} from '../../src/domain/resume.ts';

const loss: Loss = {
  policy: 'resume',
  cause: 'host_shutdown',
  ageMs: 1_000,
  recentLosses: 1,
  session: { kind: 'whole', cwd: '/tree', openCalls: [], promptedAt: null, tornLines: 0 },
  hadConversation: true,
  cwd: { path: '/tree', exists: true },
};
const decide = (change: Partial<Loss>) => decideLoss({ ...loss, ...change }, RESUME_LIMITS);
const corrupt = { kind: 'corrupt', line: 3, reason: 'torn' } as const;

describe('the decision', () => {
  test('resumes at once after the first loss', () => {
    expect(decide({})).toEqual({ kind: 'resume', delayMs: 0 });
  });

  test.each([
    ['a damaged conversation', { session: corrupt }, 'resume_session_corrupt'],
    [
      'a conversation that is gone',
      { session: { kind: 'empty' }, hadConversation: true },
      'resume_session_missing',
    ],
    ['a work tree that is gone', { cwd: { path: '/tree', exists: false } }, 'resume_cwd_missing'],
    ['a loss of long ago', { ageMs: RESUME_LIMITS.maxAgeMs + 1 }, 'resume_too_old'],
    ['a loop of losses', { recentLosses: RESUME_LIMITS.budget + 1 }, 'resume_budget_exhausted'],
    ['the policy block', { policy: 'block' }, 'resume_needs_decision'],
  ] as const)('waits for a person after %s; T18 claude-code#72623', (_, change, code) => {
    expect(decide(change)).toMatchObject({ kind: 'block', code });
  });

  test('the policy fail fails, whatever else is so', () => {
    expect(decide({ policy: 'fail', session: corrupt })).toEqual({ kind: 'fail' });
  });

  test('a runner without a conversation is run again from its beginning', () => {
    expect(decide({ session: null })).toMatchObject({ kind: 'resume' });
  });

  test('each loss within the window waits longer than the one before, up to five minutes', () => {
    const delays = Array.from({ length: 12 }, (_, at) => resumeDelayMs(at + 1));
    expect(delays.slice(0, 3)).toEqual([0, 5_000, 10_000]);
    expect(Math.max(...delays)).toBe(300_000);
    expect([...delays].sort((left, right) => left - right)).toEqual(delays);
  });
});

const call = (toolCallId: string) => ({ toolCallId, tool: 'bash', arguments: { command: 'x' } });

describe('the calls of an interrupted turn', () => {
  const session = {
    kind: 'whole',
    cwd: '/tree',
    openCalls: [call('begun'), call('ended'), call('never')],
    promptedAt: null,
    tornLines: 0,
  } as const;
  const end = { isError: false, result: 'fine' };

  test('are open, finished or never begun, by what the spool says', () => {
    const spooled = [
      { ...call('begun'), end: null },
      { ...call('ended'), end },
    ];
    const sorted = sortCalls(session, spooled);
    expect(sorted.open.map(({ toolCallId }) => toolCallId)).toEqual(['begun']);
    expect(sorted.finished).toEqual([{ ...call('ended'), ...end }]);
    expect(sorted.notRun.map(({ toolCallId }) => toolCallId)).toEqual(['never']);
  });

  test('that began are open even where the conversation lost the message that asked', () => {
    const spooled = [{ ...call('stray'), end: null }];
    expect(sortCalls({ kind: 'empty' }, spooled).open).toEqual([call('stray')]);
  });

  test('of earlier turns, answered in the conversation, are not told again', () => {
    expect(sortCalls({ ...session, openCalls: [] }, [{ ...call('old'), end }])).toEqual({
      open: [],
      finished: [],
      notRun: [],
    });
  });
});

describe('the continuation prompt', () => {
  const note = {
    attemptId: 'id',
    attemptNumber: 1,
    cause: 'host_shutdown' as const,
    lostAt: '2026-01-01T00:00:00.000Z',
    open: [{ toolCallId: 'a', tool: 'bash', arguments: { command: 'git push' } }],
    finished: [{ ...call('b'), isError: false, result: 'r'.repeat(100_000) }],
    notRun: [],
    conversation: true,
  };

  test('names the open call, asks to verify it, and carries the lost result, cut', () => {
    const prompt = continuationPrompt(note);
    expect(prompt).toContain('- bash {"command":"git push"}');
    expect(prompt).toContain('Find out whether they took effect');
    expect(prompt).toMatch(/result: r{1000}/);
    expect(prompt.length).toBeLessThan(20_000);
    expect(prompt).not.toContain('never begun');
  });
});
