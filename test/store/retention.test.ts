/** Compaction as the store sees it: floors, what goes with a work unit and what stays, the file's size. */
import { statSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import {
  type CompactableRow,
  type CompactionRow,
  retentionStatements,
} from '../../src/store/retention.ts';
import type { Store } from '../../src/store/store.ts';
import {
  AT,
  cleanUp,
  insertAttempt,
  insertWorkUnit,
  newEvent,
  open,
  planOf,
  raw,
  temporaryDirectory,
} from './rig.ts';

afterEach(cleanUp);

const LATER = '2026-02-02T03:04:05.678Z';

function appendTo(store: Store, id: string, count: number): void {
  store.write(() =>
    store.events.append(
      id,
      Array.from({ length: count }, () => newEvent(id, { text: 'x'.repeat(100) })),
    ),
  );
}

/** Ends a work unit without a state machine: only its row matters here. */
function end(store: Store, id: string, endedAt: string = AT): void {
  const row = store.workUnits.get(id);
  if (!row) throw new Error('no such work unit');
  store.write(() => store.workUnits.move(row, 'succeeded', { endedAt }, endedAt));
}

function seen(store: Store, id: string): CompactableRow {
  const row = store.retention.compactable(1000).find((candidate) => candidate.id === id);
  if (!row) throw new Error(`${id} cannot be compacted`);
  return row;
}

function begin(store: Store, id: string): CompactionRow {
  const row = seen(store, id);
  expect(store.write(() => store.retention.begin(row, 'age', LATER))).toBe(true);
  const pending = store.retention.pending().find(({ workUnitId }) => workUnitId === id);
  if (!pending) throw new Error('the intent is not stored');
  return pending;
}

function compact(store: Store, id: string): void {
  const row = begin(store, id);
  store.write(() => {
    while (store.retention.dropEvents(id, 3) > 0);
    store.retention.finish(row, LATER);
  });
}

describe('the floors', () => {
  it('are the highest numbers that were removed, not the lowest that are left', () => {
    const store = open();
    const [live, old, newer] = [
      insertWorkUnit(store),
      insertWorkUnit(store),
      insertWorkUnit(store),
    ];
    appendTo(store, live, 2); // 1, 2
    appendTo(store, old, 2); // 3, 4
    appendTo(store, newer, 1); // 5
    appendTo(store, old, 1); // 6
    appendTo(store, live, 1); // 7
    end(store, old);
    compact(store, old);
    expect(store.events.window()).toEqual({ floor: 6, last: 7 });
    expect(
      store.events
        .rangeSlice(0, 100, { rows: 100, bytes: 1e6 }, null)
        .events.map(({ position }) => position),
    ).toEqual([1, 2, 5, 7]);
    expect(store.events.span(old)).toEqual({ floor: 3, last: 3 });
    expect(store.events.span(live)).toEqual({ floor: 0, last: 3 });
  });

  it('are raised before the first event goes', () => {
    const store = open();
    const id = insertWorkUnit(store);
    appendTo(store, id, 4);
    end(store, id);
    begin(store, id);
    expect(store.events.window()).toEqual({ floor: 4, last: 4 });
    expect(store.events.span(id)).toEqual({ floor: 4, last: 4 });
    expect(store.events.page(id, 0, 10)).toHaveLength(4);
  });

  it('never fall: later work of lower numbers leaves them', () => {
    const store = open();
    const [first, second] = [insertWorkUnit(store), insertWorkUnit(store)];
    appendTo(store, first, 3);
    appendTo(store, second, 3);
    end(store, first);
    end(store, second);
    compact(store, second);
    compact(store, first);
    expect(store.events.window()).toEqual({ floor: 6, last: 6 });
  });

  it('outlive the store being closed', () => {
    const directory = temporaryDirectory();
    const store = open(directory);
    const id = insertWorkUnit(store);
    appendTo(store, id, 3);
    end(store, id);
    compact(store, id);
    store.close();
    expect(open(directory).events.window()).toEqual({ floor: 3, last: 3 });
  });
});

describe('an intent to compact', () => {
  it('is refused for live work, and for work that was retried since it was seen', () => {
    const store = open();
    const id = insertWorkUnit(store);
    appendTo(store, id, 1);
    expect(store.retention.compactable(10)).toEqual([]);
    end(store, id);
    const stale = seen(store, id);
    const row = store.workUnits.get(id);
    if (!row) throw new Error('gone');
    store.write(() => store.workUnits.move(row, 'queued', { endedAt: null }, LATER));
    expect(store.write(() => store.retention.begin(stale, 'age', LATER))).toBe(false);
    expect(store.events.window().floor).toBe(0);
  });

  it('is refused while an attempt of it has not ended', () => {
    const store = open();
    const id = insertWorkUnit(store);
    insertAttempt(store, id);
    appendTo(store, id, 1);
    end(store, id);
    const row = seen(store, id);
    expect(store.write(() => store.retention.begin(row, 'age', LATER))).toBe(false);
  });

  it('is stored once, and the work unit is then no candidate any more', () => {
    const store = open();
    const id = insertWorkUnit(store);
    appendTo(store, id, 1);
    end(store, id);
    const row = seen(store, id);
    begin(store, id);
    expect(store.retention.compactable(10)).toEqual([]);
    expect(store.write(() => store.retention.begin(row, 'age', LATER))).toBe(false);
    expect(store.retention.pending()).toHaveLength(1);
  });

  it('finds its candidates by an index, whatever lies in the ledger', () => {
    const directory = temporaryDirectory();
    open(directory);
    const plan = planOf(directory, (db) => void retentionStatements(db, 'main').compactable(10));
    expect(plan).toContain('idx_work_unit_compactable');
    expect(plan).not.toContain('TEMP B-TREE');
  });
});

describe('a compaction', () => {
  it('leaves the rows of work unit and attempts, with how they ended; and the numbers go on', () => {
    const store = open();
    const id = insertWorkUnit(store);
    const attempt = insertAttempt(store, id);
    const row = store.attempts.get(attempt);
    if (!row) throw new Error('gone');
    store.write(() => store.attempts.move(row, 'failed', { endedAt: AT, errorCode: 'oom' }));
    appendTo(store, id, 5);
    end(store, id);
    compact(store, id);
    expect(store.workUnits.get(id)).toMatchObject({ status: 'succeeded', lastSeq: 5 });
    expect(store.attempts.get(attempt)).toMatchObject({ status: 'failed', errorCode: 'oom' });
    expect(store.retention.ownerOfAttempt(attempt)).toBe('compacted');
    expect(store.retention.ownerOfNonce(`nonce ${attempt}`)).toBe('compacted');
    expect(store.retention.ownerOfSession(id)).toBe('compacted');
    expect(store.retention.ownerOfAttempt('nobody')).toBe('unknown');
    appendTo(store, id, 1);
    expect(store.events.page(id, 5, 10).map(({ seq }) => seq)).toEqual([6]);
    expect(store.retention.ownerOfSession(id)).toBe('kept');
  });

  it('of work that was retried after the intent takes nothing of the new attempt', () => {
    const store = open();
    const id = insertWorkUnit(store);
    const first = insertAttempt(store, id);
    const row = store.attempts.get(first);
    if (!row) throw new Error('gone');
    store.write(() => store.attempts.move(row, 'failed', { endedAt: AT }));
    appendTo(store, id, 2);
    end(store, id);
    const intent = begin(store, id);
    // What only a daemon that died between the two could see.
    const second = insertAttempt(store, id, { attemptNumber: 2 });
    appendTo(store, id, 2);
    expect(store.retention.attemptsOf(intent).map((attempt) => attempt.id)).toEqual([first]);
    store.write(() => {
      expect(store.retention.dropEvents(id, 100)).toBe(2);
      store.retention.finish(intent, LATER);
    });
    expect(store.events.page(id, 2, 10).map(({ seq }) => seq)).toEqual([3, 4]);
    expect(store.retention.ownerOfAttempt(second)).toBe('kept');
    expect(store.retention.pending()).toEqual([]);
  });

  it('takes heartbeats and released resources, and no lease that is held', () => {
    const directory = temporaryDirectory();
    const store = open(directory);
    const id = insertWorkUnit(store);
    const attempt = insertAttempt(store, id);
    const other = insertWorkUnit(store);
    const holder = insertAttempt(store, other);
    const holds = (ids: [string, string], key: string) =>
      store.resources.takeLease(
        { form: 'lease', type: 'task', key },
        { id: key, workUnitId: ids[0], attemptId: ids[1], at: AT },
        LATER,
      );
    store.write(() => {
      holds([id, attempt], 'a');
      store.resources.releaseLeases(attempt, 'released', AT, 'ended');
      holds([other, holder], 'b');
      store.attempts.heartbeat({
        id: 'beat',
        workUnitId: id,
        attemptId: attempt,
        runtimeInstanceId: 'i',
        ts: AT,
        source: 'runner',
        detail: null,
      });
      const row = store.attempts.get(attempt);
      if (row) store.attempts.move(row, 'succeeded', { endedAt: AT });
    });
    appendTo(store, id, 1);
    end(store, id);
    compact(store, id);
    const count = (table: string) =>
      raw(directory).prepare(`SELECT count(*) FROM ${table}`).pluck().get();
    expect(store.resources.leasesHeld().map(({ key }) => key)).toEqual(['b']);
    expect([count('resource_leases'), count('runtime_heartbeats')]).toEqual([1, 0]);
  });

  it('of keys of commands leaves those of live work and those that are young', () => {
    const store = open();
    const [live, over] = [insertWorkUnit(store), insertWorkUnit(store)];
    end(store, over);
    const record = (key: string, workUnitId: string, at: string) =>
      store.diagnostics.recordCommand(key, { command: 'cancel', workUnitId }, at);
    store.write(() => {
      record('live', live, AT);
      record('over', over, AT);
      record('young', over, LATER);
      expect(store.retention.dropCommands('2026-01-15T00:00:00.000Z', 10)).toBe(1);
    });
    expect(store.diagnostics.command('over')).toBeNull();
    expect(store.diagnostics.command('live')).not.toBeNull();
    expect(store.diagnostics.command('young')).not.toBeNull();
  });
});

describe('the file', () => {
  it('becomes smaller when its free pages are given back, step by step', () => {
    const store = open();
    const id = insertWorkUnit(store);
    for (let round = 0; round < 40; round++) appendTo(store, id, 500);
    end(store, id);
    store.retention.settleLog();
    const before = statSync(store.file).size;
    expect(before).toBeGreaterThan(4_000_000);
    expect(store.retention.usedBytes()).toBeLessThanOrEqual(before);
    const row = begin(store, id);
    while (store.write(() => store.retention.dropEvents(id, 500)) > 0);
    store.write(() => store.retention.finish(row, LATER));
    expect(store.retention.canShrink()).toBe(true);
    while (store.retention.freePages() > 0) {
      const free = store.retention.freePages();
      store.retention.giveBack(256);
      expect(store.retention.freePages()).toBeLessThan(free);
    }
    store.retention.settleLog();
    expect(statSync(store.file).size).toBeLessThan(before / 10);
  });
});
