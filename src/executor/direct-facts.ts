/** From files and processes to the facts the supervisor knows. Pure. */
import type { ExitRecord } from '../domain/evidence.ts';
import type { Entry, KeeperProcess } from './direct-files.ts';
import { isEmpty, markOf, type Tree } from './direct-tree.ts';
import type { UnitFacts, UnitState } from './port.ts';

/** One look at an attempt, in this order: whoever is gone has left its record before. */
export interface Look {
  readonly entry: Entry;
  readonly keeper: KeeperProcess | null;
  readonly keeperLives: boolean;
  /** Null when the keeper lives: then nobody needs to look at the rest. */
  readonly tree: Tree | null;
  readonly record: ExitRecord | null;
}

/** The prefix of what stands for a control group here. */
const GROUP = 'direct:';

/** What stands for the control group of a direct attempt; never the path of one. */
export const groupOf = (nonce: string): string => `${GROUP}${markOf(nonce)}`;

/** The mark in such a group; null for a control group of systemd's. */
export function markIn(group: string): string | null {
  return group.startsWith(GROUP) ? group.slice(GROUP.length) : null;
}

/** Null when nothing of it lives and no record tells how it ended. */
export function stateOf({ keeper, keeperLives, tree, record }: Look): UnitState | null {
  if (keeperLives) return record ? 'deactivating' : 'active';
  if (tree && !isEmpty(tree)) {
    if (record || tree.core.length === 0) return 'deactivating';
    // Without its keeper the wrapper still works, and timeout still holds the deadline.
    return keeper ? 'active' : 'activating';
  }
  if (!record) return null;
  return record.serviceResult === 'success' ? 'inactive' : 'failed';
}

function exitOf(record: ExitRecord, keeper: KeeperProcess | null): UnitFacts['exit'] {
  const { exitCode, exitStatus, uptimeSeconds, bootId } = record;
  const how = exitCode === 'exited' || exitCode === 'killed' ? exitCode : 'unknown';
  const comparable = keeper !== null && uptimeSeconds !== null && bootId === keeper.bootId;
  return {
    how,
    status: how === 'exited' && exitStatus !== null ? Number(exitStatus) : null,
    signal: how === 'killed' ? exitStatus : null,
    elapsedMs: comparable ? Math.round(uptimeSeconds * 1000 - keeper.startedCs * 10) : null,
  };
}

const NO_EXIT: UnitFacts['exit'] = { how: 'unknown', status: null, signal: null, elapsedMs: null };

/** The facts; null when there is nothing to tell. */
export function directFacts(look: Look): UnitFacts | null {
  const { entry, keeper, keeperLives, record } = look;
  const state = stateOf(look);
  if (state === null) return null;
  const dead = state === 'inactive' || state === 'failed';
  return {
    unit: entry.unit,
    nonce: entry.nonce,
    state,
    // Between the fork of the keeper and its record: it may run yet.
    jobPending: state === 'activating',
    everRan: keeper !== null,
    frozen: false,
    // Made of the nonce: whoever has one can tell the other, as with systemd's.
    invocationId: keeper ? markOf(entry.nonce) : null,
    controlGroup: dead ? null : groupOf(entry.nonce),
    mainPid: keeperLives && keeper ? keeper.pid : null,
    result: record?.serviceResult ?? 'success',
    exit: record && dead ? exitOf(record, keeper) : NO_EXIT,
    leavesExitRecord: true,
  };
}
