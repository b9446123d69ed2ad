/** /work-units: submit, list, show, cancel. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { OutliveError } from '../domain/errors.ts';
import type { ApiContext } from './context.ts';
import { findWorkUnit, showWorkUnit } from './lookup.ts';
import type { WorkUnitPage } from './schemas.ts';
import {
  cancelSchema,
  IDEMPOTENCY_HEADER,
  listQuerySchema,
  startWorkUnitSchema,
  workUnitParamsSchema,
} from './schemas.ts';

/** The key in the header. `given` are all of them: joined by Node they would look like one. */
function headerKey(given: readonly string[] | undefined): string | undefined {
  if (given === undefined) return undefined;
  const [value = '', ...more] = given;
  if (value.length > 0 && value.length <= 256 && more.length === 0) return value;
  const message = 'must be given once, 1 to 256 characters';
  throw new OutliveError('invalid_request', `Idempotency-Key ${message}.`, {
    fields: [{ path: '/headers/idempotency-key', message }],
  });
}

const cursorSchema = z.uuid();

function parseCursor(cursor: string | undefined): string | null {
  if (cursor === undefined) return null;
  if (cursorSchema.safeParse(cursor).success) return cursor.toLowerCase(); // As ids are compared.
  throw new OutliveError('invalid_cursor', 'Use a nextCursor of an earlier answer, unchanged.');
}

export const workUnitRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.post('/work-units', { schema: { body: startWorkUnitSchema } }, (request, reply) => {
    const { workUnit, created } = context.supervisor.submit(request.body, {
      idempotencyKey: headerKey(request.raw.headersDistinct[IDEMPOTENCY_HEADER]),
      actor: 'user',
    });
    return reply
      .status(created ? 201 : 200)
      .header('location', `/work-units/${workUnit.id}`)
      .send(showWorkUnit(context, workUnit));
  });

  app.get('/work-units', { schema: { querystring: listQuerySchema } }, (request): WorkUnitPage => {
    const { active, status, limit, cursor } = request.query;
    const rows = context.store.workUnits.list({
      activeOnly: active === 'true',
      status: status ?? null,
      beforeId: parseCursor(cursor),
      limit: limit + 1,
    });
    const shown = rows.slice(0, limit);
    return {
      items: shown.map((row) => showWorkUnit(context, row)),
      nextCursor: rows.length > limit ? (shown.at(-1)?.id ?? null) : null,
    };
  });

  app.get('/work-units/:id', { schema: { params: workUnitParamsSchema } }, (request) =>
    showWorkUnit(context, findWorkUnit(context, request.params.id)),
  );

  app.post(
    '/work-units/:id/cancel',
    { schema: { params: workUnitParamsSchema, body: cancelSchema.nullish() } },
    (request) => {
      const { id } = findWorkUnit(context, request.params.id);
      const cancelled = context.supervisor.cancel(id, {
        actor: 'user',
        reason: request.body?.reason ?? null,
      });
      return showWorkUnit(context, cancelled);
    },
  );
  done();
};
