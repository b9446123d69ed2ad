/**
 * Server-sent events of one work unit. The stream is read from the store; the hub only
 * says when to look. So a client never gets an event twice, out of order or not at all,
 * and a slow one costs a page: nothing is read for it before it took the last.
 */
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { OutliveError } from '../domain/errors.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import { createHint } from '../supervisor/signal.ts';
import type { ApiContext } from './context.ts';
import { problemOf } from './problem.ts';
import { unreplayable } from './replay.ts';

/** A comment line at least this often, so that both ends notice a dead connection. */
export const KEEPALIVE_MS = 15_000;
/** How long a client that was dismissed may still take what was sent, milliseconds. */
const HANG_UP_MS = 5_000;
/** Sent at once. A client that takes so much within the stall time is slow, not stalled. */
const PART_BYTES = 32 * 1024;

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

/** Waits until the client took what was written, is gone, or took nothing for too long. */
async function settled(
  { streams }: ApiContext,
  response: ServerResponse,
): Promise<'taken' | 'gone' | 'stalled'> {
  const { promise, resolve } = Promise.withResolvers<'taken' | 'gone' | 'stalled'>();
  const taken = (): void => resolve('taken');
  const gone = (): void => resolve('gone');
  response.once('drain', taken).once('close', gone);
  const inTime = streams.timers.after(streams.stallMs, () => resolve('stalled'));
  const how = await promise;
  inTime();
  response.off('drain', taken).off('close', gone);
  return how;
}

/**
 * Ends the stream of a client that takes nothing: the rest of its page and where to go on
 * wait for it a moment longer, then the connection is cut. Whoever saw less than that
 * goes on from the last id it saw.
 */
function dismiss(
  { streams }: ApiContext,
  response: ServerResponse,
  rest: Buffer,
  cursor: number,
): void {
  const error = new OutliveError(
    'stream_stalled',
    `Nothing was taken for ${streams.stallMs} ms. Go on after ${cursor}, or after the last event you have.`,
    { extra: { resumeAfter: cursor } },
  );
  response.write(rest);
  response.end(signalFrame('problem', problemOf(error)));
  const close = streams.timers.after(HANG_UP_MS, () => response.destroy());
  response.once('close', close);
}

/**
 * Sends, and waits where the client does not keep up. `cursor` is where it stands once it
 * has this. @returns false when the client is gone or was dismissed.
 */
export async function push(
  context: ApiContext,
  response: ServerResponse,
  what: string | Buffer,
  cursor: number,
): Promise<boolean> {
  const bytes = typeof what === 'string' ? Buffer.from(what) : what;
  for (let from = 0; from < bytes.length; from += PART_BYTES) {
    if (response.destroyed) return false;
    const to = from + PART_BYTES;
    if (response.write(bytes.subarray(from, to))) continue;
    const how = await settled(context, response);
    if (how === 'stalled') dismiss(context, response, bytes.subarray(to), cursor);
    if (how !== 'taken') return false;
  }
  return !response.destroyed;
}

/**
 * True when the work unit has ended, and what it had to leave behind is not still looked at.
 * Its end, the event of it and that a look is owed were committed together.
 */
function isOver({ store }: ApiContext, workUnitId: string): boolean {
  const status = store.workUnits.statusOf(workUnitId);
  if (status !== null && !TERMINAL_STATUSES.has(status)) return false;
  return store.outcomes.pendingOf(workUnitId).length === 0;
}

/**
 * Streams the events after `afterSeq` until the work unit's terminal event (with an outcome
 * that is pending: until that is settled), the client's leave or `stopping`. The response's head must have been written.
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
        await push(context, response, signalFrame('problem', problemOf(refusal)), seq);
        break;
      }
      const page = context.streams.pages.ofWorkUnit(workUnitId, seq);
      if (page) {
        if (!(await push(context, response, page.bytes, page.last))) return;
        seq = page.last;
        continue;
      }
      if (isOver(context, workUnitId)) break;
      const told = await hint.wait(KEEPALIVE_MS);
      if (!told && !(await push(context, response, ':\n\n', seq))) return;
    }
    response.end();
  } finally {
    unsubscribe();
    response.off('close', hint.raise);
    stopping.removeEventListener('abort', hint.raise);
  }
}
