/** What stands in the way of a queued work unit, and the taking and giving back of resources. */
import { uuidv7 } from '../domain/ids.ts';
import {
  type LeaseNeed,
  leasesConflict,
  type Need,
  resourceName,
  type SlotNeed,
} from '../domain/resources.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { Context } from './context.ts';
import { awaitedBy } from './dependencies.ts';
import { closedGateOf } from './gates.ts';
import { releaseKeptSlots, slotKeptFor, slotLimit } from './kept-slots.ts';
import { PROVIDER, providerBlocker } from './provider-gate.ts';
import type { EventFields, Transaction } from './writer.ts';

/** A lease that nobody renewed for this long is suspect: its owner is looked at before reuse. */
export const LEASE_TTL_MS = 2 * 60_000;
/** Set aside for longer than this, a unit's leases are kept free for it: nothing starves. */
export const STARVING_MS = 5 * 60_000;

/** Why a unit cannot start now. */
export interface Blocker {
  /** The resource whose release is to be waited for, by its name in the queue. */
  readonly waitFor: string;
  /** A sentence for a person. */
  readonly reason: string;
  /** The work unit that holds it, where one does. */
  readonly heldBy: string | null;
  /** Id of a held lease that was not renewed in time: its owner has to be looked at. */
  readonly expiredLease: string | null;
}

function leaseBlocker(context: Context, need: LeaseNeed): Blocker | null {
  const { store, entropy } = context;
  const holder = store.resources.leasesNear(need).find((lease) => leasesConflict(lease, need));
  if (!holder) return null;
  const expired = Date.parse(holder.expiresAt) <= entropy.now();
  const what = `${holder.type} ${holder.key}`;
  const handle = store.workUnits.get(holder.workUnitId)?.handle ?? holder.workUnitId;
  return {
    waitFor: resourceName({ form: 'lease', type: holder.type, key: holder.key }),
    reason: `${what} is held by ${handle}${expired ? ', which has not renewed it in time' : ''}`,
    heldBy: holder.workUnitId,
    expiredLease: expired ? holder.id : null,
  };
}

/** Queued work of a channel that is not active waits for its policy to change. */
function channelBlocker(context: Context, need: Need): Blocker | null {
  if (need.type !== 'channel_parallel') return null;
  const status = context.store.channels.get(need.key)?.status ?? 'active';
  if (status === 'active') return null;
  return {
    waitFor: resourceName(need),
    reason: `channel ${need.key} is ${status}`,
    heldBy: null,
    expiredLease: null,
  };
}

/** `forUnit` is who would take it; null for nobody in particular. */
function slotBlocker(context: Context, need: SlotNeed, forUnit: string | null): Blocker | null {
  const limit = slotLimit(context, need);
  if (limit === null) return null;
  const used = context.store.resources.countSlots(need);
  const waitFor = resourceName(need);
  if (used >= limit) {
    const reason = `all ${limit} slots of ${need.type} ${need.key} are taken`;
    return { waitFor, reason, heldBy: null, expiredLease: null };
  }
  const keptFor = used === limit - 1 ? slotKeptFor(context, need) : null;
  if (keptFor === null || keptFor === forUnit) return null;
  const handle = context.store.workUnits.get(keptFor)?.handle ?? keptFor;
  const reason = `the last slot of ${need.type} ${need.key} is kept free for ${handle}, which has waited long for it and another`;
  return { waitFor, reason, heldBy: keptFor, expiredLease: null };
}

/** How the names of work that is being judged begin, in what waits for its tree. */
const JUDGED = 'outcome ';

/**
 * What ended work held is kept for whoever judges what it left there, so that nobody changes
 * it in between; also from another attempt of the same work.
 */
function judgedBlocker(
  context: Context,
  workUnitId: string,
  needs: readonly Need[],
): Blocker | null {
  const leases = needs.filter((need) => need.form === 'lease');
  if (leases.length === 0) return null;
  const { outcomes, workUnits } = context.store;
  for (const kept of outcomes.kept()) {
    const clash = leases.find((lease) => leasesConflict(kept, lease));
    if (!clash || kept.verifyId === workUnitId) continue;
    const handle = workUnits.get(kept.workUnitId)?.handle ?? kept.workUnitId;
    return {
      waitFor: JUDGED + kept.workUnitId,
      reason: `${clash.type} ${clash.key} is kept until what ${handle} left there is judged`,
      heldBy: kept.verifyId ?? kept.workUnitId,
      expiredLease: null,
    };
  }
  return null;
}

/** Its outcome is settled: what was kept for that is free. In the transaction that settles it. */
export function releaseJudged(context: Context, workUnitId: string): void {
  context.store.queue.wakeEvery(JUDGED + workUnitId);
}

/** Leases of the unit that starves are kept for it: whoever came later waits for it to start. */
function reservation(context: Context, workUnitId: string, needs: readonly Need[]): Blocker | null {
  const { store, entropy } = context;
  const leases = needs.filter((need) => need.form === 'lease');
  if (leases.length === 0) return null;
  const before = new Date(entropy.now() - context.settings.starvingMs).toISOString();
  const starving = store.queue.starving(before);
  if (starving === null || starving === workUnitId) return null;
  const wanted = store.resources.needsOf(starving).filter((need) => need.form === 'lease');
  const clash = leases.find((lease) => wanted.some((need) => leasesConflict(need, lease)));
  // What verifies goes before everybody in its tree: it judges what is there now.
  if (!clash || store.outcomes.byVerify(workUnitId) !== null) return null;
  const handle = store.workUnits.get(starving)?.handle ?? starving;
  return {
    waitFor: `reserved ${starving}`,
    reason: `${clash.type} ${clash.key} is kept free for ${handle}, which has waited long`,
    heldBy: starving,
    expiredLease: null,
  };
}

