import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { PiEvents } from '../../src/attempt/pi-events.ts';
import type { PiOutput } from '../../src/attempt/pi-output.ts';
import { verdictOf } from '../../src/attempt/pi-verdict.ts';

const SAMPLES = path.resolve(import.meta.dirname, '../support/scripted-model/samples');

interface Message {
  readonly role: string;
  readonly content: readonly { readonly text?: string; readonly thinking?: string }[];
}
type Event = Readonly<Record<string, unknown>> & {
  readonly type: string;
  readonly message?: Message;
};

const eventsOf = (name: string): Event[] =>
  readFileSync(path.join(SAMPLES, name), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line): Event => JSON.parse(line))
    .filter((event) => event.type !== 'response');

function outputsOf(events: readonly Event[]): PiOutput[] {
  const pi = new PiEvents();
  return events.flatMap((event) => pi.next(event));
}

/** What a reader of the spool puts together, message by message: blocks in order, joined. */
function assembled(outputs: readonly PiOutput[]): string[] {
  const messages = new Map<number, Map<number, string>>();
  for (const output of outputs) {
    if (output.kind === 'message_end' && !messages.has(output.data.message)) {
      messages.set(output.data.message, new Map());
    }
    if (output.kind !== 'text') continue;
    const blocks = messages.get(output.message) ?? new Map<number, string>();
    messages.set(output.message, blocks);
    blocks.set(
      output.block,
      (output.replace ? '' : (blocks.get(output.block) ?? '')) + output.text,
    );
  }
  return [...messages.values()].map((blocks) => [...blocks.values()].join('|'));
}

const samples = readdirSync(SAMPLES).filter((name) => name.endsWith('.jsonl'));

test('there are samples of Pi', () => {
  expect(samples.length).toBeGreaterThan(20);
});

test.each(samples)('%s: every text is recoverable, exactly once and in order', (name) => {
  const events = eventsOf(name);
  const final = events
    .filter((event) => event.type === 'message_end' && event.message?.role === 'assistant')
    .map((event) =>
      (event.message?.content ?? [])
        .map((part) => part.text ?? part.thinking)
        .filter(Boolean)
        .join('|'),
    );
  expect(assembled(outputsOf(events))).toEqual(final);
});

test.each(samples)(
  '%s: tool calls start and end, snapshots and system prompts are gone',
  (name) => {
    const events = eventsOf(name);
    const outputs = outputsOf(events);
    const count = (kind: PiOutput['kind']): number =>
      outputs.filter((output) => output.kind === kind).length;
    const told = (type: string): number => events.filter((event) => event.type === type).length;
    expect(count('tool_start')).toBe(told('tool_execution_start'));
    expect(count('tool_end')).toBe(told('tool_execution_end'));
    expect(count('settled')).toBe(told('agent_settled'));
    expect(JSON.stringify(outputs)).not.toContain('[trimmed]');
  },
);

test.each([
  ['text.jsonl', null],
  ['thinking.jsonl', null],
  ['bash.jsonl', null],
  ['bash-failed.jsonl', null],
  ['parallel.jsonl', null],
  ['steer.jsonl', null],
  ['status-429-retried.jsonl', null],
  ['cut-retried.jsonl', null],
  ['context-overflow-recovered.jsonl', null],
  ['length.jsonl', 'output_limit'],
  ['status-401.jsonl', 'provider_auth'],
  ['status-429.jsonl', 'rate_limited'],
  ['status-500.jsonl', 'provider_unavailable'],
  ['status-500-retries-exhausted.jsonl', 'provider_unavailable'],
  ['cut.jsonl', 'provider_unavailable'],
  ['refused.jsonl', 'provider_unavailable'],
  ['hang-timeout.jsonl', 'provider_unavailable'],
  ['context-overflow.jsonl', 'context_overflow'],
  ['bash-abort.jsonl', 'aborted'],
  ['slow-abort.jsonl', 'aborted'],
  ['hang-abort.jsonl', 'aborted'],
  ['retry-aborted.jsonl', 'aborted'],
])('the verdict of %s is %s', (name, code) => {
  const outputs = outputsOf(eventsOf(name));
  const last = outputs.findLast((output) => output.kind === 'message_end')?.data ?? null;
  const settled = outputs.findLast((output) => output.kind === 'settled');
  expect(verdictOf(last, settled?.aborted ?? false)).toMatchObject({ code });
});

const assistant = (content: unknown, more = {}): Event[] => [
  { type: 'message_start', message: { role: 'assistant', content: [] } },
  {
    type: 'message_end',
    message: { role: 'assistant', content, stopReason: 'stop', ...more },
  } as unknown as Event,
];

test('text without deltas comes at the end of its message', () => {
  expect(assembled(outputsOf(assistant([{ type: 'text', text: 'all at once' }])))).toEqual([
    'all at once',
  ]);
});

test('a final text that differs from its deltas replaces them', () => {
  const [start, end] = assistant([{ type: 'text', text: 'better' }]) as [Event, Event];
  const delta: Event = {
    type: 'message_update',
    assistantMessageEvent: { type: 'text_delta', contentIndex: 0, delta: 'draft' },
  };
  const outputs = outputsOf([start, delta, end]);
  expect(outputs.map((output) => output.kind === 'text' && output.replace)).toEqual([
    false,
    true,
    false,
  ]);
  expect(assembled(outputs)).toEqual(['better']);
});

test('arguments of a tool call are bounded, results too, and both say what was cut', () => {
  const big = 'x'.repeat(1_000_000);
  const [start, end] = outputsOf([
    {
      type: 'tool_execution_start',
      toolCallId: 'c',
      toolName: 'write',
      args: { path: 'a', content: big },
    },
    {
      type: 'tool_execution_end',
      toolCallId: 'c',
      toolName: 'write',
      isError: false,
      result: { content: [{ type: 'text', text: big }] },
    },
  ]);
  expect(JSON.stringify(start).length).toBeLessThan(20_000);
  expect(JSON.stringify(start)).toMatch(/"path":"a".*\d+ bytes cut/);
  expect(JSON.stringify(end).length).toBeLessThan(20_000);
  expect(JSON.stringify(end)).toMatch(/98\d{4} bytes cut/);
});

test('events nobody knows and events with nothing in them are nothing', () => {
  expect(
    outputsOf([{ type: 'from_the_future' }, { type: 'message_end' }, { type: 'message_update' }]),
  ).toEqual([]);
});
