/** /linear: how the Linear agent is. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import type { ApiContext } from './context.ts';
import { linearStatusSchema } from './schemas-linear.ts';

/** The routes of the Linear agent, but for its webhooks. */
export const linearStatusRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.get(
    '/linear/status',
    {
      schema: {
        summary: 'The Linear agent: auth, webhooks, what is to be told, turns and budget',
        response: { 200: linearStatusSchema },
      },
    },
    () => {
      const status = context.linearStatus();
      return { configured: status !== null, status };
    },
  );
  done();
};
