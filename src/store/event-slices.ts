/** Reading events to hand them on: bounded in bytes, their data left as it lies in the store. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import type { EventType } from '../domain/events.ts';
import { EVENT_COLUMNS, eventRowSchema } from './events.ts';

const storedSchema = eventRowSchema.extend({ data: z.string() });
/** An event whose data is still JSON: to be handed on, not looked into. */
export type StoredEvent = z.output<typeof storedSchema>;

/** How much is read at once; whatever the bytes, one event is. */
export interface SliceBound {
  readonly rows: number;
  /** Of the events' data, as UTF-8. */
  readonly bytes: number;
}

export interface EventSlice {
  readonly events: readonly StoredEvent[];
  /** True when the bound ended it and more events follow. */
  readonly more: boolean;
}

export type EventSlices = ReturnType<typeof sliceStatements>;

/** Reads row by row and stops at the bound, so that what lies behind it never gets into memory. */
function cut(rows: IterableIterator<unknown>, bound: SliceBound): EventSlice {
  const events: StoredEvent[] = [];
  let bytes = 0;
  for (const row of rows) {
    if (events.length >= bound.rows || bytes >= bound.bytes) return { events, more: true };
    const event = storedSchema.parse(row);
    bytes += Buffer.byteLength(event.data);
    events.push(event);
  }
  return { events, more: false };
}

export function sliceStatements(db: Database) {
  const select = `SELECT ${EVENT_COLUMNS} FROM runtime_events WHERE`;
  const ofUnit = db.prepare<[string, number]>(
    `${select} work_unit_id = ? AND seq > ? ORDER BY seq`,
  );
  const ofAll = db.prepare<[number, number]>(
    `${select} position > ? AND position <= ? ORDER BY position`,
  );
  const ofTypes = db.prepare<[number, number, string]>(
    `${select} position > ? AND position <= ?
       AND type IN (SELECT value FROM json_each(?)) ORDER BY position`,
  );
  return {
    /** Events of a work unit after `afterSeq`, in order, as many as the bound lets through. */
    slice: (workUnitId: string, afterSeq: number, bound: SliceBound): EventSlice =>
      cut(ofUnit.iterate(workUnitId, afterSeq), bound),
    /** The same of the whole workspace in (after, upTo]; of all types, or of those that are named. */
    rangeSlice: (
      after: number,
      upTo: number,
      bound: SliceBound,
      types: readonly EventType[] | null = null,
    ): EventSlice =>
      cut(
        types === null
          ? ofAll.iterate(after, upTo)
          : ofTypes.iterate(after, upTo, JSON.stringify(types)),
        bound,
      ),
  };
}
