/** Whatever a run does, what Linear is told of it has exactly the shape that Linear takes. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EVENT_TYPES } from '../../src/domain/events.ts';
import { FAILURES } from '../../src/domain/outcome-codes.ts';
import { describe as about, createSpeech } from '../../src/linear/activities.ts';
import { parseAnswer } from '../../src/linear/answers.ts';
import { type Asked, BEGINNING, narrate, type Told } from '../../src/linear/narration.ts';
import { activityBodySchema, sessionBodySchema } from '../../src/linear/shapes.ts';
import {
  boundMarkdown,
  clean,
  cutMiddle,
  mentionStripper,
  openFence,
} from '../../src/linear/text.ts';
import type { EventRow } from '../../src/store/events.ts';
import { checkActivity, checkSessionUpdate } from '../support/linear-double/content.ts';

/** Linear's rules, written down once more: a change of the mapping does not change them. */
const SHAPES: Readonly<Record<string, readonly (readonly string[])[]>> = {
  thought: [['body', 'type']],
  action: [
    ['action', 'parameter', 'type'],
    ['action', 'parameter', 'result', 'type'],
  ],
  elicitation: [['body', 'type']],
  response: [['body', 'type']],
  error: [['body', 'type']],
};
const PASSING = new Set(['thought', 'action']);
/** Whatever Linear's own limit is: far more than anybody reads. */
const LONGEST = 20_000;

// Text that breaks what is careless: fences, mentions, escapes, halves of characters, nothing.
const piece = fc.oneof(
  fc.constantFrom(
    '',
    ' ',
    '\n',
    '```',
    '```ts\n',
    '~~~~\n',
    '    ```\n',
    '@outlive',
    '@@Outlive',
    'https://linear.app/acme/profiles/outlive',
    '\u0000',
    '\u001b[31m',
    '\u200b',
    '\ud800',
    '😀',
    '__proto__',
    'https://github.com/acme/lamp/pull/7',
    'x'.repeat(5_000),
  ),
  fc.string({ unit: 'binary', maxLength: 20 }),
);
const text = fc.array(piece, { maxLength: 12 }).map((parts) => parts.join(''));
const key = fc.oneof(fc.constantFrom('command', 'path', 'todos', '__proto__', 'constructor'), text);
const given = fc.oneof(
  text,
  fc.constant(null),
  fc.integer(),
  fc.record({ todos: fc.array(text, { maxLength: 4 }) }),
  fc.dictionary(key, fc.oneof(text, fc.integer(), fc.array(text, { maxLength: 4 })), {
    maxKeys: 4,
  }),
);
const id = fc.constantFrom('a', 'b', '__proto__', 'constructor', '');
const data = fc.record(
  {
    message: fc.nat({ max: 2 }),
    block: fc.nat({ max: 2 }),
    delta: text,
    replace: fc.boolean(),
    end: fc.boolean(),
    stopReason: fc.constantFrom('stop', 'toolUse', 'error'),
    toolCallId: id,
    tool: fc.oneof(fc.constantFrom('bash', 'todo', 'update_plan', '__proto__'), text),
    arguments: given,
    result: text,
    isError: fc.boolean(),
    reason: fc.oneof(fc.constant('provider_backoff'), text),
    text,
    approvalId: id,
    errorCode: fc.constantFrom(
      ...Object.keys(FAILURES),
      'interrupted_by_prompt',
      'cancelled_by_request',
      'halted',
      'nobody knows',
    ),
    errorMessage: text,
    nextStartAt: text,
  },
  { requiredKeys: [] },
);
const TOLD = [
  'agent.message',
  'agent.thought',
  'tool.start',
  'tool.end',
  'tool.refused',
  'runner.finished',
  'approval.changed',
] as const;
const event = fc.record({
  type: fc.oneof(fc.constantFrom(...TOLD), fc.constantFrom(...EVENT_TYPES)),
  data,
});
const asked: fc.Arbitrary<Asked> = fc.record({
  status: fc.constantFrom('pending', 'approved', 'denied', 'expired', 'dropped'),
  approvalId: fc.uuid(),
  tool: text,
  arguments: given,
  reason: fc.option(text),
  diff: fc.option(text),
  expiresAt: fc.constant('2026-01-02T03:04:05.678Z'),
});

function tell(
  events: readonly { type: EventRow['type']; data: EventRow['data'] }[],
  question: Asked | null,
  pressed: boolean,
): Told[] {
  const speech = createSpeech(['outlive']);
  const around = { speech, handle: 'h1', approval: () => question, pressed: () => pressed };
  let state = BEGINNING;
  return events.flatMap(({ type, data: fields }, index) => {
    const row: EventRow = {
      position: index + 1,
      seq: index + 1,
      workUnitId: 'w',
      attemptId: 'a',
      ts: '2026-01-02T03:04:05.678Z',
      actor: 'runner',
      type,
      data: fields,
    };
    const step = narrate(state, row, around);
    // What is stored of it must read back as the same.
    state = JSON.parse(JSON.stringify(step.state)) as typeof state;
    return step.told;
  });
}

