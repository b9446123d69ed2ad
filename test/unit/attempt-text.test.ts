import fc from 'fast-check';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import {
  boundValue,
  ceilCharacter,
  cutMiddle,
  floorCharacter,
  tailOf,
} from '../../src/attempt/bounded-text.ts';
import { DeltaCoalescer } from '../../src/attempt/delta-coalescer.ts';
import { redactor } from '../../src/attempt/redact.ts';
import { overlap, ToolUpdates } from '../../src/attempt/tool-updates.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const anyText = fc.string({ unit: fc.constantFrom('a', 'ä', '€', '😀', '\n', '\u0001') });

test('a cut text keeps whole characters, head and tail, and counts what it left out', () => {
  fc.assert(
    fc.property(anyText, fc.integer({ min: 8, max: 64 }), (text, limit) => {
      const cut = cutMiddle(text, limit);
      const size = Buffer.byteLength(text);
      const parts = /^([\s\S]*)\n\[… (\d+) bytes cut …\]\n([\s\S]*)$/.exec(cut);
      const [head = cut, bytes = '0', tail = ''] = parts?.slice(1) ?? [];
      const kept = Buffer.byteLength(head) + Buffer.byteLength(tail);
      expect(parts === null).toBe(size <= limit);
      expect(text.startsWith(head) && text.endsWith(tail)).toBe(true);
      expect(kept + Number(bytes)).toBe(size);
      expect(kept).toBeLessThanOrEqual(limit);
      expect(cut).not.toContain('\uFFFD');
    }),
  );
});

test('ends of characters are found from any byte', () => {
  const bytes = Buffer.from('a€b');
  expect([0, 1, 2, 3, 4, 5].map((end) => floorCharacter(bytes, end))).toEqual([0, 1, 1, 1, 4, 5]);
  expect([0, 1, 2, 3, 4, 5].map((start) => ceilCharacter(bytes, start))).toEqual([
    0, 1, 4, 4, 4, 5,
  ]);
  expect(tailOf('a€b', 3)).toBe('b');
});

test('a bounded value keeps its shape and fits', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.integer({ min: 64, max: 512 }), (value, limit) => {
      const bounded = boundValue(value, limit);
      // Small ones stay as they are; JSON has no -0, so it is compared as JSON.
      const small = JSON.stringify(value).length <= limit / 4;
      expect(small && JSON.stringify(bounded) !== JSON.stringify(value)).toBe(false);
      expect(Buffer.byteLength(JSON.stringify(bounded))).toBeLessThanOrEqual(limit);
    }),
  );
  const bounded = boundValue({ path: 'a', content: 'x'.repeat(10_000) }, 1_000);
  expect(bounded).toMatchObject({
    path: 'a',
    content: expect.stringMatching(/x\n\[… \d+ bytes cut …\]\nx/),
  });
});

test('a value that is deeper than any is bounded too', () => {
  let value: unknown = 'x'.repeat(5_000);
  for (let level = 0; level < 2_000; level++) value = [value];
  expect(JSON.stringify(boundValue(value, 4_000)).length).toBeLessThanOrEqual(4_000);
});

test('coalesced pieces are the text, in order, none too long, none ending in half a character', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(anyText, fc.boolean())), (pushes) => {
      const pieces: string[] = [];
      const coalescer = new DeltaCoalescer({
        flushMs: 250,
        maxLength: 5,
        emit: (text) => pieces.push(text),
      });
      for (const [text, wait] of pushes) {
        // Half a character may come alone.
        for (const unit of text.split('')) coalescer.push(unit);
        if (wait) vi.advanceTimersByTime(250);
      }
      coalescer.flush();
      expect(pieces.join('')).toBe(pushes.map(([text]) => text).join(''));
      expect(pieces.every((piece) => piece.length <= 5 && piece.isWellFormed())).toBe(true);
    }),
  );
});

test('text waits no longer than the flush time and timers end with it', () => {
  const pieces: string[] = [];
  const coalescer = new DeltaCoalescer({
    flushMs: 250,
    maxLength: 100,
    emit: (text) => pieces.push(text),
  });
  coalescer.push('a');
  vi.advanceTimersByTime(200);
  coalescer.push('b');
  expect(pieces).toEqual([]);
  vi.advanceTimersByTime(50);
  expect(pieces).toEqual(['ab']);
  coalescer.push('c');
  coalescer.flush();
  expect(pieces).toEqual(['ab', 'c']);
  expect(vi.getTimerCount()).toBe(0);
});

test('a growing snapshot is all overlap, a sliding window only its common part', () => {
  expect(overlap('', 'abc')).toBe(0);
  expect(overlap('abc', 'abcd')).toBe(3);
  expect(overlap('abcdef', 'defgh')).toBe(3);
  expect(overlap('abc', 'xyz')).toBe(0);
  expect(overlap('abcabc', 'bcabcx')).toBe(5);
});

test('overlap is the longest end of one that begins the other', () => {
  const text = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 30 });
  fc.assert(
    fc.property(text, text, (before, next) => {
      const lengths = Array.from(
        { length: Math.min(before.length, next.length) + 1 },
        (_, length) => length,
      );
      const longest = lengths.findLast((length) =>
        next.startsWith(before.slice(before.length - length)),
      );
      expect(overlap(before, next)).toBe(longest);
    }),
  );
});

test('snapshots of a tool become deltas, the first at once, then one a second, bounded', () => {
  const told: unknown[] = [];
  const updates = new ToolUpdates((data) => told.push(data));
  const delta = (text: string, skippedBytes = 0): unknown => ({
    toolCallId: 'c',
    tool: 'bash',
    delta: text,
    skippedBytes,
  });
  updates.snapshot('c', 'bash', 'one\n');
  updates.snapshot('c', 'bash', 'one\ntwo\n');
  updates.snapshot('c', 'bash', 'one\ntwo\nthree\n');
  expect(told).toEqual([delta('one\n')]);
  vi.advanceTimersByTime(1_000);
  expect(told.slice(1)).toEqual([delta('two\nthree\n')]);
  updates.snapshot('c', 'bash', `one\ntwo\nthree\n${'x'.repeat(10_000)}`);
  vi.advanceTimersByTime(1_000);
  expect(told.slice(2)).toEqual([delta('x'.repeat(4_096), 10_000 - 4_096)]);
  updates.snapshot('c', 'bash', 'never told');
  updates.end('c');
  expect(vi.getTimerCount()).toBe(0);
});

test('secrets are gone, plain and inside JSON; short values are not taken for secrets', () => {
  const redact = redactor({ KEY: 'a"b\\c-12345', SHORT: 'abc' });
  expect(redact('x a"b\\c-12345 abc y')).toBe('x [redacted KEY] abc y');
  expect(JSON.parse(redact(JSON.stringify({ text: 'a"b\\c-12345!' })))).toEqual({
    text: '[redacted KEY]!',
  });
});