/** The first thing in the way of a unit with these needs; null when it can start. Reads only. */
export function findBlocker(
  context: Context,
  workUnitId: string,
  needs: readonly Need[],
): Blocker | null {
  const awaited = awaitedBy(context.store, workUnitId);
  if (awaited) return { ...awaited, expiredLease: null };
  for (const need of needs) {
    const blocker = channelBlocker(context, need);
    if (blocker) return blocker;
  }
  const gate = closedGateOf(context, workUnitId, needs);
  if (gate) return { ...gate, heldBy: null, expiredLease: null };
  for (const need of needs) {
    const blocker =
      need.form === 'lease' ? leaseBlocker(context, need) : slotBlocker(context, need, workUnitId);
    if (blocker) return blocker;
  }
  return judgedBlocker(context, workUnitId, needs) ?? reservation(context, workUnitId, needs);
}

/** True when nobody could take `resource` now: then those who wait for it need not be looked at. */
function isTaken(context: Context, resource: string): boolean {
  if (resource.startsWith(PROVIDER)) {
    return providerBlocker(context, resource.slice(PROVIDER.length)) !== null;
  }
  const [form, type, ...rest] = resource.split(' ');
  const key = rest.join(' ');
  if (form === 'slot') {
    const need = { form, type, key } as SlotNeed;
    return (channelBlocker(context, need) ?? slotBlocker(context, need, null)) !== null;
  }
  if (form === 'lease') {
    const near = context.store.resources.leasesNear({ type, key } as LeaseNeed);
    return near.some((lease) => lease.key === key);
  }
  return false;
}

/** What woke a unit goes on to the next in line, unless that unit took it or somebody else has. */
export function passOn(context: Context, wokenBy: string | null): void {
  if (wokenBy !== null && !isTaken(context, wokenBy)) context.store.queue.wakeNext(wokenBy);
}

/** The unit that something was kept free for has it, or wants it no more. */
export function dropReservation(context: Context, workUnitId: string): void {
  if (hasStarved(context, workUnitId)) releaseKeptSlots(context, workUnitId);
  context.store.queue.wakeEvery(`reserved ${workUnitId}`);
}

/** True when it has been set aside for long enough that something may be kept free for it. */
export function hasStarved(context: Context, workUnitId: string): boolean {
  const since = context.store.queue.waitingFor(workUnitId)?.blockedSince ?? null;
  const { entropy, settings } = context;
  return since !== null && Date.parse(since) < entropy.now() - settings.starvingMs;
}

/** Takes all needs for an attempt. The caller has found no blocker in this transaction. */
export function takeResources(
  context: Context,
  transaction: Transaction,
  attempt: AttemptRow,
  needs: readonly Need[],
): void {
  const { store, entropy } = context;
  const { id: attemptId, workUnitId } = attempt;
  const expiresAt = new Date(entropy.now() + LEASE_TTL_MS).toISOString();
  const events = needs.map((need): EventFields => {
    const holder = { id: uuidv7(entropy), workUnitId, attemptId, at: transaction.at };
    const { type, key } = need;
    if (need.form === 'lease') store.resources.takeLease(need, holder, expiresAt);
    else store.resources.takeSlot(need, holder);
    const event = need.form === 'lease' ? 'lease.acquired' : 'semaphore.acquired';
    return {
      type: event,
      actor: 'scheduler',
      attemptId,
      data: { resourceType: type, resourceKey: key },
    };
  });
  transaction.append(workUnitId, events);
}

/**
 * Gives everything of an attempt back and wakes who waited for it. Called only in the
 * transaction that commits the attempt's end: by then its cgroup is empty.
 */
export function releaseResources(
  context: Context,
  transaction: Transaction,
  attempt: Pick<AttemptRow, 'id' | 'workUnitId'>,
  reason: string,
): void {
  const { store } = context;
  const status = reason === 'lost' ? 'stale_released' : 'released';
  const leases = store.resources.releaseLeases(attempt.id, status, transaction.at, reason);
  const slots = store.resources.releaseSlots(attempt.id, status, transaction.at, reason);
  const released = [
    ...leases.map(({ type, key }) => ({
      event: 'lease.released' as const,
      form: 'lease' as const,
      type,
      key,
    })),
    ...slots.map(({ type, key }) => ({
      event: 'semaphore.released' as const,
      form: 'slot' as const,
      type,
      key,
    })),
  ];
  transaction.append(
    attempt.workUnitId,
    released.map(({ event, type, key }) => ({
      type: event,
      actor: 'system',
      attemptId: attempt.id,
      data: { resourceType: type, resourceKey: key, reason },
    })),
  );
  for (const { form, type, key } of released) store.queue.wakeNext(`${form} ${type} ${key}`);
}
