import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalJson } from '../../src/domain/canonical-json.ts';

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

const json: fc.Arbitrary<Json> = fc.jsonValue({ maxDepth: 4 }) as fc.Arbitrary<Json>;

/** The same value with the keys of every object in another order. */
function shuffled(value: Json, turn: number): Json {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map((item: Json) => shuffled(item, turn + 1));
  const entries = Object.entries(value).map(
    ([key, inner]) => [key, shuffled(inner, turn + 1)] as const,
  );
  const at = entries.length === 0 ? 0 : turn % entries.length;
  return Object.fromEntries([...entries.slice(at), ...entries.slice(0, at)].reverse());
}

describe('canonicalJson', () => {
  it('does not depend on the order of keys, at any depth', () => {
    fc.assert(
      fc.property(json, fc.nat(50), (value, turn) => {
        expect(canonicalJson(shuffled(value, turn))).toBe(canonicalJson(value));
      }),
    );
  });

  it('loses nothing: parsed it is the same value', () => {
    fc.assert(
      fc.property(json, (value) => {
        // Through JSON once first: -0 is 0 there, and undefined is not there.
        expect(JSON.parse(canonicalJson(value))).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  it('is the same only for the same value', () => {
    fc.assert(
      fc.property(json, json, (one, other) => {
        const equal = canonicalJson(one) === canonicalJson(other);
        expect(equal).toBe(deepEqual(one, other));
      }),
    );
  });

  it('keeps the order of lists: another order is another request', () => {
    expect(canonicalJson(['a', 'b'])).not.toBe(canonicalJson(['b', 'a']));
  });

  it('treats a field that is undefined as one that is not there', () => {
    expect(canonicalJson({ b: undefined, a: { c: undefined } })).toBe('{"a":{}}');
  });

  it('has one order for keys that look like numbers too, and keeps a key named __proto__', () => {
    const value: unknown = JSON.parse('{"b":1,"10":2,"9":3,"a":4,"__proto__":5}');
    expect(JSON.parse(canonicalJson(value))).toEqual(value);
    expect(canonicalJson(value)).toBe('{"9":3,"10":2,"__proto__":5,"a":4,"b":1}');
  });

  it('gives an unpaired surrogate as an escape, so that the text survives UTF-8', () => {
    const text = canonicalJson({ prompt: 'a\ud800b' });
    expect(text).toBe(String.raw`{"prompt":"a\ud800b"}`);
    expect(Buffer.from(text, 'utf8').toString('utf8')).toBe(text);
  });
});

function deepEqual(one: Json, other: Json): boolean {
  try {
    expect(JSON.parse(JSON.stringify(one))).toEqual(JSON.parse(JSON.stringify(other)));
    return true;
  } catch {
    return false;
  }
}
