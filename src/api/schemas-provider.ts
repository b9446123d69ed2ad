/** What the API says of model providers and of money. */
import { z } from 'zod';
import { BREAKER_STATES } from '../domain/provider-health.ts';

const time = z.iso.datetime();
const page = <Item extends z.ZodType>(item: Item) =>
  z.object({ items: z.array(item), nextCursor: z.null() });

/** Spent, of what may be spent. US dollars with six decimals at most; null for no ceiling. */
export const spendViewSchema = z.object({
  costUsd: z.number(),
  tokens: z.int(),
  /** Tokens of models without a price, part of `tokens`: their cost is not in `costUsd`. */
  unpricedTokens: z.int(),
  maxCostUsd: z.number().nullable(),
  maxTokens: z.int().nullable(),
  remainingCostUsd: z.number().nullable(),
  remainingTokens: z.int().nullable(),
});
export type SpendView = z.infer<typeof spendViewSchema>;

export const daySpendViewSchema = spendViewSchema.extend({
  /** The local calendar day, `2026-01-31`. */
  day: z.string(),
  timeZone: z.string(),
  /** Channels that have spent or have a ceiling. */
  channels: z.array(spendViewSchema.extend({ channelId: z.string() })),
});
export type DaySpendView = z.infer<typeof daySpendViewSchema>;

export const providerViewSchema = z.object({
  /** A preset of config.json, else the part of `model` before the slash. */
  name: z.string(),
  /** `open`: nothing of it is started; `half_open`: one run tries it out. */
  state: z.enum(BREAKER_STATES),
  /** Attempts in a row that it failed. */
  failures: z.int(),
  openUntil: time.nullable(),
  /** Why it failed last. */
  errorCode: z.string().nullable(),
  errorMessage: z.string().nullable(),
  /** Why nothing of it is started now, as a sentence. */
  blocked: z.string().nullable(),
  /** Queued work that waits for it, set aside or backing off. */
  waiting: z.int(),
  used: z.int(),
  limit: z.int().nullable(),
  /** `provider/model` of a preset. */
  model: z.string().nullable(),
});
export type ProviderView = z.infer<typeof providerViewSchema>;
export const providerPageSchema = page(providerViewSchema);
export type ProviderPage = z.infer<typeof providerPageSchema>;

export const providerParamsSchema = z.strictObject({ name: z.string().min(1).max(256) });
