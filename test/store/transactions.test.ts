import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { Store } from '../../src/store/store.ts';
import {
  cleanUp,
  insertAttempt,
  insertWorkUnit,
  newEvent,
  newWorkUnit,
  open,
  raw,
  refusal,
  startChild,
  temporaryDirectory,
} from './rig.ts';

afterEach(cleanUp);

const seqsOf = (store: Store, id: string): number[] =>
  store.events.page(id, 0, 100_000).map(({ seq }) => seq);

const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1);

const LATER = '2026-02-03T04:05:06.789Z';

describe('row 062: a move of a work unit', () => {
  it('writes what it is given when status and attempt are as expected', () => {
    const store = open();
    const id = insertWorkUnit(store);
    const moved = store.write(() =>
      store.workUnits.move(
        { id, status: 'queued', activeAttemptId: null },
        'claimed',
        { activeAttemptId: 'a', attemptCount: 1 },
        LATER,
      ),
    );
    expect(moved).toBe(true);
    expect(store.workUnits.get(id)).toMatchObject({
      status: 'claimed',
      activeAttemptId: 'a',
      attemptCount: 1,
      updatedAt: LATER,
    });
  });

  it.each([
    ['a stale status', { status: 'running', activeAttemptId: null }],
    ['a stale attempt', { status: 'queued', activeAttemptId: 'another' }],
  ] as const)('that comes with %s loses and writes nothing', (_what, expected) => {
    const store = open();
    const id = insertWorkUnit(store);
    const before = store.workUnits.get(id);
    const patch = { activeAttemptId: 'a', attemptCount: 9, errorCode: 'x' };
    const moved = store.write(() =>
      store.workUnits.move({ id, ...expected }, 'failed', patch, LATER),
    );
    expect(moved).toBe(false);
    expect(store.workUnits.get(id)).toEqual(before);
  });

  it('that expects no attempt loses against one, and the other way round', () => {
    const store = open();
    const id = insertWorkUnit(store);
    const claim = { id, status: 'queued', activeAttemptId: null } as const;
    store.write(() => store.workUnits.move(claim, 'claimed', { activeAttemptId: 'a' }, LATER));
    const without = { id, status: 'claimed', activeAttemptId: null } as const;
    expect(store.write(() => store.workUnits.move(without, 'running', {}, LATER))).toBe(false);
    const withIt = { ...without, activeAttemptId: 'a' };
    expect(store.write(() => store.workUnits.move(withIt, 'running', {}, LATER))).toBe(true);
  });

  it('of a work unit that is not there loses', () => {
    const store = open();
    const nobody = { id: 'nobody', status: 'queued', activeAttemptId: null } as const;
    expect(store.write(() => store.workUnits.move(nobody, 'claimed', {}, LATER))).toBe(false);
  });

  it('leaves alone what the patch does not name, and clears what it names null', () => {
    const store = open();
    const id = insertWorkUnit(store);
    const queued = { id, status: 'queued', activeAttemptId: null } as const;
    const patch = { activeAttemptId: 'a', startedAt: LATER, errorCode: 'x', errorMessage: 'y' };
    store.write(() => store.workUnits.move(queued, 'claimed', patch, LATER));
    const claimed = { id, status: 'claimed', activeAttemptId: 'a' } as const;
    store.write(() =>
      store.workUnits.move(claimed, 'running', { errorCode: null, endedAt: null }, LATER),
    );
    expect(store.workUnits.get(id)).toMatchObject({
      status: 'running',
      activeAttemptId: 'a',
      startedAt: LATER,
      errorCode: null,
      errorMessage: 'y',
    });
  });
});

describe('row 062: a move of an attempt', () => {
  it('that comes with a stale status loses and writes nothing', () => {
    const store = open();
    const id = insertAttempt(store, insertWorkUnit(store));
    const before = store.attempts.get(id);
    const late = () => store.attempts.move({ id, status: 'started' }, 'failed', { errorCode: 'x' });
    expect(store.write(late)).toBe(false);
    expect(store.attempts.get(id)).toEqual(before);
    const right = () => store.attempts.move({ id, status: 'created' }, 'started', {});
    expect(store.write(right)).toBe(true);
    expect(store.attempts.get(id)?.status).toBe('started');
  });
});

