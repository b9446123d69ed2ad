/** /work-units: submit, list, show, explain, cancel, retry, reconcile. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import type { Preview } from '../supervisor/explain.ts';
import type { ApiContext } from './context.ts';
import { headerKey } from './idempotency.ts';
import { findWorkUnit, parseCursor, showWorkUnit } from './lookup.ts';
import { reconcile } from './runtime.ts';
import type { WorkUnitPage } from './schemas.ts';
import {
  cancelSchema,
  listQuerySchema,
  startWorkUnitSchema,
  workUnitPageSchema,
  workUnitParamsSchema,
  workUnitViewSchema,
} from './schemas.ts';
import {
  type DryRun,
  dryRunSchema,
  explanationSchema,
  startQuerySchema,
} from './schemas-explain.ts';
import { nothingSchema, reconcileReportSchema } from './schemas-runtime.ts';
import { afterView, explanationView } from './views.ts';

/** What a submit would do, as the API shows it. */
function dryRun(context: ApiContext, preview: Preview): DryRun {
  const { workUnit, created, waiting, after, supersedes, unit } = preview;
  return {
    dryRun: true,
    workUnit: { ...showWorkUnit(context, workUnit), ...afterView(after) },
    created,
    waiting,
    supersedes: [...supersedes],
    unit: { name: unit.name, properties: [...unit.properties] },
  };
}

const submitSchema = {
  summary: 'Submit work; idempotent by key',
  description: 'With dryRun=true nothing is stored: the answer is what would be started.',
  querystring: startQuerySchema,
  body: startWorkUnitSchema,
  response: { 200: z.union([workUnitViewSchema, dryRunSchema]), 201: workUnitViewSchema },
};

const submitRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.post('/work-units', { schema: submitSchema }, (request, reply) => {
    const options = {
      idempotencyKey: headerKey(request),
      actor: 'user',
    } as const;
    if (request.query.dryRun === 'true') {
      return dryRun(context, context.supervisor.preview(request.body, options));
    }
    const { workUnit, created } = context.supervisor.submit(request.body, options);
    reply.status(created ? 201 : 200).header('location', `/work-units/${workUnit.id}`);
    return showWorkUnit(context, workUnit);
  });
  done();
};

const commandSchema = (summary: string) => ({
  summary,
  params: workUnitParamsSchema,
  response: { 200: workUnitViewSchema },
});

const commandRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.post(
    '/work-units/:id/cancel',
    { schema: { ...commandSchema('Cancel, in any state'), body: cancelSchema.nullish() } },
    (request) => {
      const { id } = findWorkUnit(context, request.params.id);
      const reason = request.body?.reason ?? null;
      const key = headerKey(request);
      return showWorkUnit(context, context.supervisor.cancel(id, { actor: 'user', reason }, key));
    },
  );
  app.post(
    '/work-units/:id/retry',
    { schema: { ...commandSchema('Queue another attempt of failed work'), body: nothingSchema } },
    async (request) => {
      const { id } = findWorkUnit(context, request.params.id);
      const key = headerKey(request);
      return showWorkUnit(context, await context.supervisor.retry(id, 'user', key));
    },
  );
  app.post(
    '/work-units/:id/reconcile',
    {
      schema: {
        summary: 'Look afresh at one work unit and act on what is found',
        params: workUnitParamsSchema,
        body: nothingSchema,
        response: { 200: reconcileReportSchema },
      },
    },
    (request) => reconcile(context, [findWorkUnit(context, request.params.id).id]),
  );
  done();
};

const readRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (app, { context }, done) => {
  app.get(
    '/work-units',
    {
      schema: {
        summary: 'List work units, newest first',
        querystring: listQuerySchema,
        response: { 200: workUnitPageSchema },
      },
    },
    (request): WorkUnitPage => {
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
    },
  );
  app.get('/work-units/:id', { schema: commandSchema('One work unit') }, (request) =>
    showWorkUnit(context, findWorkUnit(context, request.params.id)),
  );
  app.get(
    '/work-units/:id/explain',
    {
      schema: {
        summary: 'Why it is where it is, with the evidence',
        params: workUnitParamsSchema,
        response: { 200: explanationSchema },
      },
    },
    (request) => {
      const { id } = findWorkUnit(context, request.params.id);
      return explanationView(context.supervisor.explain(id));
    },
  );
  done();
};

/** All routes of work units. */
export const workUnitRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  for (const routes of [submitRoutes, readRoutes, commandRoutes]) {
    void app.register(routes, { context });
  }
  done();
};
