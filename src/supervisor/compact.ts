/**
 * Removes what one ended work unit left: events, files, records. Its rows stay.
 *
 * Intent first: the compaction stands in the store, and the floors are raised, before
 * anything goes. Then the files move aside under names nobody else uses, then the rows go
 * in small transactions, then the intent; what was moved aside may go at any time. Every
 * step may be repeated, so it does not matter where the daemon dies.
 */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { OutliveError } from '../domain/errors.ts';
import type { CompactionReason } from '../domain/retention.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { CompactableRow, CompactionRow } from '../store/retention.ts';
import type { Context } from './context.ts';
import {
  moveAsideNow,
  NOTHING,
  namesIn,
  removeEmpty,
  removeTree,
  sum,
  syncDirectory,
  type Tally,
} from './trees.ts';

/** Events removed in one transaction: a few milliseconds, so that nobody waits for the writer. */
export const EVENTS_AT_ONCE = 500;
/** Beside the directories it is filled from, so that a rename never crosses file systems. */
const TRASH = '.trash';

export interface Compacted {
  readonly events: number;
  readonly files: Tally;
}

/** Where things that are to be removed wait for it, for the directory they were in. */
export const trashOf = (directory: string): string => path.join(directory, TRASH);

export const isTrash = (name: string): boolean => name === TRASH;

/** Must run in one turn of the event loop with the intent, or with proof that nobody uses it. */
function moveFilesAside(context: Context, row: CompactionRow): void {
  const { attemptsDirectory, sessionsDirectory, exitsDirectory } = context.settings;
  const { store } = context;
  for (const directory of [attemptsDirectory, sessionsDirectory, exitsDirectory]) {
    mkdirSync(trashOf(directory), { recursive: true, mode: 0o700 });
  }
  for (const { id, nonce } of store.retention.attemptsOf(row)) {
    moveAsideNow(
      path.join(attemptsDirectory, row.workUnitId, id),
      path.join(trashOf(attemptsDirectory), id),
    );
    for (const name of [`${nonce}.json`, `${nonce}.halt`]) {
      moveAsideNow(path.join(exitsDirectory, name), path.join(trashOf(exitsDirectory), name));
    }
  }
  // A retry since then goes on with the conversation.
  const status = store.workUnits.get(row.workUnitId)?.status;
  if (status === undefined || !TERMINAL_STATUSES.has(status)) return;
  moveAsideNow(
    path.join(sessionsDirectory, row.workUnitId),
    path.join(trashOf(sessionsDirectory), `${row.workUnitId}-${row.lastAttempt}`),
  );
}

async function dropEvents(
  context: Context,
  workUnitId: string,
  stopped: () => boolean,
): Promise<number> {
  let total = 0;
  for (;;) {
    if (stopped()) throw new OutliveError('shutting_down', 'The next daemon goes on with it.');
    const dropped = context.writer.commit(() =>
      context.store.retention.dropEvents(workUnitId, EVENTS_AT_ONCE),
    );
    total += dropped;
    context.fault('gc_events_dropped');
    if (dropped < EVENTS_AT_ONCE) return total;
    await nextTurn();
  }
}

/** Goes on with a compaction that was begun, by us or by a daemon before us. */
export async function finishCompaction(
  context: Context,
  row: CompactionRow,
  stopped: () => boolean,
): Promise<Compacted> {
  const { attemptsDirectory, sessionsDirectory, exitsDirectory } = context.settings;
  moveFilesAside(context, row);
  context.fault('gc_moved');
  await removeEmpty(path.join(attemptsDirectory, row.workUnitId));
  for (const directory of [attemptsDirectory, sessionsDirectory, exitsDirectory]) {
    await syncDirectory(directory);
  }
  const events = await dropEvents(context, row.workUnitId, stopped);
  context.writer.commit(({ at }) => context.store.retention.finish(row, at));
  context.fault('gc_finished');
  return { events, files: await emptyTrash(context) };
}

/** Compacts one work unit, unless it is another one by now: then null, and nothing was done. */
export async function compact(
  context: Context,
  seen: CompactableRow,
  reason: CompactionReason,
  stopped: () => boolean,
): Promise<Compacted | null> {
  const { retention } = context.store;
  if (!context.writer.commit(({ at }) => retention.begin(seen, reason, at))) return null;
  context.fault('gc_marked');
  // No await between the intent and this: a retry could begin to use the directories.
  const row = retention.pending().find(({ workUnitId }) => workUnitId === seen.id);
  return row ? finishCompaction(context, row, stopped) : null;
}

/** Removes everything that was moved aside. */
export async function emptyTrash(context: Context): Promise<Tally> {
  const { attemptsDirectory, sessionsDirectory, exitsDirectory } = context.settings;
  let gone = NOTHING;
  for (const directory of [attemptsDirectory, sessionsDirectory, exitsDirectory]) {
    const trash = trashOf(directory);
    for (const name of await namesIn(trash)) {
      gone = sum(gone, await removeTree(path.join(trash, name)));
    }
  }
  return gone;
}
