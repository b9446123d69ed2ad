/**
 * Moves spool lines into the store, each exactly once: the events and the offset they
 * were read from change in one transaction, so it does not matter when we die.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PROGRESS_EVENT_TYPES } from '../domain/events.ts';
import { lastWordSchema, openedSchema, SPOOL_VERSION } from '../domain/spool.ts';
import type { AttemptPatch, SpoolPosition } from '../store/attempts.ts';
import { doubtStarts, heedApprovals } from './approval-ingest.ts';
import type { Context } from './context.ts';
import { commitSoon } from './gather.ts';
import { countSpend } from './spend-count.ts';
import type { ParsedLine, SpoolChunk } from './spool-reader.ts';
import { readSpool } from './spool-reader.ts';
import type { EventFields, Transaction } from './writer.ts';

type Mutable<Type> = { -readonly [Key in keyof Type]: Type[Key] };

/** What a line means for the attempt's row, beside becoming an event. */
function learn(patch: Mutable<AttemptPatch>, parsed: ParsedLine, lastWordSeen: boolean): void {
  if (parsed.kind !== 'line') return;
  const { type, data, ts } = parsed.line;
  if (PROGRESS_EVENT_TYPES.has(type)) patch.lastEventAt = ts;
  if (type === 'attempt.opened') {
    const opened = openedSchema.safeParse(data);
    if (opened.success) patch.opened = opened.data;
  }
  if (type === 'attempt.deadline') patch.saidDeadline = true;
  if (type === 'attempt.told_to_stop' && !lastWordSeen) patch.toldToStop = true;
  if (type === 'runner.finished') {
    const word = lastWordSchema.safeParse(data);
    if (word.success) patch.lastWord = word.data;
  }
}

function eventOf(parsed: ParsedLine, attemptId: string): EventFields {
  if (parsed.kind === 'line') {
    const { type, ts, data } = parsed.line;
    return { type, ts, data, actor: 'runner', attemptId };
  }
  if (parsed.kind === 'unknown_type') {
    const { type, ts, data } = parsed.line;
    return {
      type: 'diagnostic.spool_event_unknown',
      ts,
      actor: 'runner',
      attemptId,
      data: { type, data },
    };
  }
  const { offset, bytes, reason } = parsed;
  return {
    type: 'diagnostic.spool_line_corrupt',
    actor: 'system',
    attemptId,
    data: { offset, bytes, reason },
  };
}

/**
 * What commits one chunk; false when somebody else moved the offset first (then nothing
 * was written). To be run in a transaction.
 */
function chunkOf(
  context: Context,
  seen: SpoolPosition,
  chunk: SpoolChunk,
  events: readonly EventFields[],
  isLive: boolean,
): (transaction: Transaction) => boolean {
  const { attempts, workUnits } = context.store;
  return (transaction) => {
    const attempt = attempts.spoolPosition(seen.id);
    if (attempt?.spoolOffset !== seen.spoolOffset) return false;
    const patch: Mutable<AttemptPatch> = {
      spoolOffset: chunk.nextOffset,
      spoolLines: attempt.spoolLines + chunk.lines.length,
    };
    for (const line of chunk.lines) {
      learn(patch, line, attempt.lastWordSeen || patch.lastWord !== undefined);
    }
    transaction.append(attempt.workUnitId, events);
    attempts.patch(attempt.id, patch);
    heedApprovals(context, transaction, attempt, chunk.lines);
    if (chunk.lines.some(isDamage)) doubtStarts(context, transaction, attempt);
    countSpend(context, transaction, attempt, chunk.lines, isLive);
    if (patch.lastEventAt) workUnits.touchEvent(attempt.workUnitId, patch.lastEventAt);
    return true;
  };
}

/** A line that was there and cannot be read. A torn last one was never on the disk as a whole. */
const isDamage = (line: ParsedLine): boolean => line.kind === 'corrupt' && line.reason !== 'torn';

/** `size` is null where there is no file any more. */
function reportCut(context: Context, attempt: SpoolPosition, size: number | null): void {
  context.log.error(
    { attempt: attempt.id, size, offset: attempt.spoolOffset },
    'spool is gone, or shorter than what was read of it',
  );
  context.writer.commit((transaction) => {
    context.store.attempts.patch(attempt.id, { spoolCut: true });
    doubtStarts(context, transaction, attempt);
    transaction.append(attempt.workUnitId, [
      {
        type: 'diagnostic.spool_truncated',
        actor: 'system',
        attemptId: attempt.id,
        data: { size, offset: attempt.spoolOffset },
      },
    ]);
  });
}

