/** Every invariant by its name; checked after each round. */
import type { History } from '../history.ts';
import {
  everythingCameToRest,
  nothingLeftLoaded,
  nothingLost,
  nothingTwice,
  oneAtATime,
  rowsAndProcessesAgree,
} from './execution.ts';
import { oneLineAnAttempt } from './lines.ts';
import {
  leasesExclusive,
  sequenceIsWhole,
  slotsWithinLimits,
  spoolsOnceInStore,
  terminalIsFinal,
} from './log.ts';
import { daemonsLive, lossesAreImplied, outcomesAreImplied } from './outcome.ts';

/** Says what is wrong; nothing when all is well. */
export type Invariant = (history: History) => string[];

export const INVARIANTS: Readonly<Record<string, Invariant>> = {
  'nothing is lost': nothingLost,
  'the ledger has one line an attempt': oneLineAnAttempt,
  'one at a time': oneAtATime,
  'nothing twice': nothingTwice,
  'rows and processes agree': rowsAndProcessesAgree,
  'no ended unit is loaded': nothingLeftLoaded,
  'everything comes to rest': everythingCameToRest,
  'the sequence is whole': sequenceIsWhole,
  'an end is final': terminalIsFinal,
  'slots stay within limits': slotsWithinLimits,
  'leases are exclusive': leasesExclusive,
  'each spool line is one event': spoolsOnceInStore,
  'the outcome is the implied one': outcomesAreImplied,
  'an attempt is lost only by what can lose it': lossesAreImplied,
  'daemons end only when ended': daemonsLive,
};

/** Every violation of every invariant, with its name. */
export function violations(history: History): string[] {
  return Object.entries(INVARIANTS).flatMap(([name, invariant]) =>
    invariant(history).map((problem) => `${name}: ${problem}`),
  );
}
