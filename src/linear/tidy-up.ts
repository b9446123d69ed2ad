/** Removes work trees of issues that are over, now and then; what is not safe elsewhere stays. */
import type { Logger } from 'pino';
import type { Store } from '../store/store.ts';
import type { LinearApi } from './port.ts';
import type { Worktrees } from './worktrees.ts';

/** After the daemon's start other things come first. */
const FIRST_MS = 10 * 60_000;
const EVERY_MS = 6 * 3_600_000;
/** Types of states in which nobody works on an issue any more. */
const OVER: ReadonlySet<string> = new Set(['completed', 'canceled']);

export interface TidyParts {
  readonly api: Pick<LinearApi, 'issue'>;
  readonly worktrees: Pick<Worktrees, 'keys' | 'tidy'>;
  readonly store: Pick<Store, 'linear'>;
  readonly log: Logger;
  readonly timers: { after(ms: number, callback: () => void): () => void };
}

/**
 * Looks at every work tree once. An issue that is gone is left alone: whether it is over,
 * nobody can say. @throws LinearError.
 */
export async function tidyUp({ api, worktrees, store, log }: TidyParts): Promise<void> {
  const isOpen = (key: string): boolean => store.linear.openOfChannel(key).length > 0;
  const over: string[] = [];
  for (const key of await worktrees.keys()) {
    if (isOpen(key)) continue;
    const issue = await api.issue(key);
    if (issue && OVER.has(issue.state.type)) over.push(key);
  }
  if (over.length === 0) return;
  for (const { key, path, outcome } of await worktrees.tidy(over, { isOpen })) {
    log.info({ issue: key, path, ...outcome }, 'the work tree of an issue that is over');
  }
}

/** @returns ends it; resolves when what is under way is done. */
export function keepTidy(parts: TidyParts): () => Promise<void> {
  let isEnded = false;
  let running: Promise<void> = Promise.resolve();
  let cancel = (): void => undefined;
  const next = (ms: number): void => {
    cancel = parts.timers.after(ms, () => {
      running = tidyUp(parts)
        .catch((error: unknown) => parts.log.warn({ err: error }, 'work trees are not tidied'))
        .finally(() => {
          if (!isEnded) next(EVERY_MS);
        });
    });
  };
  next(FIRST_MS);
  return async () => {
    isEnded = true;
    cancel();
    await running;
  };
}
