/**
 * /events: the events of the whole workspace, by position.
 *
 * A stream is registered for live news first; then its replay is bounded: an upper
 * position, the retention floor, and a count of one row more than a replay may have.
 * What cannot be replayed whole is refused, so nobody skips a gap without knowing.
 * Positions may have holes: only their order means something.
 */
import type { ServerResponse } from 'node:http';
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { OutliveError } from '../domain/errors.ts';
import { type EventType, typesOfDomains } from '../domain/events.ts';
import { createHint, type Hint } from '../supervisor/signal.ts';
import type { ApiContext } from './context.ts';
import { resumeFrom } from './events.ts';
import { PAGE } from './frames.ts';
import { problemOf } from './problem.ts';
import {
  type ReplayWindow,
  type WorkspaceEventPage,
  workspaceEventPageSchema,
  workspaceEventsQuerySchema,
} from './schemas-runtime.ts';
import { answerStream, KEEPALIVE_MS, push, signalFrame } from './sse.ts';
import { eventView } from './views.ts';

/** Whoever is further behind loads a snapshot: that is less than so many events. */
export const REPLAY_MAX = 50_000;

function snapshotRequired(why: string, window: Omit<ReplayWindow, 'events'>): OutliveError {
  return new OutliveError(
    'control_plane_snapshot_required',
    `${why}. Load the active work (GET /work-units?active=true) and follow from the position of GET /runtime/supervisor.`,
    { extra: { ...window } },
  );
}

/** The window after a cursor. @throws OutliveError `control_plane_snapshot_required`. */
function openWindow(context: ApiContext, afterPosition: number): Omit<ReplayWindow, 'events'> {
  const { last, floor } = context.store.events.window();
  const { runtimeInstanceId } = context.runtime();
  const window = { runtimeInstanceId, afterPosition, upTo: last, floor };
  if (afterPosition > last) {
    throw snapshotRequired(`Position ${afterPosition} is ahead of the store (${last})`, window);
  }
  if (afterPosition < floor) {
    throw snapshotRequired(`Events after ${afterPosition} are no longer all kept`, window);
  }
  return window;
}

/** True when more events are in (after, upTo] than a client may be behind. */
function isTooFar({ store }: ApiContext, after: number, upTo: number): boolean {
  // Positions may have holes, so the difference alone decides only when it is small.
  return (
    upTo - after > REPLAY_MAX && store.events.rangeCount(after, upTo, REPLAY_MAX + 1) > REPLAY_MAX
  );
}

/** The same, and small enough to be replayed at once. */
function openReplay(context: ApiContext, afterPosition: number): ReplayWindow {
  const window = openWindow(context, afterPosition);
  if (isTooFar(context, afterPosition, window.upTo)) {
    throw snapshotRequired(`More than ${REPLAY_MAX} events came after ${afterPosition}`, window);
  }
  const events = context.store.events.rangeCount(afterPosition, window.upTo, REPLAY_MAX);
  return { ...window, events };
}

/** Ends a stream where it can say so: a typed frame, and nothing after it. */
async function endWith(
  context: ApiContext,
  response: ServerResponse,
  error: OutliveError,
  position: number,
): Promise<null> {
  await push(context, response, signalFrame('problem', problemOf(error)), position);
  return null;
}

/** Why a stream that stands at `position` cannot go on; null when it can. */
function overtaken(context: ApiContext, position: number): OutliveError | null {
  const { last, floor } = context.store.events.window();
  const { runtimeInstanceId } = context.runtime();
  const window = { runtimeInstanceId, afterPosition: position, upTo: last, floor };
  // Retention overtook a slow client.
  if (position < floor) {
    return snapshotRequired(`Events after ${position} are no longer all kept`, window);
  }
  return isTooFar(context, position, last)
    ? snapshotRequired(`More than ${REPLAY_MAX} events came after ${position}`, window)
    : null;
}

