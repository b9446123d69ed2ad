/** The queue's statements: who is next, who is set aside, who is woken, and at what cost. */
import type { Database } from 'better-sqlite3';
import { afterEach, describe, expect, it } from 'vitest';
import { queueStatements } from '../../src/store/queue.ts';
import { QueueRig } from '../support/core-queue.ts';
import { cleanUp, open, raw, temporaryDirectory, WORKSPACE } from './rig.ts';

afterEach(cleanUp);

const NOW = '2026-06-01T00:00:00.000Z';
const fresh = (): QueueRig => new QueueRig(open());

describe('best and oldest', () => {
  it('best is by priority, then age; oldest by age alone', () => {
    const rig = fresh();
    const [old, high] = [rig.submit(), rig.submit({ priority: 3 })];
    rig.submit({ priority: 3 });
    const { queue } = rig.store;
    expect(queue.best(NOW)?.id).toBe(high);
    expect(queue.oldest(NOW)?.id).toBe(old);
  });

  it('pass over what is set aside and what is delayed, until its time has come', () => {
    const rig = fresh();
    const { queue } = rig.store;
    const [aside, delayed] = [rig.submit({ priority: 9 }), rig.submit({ priority: 8 })];
    queue.block(aside, 'slot runner command', NOW);
    queue.delay(delayed, '2026-06-01T00:00:10.000Z');
    expect([queue.best(NOW), queue.oldest(NOW)]).toEqual([null, null]);
    expect(queue.nextDue(NOW)).toBe('2026-06-01T00:00:10.000Z');
    expect(queue.best('2026-06-01T00:00:10.000Z')?.id).toBe(delayed);
    expect(queue.nextDue('2026-06-01T00:00:10.000Z')).toBeNull();
  });

  it('do not wait out a delay that began in the future: the clock was set back meanwhile', () => {
    const rig = fresh();
    const { queue } = rig.store;
    const delayed = rig.submit();
    const { updatedAt } = rig.store.workUnits.get(delayed) ?? { updatedAt: '' };
    const shifted = (ms: number): string => new Date(Date.parse(updatedAt) + ms).toISOString();
    queue.delay(delayed, shifted(1_000));
    expect(queue.best(shifted(0))).toBeNull();
    expect(queue.best(shifted(-3_600_000))?.id).toBe(delayed);
    expect(queue.oldest(shifted(-3_600_000))?.id).toBe(delayed);
  });

  it('see only what is queued', () => {
    const rig = fresh();
    rig.cancel(rig.submit());
    rig.submit();
    rig.claimAll();
    expect(rig.store.queue.best(NOW)).toBeNull();
    expect(rig.store.queue.counts()).toEqual({ queued: 0, blocked: 0 });
  });
});

describe('waiting and waking', () => {
  it('wakeNext lets the best and the oldest of that resource be looked at, and nobody else', () => {
    const rig = fresh();
    const { queue } = rig.store;
    const ids = [0, 2, 5, 5].map((priority) => rig.submit({ priority }));
    const other = rig.submit({ priority: 9 });
    for (const id of ids) queue.block(id, 'lease task x', NOW);
    queue.block(other, 'lease task y', NOW);
    queue.wakeNext('lease task x');
    const woken = ids.map((id) => queue.waitingFor(id)?.wokenBy ?? null);
    expect(woken).toEqual(['lease task x', null, 'lease task x', null]);
    expect(queue.counts()).toEqual({ queued: 5, blocked: 3 });
  });

  it('set aside again it keeps the time since which it waits; claimed it forgets it', () => {
    const rig = fresh();
    const { queue } = rig.store;
    const id = rig.submit();
    queue.block(id, 'lease task x', '2026-01-01T00:00:00.000Z');
    queue.wakeNext('lease task x');
    queue.block(id, 'lease task y', NOW);
    expect(queue.waitingFor(id)).toMatchObject({
      blockedOn: 'lease task y',
      blockedSince: '2026-01-01T00:00:00.000Z',
      wokenBy: null,
    });
    queue.clear(id);
    expect(queue.waitingFor(id)).toEqual({
      blockedOn: null,
      blockedSince: null,
      notBefore: null,
      wokenBy: null,
    });
  });

  it('wakeEvery wakes all of one resource, wakeAll everybody', () => {
    const rig = fresh();
    const { queue } = rig.store;
    const ids = [rig.submit(), rig.submit(), rig.submit()];
    for (const id of ids) queue.block(id, id === ids[2] ? 'lease task y' : 'lease task x', NOW);
    queue.wakeEvery('lease task x');
    expect(queue.counts().blocked).toBe(1);
    queue.wakeAll();
    expect(queue.counts().blocked).toBe(0);
  });

  it('starving is who has been set aside longest, and never who waits for its own lane', () => {
    const rig = fresh();
    const { queue } = rig.store;
    const [lane, first, second] = [rig.submit(), rig.submit(), rig.submit()];
    queue.block(lane, 'slot channel_parallel l', '2026-01-01T00:00:00.000Z');
    queue.block(second, 'lease task x', '2026-01-03T00:00:00.000Z');
    queue.block(first, 'lease task x', '2026-01-02T00:00:00.000Z');
    expect(queue.starving('2026-01-02T00:00:00.000Z')).toBeNull();
    expect(queue.starving(NOW)).toBe(first);
  });
});