/** Its lines stay where they are, for a daemon that knows the version. */
function reportNewer(
  context: Context,
  attempt: SpoolPosition,
  version: number,
  offset: number,
): void {
  const known = SPOOL_VERSION;
  context.log.error(
    { attempt: attempt.id, version, known, offset },
    'the spool goes on in a later version; it is read by an outlive that knows it',
  );
  context.writer.commit((transaction) => {
    transaction.append(attempt.workUnitId, [
      {
        type: 'diagnostic.version_unknown',
        actor: 'system',
        attemptId: attempt.id,
        data: { what: 'spool', version, known, offset },
      },
    ]);
  });
}

/** A last line that never got its LF: kept as a diagnostic, once. */
function passTorn(chunk: SpoolChunk): SpoolChunk {
  if (chunk.tornBytes === 0) return chunk;
  const torn: ParsedLine = {
    kind: 'corrupt',
    offset: chunk.nextOffset,
    bytes: chunk.tornBytes,
    reason: 'torn',
  };
  return {
    ...chunk,
    lines: [...chunk.lines, torn],
    nextOffset: chunk.nextOffset + chunk.tornBytes,
    tornBytes: 0,
  };
}

export interface Ingest {
  /** Reads to the present end. Calls share one run: never two readers of one spool. */
  catchUp(): Promise<void>;
  /**
   * After the writer is gone for sure: reads to the end and settles a torn last line. `claimed`:
   * its wrapper had begun, so a spool that is not there was there.
   */
  finish(claimed: boolean): Promise<void>;
  /** Reads no more; resolves when what is under way is committed. */
  stop(): Promise<void>;
  /** The later major version that it stopped at; null when all that is there was read. */
  readonly newer: number | null;
}

/** The reader of one attempt's spool. */
export function createIngest(
  context: Context,
  attemptId: string,
  spool: string,
  onCommitted: (events: readonly EventFields[]) => void = () => undefined,
): Ingest {
  let cutReported = false;
  let stopped = false;
  let newer: number | null = null;
  let claimed = false;
  let tail: Promise<void> = Promise.resolve();

  const step = async (last: boolean): Promise<boolean> => {
    const attempt = context.store.attempts.spoolPosition(attemptId);
    if (!attempt) return false;
    const read = readSpool(spool, attempt.spoolOffset);
    if (read.size !== null && read.size < attempt.spoolOffset) {
      // Power loss took the end of the file. What is in the store stays; never from zero again.
      if (!cutReported) reportCut(context, attempt, read.size);
      cutReported = true;
      return false;
    }
    if (read.size === null && last && !cutReported && (claimed || attempt.spoolOffset > 0)) {
      reportCut(context, attempt, null);
      cutReported = true;
    }
    const atEnd = read.size === null || read.nextOffset + read.tornBytes >= read.size;
    const chunk = last && atEnd ? passTorn(read) : read;
    if (chunk.lines.length === 0) {
      if (read.newer === null) return !atEnd;
      if (newer === null) reportNewer(context, attempt, read.newer, read.nextOffset);
      newer = read.newer;
      return false;
    }
    context.fault('spool_read');
    const events = chunk.lines.map((line) => eventOf(line, attempt.id));
    const work = chunkOf(context, attempt, chunk, events, !last);
    // While it lives others talk, too; its end is waited for.
    const committed = last ? context.writer.commit(work) : await commitSoon(context, work);
    if (committed) onCommitted(events);
    return !committed || !atEnd;
  };

  const run = async (last: boolean): Promise<void> => {
    // Others have their turn between two chunks.
    while (!stopped && (await step(last))) await nextTurn();
  };
  let waiting: Promise<void> | null = null;
  /** One run at a time; hints that come while one waits for its turn share it. */
  const queue = (last: boolean): Promise<void> => {
    const next = tail.then(() => {
      if (waiting === next) waiting = null;
      return run(last);
    });
    tail = next.catch(() => undefined);
    return next;
  };

  return {
    catchUp: () => {
      waiting ??= queue(false);
      return waiting;
    },
    finish: (isClaimed) => {
      claimed = isClaimed;
      return queue(true);
    },
    stop: () => {
      stopped = true;
      return tail;
    },
    get newer() {
      return newer;
    },
  };
}
