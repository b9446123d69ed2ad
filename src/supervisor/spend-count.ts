/** Counts what runs cost, and stops them at a ceiling. */
import { z } from 'zod';
import { dayOf, plus, type Spend, spendOf } from '../domain/spend.ts';
import type { SpoolLine } from '../domain/spool.ts';
import { workUnitCell } from '../domain/states.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { Context } from './context.ts';
import { failWithin } from './end.ts';
import { noteAnswer } from './provider-gate.ts';
import { dayCeilingReached, unitCeilingReached } from './spend-gate.ts';
import type { ParsedLine } from './spool-reader.ts';
import type { Transaction } from './writer.ts';

type Spender = Pick<AttemptRow, 'id' | 'workUnitId'>;

const messageSchema = z.object({
  end: z.literal(true),
  stopReason: z.string(),
  usage: z.object({ totalTokens: z.number() }),
  costUsd: z.number(),
});
const wordSchema = z.object({
  usage: z.object({ totalTokens: z.number() }).nullable(),
  costUsd: z.number().nullable(),
});

/** Most lines are pieces of texts and of output; only ends tell of money. */
const isTelling = ({ type, data }: SpoolLine): boolean =>
  type === 'runner.finished' || (type === 'agent.message' && data['end'] === true);

/** Reasons of a message that an answer of the provider ended. */
const ANSWERED: ReadonlySet<string> = new Set(['stop', 'toolUse', 'length']);

/** Stops a run that goes on although a ceiling is reached. */
function stopAtCeiling(context: Context, transaction: Transaction, attempt: Spender): void {
  const workUnit = transaction.workUnit(attempt.workUnitId);
  if (workUnit.activeAttemptId !== attempt.id || transaction.attempt(attempt.id).intent) return;
  if (workUnitCell(workUnit.status, 'budget_exceeded').kind !== 'move') return;
  const own = unitCeilingReached(context, workUnit);
  const reason = own ?? dayCeilingReached(context, workUnit.channelId)?.reason ?? null;
  if (reason !== null) failWithin(context, transaction, workUnit.id, 'budget_exceeded', reason);
}

interface Counted {
  readonly day: string;
  readonly spend: Spend;
}

/** What the last word knows beyond the messages: compactions, say. */
function beyondMessages(
  word: z.infer<typeof wordSchema>,
  { microUsd, tokens }: Pick<Spend, 'microUsd' | 'tokens'>,
): Spend {
  const whole = spendOf(word.usage?.totalTokens ?? 0, word.costUsd);
  const more = Math.max(0, whole.tokens - tokens);
  return {
    microUsd: Math.max(0, whole.microUsd - microUsd),
    tokens: more,
    unpricedTokens: whole.unpricedTokens > 0 ? more : 0,
  };
}

/**
 * Counts what lines of a spool cost, in the transaction that stores them, and stops the
 * run when it goes on beyond a ceiling. `isLive`: it may still be running.
 */
export function countSpend(
  context: Context,
  transaction: Transaction,
  attempt: Spender,
  lines: readonly ParsedLine[],
  isLive: boolean,
): void {
  const telling = lines.flatMap((parsed) =>
    parsed.kind === 'line' && isTelling(parsed.line) ? [parsed.line] : [],
  );
  if (telling.length === 0) return;
  const { timeZone } = context.settings.policies.spend;
  const counted: Counted[] = [];
  let ofAttempt: Spend = context.store.spend.ofAttempt(attempt.id);
  let goesOn = false;
  let hasAnswer = false;
  for (const { type, data, ts } of telling) {
    const message = type === 'agent.message' ? messageSchema.safeParse(data).data : undefined;
    const word = type === 'runner.finished' ? wordSchema.safeParse(data).data : undefined;
    if (message) {
      hasAnswer ||= ANSWERED.has(message.stopReason);
      // A run that has said its last may as well be let end well.
      goesOn = message.stopReason === 'toolUse';
    }
    if (type === 'runner.finished') goesOn = false;
    const spend = message
      ? spendOf(message.usage.totalTokens, message.costUsd)
      : word && beyondMessages(word, ofAttempt);
    if (!spend || spend.tokens + spend.microUsd === 0) continue;
    ofAttempt = plus(ofAttempt, spend);
    counted.push({ day: dayOf(Date.parse(ts), timeZone), spend });
  }
  if (hasAnswer || counted.length > 0) settle(context, transaction, attempt, counted, hasAnswer);
  if (goesOn && isLive && counted.length > 0) stopAtCeiling(context, transaction, attempt);
}

function settle(
  context: Context,
  transaction: Transaction,
  attempt: Spender,
  counted: readonly Counted[],
  hasAnswer: boolean,
): void {
  const { channelId, providerPresetId, id: workUnitId } = transaction.workUnit(attempt.workUnitId);
  if (hasAnswer && providerPresetId !== null) {
    noteAnswer(context, transaction, providerPresetId, attempt.id);
  }
  for (const { day, spend } of counted) {
    context.store.spend.add({ workUnitId, attemptId: attempt.id, channelId, day }, spend);
  }
}
