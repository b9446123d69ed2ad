/** /runtime: the daemon and its workspace as a whole, and what may be told to all of it. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import type { z } from 'zod';
import type { Admission } from '../domain/resources.ts';
import type { ApiContext } from './context.ts';
import {
  activeViews,
  leaseViews,
  semaphoreViews,
  stuckViews,
  supervisorView,
} from './diagnostics.ts';
import { runtimeViewSchema } from './schemas.ts';
import {
  type AdmissionView,
  activePageSchema,
  admissionViewSchema,
  leasePageSchema,
  nothingSchema,
  type ReconcileView,
  reconcileReportSchema,
  semaphorePageSchema,
  stuckPageSchema,
  supervisorViewSchema,
} from './schemas-runtime.ts';

/** Looks afresh at these work units, or at all that are active. */
export async function reconcile(
  context: ApiContext,
  ids: readonly string[] | null,
): Promise<ReconcileView> {
  const { items } = await context.supervisor.reconcile(ids);
  const at = new Date(context.supervisor.now()).toISOString();
  const { runtimeInstanceId } = context.runtime();
  return { at, runtimeInstanceId, items: [...items], nextCursor: null };
}

function admit(context: ApiContext, admission: Admission): AdmissionView {
  context.supervisor.setAdmission(admission);
  context.drivers.wake();
  const { attempts, queue } = context.store;
  return { admission, activeAttempts: attempts.countActive(), queued: queue.counts().queued };
}

/** A list that is always whole. */
const whole = <Item>(items: Item[]): { items: Item[]; nextCursor: null } => ({
  items,
  nextCursor: null,
});

const answer = <Schema extends z.ZodType>(summary: string, schema: Schema) => ({
  schema: { summary, response: { 200: schema } },
});

/** The routes of the workspace as a whole. */
export const runtimeRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.get('/runtime', answer('The daemon', runtimeViewSchema), () => context.runtime());
  app.get(
    '/runtime/supervisor',
    answer('Counts, admission, queue, blockers and the last recovery', supervisorViewSchema),
    () => supervisorView(context),
  );
  app.get(
    '/runtime/active',
    answer('Work that is neither queued nor ended', activePageSchema),
    () => whole(activeViews(context)),
  );
  app.get('/runtime/stuck', answer('Active work somebody should look at', stuckPageSchema), () =>
    whole(stuckViews(context)),
  );
  app.get('/runtime/leases', answer('Leases that are held', leasePageSchema), () =>
    whole(leaseViews(context)),
  );
  app.get('/runtime/semaphores', answer('Slots, limits and holders', semaphorePageSchema), () =>
    whole(semaphoreViews(context)),
  );
  app.post(
    '/runtime/reconcile',
    {
      schema: {
        summary: 'Look afresh at all active work and act on what is found',
        body: nothingSchema,
        response: { 200: reconcileReportSchema },
      },
    },
    () => reconcile(context, null),
  );
  const admissions = [
    ['/runtime/pause', 'paused', 'Take no queued work until resumed; what runs goes on'],
    ['/runtime/drain', 'draining', 'As pause, to let what runs come to its end'],
    ['/runtime/resume', 'open', 'Take queued work again'],
  ] as const;
  for (const [path, admission, summary] of admissions) {
    const schema = { summary, body: nothingSchema, response: { 200: admissionViewSchema } };
    app.post(path, { schema }, () => admit(context, admission));
  }
  done();
};
