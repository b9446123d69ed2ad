/** Cutting what is too long in the middle, saying how much went. All sizes in bytes of UTF-8. */
import { isObject } from './json.ts';

/** The note that stands where bytes were cut. */
export const cutNote = (bytes: number): string => `[… ${bytes} bytes cut …]`;

/** The end of the last whole character at or before `end`. */
export function floorCharacter(bytes: Uint8Array, end: number): number {
  let start = end;
  while (start > 0 && end - start < 4 && isContinuation(bytes[start - 1])) start--;
  if (start === 0) return end;
  return start - 1 + lengthOf(bytes[start - 1] ?? 0) <= end ? end : start - 1;
}

/** The start of the first whole character at or after `start`. */
export function ceilCharacter(bytes: Uint8Array, start: number): number {
  let at = start;
  while (at < bytes.length && at - start < 3 && isContinuation(bytes[at])) at++;
  return at;
}

const isContinuation = (byte: number | undefined): boolean =>
  byte !== undefined && (byte & 0xc0) === 0x80;

function lengthOf(lead: number): number {
  if (lead >= 0xf0) return 4;
  if (lead >= 0xe0) return 3;
  return lead >= 0xc0 ? 2 : 1;
}

/** The text itself, or its head and tail around a note; about `maxBytes` long. */
export function cutMiddle(text: string, maxBytes: number): string {
  // A character is at most 3 bytes per UTF-16 unit: most texts need no counting.
  if (text.length * 3 <= maxBytes || Buffer.byteLength(text) <= maxBytes) return text;
  const bytes = Buffer.from(text);
  const head = floorCharacter(bytes, Math.ceil(maxBytes / 2));
  const tail = ceilCharacter(bytes, bytes.length - Math.floor(maxBytes / 2));
  return `${bytes.toString('utf8', 0, head)}\n${cutNote(tail - head)}\n${bytes.toString('utf8', tail)}`;
}

/** The last `maxBytes` of a text at most, from a whole character on. */
export function tailOf(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text);
  return bytes.toString('utf8', ceilCharacter(bytes, Math.max(0, bytes.length - maxBytes)));
}

// Deeper values are nobody's data, and recursion must end.
const MAX_DEPTH = 32;
const SMALLEST_STRING = 64;

/** A copy of the value whose JSON is at most `maxBytes` long: its long strings are cut in the middle. */
export function boundValue(value: unknown, maxBytes: number): unknown {
  if (sizeOf(value) <= maxBytes) return value;
  for (
    let limit = Math.floor(maxBytes / 2);
    limit >= SMALLEST_STRING;
    limit = Math.floor(limit / 2)
  ) {
    const smaller = cutStrings(value, limit, 0);
    if (sizeOf(smaller) <= maxBytes) return smaller;
  }
  return cutNote(sizeOf(value));
}

function sizeOf(value: unknown): number {
  try {
    return Buffer.byteLength(JSON.stringify(value) ?? '');
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

function cutStrings(value: unknown, limit: number, depth: number): unknown {
  if (typeof value === 'string') return cutMiddle(value, limit);
  if (depth >= MAX_DEPTH) return '[…]';
  if (Array.isArray(value)) return value.map((item) => cutStrings(item, limit, depth + 1));
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, cutStrings(item, limit, depth + 1)]),
  );
}
