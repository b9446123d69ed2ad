/** What a session file still says after its writer died. */
import { describe, expect, test } from 'vitest';
import { readSession } from '../../src/domain/session-file.ts';

const header = { type: 'session', version: 3, id: 's', timestamp: 't', cwd: '/tree' };
const entry = (id: string, parentId: string | null, message?: unknown): unknown =>
  message === undefined
    ? { type: 'model_change', id, parentId, timestamp: 't' }
    : { type: 'message', id, parentId, timestamp: 't', message };
const user = { role: 'user', content: [{ type: 'text', text: 'Do it' }] };
const calls = (...ids: string[]): unknown => ({
  role: 'assistant',
  content: [
    { type: 'text', text: 'I will.' },
    ...ids.map((id) => ({ type: 'toolCall', id, name: 'bash', arguments: { command: id } })),
  ],
});
const result = (id: string): unknown => ({
  role: 'toolResult',
  toolCallId: id,
  toolName: 'bash',
  content: [],
});
const file = (...lines: unknown[]): string =>
  lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join('');

const conversation = [
  header,
  entry('a', null),
  entry('b', 'a', user),
  entry('c', 'b', calls('c1', 'c2')),
];

describe('a whole file', () => {
  test('names the calls of its last turn that have no result', () => {
    expect(readSession(file(...conversation, entry('d', 'c', result('c1'))))).toEqual({
      kind: 'whole',
      cwd: '/tree',
      openCalls: [{ toolCallId: 'c2', tool: 'bash', arguments: { command: 'c2' } }],
      promptedAt: 't',
      tornLines: 0,
    });
  });

  test('has no open call once a later message of the user was answered', () => {
    const text = file(...conversation, entry('d', 'c', user));
    expect(readSession(text)).toMatchObject({ kind: 'whole', openCalls: [] });
  });

  test('goes on with its last entry, whatever other branches hold', () => {
    const text = file(...conversation, entry('e', 'b', calls('e1')));
    expect(readSession(text)).toMatchObject({ openCalls: [{ toolCallId: 'e1' }] });
  });

  test('keeps raw U+2028 inside a line', () => {
    const said = { role: 'user', content: 'one\u2028two' };
    expect(readSession(file(header, entry('a', null, said)))).toMatchObject({ kind: 'whole' });
  });
});

describe('a torn end', () => {
  const text = file(...conversation);
  test('is fine at every byte of the last line', () => {
    const start = text.lastIndexOf('\n', text.length - 2) + 1;
    for (let end = start; end < text.length; end += 1) {
      expect(readSession(text.slice(0, end)), `cut at ${end}`).toMatchObject({ kind: 'whole' });
    }
  });

  test('of NUL bytes, as a power cut leaves it, is fine', () => {
    expect(readSession(`${text}${'\0'.repeat(40)}`)).toMatchObject({ kind: 'whole', tornLines: 1 });
  });

  test('that a later run wrote on after is fine: nothing hangs on it', () => {
    const later = file('{"type":"message","id":"x","par', entry('d', 'c', result('c1')));
    expect(readSession(text + later)).toMatchObject({ kind: 'whole', tornLines: 1 });
  });
});

describe('damage in the middle', () => {
  test('is found by the entry that hangs on what is lost', () => {
    const text = file(header, entry('a', null), '{"type":"mess', entry('c', 'b', calls('c1')));
    expect(readSession(text)).toEqual({
      kind: 'corrupt',
      line: 4,
      reason: 'entry c hangs on b, which is not there',
    });
  });

  test.each([
    ['a header that is torn', file('{"type":"sess', entry('a', null, user))],
    ['no header', file(entry('a', null, user))],
    ['garbage', 'not a session'],
  ])('%s is corrupt', (_, text) => {
    expect(readSession(text)).toMatchObject({ kind: 'corrupt' });
  });

  test.each([
    ['an entry without an id', { type: 'message', message: user }],
    ['a message entry without a message', { type: 'message', id: 'd', parentId: 'c' }],
  ])('%s is corrupt', (_, damaged) => {
    expect(readSession(file(...conversation, damaged))).toMatchObject({ kind: 'corrupt', line: 5 });
  });
});

describe('a file without a conversation', () => {
  test.each([
    ['is nothing at all', ''],
    ['has a header only', file(header)],
    ['holds no word of the user', file(header, entry('a', null))],
  ])('that %s is empty', (_, text) => {
    expect(readSession(text)).toEqual({ kind: 'empty' });
  });
});
