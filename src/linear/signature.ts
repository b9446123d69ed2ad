/** Who sent a webhook, and when: by Linear's signature over the raw bytes, and by what is signed. */
import { createHmac, timingSafeEqual } from 'node:crypto';

/** HMAC-SHA256 in lower hex, without a prefix. */
const SIGNATURE = /^[0-9a-f]{64}$/;

/** True when it could be a signature at all: all that can be said before the body is there. */
export const looksSigned = (header: unknown): header is string =>
  typeof header === 'string' && SIGNATURE.test(header);

/** The signature of these bytes. */
export const sign = (secret: string, raw: Uint8Array): string =>
  createHmac('sha256', secret).update(raw).digest('hex');

/** Compares in constant time. The bytes as they came: JSON written anew has other ones. */
export function isSigned(secret: string, raw: Uint8Array, header: unknown): boolean {
  if (!looksSigned(header)) return false;
  const ours = createHmac('sha256', secret).update(raw).digest();
  return timingSafeEqual(ours, Buffer.from(header, 'hex'));
}

/** A clock that goes ahead of ours by more is no clock of Linear's. */
export const FUTURE_MS = 60_000;
/**
 * Linear's last repeat comes six hours after the first, perhaps with the time of that one. A
 * replay within it harms nobody: the ledger remembers for longer (DELIVERY_KEPT_MS).
 */
export const PAST_MS = (6 * 60 + 5) * 60_000;

/** Whether a signed time is one that a delivery may have now; both milliseconds since the epoch. */
export const isTimely = (signedAt: number, now: number): boolean =>
  signedAt <= now + FUTURE_MS && signedAt >= now - PAST_MS;
