/** When events are published: once they are there for everybody, and never else. */
import Database from 'better-sqlite3';
import { afterEach, expect, it } from 'vitest';
import type { EventRow } from '../../src/store/events.ts';
import { createHub } from '../../src/supervisor/hub.ts';
import { createWriter } from '../../src/supervisor/writer.ts';
import { QueueRig } from '../support/core-queue.ts';
import { cleanUp, open } from './rig.ts';

afterEach(cleanUp);

it('row 193: what is published is committed by then: another connection reads it', () => {
  const store = open();
  const rig = new QueueRig(store, { runner: { command: 1 } });
  const other = new Database(store.file, { readonly: true });
  const read = other.prepare<[number], { type: string; seq: number; status: string }>(
    `SELECT type, seq, status FROM runtime_events
     JOIN work_units ON work_units.id = work_unit_id WHERE position = ?`,
  );
  const arrivals: Record<string, string> = {
    'work_unit.claimed': 'claimed',
    'work_unit.started': 'running',
    'work_unit.succeeded': 'succeeded',
    'work_unit.cancelled': 'cancelled',
  };
  const published: EventRow[] = [];
  const missed: string[] = [];
  rig.context.hub.subscribe((events) => {
    // At this very moment, from outside: the events and the states they tell of.
    for (const { position, type, seq } of events) {
      const row = read.get(position);
      const status = arrivals[type] ?? row?.status;
      if (row?.type !== type || row.seq !== seq || row.status !== status) missed.push(type);
    }
    published.push(...events);
  });
  const [first, second] = [rig.submit(), rig.submit()];
  rig.claimAll();
  rig.run(first);
  rig.end(first);
  rig.claimAll();
  rig.cancel(rig.submit());
  rig.end(second);
  const { n } = other
    .prepare<[], { n: number }>('SELECT count(*) AS n FROM runtime_events')
    .get() ?? { n: -1 };
  other.close();
  expect(missed).toEqual([]);
  expect(published.map(({ position }) => position)).toEqual(
    Array.from({ length: n }, (_, index) => index + 1),
  );
});

it('row 193: a transaction that fails publishes nothing', () => {
  const rig = new QueueRig(open());
  const id = rig.submit();
  const published: EventRow[] = [];
  rig.context.hub.subscribe((events) => published.push(...events));
  const failing = (): void =>
    rig.context.writer.commit((transaction) => {
      transaction.append(id, [{ type: 'work_unit.progress', actor: 'system' }]);
      throw new Error('after all not');
    });
  expect(failing).toThrow('after all not');
  expect(published).toEqual([]);
});

it('row 193: a listener that fails undoes nothing and keeps nothing from the others', () => {
  const store = open();
  const { context } = new QueueRig(store);
  const failures: unknown[] = [];
  const hub = createHub((error) => failures.push(error));
  const heard: EventRow[] = [];
  hub.subscribe(() => {
    throw new Error('deaf');
  });
  hub.subscribe((events) => heard.push(...events));
  const writer = createWriter(store, hub, context.entropy);
  const rig = new QueueRig(store);
  const id = rig.submit();
  writer.commit((transaction) =>
    transaction.append(id, [{ type: 'work_unit.progress', actor: 'system' }]),
  );
  expect(failures).toEqual([new Error('deaf')]);
  expect(heard.map(({ seq }) => seq)).toEqual([3]);
  expect(store.events.page(id, 2, 10)).toEqual(heard);
});
