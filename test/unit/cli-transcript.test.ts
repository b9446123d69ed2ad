import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import { noteOf, summaryOf } from '../../src/commands/event-notes.ts';
import { eventLine } from '../../src/commands/events.ts';
import { LiveFigures } from '../../src/commands/live-figures.ts';
import { RunOutcome } from '../../src/commands/run-outcome.ts';
import { runSummary } from '../../src/commands/run-summary.ts';
import { Transcript } from '../../src/commands/transcript.ts';
import { EVENT_TYPES } from '../../src/domain/events.ts';
import { anEvent } from '../cli/fake-daemon.ts';

type Short = readonly [type: EventView['type'], data?: EventView['data']];

const events = (list: readonly Short[]): EventView[] =>
  list.map(([type, data], index) => anEvent(index + 1, type, data));

function read(
  list: readonly Short[],
  runner: 'pi' | 'command' = 'pi',
  toolOutput = true,
): string[] {
  const transcript = new Transcript(runner, { toolOutput });
  const pieces = events(list).flatMap((event) => transcript.push(event));
  return [...pieces, ...transcript.end()].map(({ kind, text }) => `${kind}|${text}`);
}

const said = (message: number, delta: string, more: EventView['data'] = {}): Short => [
  'agent.message',
  { message, block: 0, delta, ...more },
];
const messageEnd = (message: number, costUsd = 0): Short => [
  'agent.message',
  { message, end: true, stopReason: 'stop', costUsd },
];

describe('Transcript', () => {
  it('puts the pieces of a message together, line by line', () => {
    expect(
      read([said(1, 'I w'), said(1, 'ill run\nthe te'), said(1, 'sts'), messageEnd(1)]),
    ).toEqual(['text|I will run', 'text|the tests']);
  });

  it('gives the same text however it was cut', () => {
    fc.assert(
      fc.property(fc.array(fc.string(), { maxLength: 8 }), (pieces) => {
        const whole = read([said(1, pieces.join('')), messageEnd(1)]);
        expect(read([...pieces.map((piece) => said(1, piece)), messageEnd(1)])).toEqual(whole);
      }),
    );
  });

  it('ends an open line when somebody else speaks', () => {
    expect(
      read([
        ['agent.thought', { message: 1, block: 0, delta: 'hm' }],
        said(1, 'so'),
        ['tool.start', { toolCallId: 'a', tool: 'bash', arguments: { command: 'npm\ntest' } }],
        ['tool.update', { toolCallId: 'a', tool: 'bash', delta: 'one\ntw', skippedBytes: 0 }],
        ['tool.update', { toolCallId: 'b', tool: 'bash', delta: 'other', skippedBytes: 0 }],
        ['tool.end', { toolCallId: 'a', tool: 'bash', isError: false, durationMs: 1_200 }],
      ]),
    ).toEqual([
      'thought|hm',
      'text|so',
      'tool|→ bash: npm test',
      'tool_output|one',
      'tool_output|tw',
      'tool_output|other',
      'tool|✓ bash 1.2s',
    ]);
  });

  it('leaves tool output out where it is not wanted, and says how a tool failed', () => {
    const end = {
      toolCallId: 'a',
      tool: 'bash',
      isError: true,
      result: 'exit\n2',
      durationMs: null,
    };
    expect(
      read(
        [
          ['tool.update', { toolCallId: 'a', delta: 'x\n' }],
          ['tool.end', end],
        ],
        'pi',
        false,
      ),
    ).toEqual(['tool_failed|✗ bash: exit 2']);
  });

  it("passes a command's own output through untouched", () => {
    expect(
      read(
        [
          ['stdout_delta', { text: '\u001b[32mok\u001b[0m\r' }],
          ['stderr_delta', { text: 'half' }],
        ],
        'command',
      ),
    ).toEqual(['raw_stdout|\u001b[32mok\u001b[0m\r', 'raw_stderr|half']);
  });

  it('keeps escape sequences of a model, a tool and Pi away from the terminal', () => {
    const lines = read([
      said(1, 'a\u001b[2Jb'),
      ['tool.start', { toolCallId: 'a', tool: '\u001bc', arguments: { path: '\u0007' } }],
      ['tool.update', { toolCallId: 'a', tool: 'bash', delta: '\u009b2J\n' }],
      ['tool.end', { toolCallId: 'a', tool: 'x', isError: true, result: '\u001b]52;c;x\u0007' }],
      ['stderr_delta', { text: '\u001b[1m\n' }],
      ['progress', { kind: 'notice', message: '\u001b[2J' }],
    ]);
    expect(lines).toHaveLength(6);
    for (const line of lines) expect(line).not.toMatch(/\p{Cc}/u);
  });

  it('knows what the model said last, also when it begins anew', () => {
    const transcript = new Transcript('pi', { toolOutput: false });
    const push = (list: readonly Short[]): void => {
      for (const event of events(list)) transcript.push(event);
    };
    push([said(1, 'first'), messageEnd(1), said(2, 'wro'), said(2, 'right', { replace: true })]);
    push([messageEnd(2)]);
    expect(transcript.lastMessage).toBe('right');
  });

  it('takes any event of the vocabulary with empty data', () => {
    expect(() => read(EVENT_TYPES.map((type) => [type] as const))).not.toThrow();
    for (const type of EVENT_TYPES) expect(summaryOf(anEvent(1, type))).toBeTypeOf('string');
  });
});

