/** /providers and /spend: which model providers work, and what was spent today. */
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { OutliveError } from '../domain/errors.ts';
import type { ProviderState } from '../supervisor/provider-gate.ts';
import type { SpendState } from '../supervisor/spend-gate.ts';
import type { ApiContext } from './context.ts';
import {
  type DaySpendView,
  daySpendViewSchema,
  type ProviderView,
  providerPageSchema,
  providerParamsSchema,
  providerViewSchema,
  type SpendView,
} from './schemas-provider.ts';
import { nothingSchema } from './schemas-runtime.ts';

const usd = (microUsd: number | null): number | null => (microUsd === null ? null : microUsd / 1e6);

/** What was spent of what may be, as the API shows it. */
export function spendView({ spent, ceiling, left }: SpendState): SpendView {
  return {
    costUsd: spent.microUsd / 1e6,
    tokens: spent.tokens,
    unpricedTokens: spent.unpricedTokens,
    maxCostUsd: usd(ceiling.microUsd),
    maxTokens: ceiling.tokens,
    remainingCostUsd: usd(left.microUsd),
    remainingTokens: left.tokens,
  };
}

function daySpend({ store, supervisor }: ApiContext): DaySpendView {
  const { day, timeZone, ...state } = supervisor.spend.day();
  const channels = store.channels.list().flatMap(({ id }) => {
    const view = spendView(supervisor.spend.channel(id));
    const isTold = view.tokens > 0 || view.maxCostUsd !== null || view.maxTokens !== null;
    return isTold ? [{ channelId: id, ...view }] : [];
  });
  return { ...spendView(state), day, timeZone, channels };
}

function providerView(
  { store, supervisor }: ApiContext,
  { name, health, blocked, waiting, model }: ProviderState,
): ProviderView {
  const slot = { type: 'provider', key: name } as const;
  const { state, failures, openUntil, code, message } = health;
  return {
    name,
    state,
    failures,
    openUntil: openUntil === null ? null : new Date(openUntil).toISOString(),
    errorCode: code,
    errorMessage: message,
    blocked,
    waiting,
    used: store.resources.countSlots(slot),
    limit: supervisor.slotLimit('provider', name),
    model,
  };
}

/** The routes of providers and of money. */
export const providerRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  const views = (): ProviderView[] =>
    context.supervisor.providers().map((state) => providerView(context, state));
  app.get(
    '/providers',
    {
      schema: {
        summary: 'Providers and presets, and whether they are paused',
        response: { 200: providerPageSchema },
      },
    },
    () => ({ items: views(), nextCursor: null }),
  );
  app.post(
    '/providers/:name/resume',
    {
      schema: {
        summary: 'End the pause of a provider; what waits for it may start at once',
        params: providerParamsSchema,
        body: nothingSchema,
        response: { 200: providerViewSchema },
      },
    },
    (request) => {
      const { name } = request.params;
      context.supervisor.resumeProvider(name);
      const view = views().find((one) => one.name === name);
      if (view) return view;
      throw new OutliveError('not_found', `There is no provider "${name}" any more.`);
    },
  );
  app.get(
    '/spend',
    {
      schema: {
        summary: 'What was spent today, and what may be',
        response: { 200: daySpendViewSchema },
      },
    },
    () => daySpend(context),
  );
  done();
};
