/** What becomes of work whose provider failed it: another attempt later, within a budget. */
import type { Verdict } from '../domain/classify.ts';
import { wordOf } from '../domain/provider-health.ts';
import { nextTry, type ProviderRetry, TRANSIENT_CODES } from '../domain/provider-retry.ts';
import { workUnitCell } from '../domain/states.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { unknownCalls } from './approval-loss.ts';
import type { Context } from './context.ts';
import { chance, noteEnd } from './provider-gate.ts';
import { unitCeilingReached } from './spend-gate.ts';
import type { Transaction } from './writer.ts';

/** How often this work is tried again; commands have no provider and are not. */
function retryPolicy({ settings }: Context, { request }: WorkUnitRow): ProviderRetry {
  const { maxAttempts, maxDelayMs } = request.providerRetry ?? {};
  const { providerRetry } = settings.policies;
  return {
    maxAttempts: maxAttempts ?? providerRetry.maxAttempts,
    maxDelayMs: maxDelayMs ?? providerRetry.maxDelayMs,
  };
}

type Failed = Extract<Verdict['outcome'], { kind: 'failed' }>;

/** The failure in the words of the one who gives up. */
const givenUp = (verdict: Verdict, outcome: Failed, why: string): Verdict => ({
  ...verdict,
  outcome: { ...outcome, message: `${outcome.message} (${why})` },
});

function backOff(
  context: Context,
  transaction: Transaction,
  workUnit: WorkUnitRow,
  attempt: AttemptRow,
  verdict: Verdict & { outcome: Failed },
): Verdict | null {
  const { store, entropy } = context;
  const { outcome } = verdict;
  const now = entropy.now();
  const known = store.providers.failing(workUnit.id);
  const failures = known.failures + 1;
  const since = known.since ?? transaction.at;
  const resetAt = resetOf(attempt);
  const policy = retryPolicy(context, workUnit);
  const failed = { failures, since: Date.parse(since), now, resetAt, random: chance(context) };
  const spentOut = unitCeilingReached(context, workUnit);
  const next =
    spentOut === null
      ? nextTry(failed, policy)
      : ({ kind: 'give_up', why: `its ceiling: ${spentOut}` } as const);
  if (next.kind === 'give_up') {
    store.providers.setFailing(workUnit.id, 0, null);
    return givenUp(verdict, outcome, next.why);
  }
  const nextStartAt = new Date(next.at).toISOString();
  const { code, message } = outcome;
  const data = {
    reason: 'provider_backoff',
    errorCode: code,
    errorMessage: message,
    provider: workUnit.providerPresetId,
    failures,
    maxAttempts: policy.maxAttempts,
    retryAt: resetAt === null ? null : new Date(resetAt).toISOString(),
    nextStartAt,
  };
  transaction.moveWorkUnit(workUnit, 'provider_backoff', {
    actor: 'system',
    attemptId: attempt.id,
    data,
    patch: { activeAttemptId: null, neverStartedCount: 0 },
  });
  store.providers.setFailing(workUnit.id, failures, since);
  store.queue.delay(workUnit.id, nextStartAt);
  return null;
}

const resetOf = ({ lastWord }: AttemptRow): number | null =>
  lastWord?.retryAt == null ? null : Date.parse(lastWord.retryAt);

/**
 * Notes what an ended attempt says of its provider. A passing failure of the provider
 * puts the work unit back into the queue in this very transaction, so that nobody ever
 * sees it ended.
 * @returns the verdict the work unit is to end by, null when it is queued again.
 */
export function heedProvider(
  context: Context,
  transaction: Transaction,
  attempt: AttemptRow,
  verdict: Verdict,
): Verdict | null {
  const workUnit = transaction.workUnit(attempt.workUnitId);
  const { runnerId, providerPresetId, status } = workUnit;
  if (runnerId !== 'pi' || providerPresetId === null) return verdict;
  const { outcome } = verdict;
  noteEnd(context, transaction, providerPresetId, attempt, wordOf(outcome, resetOf(attempt)));
  if (workUnit.activeAttemptId !== attempt.id) return verdict;
  const isTransient = outcome.kind === 'failed' && TRANSIENT_CODES.has(outcome.code);
  if (isTransient && workUnitCell(status, 'provider_backoff').kind === 'move') {
    const unknown = unknownCalls(context, attempt);
    if (unknown !== null) return { ...verdict, outcome: { ...outcome, ...unknown } };
    return backOff(context, transaction, workUnit, attempt, { ...verdict, outcome });
  }
  const ranNothing = outcome.kind === 'never_started';
  if (!ranNothing && context.store.providers.failing(workUnit.id).failures > 0) {
    context.store.providers.setFailing(workUnit.id, 0, null);
  }
  return verdict;
}
