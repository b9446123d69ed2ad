/** The command line of the soak of the Linear agent. Pure. */
import { parseArgs } from 'node:util';

export const USAGE = `usage: npm run soak:linear -- [--sessions N] [--seed S] [--parallel P]

People delegate work to the agent in a double of Linear, write and press stop, while webhooks come late, twice, in any
order or never, Linear refuses, breaks off and forgets tokens, and daemon and attempts are killed. When it is quiet again
every word has to be answered as the rules say. Files of a failed run: OUTLIVE_SOAK_LOGS, else a directory it names.`;

export interface Options {
  readonly sessions: number;
  readonly seed: string;
  /** Issues that people write in at once. */
  readonly parallel: number;
}

const DEFAULTS = { sessions: 120, parallel: 4 };

function positive(name: string, text: string | undefined, otherwise: number): number {
  if (text === undefined) return otherwise;
  const value = Number(text);
  if (Number.isInteger(value) && value > 0) return value;
  throw new Error(`--${name} takes a whole number above 0, not "${text}"`);
}

/** @throws Error with a sentence for a person. `newSeed` makes one where none is given. */
export function parseOptions(argv: readonly string[], newSeed: () => string): Options {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      sessions: { type: 'string' },
      seed: { type: 'string' },
      parallel: { type: 'string' },
    },
  });
  return {
    sessions: positive('sessions', values.sessions, DEFAULTS.sessions),
    seed: values.seed ?? newSeed(),
    parallel: positive('parallel', values.parallel, DEFAULTS.parallel),
  };
}
