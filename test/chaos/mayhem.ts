/** The first half of a round: clients submit, cancel and retry while faults strike. */
import { setTimeout as pause } from 'node:timers/promises';
import { ask, followToEnd, submit } from './clients.ts';
import { faultNamed } from './faults/table.ts';
import type { PlannedFault, Work } from './plan.ts';
import { moment, type Round } from './round.ts';

/** Who would retry does not wait longer for a failure. */
const RETRIER_MS = 15_000;

/** One client: submits, perhaps cancels, perhaps retries what failed. */
async function beClient(round: Round, work: Work): Promise<void> {
  const id = await submit(round.workshop, round.ledger, work);
  if (id === null) return;
  if (work.cancelAfterMs !== null) {
    await pause(work.cancelAfterMs);
    await ask(round, work.key, id, 'cancel');
    return;
  }
  if (!work.retry) return;
  const status = await followToEnd(round.workshop, id, AbortSignal.timeout(RETRIER_MS));
  if (status === 'failed') await ask(round, work.key, id, 'retry');
}

async function beFault(round: Round, { name, when }: PlannedFault): Promise<void> {
  await moment(round, when);
  await faultNamed(name).inject(round);
}

/** Resolves when every client has its answers and every fault has struck. */
export async function mayhem(round: Round, faults: readonly PlannedFault[]): Promise<void> {
  const striking = faults.map((fault) => beFault(round, fault));
  const clients: Promise<void>[] = [];
  for (const work of round.work) {
    await pause(work.afterMs);
    clients.push(beClient(round, work));
  }
  const results = await Promise.allSettled([...striking, ...clients]);
  const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
  if (errors.length > 0) throw new AggregateError(errors, errors.map(String).join('; '));
}
