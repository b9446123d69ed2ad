/**
 * When work that a model provider failed is tried again. Pure; times are milliseconds
 * since the epoch, randomness is an argument.
 */
import { z } from 'zod';
import type { FailureCode } from './outcome-codes.ts';

/** Failures that pass by themselves: the same request may be answered later. */
export const TRANSIENT_CODES: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'rate_limited',
  'provider_unavailable',
]);

/** Failures in which the provider gave no answer: the conversation stands where it stood. */
export const UNANSWERED_CODES: ReadonlySet<string> = new Set<FailureCode>([
  ...TRANSIENT_CODES,
  'provider_auth',
]);

export const providerRetrySchema = z.strictObject({
  /** Attempts in all that a provider may fail; 1 tries nothing again. */
  maxAttempts: z.int().min(1).max(1_000),
  /** From the first such failure to the start of the last attempt, milliseconds. */
  maxDelayMs: z.int().min(0).max(2_592_000_000),
});
export type ProviderRetry = z.infer<typeof providerRetrySchema>;

export const DEFAULT_PROVIDER_RETRY: ProviderRetry = {
  maxAttempts: 5,
  maxDelayMs: 6 * 3_600_000,
};

const FIRST_DELAY_MS = 10_000;
const MAX_DELAY_MS = 15 * 60_000;
/** Who waits for the same reset must not come back in the same moment. */
const RESET_JITTER = { min: 250, max: 30_000, share: 0.1 };

export interface FailedTry {
  /** Attempts in a row that the provider failed, this one included. */
  readonly failures: number;
  /** When the first of them ended. */
  readonly since: number;
  readonly now: number;
  /** When the provider said it may be asked again, null when it said nothing. */
  readonly resetAt: number | null;
  /** From 0 up to, and without, 1. */
  readonly random: number;
}

export type NextTry =
  | { readonly kind: 'retry'; readonly at: number }
  /** The budget is over; `why` is the rest of a sentence. */
  | { readonly kind: 'give_up'; readonly why: string };

/** Half of the delay is fixed, half is chance; it doubles with each failure. */
function ownDelay({ failures, random }: FailedTry): number {
  const delay = Math.min(FIRST_DELAY_MS * 2 ** Math.min(failures - 1, 20), MAX_DELAY_MS);
  return delay / 2 + (random * delay) / 2;
}

function resetDelay({ now, random }: FailedTry, resetAt: number): number {
  const wait = Math.max(0, resetAt - now);
  const { min, max, share } = RESET_JITTER;
  return wait + random * Math.min(max, Math.max(min, wait * share));
}

/** Whether and when to try again. Never before the provider's own reset. */
export function nextTry(failed: FailedTry, policy: ProviderRetry): NextTry {
  const { failures, since, now, resetAt } = failed;
  if (failures >= policy.maxAttempts) {
    const times = failures === 1 ? 'once' : `${failures} times in a row`;
    return { kind: 'give_up', why: `the provider failed it ${times}` };
  }
  const delay = resetAt === null ? ownDelay(failed) : resetDelay(failed, resetAt);
  const at = Math.ceil(now + delay);
  if (at - since > policy.maxDelayMs) {
    const earliest = new Date(at).toISOString();
    return {
      kind: 'give_up',
      why: `the provider failed it ${failures}×, and ${earliest} is later than it may be tried again`,
    };
  }
  return { kind: 'retry', at };
}
