/** Providers and money over real HTTP. */
import { afterEach, describe, expect, it } from 'vitest';
import type { z } from 'zod';
import type { WorkUnitView } from '../../src/api/schemas.ts';
import type { DryRun, Explanation } from '../../src/api/schemas-explain.ts';
import {
  daySpendViewSchema,
  providerPageSchema,
  providerViewSchema,
} from '../../src/api/schemas-provider.ts';
import { channelViewSchema } from '../../src/api/schemas-runtime.ts';
import { HEALTHY } from '../../src/domain/provider-health.ts';
import { type Answer, json, PI, refused, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

afterEach(cleanUp);

const parse = <Schema extends z.ZodType>(schema: Schema, answer: Answer): z.output<Schema> => {
  expect(answer.status, answer.text).toBe(200);
  return schema.parse(JSON.parse(answer.text));
};
const get = (rig: Rig, path: string): Promise<Answer> => send(rig.socket, { path });
const post = (rig: Rig, path: string, body?: object): Promise<Answer> =>
  send(rig.socket, { method: 'POST', path, ...(body === undefined ? {} : { body }) });
const put = (rig: Rig, path: string, body: object): Promise<Answer> =>
  send(rig.socket, { method: 'PUT', path, body });

const UNTIL = Date.parse('2100-01-01T00:00:00.000Z');

function pause(rig: Rig, provider: string): void {
  const health = { ...HEALTHY, state: 'open', failures: 3, openings: 1, openUntil: UNTIL } as const;
  rig.writer.commit(({ at }) =>
    rig.store.providers.put(provider, { ...health, code: 'rate_limited', message: '429' }, at),
  );
}

function spend(rig: Rig, workUnitId: string, channelId: string | null, microUsd: number): void {
  const { day } = rig.context.supervisor.spend.day();
  rig.writer.commit(() =>
    rig.store.spend.add(
      { workUnitId, attemptId: 'none', channelId, day },
      { microUsd, tokens: 100, unpricedTokens: 40 },
    ),
  );
}

describe('providers', () => {
  it('are none at first; a paused one is shown, explained, and resumed', async () => {
    const rig = await bootApi();
    expect(parse(providerPageSchema, await get(rig, '/providers')).items).toEqual([]);
    pause(rig, 'acme/eu');
    const { id } = await start(rig.socket, {
      ...PI,
      argv: undefined,
      model: 'm',
      providerPresetId: 'acme/eu',
    });
    const [shown] = parse(providerPageSchema, await get(rig, '/providers')).items;
    expect(shown).toEqual({
      name: 'acme/eu',
      state: 'open',
      failures: 3,
      openUntil: '2100-01-01T00:00:00.000Z',
      errorCode: 'rate_limited',
      errorMessage: '429',
      blocked: expect.stringContaining('provider acme/eu is paused until 2100-01-01'),
      waiting: 0,
      used: 0,
      limit: null,
      model: null,
    });
    const { waiting } = json<Explanation>(await get(rig, `/work-units/${id}/explain`));
    expect(waiting).toMatchObject({ why: 'blocked', resource: 'provider acme/eu' });
    const resumed = await post(rig, `/providers/${encodeURIComponent('acme/eu')}/resume`);
    expect(parse(providerViewSchema, resumed)).toMatchObject({ state: 'closed', blocked: null });
    expect(json<Explanation>(await get(rig, `/work-units/${id}/explain`)).waiting?.why).toBe(
      'in_line',
    );
  });

  it('that nobody knows cannot be resumed, and a body with anything in it is refused', async () => {
    const rig = await bootApi();
    const before = rig.counts();
    expect(refused(await post(rig, '/providers/nobody/resume'))).toMatchObject({
      status: 404,
      code: 'not_found',
    });
    expect(refused(await post(rig, '/providers/x/resume', { now: true })).status).toBe(422);
    expect(rig.counts()).toEqual(before);
  });

  it.each<[object, string]>([
    [{ providerRetry: { maxAttempts: 0 } }, '/providerRetry/maxAttempts'],
    [{ providerRetry: { maxDelayMs: -1 } }, '/providerRetry/maxDelayMs'],
    [{ providerRetry: { often: true } }, '/providerRetry/often'],
    [{ spendCeiling: { maxCostUsd: 0 } }, '/spendCeiling/maxCostUsd'],
    [{ spendCeiling: { maxTokens: 1.5 } }, '/spendCeiling/maxTokens'],
  ])('a request with %j is refused by its field', async (wrong, path) => {
    const rig = await bootApi();
    const problem = refused(await post(rig, '/work-units', { ...PI, ...wrong }));
    expect([problem.status, problem.paths]).toEqual([422, [path]]);
  });
});

describe('money', () => {
  it('is shown with its work unit: spent, ceiling, what remains', async () => {
    const rig = await bootApi();
    const { id } = await start(rig.socket, {
      ...PI,
      argv: undefined,
      spendCeiling: { maxCostUsd: 2.5, maxTokens: 90 },
    });
    spend(rig, id, null, 400_001);
    expect(json<WorkUnitView>(await get(rig, `/work-units/${id}`)).spend).toEqual({
      costUsd: 0.400001,
      tokens: 100,
      unpricedTokens: 40,
      maxCostUsd: 2.5,
      maxTokens: 90,
      remainingCostUsd: 2.099999,
      remainingTokens: 0,
    });
  });

  it('is shown by day and channel; a ceiling of a channel is set, kept and taken away', async () => {
    const rig = await bootApi();
    const set = parse(
      channelViewSchema,
      await put(rig, '/channels/eng', { maxCostUsdPerDay: 1.5, maxTokensPerDay: 500 }),
    );
    expect(set.spend).toMatchObject({ maxCostUsd: 1.5, maxTokens: 500, remainingTokens: 500 });
    const { id } = await start(rig.socket, { ...PI, argv: undefined, channelId: 'eng' });
    spend(rig, id, 'eng', 1_000_000);
    const day = parse(daySpendViewSchema, await get(rig, '/spend'));
    expect(day).toMatchObject({ costUsd: 1, tokens: 100, maxCostUsd: null, timeZone: 'UTC' });
    expect(day.channels).toMatchObject([{ channelId: 'eng', remainingCostUsd: 0.5 }]);
    const changed = await put(rig, '/channels/eng', { maxCostUsdPerDay: null });
    expect(parse(channelViewSchema, changed).spend).toMatchObject({
      maxCostUsd: null,
      maxTokens: 500,
    });
    expect(refused(await put(rig, '/channels/eng', { maxCostUsdPerDay: -1 })).status).toBe(422);
  });

  it('spent to the last is an answer to who would start now', async () => {
    const rig = await bootApi();
    await put(rig, '/channels/eng', { maxTokensPerDay: 100 });
    const { id } = await start(rig.socket, { ...PI, argv: undefined, channelId: 'eng' });
    spend(rig, id, 'eng', 1);
    const dry = await post(rig, '/work-units?dryRun=true', { ...PI, channelId: 'eng' });
    expect(json<DryRun>(dry).waiting).toMatchObject({
      why: 'blocked',
      resource: 'spend channel eng',
      reason: 'channel eng, today: 100 of 100 tokens are spent',
    });
    const now = await post(rig, '/work-units', { ...PI, channelId: 'eng', queueOnConflict: false });
    expect(refused(now)).toMatchObject({ status: 409, code: 'resource_busy' });
  });
});
