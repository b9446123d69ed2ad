/** /work-units/:id/events: a page of JSON, or a stream for those who accept text/event-stream. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { OutliveError } from '../domain/errors.ts';
import type { ApiContext } from './context.ts';
import { PAGE } from './frames.ts';
import { findWorkUnit } from './lookup.ts';
import { otherEpoch, unreplayable } from './replay.ts';
import type { EventPage } from './schemas.ts';
import {
  EPOCH_HEADER,
  eventPageSchema,
  eventsQuerySchema,
  workUnitParamsSchema,
} from './schemas.ts';
import { answerStream, streamEvents } from './sse.ts';
import { eventView } from './views.ts';

/** Last-Event-ID is what a browser sends by itself on a reconnect; it wins over the query. */
export function resumeFrom(lastEventId: string | string[] | undefined, after: number): number {
  if (lastEventId === undefined || lastEventId === '') return after;
  if (typeof lastEventId === 'string' && /^\d{1,15}$/.test(lastEventId)) return Number(lastEventId);
  throw new OutliveError(
    'invalid_cursor',
    'Last-Event-ID must be the id of an event of this stream.',
  );
}

export const eventRoutes: FastifyPluginCallbackZod<{
  context: ApiContext;
  stopping: AbortSignal;
}> = (app, { context, stopping }, done) => {
  app.get(
    '/work-units/:id/events',
    {
      schema: {
        summary: 'Events of one work unit: a page, or a stream until its end',
        description:
          'With Accept: text/event-stream each frame has id = seq, event = type. A page ends early when its events are large.',
        params: workUnitParamsSchema,
        querystring: eventsQuerySchema,
        response: { 200: eventPageSchema },
      },
    },
    async (request, reply): Promise<EventPage | undefined> => {
      const { id } = findWorkUnit(context, request.params.id);
      const stream = request.headers.accept?.includes('text/event-stream') ?? false;
      const afterSeq = resumeFrom(
        stream ? request.headers['last-event-id'] : undefined,
        request.query.afterSeq,
      );
      const refusal =
        otherEpoch(context, request.query.epoch) ?? unreplayable(context, id, afterSeq);
      if (refusal) throw refusal;
      // On the raw answer: a stream writes its own head.
      reply.raw.setHeader(EPOCH_HEADER, context.store.retention.epoch());
      if (stream) {
        await answerStream(request, reply, (response) =>
          streamEvents(context, response, id, afterSeq, stopping),
        );
        return undefined;
      }
      const bound = { rows: request.query.limit, bytes: PAGE.bytes };
      const { events, more } = context.store.events.slice(id, afterSeq, bound);
      const items = events.map(eventView);
      return { items, nextCursor: more ? String(items.at(-1)?.seq) : null };
    },
  );
  done();
};
