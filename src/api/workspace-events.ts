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
import type { EventRow } from '../store/events.ts';
import { createHint, type Hint } from '../supervisor/signal.ts';
import type { ApiContext } from './context.ts';
import { resumeFrom } from './events.ts';
import { problemOf } from './problem.ts';
import {
  type ReplayWindow,
  type WorkspaceEventPage,
  workspaceEventPageSchema,
  workspaceEventsQuerySchema,
} from './schemas-runtime.ts';
import { answerStream, KEEPALIVE_MS, PAGE, push, signalFrame } from './sse.ts';
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

/** The same, and small enough to be replayed at once. */
function openReplay(context: ApiContext, afterPosition: number): ReplayWindow {
  const window = openWindow(context, afterPosition);
  const events = context.store.events.rangeCount(afterPosition, window.upTo, REPLAY_MAX + 1);
  if (events > REPLAY_MAX) {
    throw snapshotRequired(`More than ${REPLAY_MAX} events came after ${afterPosition}`, window);
  }
  return { ...window, events };
}

const frame = (row: EventRow): string =>
  `id: ${row.position}\nevent: ${row.type}\ndata: ${JSON.stringify(eventView(row))}\n\n`;

/** Sends (after, upTo]. @returns the new cursor, null when the client is gone. */
async function sendRange(
  context: ApiContext,
  response: ServerResponse,
  after: number,
  upTo: number,
): Promise<number | null> {
  let position = after;
  for (;;) {
    const { floor } = context.store.events.window();
    if (position < floor) {
      // Retention overtook a slow client; its stream ends where it can say so.
      const { runtimeInstanceId } = context.runtime();
      const window = { runtimeInstanceId, afterPosition: position, upTo, floor };
      const error = snapshotRequired(`Events after ${position} are no longer all kept`, window);
      await push(response, signalFrame('problem', problemOf(error)));
      return null;
    }
    const rows = context.store.events.range(position, upTo, PAGE);
    if (rows.length === 0) return position;
    if (!(await push(response, rows.map(frame).join('')))) return null;
    position = rows.at(-1)?.position ?? position;
  }
}

async function streamWorkspace(
  context: ApiContext,
  response: ServerResponse,
  window: ReplayWindow,
  live: Hint,
  stopping: AbortSignal,
): Promise<void> {
  let position = await sendRange(context, response, window.afterPosition, window.upTo);
  if (position === null || !(await push(response, signalFrame('replay-ready', window)))) return;
  while (!response.destroyed && !stopping.aborted) {
    position = await sendRange(context, response, position, Number.MAX_SAFE_INTEGER);
    if (position === null) return;
    await live.wait(KEEPALIVE_MS);
    if (!(await push(response, ':\n\n'))) return;
  }
}

function readPage(context: ApiContext, afterPosition: number, limit: number): WorkspaceEventPage {
  const window = openWindow(context, afterPosition);
  const rows = context.store.events.range(afterPosition, window.upTo, limit + 1);
  const items = rows.slice(0, limit).map(eventView);
  return {
    items,
    nextCursor: rows.length > limit ? String(items.at(-1)?.position) : null,
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
      'With Accept: text/event-stream each frame has id = position; the replay ends with a frame "replay-ready", then news follow for as long as the client stays.',
    querystring: workspaceEventsQuerySchema,
    response: { 200: workspaceEventPageSchema },
  };
  app.get('/events', { schema }, async (request, reply) => {
    const { afterPosition, limit } = request.query;
    if (!request.headers.accept?.includes('text/event-stream')) {
      return readPage(context, afterPosition, limit);
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
        await streamWorkspace(context, response, window, live, stopping);
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
