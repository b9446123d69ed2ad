/**
 * Events as frames of a stream, by the page. A page is bounded in bytes, not in rows: a
 * row may be a megabyte, and every stalled reader keeps its page in memory.
 *
 * Readers of the same stream mostly stand at the same place, so the last pages are kept:
 * two hundred readers cost one read, one encoding, and share one buffer. What is committed
 * never changes, so a kept page is at worst shorter than a fresh one.
 */
import type { EventType } from '../domain/events.ts';
import type { EventSlice, SliceBound, StoredEvent } from '../store/event-slices.ts';
import type { Store } from '../store/store.ts';

/** Of a page of events, as a stream or as JSON. The rows bound how long one read takes. */
export const PAGE: SliceBound = { rows: 1_000, bytes: 256 * 1024 };
/** Pages kept; with a large last row each at most about 4 MB in all. */
const KEPT = 8;

export interface FramePage {
  readonly bytes: Buffer;
  /** The cursor after its last frame. */
  readonly last: number;
  /** True when it is full, and not all there was. */
  readonly more: boolean;
}

type Cursor = 'seq' | 'position';

function frame(event: StoredEvent, cursor: Cursor): string {
  const { workUnitId, attemptId, seq, position, ts, type, actor, data } = event;
  const head = {
    id: `${workUnitId}:${seq}`,
    workUnitId,
    attemptId,
    seq,
    position,
    ts,
    type,
    actor,
  };
  // The data is JSON already: it goes out as it lies in the store.
  const view = `${JSON.stringify(head).slice(0, -1)},"data":${data}}`;
  return `id: ${event[cursor]}\nevent: ${type}\ndata: ${view}\n\n`;
}

function pageOf({ events, more }: EventSlice, cursor: Cursor): FramePage | null {
  const last = events.at(-1);
  if (!last) return null;
  const text = events.map((event) => frame(event, cursor)).join('');
  return { bytes: Buffer.from(text), last: last[cursor], more };
}

/** Reads pages of frames from a store, and keeps the last ones. */
export class FramePages {
  readonly #store: Store;
  readonly #kept = new Map<string, FramePage>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** What follows `afterSeq` in a work unit; null when nothing does. */
  ofWorkUnit(id: string, afterSeq: number): FramePage | null {
    return this.#keep(`${id} ${afterSeq}`, () =>
      pageOf(this.#store.events.slice(id, afterSeq, PAGE), 'seq'),
    );
  }

  /** What is in (after, upTo] of the workspace, of these types; null when nothing is. */
  ofWorkspace(after: number, upTo: number, types: readonly EventType[] | null): FramePage | null {
    return this.#keep(`${after} ${upTo} ${types?.join() ?? ''}`, () =>
      pageOf(this.#store.events.rangeSlice(after, upTo, PAGE, types), 'position'),
    );
  }

  #keep(key: string, read: () => FramePage | null): FramePage | null {
    const known = this.#kept.get(key);
    if (known) return known;
    const page = read();
    if (!page) return null;
    this.#kept.set(key, page);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > KEPT && oldest !== undefined) this.#kept.delete(oldest);
    return page;
  }
}
