/**
 * Group commit. A commit waits for the disk, and the daemon with it; twenty attempts that
 * talk at once would wait twenty times. So what need not be there this instant is gathered
 * for a moment and becomes durable in one transaction, nothing of it published before.
 */
import type { Entropy } from '../domain/ids.ts';
import type { Context } from './context.ts';
import type { Transaction, Writer } from './writer.ts';

/** Commits of gathered work begin at least this far apart; what comes alone does not wait. */
export const GATHER_MS = 10;

/** Runs in its turn within a transaction; tells its caller when that is over. */
interface Gathered {
  run(transaction: Transaction): void;
  committed(): void;
  /** In a transaction of its own: the common one failed, by its fault or another's. */
  alone(): void;
}

type CommitSoon = <Result>(work: (transaction: Transaction) => Result) => Promise<Result>;

/** One a writer: all attempts of a daemon share it. */
const gatherers = new WeakMap<Writer, CommitSoon>();

/**
 * Commits a moment later, in one transaction with others that can wait as long. `work`
 * may be run twice, the first time rolled back: it must read everything afresh.
 */
export function commitSoon<Result>(
  { writer, entropy }: Context,
  work: (transaction: Transaction) => Result,
): Promise<Result> {
  const gather = gatherers.get(writer) ?? createGatherer(writer, entropy);
  gatherers.set(writer, gather);
  return gather(work);
}

function createGatherer({ commit }: Writer, entropy: Entropy): CommitSoon {
  let waiting: Gathered[] = [];
  let lastAt = -Infinity;

  const flush = (): void => {
    const all = waiting;
    waiting = [];
    lastAt = entropy.monotonic();
    try {
      commit((transaction) => {
        for (const one of all) one.run(transaction);
      });
    } catch {
      for (const one of all) one.alone();
      return;
    }
    for (const one of all) one.committed();
  };

  return <Result>(work: (transaction: Transaction) => Result): Promise<Result> =>
    new Promise((resolve, reject) => {
      let result: Result;
      if (waiting.length === 0) {
        setTimeout(flush, Math.max(0, lastAt + GATHER_MS - entropy.monotonic()));
      }
      waiting.push({
        run: (transaction) => {
          result = work(transaction);
        },
        committed: () => resolve(result),
        alone: () => {
          try {
            resolve(commit(work));
          } catch (error) {
            reject(error as Error);
          }
        },
      });
    });
}
