/** /channels: lanes of work and their policies. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { OutliveError } from '../domain/errors.ts';
import { toMicroUsd } from '../domain/spend.ts';
import type { ChannelPolicy, ChannelRow } from '../store/channels.ts';
import type { ApiContext } from './context.ts';
import { spendView } from './providers.ts';
import {
  type ChannelView,
  channelPageSchema,
  channelParamsSchema,
  channelPolicySchema,
  channelViewSchema,
} from './schemas-runtime.ts';

/** As a channel that is made by its first work unit. */
const NEW_CHANNEL: ChannelPolicy = {
  status: 'active',
  maxConcurrentRuns: 1,
  onNewerSubject: 'queue',
};

function channelView({ store, supervisor }: ApiContext, row: ChannelRow): ChannelView {
  const slot = { type: 'channel_parallel', key: row.id } as const;
  return {
    ...row,
    running: store.resources.countSlots(slot),
    queued: store.diagnostics.queuedInChannel(row.id),
    spend: spendView(supervisor.spend.channel(row.id)),
  };
}

const microUsdOf = (usd: number | null): number | null => (usd === null ? null : toMicroUsd(usd));

/** @throws OutliveError `not_found`. */
function findChannel(context: ApiContext, id: string): ChannelRow {
  const row = context.store.channels.get(id);
  if (row) return row;
  throw new OutliveError('not_found', `There is no channel "${id}". See: outlive channels.`);
}

/** The routes of channels. */
export const channelRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.get(
    '/channels',
    { schema: { summary: 'All channels', response: { 200: channelPageSchema } } },
    () => {
      const items = context.store.channels.list().map((row) => channelView(context, row));
      return { items, nextCursor: null };
    },
  );
  app.get(
    '/channels/:id',
    {
      schema: {
        summary: 'One channel',
        params: channelParamsSchema,
        response: { 200: channelViewSchema },
      },
    },
    (request) => channelView(context, findChannel(context, request.params.id)),
  );
  app.put(
    '/channels/:id',
    {
      schema: {
        summary: 'Set the policy of a channel, new or not; what is left out stays',
        params: channelParamsSchema,
        body: channelPolicySchema,
        response: { 200: channelViewSchema },
      },
    },
    (request) => {
      const { id } = request.params;
      const before = context.store.channels.get(id) ?? NEW_CHANNEL;
      const { status, maxConcurrentRuns, onNewerSubject, maxCostUsdPerDay, maxTokensPerDay } =
        request.body;
      const had = context.store.spend.channelCeiling(id);
      const policy = {
        status: status ?? before.status,
        maxConcurrentRuns: maxConcurrentRuns ?? before.maxConcurrentRuns,
        onNewerSubject: onNewerSubject ?? before.onNewerSubject,
      };
      context.supervisor.putChannel(id, policy, {
        microUsd: maxCostUsdPerDay === undefined ? had.microUsd : microUsdOf(maxCostUsdPerDay),
        tokens: maxTokensPerDay === undefined ? had.tokens : maxTokensPerDay,
      });
      return channelView(context, findChannel(context, id));
    },
  );
  done();
};
