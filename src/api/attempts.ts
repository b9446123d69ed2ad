/** /attempts/:id */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { OutliveError } from '../domain/errors.ts';
import type { ApiContext } from './context.ts';
import { attemptViewSchema } from './schemas.ts';
import { attemptParamsSchema } from './schemas-runtime.ts';
import { attemptView } from './views.ts';

/** The route of attempts. */
export const attemptRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.get(
    '/attempts/:id',
    {
      schema: {
        summary: 'One attempt',
        params: attemptParamsSchema,
        response: { 200: attemptViewSchema },
      },
    },
    (request) => {
      const row = context.store.attempts.get(request.params.id);
      if (row) return attemptView(row);
      throw new OutliveError('not_found', `There is no attempt "${request.params.id}".`);
    },
  );
  done();
};
