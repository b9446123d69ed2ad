/** /approvals: what a person is asked, and the answer. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { OutliveError } from '../domain/errors.ts';
import type { ApprovalRow } from '../store/approvals.ts';
import type { ApiContext } from './context.ts';
import { headerKey } from './idempotency.ts';
import { findWorkUnit, parseCursor } from './lookup.ts';
import {
  type ApprovalView,
  approvalPageSchema,
  approvalParamsSchema,
  approvalQuerySchema,
  approvalViewSchema,
  approveSchema,
  denySchema,
} from './schemas-approvals.ts';

function approvalView({ store }: ApiContext, row: ApprovalRow): ApprovalView {
  const { startAttemptId: _start, startCallId: _call, ended: _ended, ...shown } = row;
  return { ...shown, handle: store.workUnits.get(row.workUnitId)?.handle ?? '' };
}

/** @throws OutliveError `not_found`. */
function findApproval(context: ApiContext, id: string): ApprovalRow {
  const row = context.store.approvals.get(id);
  if (row) return row;
  throw new OutliveError('not_found', `There is no approval "${id}". See: outlive approvals.`);
}

const decisionRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  const common = { params: approvalParamsSchema, response: { 200: approvalViewSchema } };
  app.post(
    '/approvals/:id/approve',
    { schema: { ...common, summary: 'Let the call act, once', body: approveSchema.nullish() } },
    (request) => {
      const { id } = findApproval(context, request.params.id);
      const reason = request.body?.reason ?? null;
      const decision = { decision: 'approved', reason, fail: false, actor: 'user' } as const;
      return approvalView(context, context.supervisor.decide(id, decision, headerKey(request)));
    },
  );
  app.post(
    '/approvals/:id/deny',
    {
      schema: {
        ...common,
        summary: 'Refuse the call and tell the model',
        body: denySchema.nullish(),
      },
    },
    (request) => {
      const { id } = findApproval(context, request.params.id);
      const { reason = null, fail = false } = request.body ?? {};
      const decision = { decision: 'denied', reason, fail, actor: 'user' } as const;
      return approvalView(context, context.supervisor.decide(id, decision, headerKey(request)));
    },
  );
  done();
};

/** The routes of approvals. */
export const approvalRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.get(
    '/approvals',
    {
      schema: {
        summary: 'List approvals, newest first',
        querystring: approvalQuerySchema,
        response: { 200: approvalPageSchema },
      },
    },
    (request) => {
      const { status, workUnit, limit, cursor } = request.query;
      const rows = context.store.approvals.list({
        status: status ?? null,
        workUnitId: workUnit === undefined ? null : findWorkUnit(context, workUnit).id,
        beforeId: parseCursor(cursor),
        limit: limit + 1,
      });
      const items = rows.slice(0, limit).map((row) => approvalView(context, row));
      return { items, nextCursor: rows.length > limit ? (items.at(-1)?.id ?? null) : null };
    },
  );
  app.get(
    '/approvals/:id',
    {
      schema: {
        summary: 'One approval',
        params: approvalParamsSchema,
        response: { 200: approvalViewSchema },
      },
    },
    (request) => approvalView(context, findApproval(context, request.params.id)),
  );
  void app.register(decisionRoutes, { context });
  done();
};
