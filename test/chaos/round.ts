/** What a fault may use of the round it strikes in. */

import { existsSync, readdirSync, watch } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { type JournalLine, readJournal, underWay } from './journal.ts';
import type { Keeper } from './keeper.ts';
import type { Ledger } from './ledger.ts';
import type { Moment, Work } from './plan.ts';
import type { Random } from './random.ts';
import type { Workshop } from './workshop.ts';

/** A moment that does not come is not waited for longer: work may all have ended. */
const MOMENT_MS = 4_000;
/** Something to strike at, Pi's slow start included. */
const TARGET_MS = 8_000;
/** The daemon is not kept down for longer. */
const RECORD_MS = 2_000;

export interface Round {
  readonly workshop: Workshop;
  readonly ledger: Ledger;
  readonly keeper: Keeper;
  readonly random: Random;
  readonly work: readonly Work[];
  /** Asks the runner outside the host to do what only it can, and resolves when it has. */
  outside(act: string): Promise<void>;
  /** To be done before the round is settled: thaw, continue, free. */
  readonly undo: (() => Promise<void> | void)[];
}

/** Resolves with true once `seen()`, told by every change in the directory; false after `ms`. */
async function seenWithin(directory: string, seen: () => boolean, ms: number): Promise<boolean> {
  if (!existsSync(directory)) return false;
  let found = (): void => undefined;
  const happened = new Promise<true>((resolve) => {
    found = () => resolve(true);
  });
  const watcher = watch(directory, () => seen() && found());
  const stop = new AbortController();
  try {
    if (seen()) return true;
    const late = pause(ms, false as const, { signal: stop.signal }).catch(() => false as const);
    return await Promise.race([happened, late]);
  } finally {
    stop.abort();
    watcher.close();
  }
}

function count({ ledger, workshop }: Round, seen: Moment['seen']): number {
  if (seen === 'accepted') return ledger.of('accepted').length;
  const lines = readJournal(workshop.journal);
  return lines.filter(({ word }) => word === (seen === 'begun' ? 'begin' : 'end')).length;
}

/** Waits for the moment of a fault. */
export async function moment(round: Round, when: Moment): Promise<void> {
  // Ledger and journal lie side by side, so one watch hears of both.
  await seenWithin(round.workshop.base, () => count(round, when.seen) >= when.count, MOMENT_MS);
  await pause(when.delayMs);
}

/** Something that runs just now, or runs soon; null when nothing does any more. */
export async function target(
  round: Round,
  suits: (line: JournalLine) => boolean = () => true,
): Promise<JournalLine | null> {
  const find = (): JournalLine[] => underWay(readJournal(round.workshop.journal)).filter(suits);
  await seenWithin(round.workshop.base, () => find().length > 0, TARGET_MS);
  const found = find();
  return found.length === 0 ? null : round.random.pick(found);
}

/** Resolves once one more attempt has left its exit record; false when none did in time. */
export function oneMoreRecord({ workshop }: Round): Promise<boolean> {
  const { exits } = workshop.config.directories;
  const records = (): number => readdirSync(exits).filter((name) => name.endsWith('.json')).length;
  if (!existsSync(exits)) return Promise.resolve(false);
  const before = records();
  return seenWithin(exits, () => records() > before, RECORD_MS);
}

export const isPi = (round: Round, line: JournalLine): boolean =>
  round.work.some(({ key, manner }) => key === line.key && manner === 'pi');

/** Where the spool of an attempt lies. */
export const spoolOf = ({ workshop }: Round, workUnit: string, attempt: string): string =>
  path.join(workshop.config.directories.attempts, workUnit, attempt, 'events.jsonl');
