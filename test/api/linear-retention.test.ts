/** How long deliveries of Linear's are kept, over the real API. */
import { randomBytes } from 'node:crypto';
import { afterEach, expect, it } from 'vitest';
import { type CollectView, collectViewSchema } from '../../src/api/schemas-maintenance.ts';
import { uuidv7 } from '../../src/domain/ids.ts';
import { json, send } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

afterEach(cleanUp);

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

/** Settled, unless it is new; its content is its age. */
function plant({ store }: Rig, ageMs: number, state: 'new' | 'processed' | 'failed'): string {
  const now = Date.now() - ageMs;
  const id = uuidv7({ now: () => now, random: randomBytes });
  store.write(() =>
    store.linearDeliveries.record({
      id,
      contentKey: `${state} ${ageMs}`,
      deliveryId: null,
      type: 'AgentSessionEvent',
      action: 'created',
      organizationId: null,
      sessionId: null,
      source: 'webhook',
      receivedAt: new Date(now).toISOString(),
      signedAt: null,
      body: Buffer.from('{}'),
      state,
      detail: null,
    }),
  );
  return id;
}

async function collect(rig: Rig, body: object): Promise<CollectView> {
  const answer = await send(rig.socket, { method: 'POST', path: '/maintenance/gc', body });
  expect(answer.status, answer.text).toBe(200);
  return collectViewSchema.parse(json<CollectView>(answer));
}

const there = ({ store }: Rig, ids: readonly string[]): boolean[] =>
  ids.map((id) => store.linearDeliveries.get(id) !== null);

const UPKEEP = { policy: { maxAgeMs: 30 * DAY, budgetBytes: null }, intervalMs: DAY };

it('they go with the age of ended work, but for those that nobody has worked off', async () => {
  const rig = await bootApi({}, UPKEEP);
  const ids = [
    plant(rig, 31 * DAY, 'processed'),
    plant(rig, 32 * DAY, 'failed'),
    plant(rig, 33 * DAY, 'new'),
    plant(rig, 29 * DAY, 'processed'),
  ];
  expect((await collect(rig, { dryRun: true })).otherRows).toBe(0);
  expect(there(rig, ids)).toEqual([true, true, true, true]);
  const { otherRows, problems } = await collect(rig, {});
  expect({ otherRows, problems }).toEqual({ otherRows: 2, problems: [] });
  expect(there(rig, ids)).toEqual([false, false, true, true]);
});

it('they are known for seven hours at least, whatever age is asked for', async () => {
  const rig = await bootApi({}, UPKEEP);
  const ids = [
    plant(rig, 7 * HOUR + 60_000, 'processed'),
    plant(rig, 7 * HOUR - 60_000, 'processed'),
    plant(rig, 0, 'processed'),
  ];
  expect((await collect(rig, { olderThanMs: 0 })).otherRows).toBe(1);
  expect(there(rig, ids)).toEqual([false, true, true]);
});

it('they are kept for ever where everything is', async () => {
  const rig = await bootApi({}, { ...UPKEEP, policy: { maxAgeMs: null, budgetBytes: null } });
  const ids = [plant(rig, 3_000 * DAY, 'processed')];
  await collect(rig, {});
  expect(there(rig, ids)).toEqual([true]);
});

it('a thousand that are too old all go in one run', async () => {
  const rig = await bootApi({}, UPKEEP);
  for (let n = 0; n < 1_001; n++) plant(rig, 31 * DAY + n, 'processed');
  expect((await collect(rig, {})).otherRows).toBe(1_001);
});

it('turns go too, but for what a session began with, and not of one in which something has happened since', async () => {
  const rig = await bootApi({}, UPKEEP);
  const at = (days: number): string => new Date(Date.now() - days * DAY).toISOString();
  const { linear } = rig.store;
  rig.store.write(() => {
    for (const id of ['old', 'alive']) {
      linear.putSession(
        {
          ...{ id, organizationId: 'o', channelKey: id, issueId: null, identifier: null },
          ...{ title: null, url: null, teamId: null, creatorId: null, known: true, own: false },
        },
        at(40),
      );
      const turn = { sessionId: id, channelKey: id, prompt: 'x', state: 'stopped' as const };
      linear.insertTurn({ ...turn, id: `${id} 1`, sourceKey: `${id} 1`, kind: 'created' }, at(40));
      linear.insertTurn({ ...turn, id: `${id} 2`, sourceKey: `${id} 2`, kind: 'prompted' }, at(39));
    }
    const turn = {
      sessionId: 'alive',
      channelKey: 'alive',
      prompt: 'x',
      state: 'pending' as const,
    };
    linear.insertTurn({ ...turn, id: 'alive 3', sourceKey: 'alive 3', kind: 'prompted' }, at(38));
  });
  expect((await collect(rig, {})).problems).toEqual([]);
  const left = (id: string): string[] => linear.turnsOfSession(id).map((turn) => turn.id);
  expect([left('old'), left('alive')]).toEqual([['old 1'], ['alive 1', 'alive 2', 'alive 3']]);
});
