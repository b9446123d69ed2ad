/**
 * The processes of one direct attempt, found by what they carry in their environment.
 *
 * Keeper, timeout and wrapper carry the nonce. The mark is set by the keeper after it has
 * begun a session of its own, so everything that carries it lives in a session begun by
 * the attempt: whole sessions of the marked are the attempt's, and so are their children.
 * What clears its environment and leaves both is not found; only a cgroup would hold it.
 */
import { createHash } from 'node:crypto';
import { type Bearer, listProcesses } from './process-table.ts';

/** What an attempt's processes inherit: of the nonce, and useless to forge its exit record. */
export function markOf(nonce: string): string {
  return createHash('sha256').update(nonce).digest('hex').slice(0, 32);
}

export interface Tree {
  /** Keeper (with what it runs for itself), timeout, wrapper. */
  readonly core: readonly Bearer[];
  /** All else that runs in the attempt. */
  readonly rest: readonly Bearer[];
  /** Timeout, wrapper and all else: everything but the keeper and what it runs for itself. */
  readonly marked: readonly Bearer[];
}

export const isEmpty = ({ core, marked }: Tree): boolean => core.length + marked.length === 0;

/** Sorts processes out; pure. `nonce` is null where only the mark is known. */
export function treeOf(processes: readonly Bearer[], mark: string, nonce: string | null): Tree {
  const carriers = processes.filter((each) => each.has(`OUTLIVE_MARK=${mark}`));
  const core = nonce === null ? [] : processes.filter((each) => each.has(`OUTLIVE_NONCE=${nonce}`));
  const coreSessions = new Set(core.map(({ session }) => session));
  const sessions = new Set(carriers.map(({ session }) => session));
  const parents = new Set(carriers.map(({ pid }) => pid));
  const cores = new Set(core.map(({ pid }) => pid));
  const own = new Set(parents);
  const marked = processes.filter((each) => {
    if (own.has(each.pid)) return true;
    if (cores.has(each.pid)) return false;
    const inSession = sessions.has(each.session) && !coreSessions.has(each.session);
    return inSession || parents.has(each.ppid);
  });
  return { core, marked, rest: marked.filter(({ pid }) => !cores.has(pid)) };
}

/** Looks at the machine. */
export async function scanTree(mark: string, nonce: string | null): Promise<Tree> {
  return treeOf(await listProcesses(), mark, nonce);
}
