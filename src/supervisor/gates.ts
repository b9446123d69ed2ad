/** What holds queued work back beside leases and slots: its provider, money, memory. */
import type { Need } from '../domain/resources.ts';
import type { Context } from './context.ts';
import { endPauses, PROVIDER, providerBlocker } from './provider-gate.ts';
import { createDayWatch, spendBlocker } from './spend-gate.ts';

/** Memory comes back without telling anybody; asked only while something waits for it. */
const MEMORY_RECHECK_MS = 2_000;

export interface Gate {
  /** What is waited for, by its name in the queue. */
  readonly waitFor: string;
  /** A sentence for a person. */
  readonly reason: string;
}

const keyOf = (needs: readonly Need[], type: Need['type']): string | null =>
  needs.find((need) => need.type === type)?.key ?? null;

/** The first gate that is closed for a unit with these needs. Commands ask no provider. */
export function closedGateOf(
  context: Context,
  workUnitId: string,
  needs: readonly Need[],
): Gate | null {
  if (keyOf(needs, 'runner') !== 'pi') return null;
  const provider = keyOf(needs, 'provider');
  const paused = provider === null ? null : providerBlocker(context, provider);
  if (paused !== null) return { waitFor: `${PROVIDER}${provider}`, reason: paused };
  return spendBlocker(context, workUnitId, keyOf(needs, 'channel_parallel'));
}

/** Why nothing at all is started for want of memory; null while there is enough. */
export function memoryGate({ settings }: Context): Gate | null {
  const { minFreeMemory, freeMemory } = settings.policies;
  if (minFreeMemory === null) return null;
  const free = freeMemory();
  if (free === null || free >= minFreeMemory) return null;
  const mib = (bytes: number): string => `${Math.floor(bytes / 1_048_576)} MiB`;
  return {
    waitFor: 'memory',
    reason: `${mib(free)} of memory are free, admission.minFreeMemory is ${mib(minFreeMemory)}`,
  };
}

export interface Gates {
  /** Opens what is due. @returns milliseconds until the next gate may open, null when none waits. */
  tend(): number | null;
}

/** Gates that open with time; the scheduler tends them before each look at the queue. */
export function createGates(context: Context): Gates {
  const tendDays = createDayWatch(context);
  return {
    tend: () => {
      const now = context.entropy.now();
      const times = [endPauses(context), tendDays()].filter((time) => time !== null);
      const due = times.map((time) => Math.max(1, time - now));
      const isReady = (): boolean => context.store.queue.best(new Date(now).toISOString()) !== null;
      if (memoryGate(context) && isReady()) due.push(MEMORY_RECHECK_MS);
      return due.length === 0 ? null : Math.min(...due);
    },
  };
}
