/** Spend ceilings: what is left of them, and what they hold back from starting. */
import {
  type Ceiling,
  ceilingOf,
  dayOf,
  nextDay,
  overriding,
  reached,
  remaining,
  type Spend,
} from '../domain/spend.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';

export interface SpendState {
  readonly spent: Spend;
  readonly ceiling: Ceiling;
  readonly left: Ceiling;
}

const stateOf = (spent: Spend, ceiling: Ceiling): SpendState => ({
  spent,
  ceiling,
  left: remaining(spent, ceiling),
});

const today = ({ entropy, settings }: Context): string =>
  dayOf(entropy.now(), settings.policies.spend.timeZone);

/** What a work unit spent, in all its attempts, of what it may. */
export function spendOfUnit(
  context: Context,
  workUnit: Pick<WorkUnitRow, 'id' | 'kind'>,
): SpendState {
  const { kinds } = context.settings.policies.spend;
  const ceiling = ceilingOf(
    overriding(context.store.spend.ownCeiling(workUnit.id), kinds[workUnit.kind] ?? {}),
  );
  return stateOf(context.store.spend.ofWorkUnit(workUnit.id), ceiling);
}

/** What a channel spent today of what it may. */
export function spendOfChannel(context: Context, channelId: string): SpendState {
  const { spend } = context.store;
  return stateOf(spend.ofChannel(channelId, today(context)), spend.channelCeiling(channelId));
}

export interface DaySpend extends SpendState {
  readonly day: string;
  readonly timeZone: string;
}

/** What the workspace spent today of what it may. */
export function spendOfDay(context: Context): DaySpend {
  const { timeZone } = context.settings.policies.spend;
  const day = today(context);
  const ceiling = ceilingOf(context.settings.policies.spend.day);
  return { day, timeZone, ...stateOf(context.store.spend.ofDay(day), ceiling) };
}

const reachedBy = ({ spent, ceiling }: SpendState): string | null => reached(spent, ceiling);

/** Why a work unit may spend no more of its own, null while it may. */
export const unitCeilingReached = (context: Context, workUnit: WorkUnitRow): string | null =>
  reachedBy(spendOfUnit(context, workUnit));

/** Its channel's or the workspace's ceiling for today, if one is reached. */
export function dayCeilingReached(
  context: Context,
  channelId: string | null,
): { readonly waitFor: string; readonly reason: string } | null {
  const inChannel = channelId === null ? null : reachedBy(spendOfChannel(context, channelId));
  if (inChannel !== null) {
    return {
      waitFor: `spend channel ${channelId}`,
      reason: `channel ${channelId}, today: ${inChannel}`,
    };
  }
  const { timeZone } = context.settings.policies.spend;
  const inAll = reachedBy(spendOfDay(context));
  if (inAll === null) return null;
  return { waitFor: 'spend day', reason: `the workspace, today (${timeZone}): ${inAll}` };
}

/** Why a run may not start for want of money; null when it may. */
export function spendBlocker(
  context: Context,
  workUnitId: string,
  channelId: string | null,
): { readonly waitFor: string; readonly reason: string } | null {
  const { store } = context;
  const workUnit =
    store.spend.ofWorkUnit(workUnitId).tokens > 0 ? store.workUnits.get(workUnitId) : null;
  const own = workUnit && unitCeilingReached(context, workUnit);
  if (own) return { waitFor: `spend work_unit ${workUnitId}`, reason: `its own ceiling: ${own}` };
  return dayCeilingReached(context, channelId);
}

/** Lets what waits for money be looked at again when a new day begins. */
export function createDayWatch(context: Context): () => number | null {
  let day = today(context);
  return () => {
    const { store, entropy, settings } = context;
    const now = today(context);
    if (now !== day) context.writer.commit(() => store.spend.wakeWaiting());
    day = now;
    return store.spend.isWaitedFor()
      ? nextDay(entropy.now(), settings.policies.spend.timeZone)
      : null;
  };
}
