/** /maintenance: upkeep of the workspace. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import type { CollectReport } from '../supervisor/collect.ts';
import type { ApiContext } from './context.ts';
import {
  backupSchema,
  backupViewSchema,
  type CollectView,
  collectSchema,
  collectViewSchema,
} from './schemas-maintenance.ts';

function collectView(report: CollectReport): CollectView {
  const { unclaimed, problems } = report;
  return {
    ...report,
    unclaimed: { ...unclaimed, paths: [...unclaimed.paths] },
    problems: [...problems],
  };
}

/** The routes of upkeep. */
export const maintenanceRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.post(
    '/maintenance/gc',
    {
      schema: {
        summary: 'Remove what retention no longer keeps',
        description: 'Answers when it is done. A run that is under way is a conflict.',
        body: collectSchema.prefault({}),
        response: { 200: collectViewSchema },
      },
    },
    async ({ body }) => {
      const { dryRun, olderThanMs } = body;
      return collectView(await context.maintenance.collect({ dryRun, maxAgeMs: olderThanMs }));
    },
  );
  app.post(
    '/maintenance/backup',
    {
      schema: {
        summary: 'Copy the store to a file, while it is in use',
        description: 'The answer was read from the copy after it was checked.',
        body: backupSchema,
        response: { 200: backupViewSchema },
      },
    },
    ({ body }) => context.maintenance.backup(body.path, { force: body.force }),
  );
  done();
};
