/** What a census printed, read line by line. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { badLinesText, type Census, parseCensus } from '../../src/domain/driver-census.ts';

const terms = { handleFrom: 'handle', hasCwd: true };
const read = (...lines: readonly string[]): Census => parseCensus(lines.join('\n'), terms);
const bad = (...lines: readonly string[]): string[] => {
  const census = read(...lines);
  return census.ok ? [] : census.bad.map(({ line, message }) => `${line}: ${message}`);
};
const subjects = (census: Census): string[] =>
  census.ok ? census.subjects.map(({ subject, handle }) => `${subject} ${handle}`) : [];

describe('a census', () => {
  it('may be empty, and may have empty lines and fields of its own', () => {
    expect(subjects(read(''))).toEqual([]);
    const text =
      '\n{"subject":"a","handle":"h-1","state":"open"}\r\n\n{"subject":"b","handle":"h-2"}';
    expect(subjects(parseCensus(text, terms))).toEqual(['a h-1', 'b h-2']);
  });

  it('names a subject once, however often it prints it: the first line counts', () => {
    const lines = ['{"subject":"a","handle":"one"}', '{"subject":"a","handle":"two"}'];
    expect(subjects(read(...lines))).toEqual(['a one']);
  });

  it('takes the handle from the field it is told', () => {
    const census = parseCensus('{"subject":"a","number":"42","handle":"no"}', {
      ...terms,
      handleFrom: 'number',
    });
    expect(subjects(census)).toEqual(['a 42']);
  });

  it('gives title, directory, priority and variables', () => {
    const census = read(
      '{"subject":"a","handle":"a","title":"t","cwd":"/w","priority":-3,"vars":{"A":"1"}}',
    );
    expect(census).toEqual({
      ok: true,
      subjects: [
        { subject: 'a', handle: 'a', title: 't', cwd: '/w', priority: -3, vars: { A: '1' } },
      ],
    });
  });
});

describe('one bad line', () => {
  it.each([
    ['not JSON', 'nonsense', 'it is not JSON'],
    ['no object', '["a"]', 'expected object'],
    ['no subject', '{"handle":"a"}', 'subject: '],
    ['no handle', '{"subject":"a"}', 'handle: '],
    ['a handle that is none', '{"subject":"a","handle":"A b"}', 'handle: a handle is'],
    ['a relative directory', '{"subject":"a","handle":"a","cwd":"w"}', 'cwd: must be an absolute'],
    ['a variable without a name', '{"subject":"a","handle":"a","vars":{"a-b":"c"}}', 'vars.a-b'],
    ['a variable that is no text', '{"subject":"a","handle":"a","vars":{"a":1}}', 'vars.a: '],
    [
      'two variables of one name',
      '{"subject":"a","handle":"a","vars":{"a":"","A":""}}',
      'vars: two',
    ],
    ['a NUL', '{"subject":"a\\u0000","handle":"a"}', 'subject: holds a NUL'],
  ])('with %s makes all of it bad, and is named', (_, line, message) => {
    const [found, ...more] = bad('{"subject":"x","handle":"x"}', line);
    expect(more).toEqual([]);
    expect(found).toMatch(/^2: /);
    expect(found).toContain(message);
  });

  it('has no directory where the driver has none either', () => {
    const line = '{"subject":"a","handle":"a"}';
    expect(parseCensus(line, { ...terms, hasCwd: false }).ok).toBe(false);
  });

  it('is told with the others, but not with all of a thousand', () => {
    const census = read(...Array.from({ length: 1_000 }, () => 'x'));
    const text = census.ok ? '' : badLinesText(census.bad);
    expect(text).toContain('line 1: it is not JSON; line 2: ');
    expect(text).toMatch(/line 5: it is not JSON; and 995 more$/);
  });
});

it('anything at all is read without a mistake of ours', () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.json(), fc.string())), (lines) => {
      const census = read(...lines);
      expect(census.ok ? census.subjects : census.bad).toBeDefined();
    }),
  );
});
