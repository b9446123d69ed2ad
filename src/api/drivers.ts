/** /drivers: who looks for work, and what came of it. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import type { DriverSpec } from '../domain/driver.ts';
import type { DriverRow } from '../store/drivers.ts';
import type { ApiContext } from './context.ts';
import {
  type DriverDetail,
  type DriverView,
  driverDetailSchema,
  driverPageSchema,
  driverParamsSchema,
  driverPutQuerySchema,
  driverRemovedSchema,
  driverResumedSchema,
  driverSpecSchema,
  driverSubjectSchema,
  driverTickSchema,
  driverViewSchema,
} from './schemas-drivers.ts';
import { nothingSchema } from './schemas-runtime.ts';

const SUBJECTS_SHOWN = 500;

/** Values may be secrets; the names tell what is set. */
const withoutValues = (spec: DriverSpec): DriverSpec => ({
  ...spec,
  environment: Object.fromEntries(Object.keys(spec.environment).map((name) => [name, '…'])),
});

function driverView({ store }: ApiContext, row: DriverRow): DriverView {
  const { censusId, tick, tickAt, report, spec, state, ...plain } = row;
  return {
    ...plain,
    state: state === 'paused' ? 'paused' : 'active',
    spec: withoutValues(spec),
    underWay: censusId === null ? null : { tick, censusId, startedAt: tickAt ?? row.updatedAt },
    last: report,
    working: store.drivers.working(row.name),
    held: store.drivers.holdsOf(row.name).length,
  };
}

function driverDetail(context: ApiContext, row: DriverRow): DriverDetail {
  const { drivers } = context.store;
  return {
    ...driverView(context, row),
    holds: drivers
      .holdsOf(row.name)
      .map(({ subject, workUnitId, code, heldAt }) => ({ subject, workUnitId, code, heldAt })),
    subjects: drivers
      .driven(row.name, SUBJECTS_SHOWN)
      .map(({ id: workUnitId, ...work }) => ({ workUnitId, ...work })),
  };
}

const readRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (app, { context }, done) => {
  app.get(
    '/drivers',
    { schema: { summary: 'All drivers', response: { 200: driverPageSchema } } },
    () => ({
      items: context.drivers.list().map((row) => driverView(context, row)),
      nextCursor: null,
    }),
  );
  app.get(
    '/drivers/:name',
    {
      schema: {
        summary: 'One driver: its last census, subjects and holds',
        params: driverParamsSchema,
        response: { 200: driverDetailSchema },
      },
    },
    (request) => driverDetail(context, context.drivers.get(request.params.name)),
  );
  done();
};

const named = { params: driverParamsSchema };

const lifeRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (app, { context }, done) => {
  const view = (row: DriverRow): DriverView => driverView(context, row);
  app.put(
    '/drivers/:name',
    {
      schema: {
        summary:
          'Make a driver; with replace=true another specification takes the place of its own',
        description: 'The same specification again changes nothing.',
        params: driverParamsSchema,
        querystring: driverPutQuerySchema,
        body: driverSpecSchema,
        response: { 200: driverViewSchema },
      },
    },
    (request) =>
      view(
        context.drivers.put(request.params.name, request.body, request.query.replace === 'true'),
      ),
  );
  app.post(
    '/drivers/:name/remove',
    {
      schema: {
        summary: 'Forget a driver; what runs goes on, and what is held stays held',
        ...named,
        body: nothingSchema,
        response: { 200: driverRemovedSchema },
      },
    },
    (request) => {
      const { name } = request.params;
      context.drivers.remove(name);
      return { name };
    },
  );
  done();
};

const verbRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (app, { context }, done) => {
  const view = (row: DriverRow): DriverView => driverView(context, row);
  app.post(
    '/drivers/:name/pause',
    {
      schema: {
        summary: 'Let a driver tick no more, or hold one subject; what runs goes on',
        ...named,
        body: driverSubjectSchema,
        response: { 200: driverViewSchema },
      },
    },
    (request) => view(context.drivers.pause(request.params.name, request.body.subject)),
  );
  app.post(
    '/drivers/:name/resume',
    {
      schema: {
        summary: 'Let a driver tick, with all subjects that are held, or take up one of those',
        ...named,
        body: driverSubjectSchema,
        response: { 200: driverResumedSchema },
      },
    },
    (request) => {
      const { row, released } = context.drivers.resume(request.params.name, request.body.subject);
      return { driver: view(row), released: [...released] };
    },
  );
  app.post(
    '/drivers/:name/tick',
    {
      schema: {
        summary: 'Begin a tick now, unless one is under way',
        ...named,
        body: nothingSchema,
        response: { 200: driverTickSchema },
      },
    },
    (request) => {
      const { row, begun } = context.drivers.tick(request.params.name);
      return { driver: view(row), tick: row.tick, begun };
    },
  );
  done();
};

/** The routes of drivers. */
export const driverRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  options,
  done,
) => {
  void app.register(readRoutes, options);
  void app.register(lifeRoutes, options);
  void app.register(verbRoutes, options);
  done();
};
