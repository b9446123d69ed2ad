import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { Store } from '../../src/store/store.ts';
import type { NewWorkUnit } from '../../src/store/work-units.ts';
import {
  AT,
  cleanUp,
  insertAttempt,
  insertWorkUnit,
  newWorkUnit,
  nextId,
  open,
  planOfNextQueued,
  refusal,
  temporaryDirectory,
} from './rig.ts';

afterEach(cleanUp);

const KEY = {
  workspaceId: 'main',
  kind: 'task_run',
  ownerType: 'user',
  ownerId: 'ada',
  idempotencyKey: 'k',
};

function end(store: Store, id: string): void {
  const row = store.workUnits.get(id);
  if (!row) throw new Error(`no work unit ${id}`);
  store.write(() => store.workUnits.move(row, 'succeeded', { endedAt: AT }, AT));
}

const insertTwice = (store: Store, known: Partial<NewWorkUnit>): void => {
  store.write(() => store.workUnits.insert(newWorkUnit(known)));
};

describe('row 155: the idempotency key', () => {
  it('is refused a second time for the same workspace, kind and owner', () => {
    const store = open();
    insertWorkUnit(store, KEY);
    expect(refusal(() => insertTwice(store, KEY)).message).toContain('SQLITE_CONSTRAINT_UNIQUE');
    end(store, store.workUnits.getByKey(KEY)?.id ?? '');
    // Also after the end: a key is never a second runner.
    expect(refusal(() => insertTwice(store, KEY)).message).toContain('SQLITE_CONSTRAINT_UNIQUE');
  });

  it.each(['workspaceId', 'kind', 'ownerType', 'ownerId', 'idempotencyKey'] as const)(
    'is another one with another %s',
    (field) => {
      const store = open();
      const first = insertWorkUnit(store, KEY);
      const other = { ...KEY, [field]: field === 'kind' ? 'media_job' : 'other' };
      const second = insertWorkUnit(store, other);
      expect(store.workUnits.getByKey(KEY)?.id).toBe(first);
      expect(store.workUnits.getByKey(other)?.id).toBe(second);
    },
  );
});

describe('a handle', () => {
  it('belongs to one live work unit, whatever state that is in', () => {
    const store = open();
    const id = insertWorkUnit(store, { handle: 'issue42' });
    for (const status of [
      'queued',
      'claimed',
      'running',
      'waiting_for_approval',
      'cancelling',
      'stale',
    ] as const) {
      const row = store.workUnits.get(id);
      if (!row) throw new Error('gone');
      store.write(() => store.workUnits.move(row, status, {}, AT));
      expect(refusal(() => insertTwice(store, { handle: 'issue42' })).message, status).toContain(
        'SQLITE_CONSTRAINT_UNIQUE',
      );
    }
  });

  it.each(['succeeded', 'failed', 'cancelled'] as const)('is free again after %s', (status) => {
    const store = open();
    const first = insertWorkUnit(store, { handle: 'issue42' });
    const row = store.workUnits.get(first);
    if (!row) throw new Error('gone');
    store.write(() => store.workUnits.move(row, status, {}, AT));
    const second = insertWorkUnit(store, { handle: 'issue42' });
    expect(store.workUnits.getByHandle('issue42')?.id).toBe(second);
  });

  it('names the live one, else the newest', () => {
    const store = open();
    const ended = insertWorkUnit(store, { handle: 'h' });
    end(store, ended);
    const newest = insertWorkUnit(store, { handle: 'h' });
    expect(store.workUnits.getByHandle('h')?.id).toBe(newest);
    end(store, newest);
    expect(store.workUnits.getByHandle('h')?.id).toBe(newest);
  });

  it('names the live one also when an ended one is newer by the clock', () => {
    const store = open();
    const ended = insertWorkUnit(store, { handle: 'h', at: '2027-01-01T00:00:00.000Z' });
    end(store, ended);
    const live = insertWorkUnit(store, { handle: 'h' });
    expect(store.workUnits.getByHandle('h')?.id).toBe(live);
  });

  it('of another workspace is another handle', () => {
    const store = open();
    insertWorkUnit(store, { handle: 'h', workspaceId: 'elsewhere' });
    expect(store.workUnits.getByHandle('h')).toBeNull();
    insertWorkUnit(store, { handle: 'h' });
  });
});

