/** One kind of destruction: a name, what it may not meet, and how it is done. */
import type { Card } from '../plan.ts';
import type { Round } from '../round.ts';

export interface Fault extends Card {
  inject(round: Round): Promise<void>;
}

/** How a command ends that was lost: its machine or manager went away, or nothing tells of its end. */
export const LOST = 'failed/runtime_interrupted_no_checkpoint';
/** How lost work of Pi rests, for a person, when a clock says that it was lost long ago. */
export const TOO_OLD = 'stale/resume_too_old';

/** After this nothing can be said about outcomes. */
export const ANY = '*';

/** Says what is about to be struck, and as what it may then end. */
export function strike(
  { ledger }: Round,
  name: string,
  keys: readonly string[] | 'all',
  allows: readonly string[] = [],
): void {
  ledger.write({ what: 'fault', name, keys, allows });
}

export function miss({ ledger }: Round, name: string, why: string): void {
  ledger.write({ what: 'missed', name, why });
}
