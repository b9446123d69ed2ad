/**
 * The circuit breaker of a model provider. Pure; times are milliseconds since the epoch.
 *
 * closed: work is started. open: nothing is, until a time. half_open: one run is, the
 * probe; its first answer closes the breaker, its failure opens it for longer.
 */
import { z } from 'zod';
import type { FailureCode } from './outcome-codes.ts';
import { TRANSIENT_CODES } from './provider-retry.ts';

export const BREAKER_STATES = ['closed', 'open', 'half_open'] as const;
export type BreakerState = (typeof BREAKER_STATES)[number];

export interface Health {
  readonly state: BreakerState;
  /** Attempts in a row that the provider failed. */
  readonly failures: number;
  /** Pauses in a row; forgotten when an attempt ends well. */
  readonly openings: number;
  /** Set while open. */
  readonly openUntil: number | null;
  /** Why it was opened last. */
  readonly code: string | null;
  readonly message: string | null;
  /** The attempt that tries it out, while half open. */
  readonly probe: string | null;
}

export const HEALTHY: Health = {
  state: 'closed',
  failures: 0,
  openings: 0,
  openUntil: null,
  code: null,
  message: null,
  probe: null,
};

export const breakerPolicySchema = z.strictObject({
  /** Transient failures in a row, over different attempts, that open it. */
  failures: z.int().min(1).max(1_000).default(3),
  /** First pause, milliseconds; doubles while probes fail. */
  firstPauseMs: z.int().min(1).max(86_400_000).default(60_000),
  maxPauseMs: z
    .int()
    .min(1)
    .max(604_800_000)
    .default(30 * 60_000),
});
export type BreakerPolicy = z.infer<typeof breakerPolicySchema>;
export const DEFAULT_BREAKER: BreakerPolicy = breakerPolicySchema.parse({});

/** A refused key fails every run: two are enough, and only a person can mend it. */
const AUTH_FAILURES = 2;
const AUTH_FIRST_PAUSE_MS = 15 * 60_000;
const AUTH_MAX_PAUSE_MS = 6 * 3_600_000;
/** A reset further away than this is a mistake of somebody's clock. */
const RESET_MAX_MS = 7 * 24 * 3_600_000;
const JITTER = 0.1;

/** Failures that say the provider did answer: something else is wrong. */
const ANSWERED_CODES: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'model_error',
  'context_overflow',
  'output_limit',
]);

/** What the end of an attempt says about its provider. */
export type Word =
  | { readonly kind: 'answered' }
  /** Nothing: it was cancelled, killed, lost. */
  | { readonly kind: 'silent' }
  | {
      readonly kind: 'failed';
      readonly code: FailureCode;
      readonly message: string;
      /** When the provider said it may be asked again. */
      readonly resetAt: number | null;
    };

/** The word in an outcome. `code` is null for a success. */
export function wordOf(
  outcome: { readonly kind: string; readonly code?: string | null; readonly message?: string },
  resetAt: number | null,
): Word {
  if (outcome.kind === 'succeeded') return { kind: 'answered' };
  if (outcome.kind !== 'failed') return { kind: 'silent' };
  const code = outcome.code as FailureCode;
  if (ANSWERED_CODES.has(code)) return { kind: 'answered' };
  if (!TRANSIENT_CODES.has(code) && code !== 'provider_auth') return { kind: 'silent' };
  return { kind: 'failed', code, message: outcome.message ?? '', resetAt };
}

function pause(policy: BreakerPolicy, code: FailureCode, openings: number, random: number): number {
  const auth = code === 'provider_auth';
  const first = auth ? AUTH_FIRST_PAUSE_MS : policy.firstPauseMs;
  const max = auth ? AUTH_MAX_PAUSE_MS : Math.max(policy.firstPauseMs, policy.maxPauseMs);
  const delay = Math.min(max, first * 2 ** Math.min(openings, 30));
  return delay * (1 + random * JITTER);
}

export interface Moment {
  readonly now: number;
  /** From 0 up to, and without, 1. */
  readonly random: number;
}

function open(
  health: Health,
  word: Extract<Word, { kind: 'failed' }>,
  { now, random }: Moment,
  policy: BreakerPolicy,
): Health {
  const { code, message, resetAt } = word;
  const said = resetAt !== null && resetAt > now ? Math.min(resetAt, now + RESET_MAX_MS) : null;
  const until = said ?? Math.ceil(now + pause(policy, code, health.openings, random));
  return {
    state: 'open',
    failures: health.failures + 1,
    openings: health.openings + 1,
    openUntil: until,
    code,
    message,
    probe: null,
  };
}

/** True when this failure, the last of `failures` in a row, is one too many. */
function isTooMuch(
  word: Extract<Word, { kind: 'failed' }>,
  failures: number,
  now: number,
  policy: BreakerPolicy,
): boolean {
  if (word.resetAt !== null && word.resetAt > now) return true;
  return failures >= (word.code === 'provider_auth' ? AUTH_FAILURES : policy.failures);
}

/**
 * After the end of an attempt. While the breaker is not closed only the probe's word
 * counts, but for a reset time: whoever else ends was started before the trouble.
 */
export function afterEnd(
  health: Health,
  attemptId: string,
  word: Word,
  moment: Moment,
  policy: BreakerPolicy,
): Health {
  const isProbe = health.state === 'half_open' && health.probe === attemptId;
  if (word.kind === 'silent') return isProbe ? { ...health, probe: null } : health;
  if (word.kind === 'answered') return isProbe || health.state === 'closed' ? HEALTHY : health;
  const reset = word.resetAt !== null && word.resetAt > Math.max(moment.now, health.openUntil ?? 0);
  if (
    isProbe ||
    (health.state === 'closed' && isTooMuch(word, health.failures + 1, moment.now, policy))
  ) {
    return open(health, word, moment, policy);
  }
  if (health.state === 'closed') {
    const { code, message } = word;
    return { ...health, failures: health.failures + 1, code, message };
  }
  if (!reset) return health;
  // The pause is the same one, it only lasts longer.
  return open({ ...health, openings: health.openings - 1 }, word, moment, policy);
}

/** The probe got an answer: work is started again. Later pauses are still longer ones. */
export function afterAnswer(health: Health, attemptId: string): Health {
  if (health.state !== 'half_open' || health.probe !== attemptId) return health;
  return { ...HEALTHY, openings: health.openings };
}

/** The pause is over: one run may try. */
export function afterPause(health: Health, now: number): Health {
  if (health.state !== 'open' || (health.openUntil ?? 0) > now) return health;
  return { ...health, state: 'half_open', openUntil: null, probe: null };
}

/** An attempt is started: the probe, while half open. */
export function afterStart(health: Health, attemptId: string, now: number): Health {
  const due = afterPause(health, now);
  return due.state === 'half_open' && due.probe === null ? { ...due, probe: attemptId } : health;
}

/** Why nothing of this provider may start now; null when it may. */
export function closedGate(health: Health, now: number): 'paused' | 'probing' | null {
  const { state, probe } = afterPause(health, now);
  if (state === 'open') return 'paused';
  return state === 'half_open' && probe !== null ? 'probing' : null;
}
