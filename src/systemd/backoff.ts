/** How long to wait before the next try to reach the bus. Pure. */
import type { Entropy } from '../domain/ids.ts';

/** First wait, doubled with every failure. */
const FIRST_MS = 100;
/** A bus that comes back is noticed within this. */
const LONGEST_MS = 10_000;

/**
 * Milliseconds before try number `failures + 1`, half of it random: many clients
 * that lost the same bus do not come back in the same instant.
 */
export function backoffMs(failures: number, entropy: Pick<Entropy, 'random'>): number {
  const ceiling = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(failures, 16));
  const [byte = 0] = entropy.random(1);
  return Math.round(ceiling / 2 + (ceiling / 2) * (byte / 255));
}
