/**
 * Slots kept free for a unit that starves between two of them. It needs both at once, and
 * under load the one is taken whenever the other gets free. So its last free slot is kept
 * for it as long as another one of its slots is scarce; one slot of each kind at most, for
 * the unit that has starved longest. Who needs a single scarce slot has nothing kept: for
 * them every eighth claim goes by age.
 */
import { resourceName, type SlotNeed } from '../domain/resources.ts';
import type { Context } from './context.ts';

/** Slots there are of a counted resource; null for any number. */
export function slotLimit(
  context: Context,
  { type, key }: Pick<SlotNeed, 'type' | 'key'>,
): number | null {
  if (type === 'channel_parallel') {
    return context.store.channels.get(key)?.maxConcurrentRuns ?? 1;
  }
  return context.settings.limits[type][key] ?? null;
}

/** Every kind of slot that has a limit and is no lane of somebody's own. */
function limitedSlots({ settings }: Context): readonly SlotNeed[] {
  return (['runner', 'provider', 'media_provider'] as const).flatMap((type) =>
    Object.keys(settings.limits[type]).map((key): SlotNeed => ({ form: 'slot', type, key })),
  );
}

/** True when all are taken, or the last one is and somebody waits for it. */
function isScarce(context: Context, need: SlotNeed): boolean {
  const { resources, queue } = context.store;
  const free = (slotLimit(context, need) ?? Infinity) - resources.countSlots(need);
  return free <= 0 || (free === 1 && queue.isWaitedFor(resourceName(need)));
}

/** The starving unit that the last free slot of this kind is kept for; null when it is anybody's. */
export function slotKeptFor(context: Context, need: SlotNeed): string | null {
  const { store, entropy, settings } = context;
  const name = resourceName(need);
  const scarce = limitedSlots(context)
    .filter((other) => resourceName(other) !== name && isScarce(context, other))
    .map(resourceName);
  if (scarce.length === 0) return null;
  const before = new Date(entropy.now() - settings.starvingMs).toISOString();
  return store.queue.starvingForSlot(before, need, scarce);
}

/** What is kept for this unit, if anything, is anybody's again: who waits for it is looked at. */
export function releaseKeptSlots(context: Context, workUnitId: string): void {
  for (const need of context.store.resources.needsOf(workUnitId)) {
    // Nothing is kept of a lane; who waits for his own would only wake himself, for ever.
    if (need.form !== 'slot' || need.type === 'channel_parallel') continue;
    context.store.queue.wakeNext(resourceName(need));
  }
}
