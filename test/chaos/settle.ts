/** The second half of a round: everything is brought back, and work comes to its end. */
import { setTimeout as pause } from 'node:timers/promises';
import { systemctl } from '../support/rig.ts';
import { followToEnd, QUIET_MS, submit } from './clients.ts';
import type { Keeper } from './keeper.ts';
import type { Ledger } from './ledger.ts';
import type { Work } from './plan.ts';
import type { Workshop } from './workshop.ts';

/** After the last end a unit is let go at once. */
const LET_GO_MS = 10_000;
const LOOK_MS = 50;

/** Units of the workspace that systemd has loaded, whatever their state. */
export const loadedUnits = async ({ workspace }: Workshop): Promise<string[]> => {
  const pattern = `outlive-${workspace}-*.service`;
  const list = await systemctl('list-units', '--all', '--plain', '--no-legend', pattern);
  return list.split('\n').filter((line) => line.trim() !== '');
};

/** The daemon lets a unit go after it committed the end, and no event tells when. */
async function unitsAreGone(workshop: Workshop): Promise<void> {
  const end = Date.now() + LET_GO_MS;
  while ((await loadedUnits(workshop)).length > 0 && Date.now() < end) await pause(LOOK_MS);
}

export interface Settled {
  /** Work units that did not come to an end. */
  readonly restless: readonly string[];
}

/** Resolves when all work has ended and nothing is loaded any more, or when that took too long. */
export async function settle(
  workshop: Workshop,
  ledger: Ledger,
  keeper: Keeper,
  work: readonly Work[],
): Promise<Settled> {
  if (keeper.armed !== null) {
    keeper.disarm();
    await keeper.end('SIGKILL');
  }
  await keeper.ready();
  const signal = AbortSignal.timeout(QUIET_MS);
  const finish = async (item: Work): Promise<string | null> => {
    const refused = ledger.of('refused').some(({ key }) => key === item.key);
    // Whoever has no answer asks again, with the same key.
    const id = ledger.idOf(item.key) ?? (refused ? null : await submit(workshop, ledger, item));
    if (id === null) return null;
    return (await followToEnd(workshop, id, signal)) === null ? item.key : null;
  };
  const ends = await Promise.all(work.map(finish));
  await unitsAreGone(workshop);
  return { restless: ends.filter((key) => key !== null) };
}
