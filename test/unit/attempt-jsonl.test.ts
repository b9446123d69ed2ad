import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LineSplitter, LineTooLong } from '../../src/attempt/jsonl.ts';

/** Feeds the bytes in chunks that end at the given places. */
function split(bytes: Buffer, cuts: readonly number[]): string[] {
  const splitter = new LineSplitter(1 << 20);
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].toSorted(
    (a, b) => a - b,
  );
  const lines: Buffer[] = [];
  let start = 0;
  for (const end of ends) {
    lines.push(...splitter.push(bytes.subarray(start, end)));
    start = end;
  }
  const rest = splitter.end();
  return [...lines, ...(rest === null ? [] : [rest])].map((line) => line.toString('utf8'));
}

const lineText = fc.string({
  unit: fc.constantFrom('a', '"', '€', '😀', '\u2028', '\u2029', '\u0085', '\t'),
});

test('however the bytes are cut into chunks, the lines are the same', () => {
  fc.assert(
    fc.property(fc.array(lineText), fc.array(fc.nat(), { maxLength: 20 }), (lines, cuts) => {
      const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
      expect(split(bytes, cuts)).toEqual(lines);
    }),
  );
});

test('a carriage return before the line feed is not part of the line, elsewhere it is', () => {
  expect(split(Buffer.from('a\r\nb\rc\n\r\n'), [2])).toEqual(['a', 'b\rc', '']);
});

test('what follows the last line feed comes at the end', () => {
  expect(split(Buffer.from('a\nrest'), [])).toEqual(['a', 'rest']);
});

test('a line beyond the limit is refused, also in many chunks', () => {
  const splitter = new LineSplitter(10);
  expect(splitter.push(Buffer.from('0123456789\n01234'))).toHaveLength(1);
  expect(() => splitter.push(Buffer.from('567890'))).toThrow(LineTooLong);
});
