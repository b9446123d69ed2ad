/**
 * What may be removed, the pure part. A work unit goes as a whole: its events, files and
 * records. Its rows stay: they are the ledger, and the memory of its idempotency key.
 */
import { TERMINAL_STATUSES, type WorkUnitStatus } from './work-unit.ts';

export interface RetentionPolicy {
  /** How long ended work is kept whole, milliseconds; null for ever. */
  readonly maxAgeMs: number | null;
  /** Bytes that store, spools, sessions and exit records may take; null for any number. */
  readonly budgetBytes: number | null;
}

export interface Compactable {
  readonly status: WorkUnitStatus;
  /** Null while it lives. */
  readonly endedAt: string | null;
}

export const COMPACTION_REASONS = ['age', 'budget'] as const;
/** Why a work unit was compacted: it is old, or the disk budget is used up. */
export type CompactionReason = (typeof COMPACTION_REASONS)[number];

/** What ended less than this ago the budget leaves alone: its clients are still reading. */
export const SETTLED_MS = 10 * 60_000;

/** Deliveries of Linear's are kept at least this long: its last repeat comes 6 h after the first. */
export const DELIVERY_KEPT_MS = 7 * 60 * 60_000;

/** The time at or before which ended work is too old; null when nothing ever is. */
export function cutoff({ maxAgeMs }: RetentionPolicy, now: number): number | null {
  return maxAgeMs === null ? null : now - maxAgeMs;
}

/**
 * Why this work unit goes now, null when it stays. To be asked oldest end first, with the
 * bytes that are used at that moment; after the first that stays all others stay too.
 */
export function whyItGoes(
  { status, endedAt }: Compactable,
  policy: RetentionPolicy,
  { now, usedBytes }: { readonly now: number; readonly usedBytes: number },
): CompactionReason | null {
  if (!TERMINAL_STATUSES.has(status) || endedAt === null) return null;
  const ended = Date.parse(endedAt);
  const oldest = cutoff(policy, now);
  if (oldest !== null && ended <= oldest) return 'age';
  const overBudget = policy.budgetBytes !== null && usedBytes > policy.budgetBytes;
  return overBudget && ended <= now - SETTLED_MS ? 'budget' : null;
}