/** The plan of every queue statement that matches, as SQLite makes it. */
function plan(mark: RegExp): string {
  const directory = temporaryDirectory();
  open(directory);
  const db = raw(directory);
  const prepared: string[] = [];
  const recorder = {
    prepare: (sql: string) => {
      prepared.push(sql);
      return db.prepare(sql);
    },
  };
  queueStatements(recorder as unknown as Database, WORKSPACE);
  const found = prepared.filter((sql) => mark.test(sql));
  expect(found, `statements that match ${mark}`).toHaveLength(1);
  const literal = (found[0] ?? '').replaceAll(/@\w+|\?/g, "'x'");
  const rows = db.prepare<[], { detail: string }>(`EXPLAIN QUERY PLAN ${literal}`).all();
  return rows.map(({ detail }) => detail).join('\n');
}

describe('the cost of a long queue: each statement searches an index by what it asks for', () => {
  const sorts = /USE TEMP B-TREE FOR ORDER BY/;

  it('best', () => {
    const best = plan(/^SELECT id, woken_by[\s\S]*ORDER BY priority DESC/);
    expect(best).toMatch(/SEARCH work_units USING INDEX \w+ \(workspace_id=\? AND blocked_on=\?\)/);
    expect(best).not.toMatch(sorts);
  });

  it('oldest', () => {
    const oldest = plan(/^SELECT id, woken_by[\s\S]*ORDER BY created_at/);
    expect(oldest).toMatch(/SEARCH/);
    expect(oldest, 'all that are ready are sorted').not.toMatch(sorts);
  });

  it('wakeNext', () => {
    const wake = plan(/LIMIT 1\)\s+OR id/);
    expect(wake).not.toMatch(/SCAN/);
    expect(wake, 'all that wait for the resource are sorted').not.toMatch(sorts);
  });

  it('wakeEvery', () => {
    expect(
      plan(/WHERE blocked_on = @resource AND status = 'queued' AND workspace_id = @workspace$/),
    ).toMatch(
      /SEARCH work_units USING \w+( COVERING)? ?INDEX|SEARCH work_units USING INDEX \w+ \(.*blocked_on=\?/,
    );
  });

  it('starving', () => {
    const starving = plan(/blocked_since < @before[^@]*LIMIT 1$/);
    expect(starving, 'every queued unit is looked at').toMatch(/blocked_since/);
    expect(starving).not.toMatch(sorts);
  });

  it('starvingForSlot', () => {
    const starving = plan(/blocked_since < @before[^@]*LIMIT 100\)/);
    expect(starving, 'every queued unit is looked at').toMatch(/INDEX idx_work_unit_starving/);
    expect(starving, 'every need is').not.toMatch(/SCAN work_unit_needs/);
  });

  it('nextDue', () => {
    expect(plan(/min\(not_before\)/), 'every queued unit is looked at').toMatch(/not_before/);
  });
});

/** Counts every row that is inserted or updated from now on, by triggers in the file itself. */
function countRows(directory: string): () => number {
  const db = raw(directory);
  db.exec('CREATE TABLE tally (n INTEGER NOT NULL); INSERT INTO tally VALUES (0)');
  for (const table of ['work_units', 'runtime_semaphore_slots', 'resource_leases']) {
    for (const change of ['INSERT', 'UPDATE']) {
      db.exec(`CREATE TRIGGER tally_${table}_${change} AFTER ${change} ON ${table}
        BEGIN UPDATE tally SET n = n + 1; END`);
    }
  }
  const tally = db.prepare<[], { n: number }>('SELECT n FROM tally');
  return () => tally.get()?.n ?? 0;
}

/** Most rows that one end and the claim after it change, with so many queued on one slot. */
function rowsOfARound(queued: number): number {
  const directory = temporaryDirectory();
  const store = open(directory);
  const rig = new QueueRig(store, { runner: { command: 1 } });
  store.write(() => {
    for (let index = 0; index < queued; index++) rig.submit({ priority: index % 3 });
  });
  // Everything is set aside first: each unit pays for that once, at its first look.
  let current = rig.claimAll()[0];
  const rows = countRows(directory);
  let most = 0;
  for (let round = 0; round < Math.min(200, queued - 1); round++) {
    if (current === undefined) throw new Error('the slot stays unused');
    const before = rows();
    rig.end(current);
    current = rig.claimAll()[0];
    most = Math.max(most, rows() - before);
  }
  return most;
}

describe('10,000 queued on one slot', () => {
  it('an end and the next claim change no more rows than with 20 queued, 200 times', () => {
    expect(rowsOfARound(10_000)).toBeLessThanOrEqual(rowsOfARound(20));
  }, 180_000);
});