describe('row 197: the contract of activities (AC1, AC2)', () => {
  it('holds for all that can be told of any events whatever', () => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(
        fc.array(event, { maxLength: 30 }),
        fc.option(asked),
        fc.boolean(),
        (events, question, pressed) => {
          for (const one of tell(events, question, pressed)) {
            if (one.kind === 'session') {
              checkSessionUpdate({ ...one.update });
              expect(sessionBodySchema.parse(one.update)).toEqual(one.update);
              seen.add('plan' in one.update ? 'plan' : 'links');
              continue;
            }
            const body = one.kind === 'said' ? one.said : { content: one.content };
            if (body.content === null) continue;
            const { content } = body;
            seen.add(content.type);
            expect(SHAPES[content.type]).toContainEqual(Object.keys(content).sort());
            for (const [name, field] of Object.entries(content)) {
              expect(field.trim()).not.toBe('');
              expect(field.length).toBeLessThanOrEqual(LONGEST);
              expect(field.isWellFormed()).toBe(true);
              expect(field).not.toContain('\u0000');
              expect(field).not.toMatch(/@outlive/i);
              // The other fields are one line, and no Markdown.
              if (name === 'body' || name === 'result') expect(openFence(field)).toBe(null);
            }
            const { ephemeral, ...stored } = { ephemeral: false, ...body };
            if (ephemeral) expect(PASSING).toContain(content.type);
            checkActivity({ id: undefined, ...stored, ephemeral });
            activityBodySchema.parse(stored);
          }
        },
      ),
      { numRuns: 600 },
    );
    // A property of nothing proves nothing.
    const all = ['action', 'elicitation', 'error', 'links', 'plan', 'response', 'thought'];
    expect([...seen].sort()).toEqual(all);
  });

  it('is what the mapping is held to: any drift of a shape is refused before it is sent', () => {
    const good = [
      { type: 'thought', body: 'x' },
      { type: 'action', action: 'x', parameter: 'x' },
      { type: 'action', action: 'x', parameter: 'x', result: 'x' },
      { type: 'response', body: 'x' },
    ];
    const bad = [
      { type: 'thought' },
      { type: 'thought', body: '' },
      { type: 'thought', body: 'x', parameter: 'x' },
      { type: 'action', action: 'x' },
      { type: 'action', action: 'x', parameter: '' },
      { type: 'action', action: 'x', parameter: 'x', body: 'x' },
      { type: 'action', body: 'x' },
      { type: 'prompt', body: 'x' },
      { type: 'response', body: 'x', result: 'x' },
    ];
    for (const content of good) {
      expect(activityBodySchema.safeParse({ content }).success).toBe(true);
      expect(() => checkActivity({ content })).not.toThrow();
    }
    for (const content of bad) {
      expect(activityBodySchema.safeParse({ content }).success, JSON.stringify(content)).toBe(
        false,
      );
      expect(() => checkActivity({ content }), JSON.stringify(content)).toThrow(/./);
    }
  });

  it('row 194, row 195: a call is a tool and a parameter, whatever it was given', () => {
    fc.assert(
      fc.property(text, given, (tool, input) => {
        const { content, ephemeral } = createSpeech([]).started({ tool, arguments: input });
        expect(Object.keys(content).sort()).toEqual(['action', 'parameter', 'type']);
        expect(ephemeral).toBe(true);
      }),
    );
    expect(about({})).toBe('running');
    expect(about(null)).toBe('running');
    expect(about('')).toBe('running');
  });

  it('nothing follows the end, and there is one', () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 40 }), (events) => {
        const told = tell(events, null, false);
        const ends = told.filter(({ kind }) => kind === 'last');
        expect(ends.length).toBeLessThanOrEqual(1);
        if (ends.length === 1) expect(told.at(-1)?.kind).toBe('last');
      }),
    );
  });
});

describe('texts', () => {
  it('that are cut are no longer than asked and close their code', () => {
    fc.assert(
      fc.property(text, fc.integer({ min: 20, max: 6_000 }), (raw, max) => {
        const whole = clean(raw);
        const cut = boundMarkdown(whole, max);
        expect(cut.length).toBeLessThanOrEqual(max);
        expect(openFence(cut)).toBe(null);
        expect(cut.isWellFormed()).toBe(true);
        if (openFence(whole) === null && whole.length <= max) expect(cut).toBe(whole);
        expect(cutMiddle(whole, max).isWellFormed()).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  it('keep no mention, and are left alone otherwise', () => {
    const strip = mentionStripper(['outlive', 'Acme Agent']);
    fc.assert(
      fc.property(text, (raw) => {
        const stripped = strip(raw);
        expect(stripped).not.toMatch(/@(?:outlive|acme\s+agent)/i);
        expect(strip(stripped)).toBe(stripped);
        if (!/@|profiles/.test(raw)) expect(stripped).toBe(raw);
      }),
    );
  });

  it('are read as an answer or not, and never break anything', () => {
    fc.assert(
      fc.property(text, (raw) => {
        const answer = parseAnswer(raw);
        if (answer !== null) expect(answer.reason?.trim()).not.toBe('');
      }),
    );
  });
});
