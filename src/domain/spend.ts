/**
 * What work may cost. Pure. Money is whole micro-dollars, so that sums are exact; a day
 * is a calendar day of one time zone.
 */
import { z } from 'zod';

export interface Spend {
  readonly microUsd: number;
  readonly tokens: number;
  /** Tokens of models without a price, part of `tokens`: their cost is not known. */
  readonly unpricedTokens: number;
}

export const NOTHING_SPENT: Spend = { microUsd: 0, tokens: 0, unpricedTokens: 0 };

/** Largest ceilings: far above any sense, far below where whole numbers end. */
const MAX_USD = 1_000_000;
const MAX_TOKENS = 1_000_000_000_000;

/** What a request or config.json says; what is absent has no ceiling. */
export const spendCeilingSchema = z.strictObject({
  /** US dollars. */
  maxCostUsd: z.number().min(0.000001).max(MAX_USD).optional(),
  maxTokens: z.int().min(1).max(MAX_TOKENS).optional(),
});
export type SpendCeiling = z.infer<typeof spendCeilingSchema>;

/** The same in micro-dollars; null for none. */
export interface Ceiling {
  readonly microUsd: number | null;
  readonly tokens: number | null;
}

export const NO_CEILING: Ceiling = { microUsd: null, tokens: null };

/** US dollars as whole micro-dollars. */
export const toMicroUsd = (usd: number): number => Math.round(usd * 1e6);

export function ceilingOf({ maxCostUsd, maxTokens }: SpendCeiling): Ceiling {
  return {
    microUsd: maxCostUsd === undefined ? null : toMicroUsd(maxCostUsd),
    tokens: maxTokens ?? null,
  };
}

/** `own` where it says something, else `fallback`. */
export function overriding(own: SpendCeiling | undefined, fallback: SpendCeiling): SpendCeiling {
  const maxCostUsd = own?.maxCostUsd ?? fallback.maxCostUsd;
  const maxTokens = own?.maxTokens ?? fallback.maxTokens;
  return {
    ...(maxCostUsd === undefined ? {} : { maxCostUsd }),
    ...(maxTokens === undefined ? {} : { maxTokens }),
  };
}

/** One message of a model. A provider without prices reports a cost of 0. */
export function spendOf(tokens: number, costUsd: number | null): Spend {
  const microUsd = Math.max(0, toMicroUsd(costUsd ?? 0));
  const counted = Math.max(0, Math.round(tokens));
  const isPriced = (costUsd ?? 0) > 0;
  return { microUsd, tokens: counted, unpricedTokens: isPriced ? 0 : counted };
}

export const plus = (a: Spend, b: Spend): Spend => ({
  microUsd: a.microUsd + b.microUsd,
  tokens: a.tokens + b.tokens,
  unpricedTokens: a.unpricedTokens + b.unpricedTokens,
});

/** What is left of a ceiling, never below 0; null where there is none. */
export function remaining(spent: Spend, ceiling: Ceiling): Ceiling {
  const left = (max: number | null, used: number): number | null =>
    max === null ? null : Math.max(0, max - used);
  return {
    microUsd: left(ceiling.microUsd, spent.microUsd),
    tokens: left(ceiling.tokens, spent.tokens),
  };
}

/** US dollars of micro-dollars, as people write money: cents, more digits for less than one. */
export function formatMicroUsd(microUsd: number): string {
  const usd = microUsd / 1e6;
  return `$${usd >= 0.1 || microUsd === 0 ? usd.toFixed(2) : usd.toFixed(6).replace(/0{1,4}$/, '')}`;
}

/** Which ceiling is reached, as the rest of a sentence; null when none is. */
export function reached(spent: Spend, { microUsd, tokens }: Ceiling): string | null {
  if (microUsd !== null && spent.microUsd >= microUsd) {
    return `${formatMicroUsd(spent.microUsd)} of ${formatMicroUsd(microUsd)} are spent`;
  }
  if (tokens !== null && spent.tokens >= tokens) {
    return `${spent.tokens} of ${tokens} tokens are spent`;
  }
  return null;
}

const formats = new Map<string, Intl.DateTimeFormat>();

/** Making one costs a hundred times what using it does. */
function formatOf(timeZone: string): Intl.DateTimeFormat {
  const known = formats.get(timeZone);
  if (known) return known;
  const made = new Intl.DateTimeFormat('en-US', {
    timeZone,
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
  });
  formats.set(timeZone, made);
  return made;
}

/** The calendar day of an instant, `2026-01-31`. @throws RangeError for an unknown zone. */
export function dayOf(now: number, timeZone: string): string {
  const parts = formatOf(timeZone).formatToParts(now);
  const part = (type: string): string => parts.find((one) => one.type === type)?.value ?? '';
  return `${part('year')}-${part('month')}-${part('day')}`;
}

const HOUR = 3_600_000;

/** The first instant of the next calendar day. A day has 23 to 25 hours, also where clocks change. */
export function nextDay(now: number, timeZone: string): number {
  const today = dayOf(now, timeZone);
  let before = now;
  let after = now + HOUR;
  while (dayOf(after, timeZone) === today) {
    before = after;
    after += HOUR;
  }
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (dayOf(middle, timeZone) === today) before = middle;
    else after = middle;
  }
  return after;
}
