/**
 * Server-sent events of one work unit. The stream is read from the store; the hub only
 * says when to look. So a client never gets an event twice, out of order or not at all,
 * and a slow one costs no memory: nothing is read for it before it took the last.
 */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { EventRow } from '../store/events.ts';
import { createHint } from '../supervisor/signal.ts';
import type { ApiContext } from './context.ts';
import { problemOf } from './problem.ts';
import { unreplayable } from './replay.ts';
import { eventView } from './views.ts';

export const PAGE = 500;
/** A comment line at least this often, so that both ends notice a dead connection. */
export const KEEPALIVE_MS = 15_000;
/** A client that takes nothing for this long is dropped; it resumes with Last-Event-ID. */
const STALL_MS = 60_000;

/** Takes the response over and sends the head of a stream. */
function beginStream(reply: FastifyReply): ServerResponse {
  reply.hijack();
  reply.raw.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
  });
  reply.raw.flushHeaders();
  return reply.raw;
}

/**
 * Takes the response over and streams into it. A stream that fails is cut, not ended: then
 * the client comes again and is told why.
 */
export async function answerStream(
  request: FastifyRequest,
  reply: FastifyReply,
  stream: (response: ServerResponse) => Promise<void>,
): Promise<void> {
  const response = beginStream(reply);
  try {
    await stream(response);
  } catch (error) {
    request.log.error({ err: error }, 'a stream failed by our mistake');
    response.destroy();
  }
}

/** A frame without an id: it moves no cursor. */
export function signalFrame(event: string, data: unknown): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

function frame(row: EventRow): string {
  return `id: ${row.seq}\nevent: ${row.type}\ndata: ${JSON.stringify(eventView(row))}\n\n`;
}

/** Writes and, when the socket is full, waits for it. False when the client is gone or stalls. */
export async function push(response: ServerResponse, text: string): Promise<boolean> {
  if (response.destroyed) return false;
  if (response.write(text)) return true;
  const settled = new AbortController();
  const signal = AbortSignal.any([settled.signal, AbortSignal.timeout(STALL_MS)]);
  try {
    await Promise.race([once(response, 'drain', { signal }), once(response, 'close', { signal })]);
    return !response.destroyed;
  } catch {
    response.destroy();
    return false;
  } finally {
    settled.abort();
  }
}

/** True when the work unit has ended. Its end and the event of it were committed together. */
function isOver(context: ApiContext, workUnitId: string): boolean {
  const row = context.store.workUnits.get(workUnitId);
  return row === null || TERMINAL_STATUSES.has(row.status);
}

/**
 * Streams the events after `afterSeq` until the work unit's terminal event, the client's
 * leave or `stopping`. The response's head must have been written.
 */
export async function streamEvents(
  context: ApiContext,
  response: ServerResponse,
  workUnitId: string,
  afterSeq: number,
  stopping: AbortSignal,
): Promise<void> {
  const hint = createHint();
  const unsubscribe = context.hub.subscribe((events) => {
    if (events.some((event) => event.workUnitId === workUnitId)) hint.raise();
  });
  response.on('close', hint.raise);
  stopping.addEventListener('abort', hint.raise);
  let seq = afterSeq;
  try {
    while (!response.destroyed && !stopping.aborted) {
      const refusal = unreplayable(context, workUnitId, seq);
      if (refusal) {
        // Retention overtook a slow client; its stream ends where it can say so.
        await push(response, signalFrame('problem', problemOf(refusal)));
        break;
      }
      const rows = context.store.events.page(workUnitId, seq, PAGE);
      if (rows.length > 0) {
        if (!(await push(response, rows.map(frame).join('')))) return;
        seq = rows.at(-1)?.seq ?? seq;
        continue;
      }
      if (isOver(context, workUnitId)) break;
      await hint.wait(KEEPALIVE_MS);
      if (!(await push(response, ':\n\n'))) return;
    }
    response.end();
  } finally {
    unsubscribe();
    response.off('close', hint.raise);
    stopping.removeEventListener('abort', hint.raise);
  }
}
