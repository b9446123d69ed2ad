/** Identifiers. Time and randomness are arguments, so that tests decide both. */

/** Where ids and times come from; the daemon passes the machine's, tests their own. */
export interface Entropy {
  /** Wall clock, milliseconds since the epoch. */
  now(): number;
  /** Monotonic clock, milliseconds from any origin; not moved by a clock change or a suspend. */
  monotonic(): number;
  /** Seconds since the machine booted, not moved by a clock change; compares with what a wrapper wrote. */
  uptimeSeconds(): number;
  /** `size` random bytes. */
  random(size: number): Uint8Array;
}

const hex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');

const dashed = (text: string): string =>
  text.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');

/** A UUID version 7 (RFC 9562): sorts by the millisecond it was made in. */
export function uuidv7(entropy: Pick<Entropy, 'now' | 'random'>): string {
  const bytes = new Uint8Array(16);
  bytes.set(entropy.random(16));
  let time = Math.max(0, Math.floor(entropy.now()));
  for (let index = 5; index >= 0; index--) {
    bytes[index] = time % 256;
    time = Math.floor(time / 256);
  }
  bytes[6] = 0x70 | ((bytes[6] ?? 0) & 0x0f);
  bytes[8] = 0x80 | ((bytes[8] ?? 0) & 0x3f);
  return dashed(hex(bytes));
}

/** A UUID version 4 (RFC 9562): 122 random bits. Who is to take it for an id knows no other version. */
export function uuidv4(entropy: Pick<Entropy, 'random'>): string {
  const bytes = Uint8Array.from(entropy.random(16));
  bytes[6] = 0x40 | ((bytes[6] ?? 0) & 0x0f);
  bytes[8] = 0x80 | ((bytes[8] ?? 0) & 0x3f);
  return dashed(hex(bytes));
}

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const SHORT = /^[\w-]{22}$/;

/**
 * The same UUID in 22 characters, for file names that leave room after them: a socket's path
 * has 108 bytes in all.
 */
export const shortId = (uuid: string): string =>
  Buffer.from(uuid.replaceAll('-', ''), 'hex').toString('base64url');

/** The UUID of a {@link shortId}; null for anything else. */
export function longId(short: string): string | null {
  const text = dashed(hex(Buffer.from(short, 'base64url')));
  return SHORT.test(short) && UUID.test(text) && shortId(text) === short ? text : null;
}

/** 128 random bits in hex: the identity of an attempt that exists before its start. */
export function newNonce(entropy: Pick<Entropy, 'random'>): string {
  return hex(entropy.random(16));
}

const HANDLE_ALPHABET = 'bcdfghjkmnpqrstvwxz23456789';

/** A short random handle for work that was given none; no vowels, so no words. */
export function randomHandle(entropy: Pick<Entropy, 'random'>): string {
  return Array.from(
    entropy.random(6),
    (byte) => HANDLE_ALPHABET[byte % HANDLE_ALPHABET.length],
  ).join('');
}

/** RFC 3339 in UTC, as every time outlive stores or shows. */
export function timestamp(entropy: Pick<Entropy, 'now'>): string {
  return new Date(entropy.now()).toISOString();
}