/** A stream of workspace events on its way. */
interface Follower {
  readonly context: ApiContext;
  readonly response: ServerResponse;
  readonly types: readonly EventType[] | null;
}

/** Sends (after, upTo]. @returns the new cursor, null when the stream is over. */
async function sendRange(
  { context, response, types }: Follower,
  after: number,
  upTo: number,
): Promise<number | null> {
  let position = after;
  while (position < upTo) {
    const error = overtaken(context, position);
    if (error) return endWith(context, response, error, position);
    const page = context.streams.pages.ofWorkspace(position, upTo, types);
    if (!page) return upTo; // What is left is of other domains.
    if (!(await push(context, response, page.bytes, page.last))) return null;
    position = page.more ? page.last : upTo;
  }
  return position;
}

async function streamWorkspace(
  follower: Follower,
  window: ReplayWindow,
  live: Hint,
  stopping: AbortSignal,
): Promise<void> {
  const { context, response, types } = follower;
  let position = await sendRange(follower, window.afterPosition, window.upTo);
  if (position === null) return;
  const ready = signalFrame('replay-ready', window);
  if (!(await push(context, response, ready, position))) return;
  while (!response.destroyed && !stopping.aborted) {
    position = await sendRange(follower, position, context.store.events.window().last);
    if (position === null) return;
    if (await live.wait(KEEPALIVE_MS)) continue;
    // Whoever left domains out moves its cursor past them all the same.
    const sign = types === null ? ':\n\n' : `:\nid: ${position}\n\n`;
    if (!(await push(context, response, sign, position))) return;
  }
}

interface PageQuery {
  readonly afterPosition: number;
  readonly limit: number;
  readonly types: readonly EventType[] | null;
}

function readPage(
  context: ApiContext,
  { afterPosition, limit, types }: PageQuery,
): WorkspaceEventPage {
  const window = openWindow(context, afterPosition);
  const bound = { rows: limit, bytes: PAGE.bytes };
  const slice = context.store.events.rangeSlice(afterPosition, window.upTo, bound, types);
  const items = slice.events.map(eventView);
  return {
    items,
    nextCursor: slice.more ? String(items.at(-1)?.position) : null,
    window: { ...window, events: items.length },
  };
}

/** The route of workspace events. */
export const workspaceEventRoutes: FastifyPluginCallbackZod<{
  context: ApiContext;
  stopping: AbortSignal;
}> = (app, { context, stopping }, done) => {
  const schema = {
    summary: 'Events of the whole workspace: a page, or a stream',
    description:
      'With Accept: text/event-stream each frame has id = position; the replay ends with a frame "replay-ready", then news follow for as long as the client stays. With domains (work_unit,tool,…) the events of all others are left out: positions then have gaps. A client too far behind gets a frame "problem" with control_plane_snapshot_required.',
    querystring: workspaceEventsQuerySchema,
    response: { 200: workspaceEventPageSchema },
  };
  app.get('/events', { schema }, async (request, reply) => {
    const { afterPosition, limit, domains } = request.query;
    const types = domains === undefined ? null : typesOfDomains(domains);
    if (!request.headers.accept?.includes('text/event-stream')) {
      return readPage(context, { afterPosition, limit, types });
    }
    const after = resumeFrom(request.headers['last-event-id'], afterPosition);
    const live = createHint();
    const unsubscribe = context.hub.subscribe(live.raise);
    const { raw } = reply;
    raw.on('close', live.raise);
    stopping.addEventListener('abort', live.raise);
    try {
      const window = openReplay(context, after);
      await answerStream(request, reply, async (response) => {
        await streamWorkspace({ context, response, types }, window, live, stopping);
        response.end();
      });
    } finally {
      unsubscribe();
      raw.off('close', live.raise);
      stopping.removeEventListener('abort', live.raise);
    }
    return undefined as never; // The reply was taken over.
  });
  done();
};
