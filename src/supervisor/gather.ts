/**
 * Group commit. A commit waits for the disk, and the daemon with it; twenty attempts that
 * talk at once would wait twenty times. So what need not be there this instant is gathered
 * for a moment and becomes durable in one transaction, nothing of it published before.
 */
import type { Entropy } from '../domain/ids.ts';
import type { Context } from './context.ts';
import type { Transaction, Writer } from './writer.ts';

/**
 * After a commit the next one waits half as long as that took, so that requests are heard
 * in between and a slow disk gathers more at once; never longer than this.
 */
const PAUSE_MAX_MS = 10;

/** Runs in its turn within a transaction; tells its caller when that is over. */
interface Gathered<In> {
  run(transaction: In): void;
  committed(): void;
  /** In a transaction of its own: the common one failed, by its fault or another's. */
  alone(): void;
}

export type CommitSoon<In> = <Result>(work: (transaction: In) => Result) => Promise<Result>;

/** One a writer: all attempts of a daemon share it. */
const gatherers = new WeakMap<Writer, CommitSoon<Transaction>>();

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

/** Gathers for a ledger of its own; `commit` runs its work in one transaction, durable when it returns. */
export function createGatherer<In>(
  { commit }: { commit<Result>(work: (transaction: In) => Result): Result },
  entropy: Pick<Entropy, 'monotonic'>,
): CommitSoon<In> {
  let waiting: Gathered<In>[] = [];
  /** Not before this, monotonic. */
  let notBefore = -Infinity;

  const flush = (): void => {
    const all = waiting;
    waiting = [];
    const began = entropy.monotonic();
    run(all);
    const now = entropy.monotonic();
    notBefore = now + Math.min(PAUSE_MAX_MS, (now - began) / 2);
  };

  const run = (all: readonly Gathered<In>[]): void => {
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

  return <Result>(work: (transaction: In) => Result): Promise<Result> =>
    new Promise((resolve, reject) => {
      let result: Result;
      if (waiting.length === 0) {
        const pause = notBefore - entropy.monotonic();
        // Whoever else has news in this turn of the loop joins.
        if (pause < 1) setImmediate(flush);
        else setTimeout(flush, pause);
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
