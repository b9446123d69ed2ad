import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { unifiedDiff } from '../../src/attempt/unified-diff.ts';

const line = fc.constantFrom('a', 'b', 'c', '', '-x', '+y', ' z');
const text = fc
  .tuple(fc.array(line, { maxLength: 30 }), fc.boolean())
  .map(([lines, ends]) => lines.join('\n') + (ends && lines.length > 0 ? '\n' : ''));

const lines = (whole: string): string[] => whole.match(/[^\n]*\n|[^\n]+$/g) ?? [];

/** What patch(1) would make of a text. Throws where the diff does not fit. */
function applied(before: string, diff: string): string {
  const old = lines(before);
  const made: string[] = [];
  let at = 0;
  const body = lines(diff).slice(2);
  for (const [index, one] of body.entries()) {
    const range = /^@@ -(\d+),(\d+) \+\d+,\d+ @@\n$/.exec(one);
    if (range !== null) {
      const from = Number(range[1]) - (range[2] === '0' ? 0 : 1);
      made.push(...old.slice(at, from));
      at = from;
      continue;
    }
    if (one.startsWith('\\')) continue;
    const isOpen = body[index + 1]?.startsWith('\\') === true;
    const content = isOpen ? one.slice(1, -1) : one.slice(1);
    if (one[0] !== '+') {
      if (old[at] !== content) throw new Error(`${JSON.stringify(content)} is not at ${at}`);
      at += 1;
    }
    if (one[0] !== '-') made.push(content);
  }
  return [...made, ...old.slice(at)].join('');
}

describe('a unified diff', () => {
  it('makes the new text of the old one', () => {
    fc.assert(
      fc.property(text, text, (before, after) => {
        expect(applied(before, unifiedDiff('f', before, after))).toBe(after);
      }),
    );
  });

  it('counts its lines as they are', () => {
    fc.assert(
      fc.property(text, text, (before, after) => {
        const diff = unifiedDiff('f', before, after);
        for (const hunk of diff.split(/^(?=@@ )/m).slice(1)) {
          const [, old, young] = /^@@ -\d+,(\d+) \+\d+,(\d+) @@/.exec(hunk) ?? [];
          const marks = lines(hunk)
            .slice(1)
            .map((one) => one[0]);
          const count = (mark: string): number =>
            marks.filter((one) => one === ' ' || one === mark).length;
          expect([count('-'), count('+')]).toEqual([Number(old), Number(young)]);
        }
      }),
    );
  });

  it('is empty for equal texts only', () => {
    fc.assert(
      fc.property(text, text, (before, after) => {
        expect(unifiedDiff('f', before, after) === '').toBe(before === after);
      }),
    );
  });
});
