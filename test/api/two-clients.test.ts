/** Row 337: a client that streams and one that only asks see one state. */
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { createClient } from '../../src/client/client.ts';
import type { WorkUnitStatus } from '../../src/domain/work-unit.ts';
import { makeAttempt } from '../../src/supervisor/claim.ts';
import { json, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp } from '../support/api-rig.ts';

afterEach(cleanUp);

const ARRIVALS: Readonly<Record<string, WorkUnitStatus>> = {
  'work_unit.queued': 'queued',
  'work_unit.claimed': 'claimed',
  'work_unit.started': 'running',
  'work_unit.cancelling': 'cancelling',
};

it('row 337: the streaming client and one that polls over TCP see the same states', async () => {
  const rig = await bootApi();
  const { id } = await start(rig.socket, { handle: 'shared' });
  const streaming = createClient({ socketPath: rig.socketPath });
  const stop = new AbortController();
  const streamed: WorkUnitStatus[] = [];
  const following = (async (): Promise<void> => {
    for await (const { type } of streaming.followEvents(id, { signal: stop.signal })) {
      const status = ARRIVALS[type];
      if (status !== undefined) streamed.push(status);
    }
  })();
  const steps: (() => void)[] = [
    () => undefined,
    () =>
      rig.writer.commit((transaction) => {
        makeAttempt(rig.inner, transaction, transaction.workUnit(id));
      }),
    () =>
      rig.writer.commit((transaction) => {
        transaction.moveWorkUnit(transaction.workUnit(id), 'runner_started', { actor: 'system' });
      }),
    () => {
      rig.context.supervisor.cancel(id, { actor: 'user', reason: null });
    },
  ];
  const polled: WorkUnitStatus[] = [];
  for (const [index, step] of steps.entries()) {
    step();
    polled.push(json(await send(rig.tcp, { path: `/work-units/${id}` })).status);
    const page = json<{ items: { status: WorkUnitStatus }[] }>(
      await send(rig.tcp, { path: '/work-units?active=true' }),
    );
    expect(page.items.map(({ status }) => status)).toEqual([polled.at(-1)]);
    while (streamed.length <= index) await pause(2);
    expect(streamed.at(-1), 'the stream and the answer at the same point').toBe(polled.at(-1));
  }
  stop.abort();
  await following;
  expect(polled).toEqual(['queued', 'claimed', 'running', 'cancelling']);
  expect(streamed).toEqual(polled);
});
