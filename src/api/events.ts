/** /work-units/:id/events: a page of JSON, or a stream for those who accept text/event-stream. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { OutliveError } from '../domain/errors.ts';
import type { ApiContext } from './context.ts';
import { findWorkUnit } from './lookup.ts';
import type { EventPage } from './schemas.ts';
import { eventsQuerySchema, workUnitParamsSchema } from './schemas.ts';
import { streamEvents } from './sse.ts';
import { eventView } from './views.ts';

/** Last-Event-ID is what a browser sends by itself on a reconnect; it wins over afterSeq. */
function startSeq(lastEventId: string | string[] | undefined, afterSeq: number): number {
  if (lastEventId === undefined || lastEventId === '') return afterSeq;
  if (typeof lastEventId === 'string' && /^\d{1,15}$/.test(lastEventId)) return Number(lastEventId);
  throw new OutliveError(
    'invalid_cursor',
    'Last-Event-ID must be the id of an event of this stream.',
  );
}

function refuseUnreplayable(context: ApiContext, workUnitId: string, afterSeq: number): void {
  const bounds = context.store.events.bounds(workUnitId);
  const first = bounds?.first ?? 1;
  const last = bounds?.last ?? 0;
  if (afterSeq >= first - 1 && afterSeq <= last) return;
  throw new OutliveError(
    'control_plane_snapshot_required',
    `Events ${first} to ${last} are kept, asked was for what follows ${afterSeq}. Load the work unit again and start from there.`,
    { extra: { first, last, afterSeq } },
  );
}

export const eventRoutes: FastifyPluginCallbackZod<{
  context: ApiContext;
  stopping: AbortSignal;
}> = (app, { context, stopping }, done) => {
  app.get(
    '/work-units/:id/events',
    { schema: { params: workUnitParamsSchema, querystring: eventsQuerySchema } },
    async (request, reply): Promise<EventPage | undefined> => {
      const { id } = findWorkUnit(context, request.params.id);
      const stream = request.headers.accept?.includes('text/event-stream') ?? false;
      const afterSeq = startSeq(
        stream ? request.headers['last-event-id'] : undefined,
        request.query.afterSeq,
      );
      refuseUnreplayable(context, id, afterSeq);
      if (stream) {
        reply.hijack();
        reply.raw.writeHead(200, {
          'content-type': 'text/event-stream; charset=utf-8',
          'cache-control': 'no-store',
          'x-accel-buffering': 'no',
        });
        reply.raw.flushHeaders();
        try {
          await streamEvents(context, reply.raw, id, afterSeq, stopping);
        } catch (error) {
          request.log.error({ err: error }, 'a stream failed by our mistake');
          reply.raw.destroy(); // Cut, not ended: the client comes again and is told why.
        }
        return undefined;
      }
      const { limit } = request.query;
      const rows = context.store.events.page(id, afterSeq, limit + 1);
      const items = rows.slice(0, limit).map(eventView);
      return { items, nextCursor: rows.length > limit ? String(items.at(-1)?.seq) : null };
    },
  );
  done();
};
