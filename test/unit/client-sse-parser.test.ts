import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SseParser } from '../../src/client/sse-parser.ts';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const parse = (text: string) => new SseParser().push(bytes(text));

describe('SseParser', () => {
  it('reads id, event and data', () => {
    expect(parse('id: 7\nevent: tool.start\ndata: {"a":1}\n\n')).toEqual([
      { id: '7', event: 'tool.start', data: '{"a":1}' },
    ]);
  });

  it('joins data lines with a line feed and takes off one space only', () => {
    expect(parse('data: a\ndata:  b\ndata\n\n')).toEqual([
      { id: '', event: 'message', data: 'a\n b\n' },
    ]);
  });

  it.each(['\n', '\r', '\r\n'])('ends lines at %j', (end) => {
    expect(parse(['data: x', 'data: y', '', ''].join(end))).toEqual([
      { id: '', event: 'message', data: 'x\ny' },
    ]);
  });

  it('leaves out comments, unknown fields and messages without data', () => {
    expect(parse(': keepalive\n\nretry: 5\nevent: none\n\ndata: x\n\n')).toEqual([
      { id: '', event: 'message', data: 'x' },
    ]);
  });

  it('keeps the id for later messages and the event type for its own only', () => {
    expect(parse('id: 1\nevent: a\ndata: x\n\ndata: y\n\n')).toEqual([
      { id: '1', event: 'a', data: 'x' },
      { id: '1', event: 'message', data: 'y' },
    ]);
  });

  it('ignores an id with NUL and a byte order mark at the start', () => {
    expect(parse('\ufeffid: 1\nid: 2\0\ndata: x\n\n')).toEqual([
      { id: '1', event: 'message', data: 'x' },
    ]);
  });

  it('never hands out a message that was cut off', () => {
    expect(parse('data: whole\n\ndata: half\n')).toEqual([
      { id: '', event: 'message', data: 'whole' },
    ]);
  });

  const line = fc.string({ unit: 'binary' }).map((text) => text.replace(/[\r\n\0]/g, ''));
  const message = fc.record({
    id: fc.nat().map(String),
    event: fc.constantFrom('tool.start', 'progress', 'work_unit.failed'),
    lines: fc.array(line, { minLength: 1, maxLength: 4 }),
    end: fc.constantFrom('\n', '\r', '\r\n'),
    comment: fc.boolean(),
  });

  it('gives the same messages wherever the bytes are cut', () => {
    fc.assert(
      fc.property(
        fc.array(message, { maxLength: 6 }),
        fc.infiniteStream(fc.nat(9)),
        (list, cuts) => {
          const text = list
            .map(({ id, event, lines, end, comment }) =>
              [
                ...(comment ? [': keepalive'] : []),
                `id: ${id}`,
                `event: ${event}`,
                ...lines.map((each) => `data: ${each}`),
                '',
                '',
              ].join(end),
            )
            .join('');
          const whole = bytes(text);
          const parser = new SseParser();
          const found = [];
          for (let at = 0; at < whole.length; ) {
            const size = (cuts.next().value as number) + 1;
            found.push(...parser.push(whole.subarray(at, at + size)));
            at += size;
          }
          // What UTF-8 cannot carry (lone surrogates) arrives as U+FFFD.
          expect(found).toEqual(
            list.map(({ id, event, lines }) => ({
              id,
              event,
              data: lines.join('\n').toWellFormed(),
            })),
          );
        },
      ),
      { numRuns: 300 },
    );
  });
});
