/**
 * Following the events of a work unit over server-sent events.
 *
 * A connection may end at any moment (daemon restarts are normal): the next one
 * asks for what comes after the last event handed out, so nothing is handed out
 * twice and nothing is left out. Where that cannot be had, a typed error ends it.
 */
import type { IncomingMessage } from 'node:http';
import {
  EPOCH_HEADER,
  type EventPage,
  type EventView,
  eventViewSchema,
  type WorkUnitView,
} from '../api/schemas.ts';
import { OutliveError } from '../domain/errors.ts';
import { TERMINAL_EVENT_TYPES } from '../domain/events.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import { FOLLOW_TIMES, type FollowTimes, Link } from './link.ts';
import { parseBody, problemToError } from './problem.ts';
import { SseParser } from './sse-parser.ts';
import { open, readAll, unreachable, unreachableReason } from './transport.ts';
import { withQuery } from './wire.ts';

export interface FollowOptions {
  readonly afterSeq?: number;
  /** Ends the iteration, without an error. */
  readonly signal?: AbortSignal;
  /** Told when the daemon goes away and when it is back. */
  readonly onConnection?: (state: 'connected' | 'away') => void;
}

/** What following needs of the client. */
export interface FollowSource {
  readonly socketPath: string;
  readonly timeoutMs: number;
  readonly times: Partial<FollowTimes>;
  getWorkUnit(id: string): Promise<WorkUnitView>;
  events(id: string, query: { afterSeq: number; limit: number }): Promise<EventPage>;
}

/** Where the reader stands; the only thing a reconnect carries over. */
interface Cursor {
  /** The handle or id asked for; the id as soon as an event told it, since a handle can be passed on. */
  id: string;
  seq: number;
  /** Of the store the numbers are of; null before the first answer. */
  epoch: string | null;
  /** The last event handed out was a terminal one, and nothing was owed with it. */
  ended: boolean;
  /** It has ended, and the outcome of this attempt is still to be settled; null when none is. */
  owed: number | null;
}

/** See {@link Client.followEvents}. */
export async function* followEvents(
  source: FollowSource,
  id: string,
  { afterSeq = 0, signal, onConnection = () => {} }: FollowOptions,
): AsyncGenerator<EventView, void> {
  const times = { ...FOLLOW_TIMES, ...source.times };
  const cursor: Cursor = { id, seq: afterSeq, epoch: null, ended: false, owed: null };
  const link = new Link(times, onConnection);
  while (!signal?.aborted) {
    const before = cursor.seq;
    try {
      yield* readOnce(source, times, cursor, link, signal);
      if (cursor.ended || (cursor.seq === before && (await isOver(source, cursor)))) return;
    } catch (error) {
      if (signal?.aborted) return;
      // After the end a lost connection loses nothing; anything else is still an error.
      if (cursor.ended && unreachableReason(error) !== null) return;
      link.lost(error, cursor.seq);
    }
    if (cursor.seq !== before) link.progressed();
    await link.pause(signal);
  }
}

/** One connection: yields until it ends. */
async function* readOnce(
  source: FollowSource,
  times: FollowTimes,
  cursor: Cursor,
  link: Link,
  signal: AbortSignal | undefined,
): AsyncGenerator<EventView, void> {
  const response = await open(source.socketPath, {
    method: 'GET',
    path: withQuery(`/work-units/${encodeURIComponent(cursor.id)}/events`, {
      afterSeq: cursor.seq,
      epoch: cursor.epoch ?? undefined,
    }),
    headers: { accept: 'text/event-stream' },
    timeoutMs: source.timeoutMs,
    signal,
  });
  if (response.statusCode !== 200) {
    const text = await readAll(source.socketPath, response, source.timeoutMs);
    throw problemToError(response.statusCode ?? 0, text);
  }
  const epoch = response.headers[EPOCH_HEADER];
  if (typeof epoch === 'string') cursor.epoch = epoch;
  link.connected();
  const parser = new SseParser();
  const quietMs = () => (cursor.ended ? times.lingerMs : times.silenceMs);
  for await (const chunk of chunks(response, source.socketPath, quietMs)) {
    for (const message of parser.push(chunk)) {
      const event =
        message.event === 'problem' ? refuse(message.data) : accept(message.data, cursor);
      if (event) yield event;
    }
  }
}

/** The body's chunks; rejects when none came for `quietMs()`. A slow reader does not count as silence. */
export async function* chunks(
  response: IncomingMessage,
  socketPath: string,
  quietMs: () => number,
): AsyncGenerator<Uint8Array, void> {
  const iterator = response[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
  try {
    for (;;) {
      const timer = setTimeout(() => response.destroy(), quietMs());
      const next = await iterator.next().finally(() => clearTimeout(timer));
      if (next.done) break;
      yield next.value;
    }
  } catch (error) {
    throw unreachable(socketPath, 'lost', error);
  } finally {
    response.destroy();
  }
}

function refuse(data: string): never {
  throw problemToError(200, data);
}

/** The event if it is the next one, null if it is one we had. */
function accept(data: string, cursor: Cursor): EventView | null {
  const event = parseBody(eventViewSchema, data);
  if (event.seq <= cursor.seq) return null;
  if (event.seq > cursor.seq + 1) {
    throw new OutliveError(
      'control_plane_snapshot_required',
      `After event ${cursor.seq} the daemon sent ${event.seq}. Read the events again from the start.`,
    );
  }
  cursor.id = event.workUnitId;
  cursor.seq = event.seq;
  heedEnd(event, cursor);
  return event;
}

/** A retry in between makes the outcome one of an end that was undone. */
function heedEnd({ type, data }: EventView, cursor: Cursor): void {
  const isEnd = TERMINAL_EVENT_TYPES.has(type);
  // One of an attempt before is told late, when somebody retried in between.
  const isOwed = type === 'outcome.settled' && cursor.owed === data['attemptNumber'];
  cursor.ended = isEnd ? data['outcome'] !== 'pending' : isOwed;
  if (isEnd) cursor.owed = cursor.ended ? null : Number(data['outcomeOf'] ?? 0);
  else if (cursor.ended || type === 'work_unit.queued') cursor.owed = null;
}

/** True when a stream that brought nothing ended because there is nothing more to come. */
async function isOver(source: FollowSource, cursor: Cursor): Promise<boolean> {
  const workUnit = await source.getWorkUnit(cursor.id);
  if (!TERMINAL_STATUSES.has(workUnit.status) || workUnit.outcome?.state === 'pending')
    return false;
  cursor.id = workUnit.id;
  const { items } = await source.events(cursor.id, { afterSeq: cursor.seq, limit: 1 });
  return items.length === 0;
}