describe('notes and lines', () => {
  it('says what a daemon did, with its reason', () => {
    expect(noteOf(anEvent(1, 'attempt.reattached'))).toContain('same attempt');
    expect(noteOf(anEvent(1, 'work_unit.cancelling', { reason: 'wrong\nbranch' }))).toBe(
      'cancelling: wrong branch',
    );
    expect(noteOf(anEvent(1, 'attempt.deadline', { hardTimeoutMs: 5_400_000 }))).toContain(
      '1h 30m',
    );
    expect(noteOf(anEvent(1, 'attempt.opened'))).toBeNull();
  });

  it('prints an event on one line, cut to the terminal', () => {
    const event = anEvent(7, 'tool.start', {
      tool: 'bash',
      arguments: { command: 'x'.repeat(99) },
    });
    expect(eventLine(event, null)).toMatch(/^ {4}7 {2}20:00:07\.000 {2}tool\.start +bash: x{99}$/);
    expect(eventLine(event, 60)).toHaveLength(60);
  });
});

describe('LiveFigures', () => {
  const START = Date.parse('2026-11-29T20:00:01.000Z'); // The time of event 1.

  it('shows elapsed time, limit, the newest tool and the cost so far', () => {
    const figures = new LiveFigures('issue42', 3_600_000);
    expect(figures.line(START, false)).toBe('issue42 · waiting to start');
    for (const event of events([
      ['attempt.opened'],
      messageEnd(1, 0.1),
      messageEnd(2, 0.025),
      ['tool.start', { toolCallId: 'a', tool: 'read', arguments: { path: 'x' } }],
      ['tool.start', { toolCallId: 'b', tool: 'bash', arguments: { command: 'npm test' } }],
    ])) {
      figures.push(event);
    }
    expect(figures.line(START + 133_900, false)).toBe(
      'issue42 · 2m 13s / 1h · bash: npm test (+1) · $0.13',
    );
    figures.push(anEvent(6, 'tool.end', { toolCallId: 'b' }));
    expect(figures.line(START + 1_000, false)).toContain('read: x');
    expect(figures.line(START, true)).toContain('daemon away, the run goes on; waiting');
  });
});

describe('the end of a run', () => {
  const word = {
    verdict: 'ok',
    code: null,
    message: null,
    text: 'Done.',
    exitCode: 0,
    signal: null,
    usage: {
      inputTokens: 3_000,
      outputTokens: 1_000,
      cacheReadTokens: 300,
      cacheWriteTokens: 21,
      totalTokens: 4_321,
    },
    costUsd: 0.0123,
    leftovers: [],
  };
  const outcomeOf = (list: readonly Short[]): RunOutcome => {
    const outcome = new RunOutcome();
    for (const event of events(list)) outcome.push(event);
    return outcome;
  };

  it('tells time, cost and tokens of a success', () => {
    const outcome = outcomeOf([
      ['work_unit.started'],
      ['runner.finished', word],
      ['work_unit.succeeded'],
    ]);
    expect(outcome.lastWord?.text).toBe('Done.');
    expect(runSummary('issue42', outcome, 'main')).toEqual([
      'issue42 succeeded after 2s · $0.012 · 4,321 tokens (in 3,000, out 1,000, cached 321)',
    ]);
  });

  it('tells why it failed and where to look, in the workspace it is in', () => {
    const outcome = outcomeOf([
      ['work_unit.failed', { errorCode: 'hard_timeout', errorMessage: 'after 1h' }],
    ]);
    expect(outcome).toMatchObject({ status: 'failed', errorCode: 'hard_timeout', tookMs: null });
    expect(runSummary('issue42', outcome, 'lab')).toEqual([
      'issue42 failed',
      'hard_timeout: It ran into its hard timeout (after 1h)',
      'Look closer with: outlive show issue42 --workspace lab, outlive logs issue42 --workspace lab',
    ]);
  });

  it('is open again after a retry', () => {
    const outcome = outcomeOf([['work_unit.failed'], ['work_unit.queued']]);
    expect(outcome.status).toBe('running');
  });
});
