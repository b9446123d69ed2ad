/** /ledger: one line for each attempt that has ended. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { OutliveError } from '../domain/errors.ts';
import type { LedgerPlace } from '../store/ledger.ts';
import type { ApiContext } from './context.ts';
import { parseCursor } from './lookup.ts';
import { type LedgerPage, ledgerPageSchema, ledgerQuerySchema } from './schemas-ledger.ts';

/** @throws OutliveError `invalid_cursor`, also for one of another store. */
function placeOf({ store }: ApiContext, cursor: string | undefined): LedgerPlace | null {
  const attemptId = parseCursor(cursor);
  if (attemptId === null) return null;
  const place = store.ledger.placeOf(attemptId);
  if (place) return place;
  throw new OutliveError('invalid_cursor', 'Use a nextCursor of an earlier answer, unchanged.');
}

/** The route of the ledger. */
export const ledgerRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.get(
    '/ledger',
    {
      schema: {
        summary: 'Attempts that have ended, one line each',
        description: 'Ordered by end. What outlive runs for itself is left out unless all=true.',
        querystring: ledgerQuerySchema,
        response: { 200: ledgerPageSchema },
      },
    },
    (request): LedgerPage => {
      const { order, since, driver, handle, all, limit, cursor } = request.query;
      const rows = context.store.ledger.page({
        order,
        limit: limit + 1,
        after: placeOf(context, cursor),
        // Stored moments are compared as text.
        since: since === undefined ? null : new Date(since).toISOString(),
        driver: driver ?? null,
        handle: handle ?? null,
        all: all === 'true',
      });
      const items = rows.slice(0, limit);
      return { items, nextCursor: rows.length > limit ? (items.at(-1)?.attemptId ?? null) : null };
    },
  );
  done();
};
