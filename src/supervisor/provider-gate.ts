/** The circuit breakers: what attempts say of their provider, and who may start meanwhile. */
import { OutliveError } from '../domain/errors.ts';
import {
  afterAnswer,
  afterEnd,
  afterPause,
  afterStart,
  closedGate,
  HEALTHY,
  type Health,
  type Word,
} from '../domain/provider-health.ts';
import { TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { Context } from './context.ts';
import type { Transaction } from './writer.ts';

/** How the names of providers begin in what queued work waits for. */
export const PROVIDER = 'provider ';

/** From 0 up to, and without, 1. */
export function chance({ entropy }: Context): number {
  const [a = 0, b = 0, c = 0, d = 0] = entropy.random(4);
  return (a * 2 ** 24 + b * 2 ** 16 + c * 2 ** 8 + d) / 2 ** 32;
}

/** A probe that ended without a word (its attempt was given up) probes no more. */
function healthOf({ store }: Context, provider: string): Health {
  const health = store.providers.health(provider);
  if (health.probe === null) return health;
  const probe = store.attempts.get(health.probe);
  const isOver = probe === null || TERMINAL_ATTEMPT_STATUSES.has(probe.status);
  return isOver ? { ...health, probe: null } : health;
}

/** Stores it and wakes whom that concerns. Must run in a write transaction. */
function keep(context: Context, provider: string, health: Health, at: string): void {
  const { providers, queue } = context.store;
  if (!providers.put(provider, health, at)) return;
  if (health.state === 'closed') queue.wakeEvery(PROVIDER + provider);
  // One after the other: whoever cannot use it passes it on.
  else if (health.state === 'half_open' && health.probe === null) {
    queue.wakeNext(PROVIDER + provider);
  }
}

/** Why no run of this provider may start now, as a sentence; null when one may. */
export function providerBlocker(context: Context, provider: string): string | null {
  const health = healthOf(context, provider);
  const gate = closedGate(health, context.entropy.now());
  if (gate === null) return null;
  const why = health.code === null ? '' : ` after ${health.code}`;
  if (gate === 'paused') {
    const until = new Date(health.openUntil ?? 0).toISOString();
    return `provider ${provider} is paused until ${until}${why} (outlive providers resume ${provider})`;
  }
  const probe = context.store.attempts.get(health.probe ?? '');
  const handle = probe && context.store.workUnits.get(probe.workUnitId)?.handle;
  return `provider ${provider} is tried out by ${handle ?? 'another run'}${why}`;
}

/** A run of this provider is started. */
export function noteStart(
  context: Context,
  transaction: Transaction,
  provider: string,
  attemptId: string,
): void {
  const health = healthOf(context, provider);
  const after = afterStart(health, attemptId, context.entropy.now());
  if (after !== HEALTHY) keep(context, provider, after, transaction.at);
}

/** The provider answered a run. */
export function noteAnswer(
  context: Context,
  transaction: Transaction,
  provider: string,
  attemptId: string,
): void {
  const health = context.store.providers.health(provider);
  const after = afterAnswer(health, attemptId);
  if (after !== health) keep(context, provider, after, transaction.at);
}

/** A run of this provider has ended; says so loudly when that pauses the provider. */
export function noteEnd(
  context: Context,
  transaction: Transaction,
  provider: string,
  attempt: Pick<AttemptRow, 'id' | 'workUnitId'>,
  word: Word,
): void {
  const before = context.store.providers.health(provider);
  const moment = { now: context.entropy.now(), random: chance(context) };
  const { breaker } = context.settings.policies;
  const after = afterEnd(before, attempt.id, word, moment, breaker);
  if (after === before) return;
  keep(context, provider, after, transaction.at);
  if (after.state !== 'open' || after.openUntil === before.openUntil) return;
  const until = new Date(after.openUntil ?? 0).toISOString();
  const { code, failures } = after;
  const message = `provider ${provider} is paused until ${until}: ${code}, ${failures} in a row`;
  context.log.warn({ provider, until, code, failures }, 'a provider is paused');
  const data = { message, provider, until, errorCode: code, failures };
  transaction.append(attempt.workUnitId, [
    { type: 'diagnostic.provider_paused', actor: 'system', attemptId: attempt.id, data },
  ]);
}

/** Lets pauses that are over end, and frees probes that are. @returns when the next one is due. */
export function endPauses(context: Context): number | null {
  const { store, entropy, writer } = context;
  const now = entropy.now();
  const due: [string, Health][] = [];
  let next: number | null = null;
  for (const { provider, state, openUntil, probe } of store.providers.list()) {
    if (state === 'closed') continue;
    if (state === 'open' && openUntil !== null && openUntil > now) {
      next = Math.min(next ?? openUntil, openUntil);
    } else if (state === 'open' || (probe !== null && healthOf(context, provider).probe === null)) {
      due.push([provider, afterPause(healthOf(context, provider), now)]);
    }
  }
  if (due.length > 0) {
    writer.commit(({ at }) => {
      for (const [provider, health] of due) keep(context, provider, health, at);
    });
  }
  return next;
}

/**
 * A person says that the provider works again: what waits for it may start, also what
 * backs off from it.
 * @throws OutliveError `not_found` for a name that nothing here knows.
 */
export function resumeProvider(context: Context, provider: string): void {
  const { store, writer } = context;
  if (!knownProviders(context).includes(provider)) {
    throw new OutliveError(
      'not_found',
      `There is no provider "${provider}" here. See: outlive providers.`,
    );
  }
  writer.commit(({ at }) => {
    keep(context, provider, HEALTHY, at);
    store.queue.wakeEvery(PROVIDER + provider);
    store.providers.hasten(provider);
  });
  context.log.info({ provider }, 'a person resumed a provider');
}

export interface ProviderState {
  readonly name: string;
  readonly health: Health;
  /** Why nothing of it starts now, null when it may. */
  readonly blocked: string | null;
  /** Queued work that waits for it. */
  readonly waiting: number;
  /** `provider/model` of a preset. */
  readonly model: string | null;
}

/** All of {@link knownProviders}, with their breakers as they are now. */
export function providerStates(context: Context): readonly ProviderState[] {
  const now = context.entropy.now();
  const { presets } = context.settings.policies;
  return knownProviders(context).map((name) => ({
    name,
    model: presets[name] ? `${presets[name].provider}/${presets[name].model}` : null,
    health: afterPause(healthOf(context, name), now),
    blocked: providerBlocker(context, name),
    waiting: context.store.providers.waiting(name),
  }));
}

/** Every provider or preset that has a limit, ever failed, or runs now. */
export function knownProviders({ store, settings }: Context): string[] {
  const names = new Set([
    ...Object.keys(settings.policies.presets),
    ...Object.keys(settings.limits.provider),
    ...store.providers.list().map(({ provider }) => provider),
    ...store.resources
      .slotsHeld()
      .filter(({ type }) => type === 'provider')
      .map(({ key }) => key),
  ]);
  return [...names].sort();
}
