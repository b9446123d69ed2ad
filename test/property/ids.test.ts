import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  longId,
  newNonce,
  randomHandle,
  shortId,
  timestamp,
  uuidv4,
  uuidv7,
} from '../../src/domain/ids.ts';
import { handleSchema } from '../../src/domain/names.ts';

/** 2^48 - 1 milliseconds is the last instant a version 7 UUID holds (year 10889). */
const time = fc.integer({ min: 0, max: 2 ** 48 - 1 });
const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });

const at = (now: number, random: Uint8Array) => ({ now: () => now, random: () => random });

describe('uuidv4', () => {
  it('is well-formed, keeps all other bits, and leaves the bytes alone', () => {
    fc.assert(
      fc.property(bytes(16), (random) => {
        const before = Uint8Array.from(random);
        const id = uuidv4({ random: () => random });
        expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
        const hex = Buffer.from(before).toString('hex');
        const kept = (text: string) => text.slice(0, 12) + text.slice(13, 16) + text.slice(17);
        expect(kept(id.replaceAll('-', ''))).toBe(kept(hex));
        expect(random).toEqual(before);
      }),
    );
  });
});

describe('uuidv7', () => {
  it('is well-formed: version 7, variant 10, lower-case hex', () => {
    fc.assert(
      fc.property(time, bytes(16), (now, random) => {
        expect(uuidv7(at(now, random))).toMatch(
          /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
        );
      }),
    );
  });

  it('holds the millisecond it was made in', () => {
    fc.assert(
      fc.property(time, bytes(16), (now, random) => {
        const hex = uuidv7(at(now, random)).replaceAll('-', '').slice(0, 12);
        expect(Number.parseInt(hex, 16)).toBe(now);
      }),
    );
  });

  it('sorts by time, whatever the randomness', () => {
    fc.assert(
      fc.property(time, bytes(16), time, bytes(16), (first, one, second, other) => {
        fc.pre(first < second);
        expect(uuidv7(at(first, one)) < uuidv7(at(second, other))).toBe(true);
      }),
    );
  });

  it('keeps 74 bits of randomness: other bits there, another id', () => {
    fc.assert(
      fc.property(time, bytes(16), fc.integer({ min: 0, max: 127 }), (now, random, bit) => {
        const changed = Uint8Array.from(random);
        changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (0x80 >> (bit & 7));
        // Bits 0-47 are the time, 48-51 the version, 64-65 the variant (RFC 9562, 5.7).
        const fixed = bit < 52 || bit === 64 || bit === 65;
        expect(uuidv7(at(now, random)) === uuidv7(at(now, changed))).toBe(fixed);
      }),
    );
  });

  it('is made of the time before 1970 as of the epoch itself', () => {
    expect(uuidv7(at(-5, new Uint8Array(16)))).toBe('00000000-0000-7000-8000-000000000000');
  });
});

describe('a nonce', () => {
  it('is 32 hex digits, one for each 128 random bits', () => {
    fc.assert(
      fc.property(bytes(16), (random) => {
        const nonce = newNonce({ random: () => random });
        expect(nonce).toMatch(/^[0-9a-f]{32}$/);
        expect(Buffer.from(nonce, 'hex')).toEqual(Buffer.from(random));
      }),
    );
  });
});

describe('a random handle', () => {
  it('is always a legal handle without a vowel', () => {
    fc.assert(
      fc.property(bytes(6), (random) => {
        const handle = randomHandle({ random: () => random });
        expect(handleSchema.safeParse(handle).success).toBe(true);
        expect(handle).not.toMatch(/[aeiou]/);
      }),
    );
  });
});

describe('a timestamp', () => {
  it('is RFC 3339 in UTC and loses no millisecond', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 253_402_300_799_999 }), (now) => {
        const text = timestamp({ now: () => now });
        expect(text).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
        expect(Date.parse(text)).toBe(now);
      }),
    );
  });
});

describe('the short form of a UUID', () => {
  it('leads back to it, and has 22 characters that no path minds', () => {
    fc.assert(
      fc.property(time, bytes(16), (now, random) => {
        const id = uuidv7(at(now, random));
        expect(shortId(id)).toMatch(/^[A-Za-z0-9_-]{22}$/);
        expect(longId(shortId(id))).toBe(id);
      }),
    );
  });

  it('is of no other text', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        const long = longId(text);
        expect(long === null || shortId(long) === text).toBe(true);
      }),
    );
    for (const text of ['', '.trash', 'A'.repeat(21), `${'A'.repeat(21)}B`, 'A'.repeat(23)])
      expect(longId(text)).toBeNull();
  });
});