describe('row 080: the next queued work unit', () => {
  it('is the one of highest priority, then the oldest', () => {
    const store = open();
    fc.assert(
      fc.property(
        fc.array(fc.record({ priority: fc.integer({ min: -2, max: 2 }), age: fc.nat(3) }), {
          maxLength: 8,
        }),
        (wanted) => {
          const made = wanted.map(({ priority, age }, order) => {
            const at = `2026-01-02T00:00:0${age}.000Z`;
            return { id: insertWorkUnit(store, { priority, at }), priority, age, order };
          });
          const expected = [...made].sort(
            (a, b) => b.priority - a.priority || a.age - b.age || a.order - b.order,
          );
          for (const { id } of expected) {
            const next = store.workUnits.nextQueued();
            expect(next?.id).toBe(id);
            if (next) store.write(() => store.workUnits.move(next, 'cancelled', {}, AT));
          }
          expect(store.workUnits.nextQueued()).toBeNull();
        },
      ),
      { numRuns: 40 },
    );
  });

  it('is the one that came first, also within one millisecond', () => {
    const store = open();
    const [later, sooner] = [nextId(), nextId()];
    // The id of the first sorts behind: within a millisecond ids are random.
    insertWorkUnit(store, { id: sooner });
    insertWorkUnit(store, { id: later });
    expect(store.workUnits.nextQueued()?.id).toBe(sooner);
  });

  it('is never one that is not queued, or of another workspace', () => {
    const store = open();
    insertWorkUnit(store, { workspaceId: 'elsewhere', priority: 9 });
    end(store, insertWorkUnit(store, { priority: 9 }));
    expect(store.workUnits.nextQueued()).toBeNull();
  });

  it('row 156: is found by the index alone, without sorting the queue', () => {
    const directory = temporaryDirectory();
    open(directory);
    const plan = planOfNextQueued(directory);
    expect(plan).toContain('idx_work_unit_status');
    expect(plan).not.toContain('TEMP B-TREE');
  });
});

describe('row 168: the list', () => {
  const all = { activeOnly: false, status: null, beforeId: null, limit: 1_000 } as const;

  it('is newest first, and its pages join without gap or overlap', () => {
    const store = open();
    const ids = Array.from({ length: 25 }, () => insertWorkUnit(store)).reverse();
    const seen: string[] = [];
    for (;;) {
      const page = store.workUnits.list({ ...all, limit: 7, beforeId: seen.at(-1) ?? null });
      if (page.length === 0) break;
      seen.push(...page.map(({ id }) => id));
    }
    expect(seen).toEqual(ids);
  });

  it('goes on behind its cursor when newer ones have come in between', () => {
    const store = open();
    const ids = Array.from({ length: 4 }, () => insertWorkUnit(store)).reverse();
    const first = store.workUnits.list({ ...all, limit: 2 });
    insertWorkUnit(store);
    const second = store.workUnits.list({ ...all, limit: 2, beforeId: first.at(-1)?.id ?? null });
    expect([...first, ...second].map(({ id }) => id)).toEqual(ids);
  });

  it('can leave out what has ended, or show one status only', () => {
    const store = open();
    const [ended, queued] = [insertWorkUnit(store), insertWorkUnit(store)];
    end(store, ended);
    const ids = (filter: object) => store.workUnits.list({ ...all, ...filter }).map(({ id }) => id);
    expect(ids({ activeOnly: true })).toEqual([queued]);
    expect(ids({ status: 'succeeded' })).toEqual([ended]);
    expect(ids({ activeOnly: true, status: 'succeeded' })).toEqual([]);
  });

  it('holds nothing of another workspace', () => {
    const store = open();
    insertWorkUnit(store, { workspaceId: 'elsewhere' });
    expect(store.workUnits.list(all)).toEqual([]);
  });
});

describe('rows 024 and 026: a work unit', () => {
  it('is read as it was written, with request and timeouts', () => {
    const store = open();
    const request = { runnerId: 'pi', prompt: 'do\u0000 it \ud83d\ude00', extra: [1] };
    const row = newWorkUnit({
      requestJson: JSON.stringify(request),
      runnerId: 'pi',
      model: 'a/b',
      createdByClientId: 'cli',
    });
    store.write(() => store.workUnits.insert(row));
    const { at, requestJson: _request, timeoutPolicyJson, ...rest } = row;
    expect(store.workUnits.get(row.id)).toMatchObject({
      ...rest,
      request,
      timeoutPolicy: JSON.parse(timeoutPolicyJson) as object,
      status: 'queued',
      attemptCount: 0,
      activeAttemptId: null,
      createdAt: at,
      updatedAt: at,
      startedAt: null,
      endedAt: null,
      errorCode: null,
      errorMessage: null,
    });
  });

  it('that is not there is null', () => {
    const store = open();
    expect(store.workUnits.get('nobody')).toBeNull();
    expect(store.workUnits.getByHandle('nobody')).toBeNull();
  });

  it('row 036: has its attempts in rows of their own', () => {
    const store = open();
    const id = insertWorkUnit(store);
    insertAttempt(store, id, { attemptNumber: 2 });
    insertAttempt(store, id, { attemptNumber: 1 });
    expect(store.attempts.listByWorkUnit(id).map((row) => row.attemptNumber)).toEqual([1, 2]);
  });
});
