/** The command line of the chaos runner. Pure. */
import { parseArgs } from 'node:util';

export const USAGE = `usage: npm run chaos -- [--rounds N] [--seed S]
       npm run chaos -- --seed S --round R      repeats one round
       npm run chaos -- --seed S --minutes M    as many rounds as fit
       npm run chaos -- --fault NAME [--fault NAME]   every round with just these
       npm run chaos -- --list                  names of the faults

Kills, stops, fills and cuts what outlive stands on, in a private host (needs root), and checks after each round that
nothing was lost and nothing happened twice. A full run (enough rounds to deal every fault) fails when a fault point of
src/supervisor/faults.ts was never reached. Logs of failed rounds: OUTLIVE_CHAOS_LOGS, else a directory it names.`;

export interface Options {
  readonly rounds: number;
  readonly seed: string;
  /** Only this round; null for all. */
  readonly only: number | null;
  readonly minutes: number | null;
  readonly faults: readonly string[];
  readonly list: boolean;
}

const DEFAULT_ROUNDS = 200;

function positive(name: string, text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0) return value;
  throw new Error(`--${name} takes a whole number above 0, not "${text}"`);
}

/** @throws Error with a sentence for a person. `newSeed` makes one where none is given. */
export function parseOptions(argv: readonly string[], newSeed: () => string): Options {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      rounds: { type: 'string' },
      seed: { type: 'string' },
      round: { type: 'string' },
      minutes: { type: 'string' },
      fault: { type: 'string', multiple: true, default: [] },
      list: { type: 'boolean', default: false },
    },
  });
  return {
    rounds: values.rounds === undefined ? DEFAULT_ROUNDS : positive('rounds', values.rounds),
    seed: values.seed ?? newSeed(),
    only: values.round === undefined ? null : positive('round', values.round),
    minutes: values.minutes === undefined ? null : positive('minutes', values.minutes),
    faults: values.fault,
    list: values.list,
  };
}

/** The command that repeats a round, and nothing else. */
export function repeatCommand({ seed, faults }: Options, round: number): string {
  const only = faults.map((name) => ` --fault ${name}`).join('');
  return `npm run chaos -- --seed ${seed} --round ${round}${only}`;
}