describe('row 180: sequence numbers', () => {
  it('rise by one from 1, however the transactions are cut', () => {
    const store = open();
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 7 }), { maxLength: 12 }), (sizes) => {
        const id = insertWorkUnit(store);
        for (const size of sizes) {
          const events = Array.from({ length: size }, () => newEvent(id));
          store.write(() => store.events.append(id, events));
        }
        const total = sizes.reduce((sum, size) => sum + size, 0);
        expect(seqsOf(store, id)).toEqual(upTo(total));
        expect(store.workUnits.get(id)?.lastSeq).toBe(total);
      }),
      { numRuns: 25 },
    );
  });

  it('are given per work unit: others in between leave no gap', () => {
    const store = open();
    const ids = [insertWorkUnit(store), insertWorkUnit(store)];
    for (let round = 0; round < 20; round++) {
      for (const id of ids) store.write(() => store.events.append(id, [newEvent(id)]));
    }
    for (const id of ids) expect(seqsOf(store, id)).toEqual(upTo(20));
  });

  it('of transactions that were rolled back are given again', () => {
    const store = open();
    const id = insertWorkUnit(store);
    for (let round = 0; round < 10; round++) {
      expect(() =>
        store.write(() => {
          store.events.append(id, [newEvent(id), newEvent(id)]);
          throw new Error('never mind');
        }),
      ).toThrow('never mind');
      store.write(() => store.events.append(id, [newEvent(id)]));
    }
    expect(seqsOf(store, id)).toEqual(upTo(10));
  });

  it('go on after the store was closed and opened again', () => {
    const directory = temporaryDirectory();
    const first = open(directory);
    const id = insertWorkUnit(first);
    first.write(() => first.events.append(id, [newEvent(id), newEvent(id)]));
    first.close();
    const second = open(directory);
    second.write(() => second.events.append(id, [newEvent(id)]));
    expect(seqsOf(second, id)).toEqual([1, 2, 3]);
  });

  it('from two processes at once are without gap, none given twice', async () => {
    const directory = temporaryDirectory();
    const store = open(directory);
    const id = insertWorkUnit(store);
    const children = ['one', 'two', 'three'].map((name) =>
      startChild('append-events', [directory, id, '150', name]),
    );
    await Promise.all(children.map((child) => child.next()));
    for (const child of children) child.say('go');
    const answers = await Promise.all(children.map((child) => child.next()));
    const given = answers.flatMap((answer) => answer['seqs'] as number[]);
    expect(given.sort((a, b) => a - b)).toEqual(upTo(450));
    expect(seqsOf(store, id)).toEqual(upTo(450));
    for (const answer of answers) {
      const own = answer['seqs'] as number[];
      expect(own).toEqual([...own].sort((a, b) => a - b));
    }
  });

  it('belong to a work unit: none is given for one that is not there', () => {
    const store = open();
    expect(() => store.write(() => store.events.append('nobody', [newEvent('nobody')]))).toThrow(
      'no work unit nobody',
    );
  });

  it('are known by the last, and by the floor below which there are none', () => {
    const store = open();
    const id = insertWorkUnit(store);
    expect(store.events.span(id)).toEqual({ floor: 0, last: 0 });
    store.write(() => store.events.append(id, [newEvent(id), newEvent(id)]));
    expect(store.events.span(id)).toEqual({ floor: 0, last: 2 });
  });

  it('are told to whoever appended, with the position in the whole workspace', () => {
    const store = open();
    const [one, other] = [insertWorkUnit(store), insertWorkUnit(store)];
    const rows = store.write(() => [
      ...store.events.append(one, [newEvent(one, { n: 1 })]),
      ...store.events.append(other, [newEvent(other, { n: 2 })]),
      ...store.events.append(one, [newEvent(one, { n: 3 })]),
    ]);
    expect(rows.map(({ seq }) => seq)).toEqual([1, 1, 2]);
    expect(rows.map(({ position }) => position)).toEqual([1, 2, 3]);
    expect(store.events.page(one, 0, 10)).toEqual([rows[0], rows[2]]);
  });
});

describe('row 158: an event', () => {
  it('is read as it was written, whatever its data hold', () => {
    const store = open();
    const id = insertWorkUnit(store);
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 })), (data) => {
        const written = JSON.parse(JSON.stringify(data)) as Record<string, unknown>;
        const [row] = store.write(() => store.events.append(id, [newEvent(id, data)]));
        const [read] = store.events.page(id, (row?.seq ?? 0) - 1, 1);
        expect(read?.data).toEqual(written);
      }),
      { numRuns: 50 },
    );
  });

  it('is never given twice: the pages after any event join without gap or overlap', () => {
    const store = open();
    const id = insertWorkUnit(store);
    const events = Array.from({ length: 53 }, () => newEvent(id));
    store.write(() => store.events.append(id, events));
    const seen: number[] = [];
    for (;;) {
      const page = store.events.page(id, seen.at(-1) ?? 0, 10);
      if (page.length === 0) break;
      seen.push(...page.map(({ seq }) => seq));
    }
    expect(seen).toEqual(upTo(53));
  });
});

describe('row 164: a transaction that fails', () => {
  it('leaves nothing: no rows, no events, no sequence number, no counter', () => {
    const directory = temporaryDirectory();
    const store = open(directory);
    const id = insertWorkUnit(store);
    const db = raw(directory);
    const tables = ['work_units', 'work_unit_attempts', 'runtime_events', 'unit_counters'];
    const everything = () => tables.map((table) => db.prepare(`SELECT * FROM ${table}`).all());
    const before = everything();
    expect(() =>
      store.write(() => {
        store.workUnits.insert(newWorkUnit());
        store.events.append(id, [newEvent(id)]);
        store.attempts.nextCounter('h');
        const queued = { id, status: 'queued', activeAttemptId: null } as const;
        store.workUnits.move(queued, 'claimed', { activeAttemptId: 'a' }, LATER);
        throw new Error('at the last moment');
      }),
    ).toThrow('at the last moment');
    expect(everything()).toEqual(before);
  });

  it('does not disturb the next one', () => {
    const store = open();
    expect(() =>
      store.write(() => {
        throw new TypeError('mine');
      }),
    ).toThrow(TypeError);
    insertWorkUnit(store);
  });

  it('is not seen by other readers before it is committed', () => {
    const directory = temporaryDirectory();
    const store = open(directory);
    const db = raw(directory);
    const count = () => db.prepare('SELECT count(*) AS n FROM work_units').get();
    store.write(() => {
      store.workUnits.insert(newWorkUnit());
      expect(count()).toEqual({ n: 0 });
    });
    expect(count()).toEqual({ n: 1 });
  });

  it('keeps the error of the table for what SQLite says', () => {
    const store = open();
    const row = newWorkUnit();
    store.write(() => store.workUnits.insert(row));
    const error = refusal(() => store.write(() => store.workUnits.insert(row)));
    expect(error.message).toContain('SQLITE_CONSTRAINT');
    expect(error.message).toContain(store.file);
  });
});
