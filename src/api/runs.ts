/** POST /runs: submit a task_run and follow it in one call. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import type { StartWorkUnit } from '../domain/request.ts';
import type { ApiContext } from './context.ts';
import { headerKey } from './idempotency.ts';
import { type RunStarted, runSchema } from './schemas-explain.ts';
import { answerStream, push, signalFrame, streamEvents } from './sse.ts';

/**
 * The route of runs. Leaving the stream leaves the run alone; posting again with the same
 * key finds the same run and streams it from its first event.
 */
export const runRoutes: FastifyPluginCallbackZod<{
  context: ApiContext;
  stopping: AbortSignal;
}> = (app, { context, stopping }, done) => {
  const schema = {
    summary: 'Start a task_run and follow it to its end',
    description:
      'Answers text/event-stream: the first frame is "run" with {runId, workUnitId, handle, created}, then come its events with id = seq.',
    body: runSchema,
  };
  app.post('/runs', { schema }, async (request, reply) => {
    const { body } = request;
    const input: StartWorkUnit =
      body.runnerId === 'command' ? body : { ...body, runnerId: 'pi' as const };
    const { workUnit, created } = context.supervisor.submit(input, {
      idempotencyKey: headerKey(request),
      actor: 'user',
    });
    const { id, handle } = workUnit;
    const started: RunStarted = { runId: id, workUnitId: id, handle, created };
    reply.raw.setHeader('location', `/work-units/${id}`);
    await answerStream(request, reply, async (response) => {
      if (!(await push(context, response, signalFrame('run', started), 0))) return;
      await streamEvents(context, response, id, 0, stopping);
    });
  });
  done();
};
