/** Work that waits for other work, on a real store: what is refused, what opens, what is told. */
import { afterEach, describe, expect, it } from 'vitest';
import type { OutcomeState } from '../../src/domain/outcome.ts';
import { startWorkUnitSchema } from '../../src/domain/request.ts';
import { awaitedBy } from '../../src/supervisor/dependencies.ts';
import { explain, preview } from '../../src/supervisor/explain.ts';
import { retry } from '../../src/supervisor/retry.ts';
import { QueueRig, STARVING_MS, type Wanted } from '../support/core-queue.ts';
import { cleanUp, newEvent, open, raw, refusal, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

const fresh = (limits = {}): QueueRig => new QueueRig(open(), limits);
const waitsFor = (workUnits: string[], needed?: 'all' | 'any' | number): Wanted => ({
  after: { workUnits, ...(needed === undefined ? {} : { needed }) },
});

/** Submits a, b, c by these handles and returns their ids. */
function named<Name extends string>(rig: QueueRig, ...names: Name[]): Record<Name, string> {
  const pairs = names.map((handle) => [handle, rig.submit({ handle })] as const);
  return Object.fromEntries(pairs) as Record<Name, string>;
}

const reasonOf = (rig: QueueRig, id: string): string | undefined =>
  awaitedBy(rig.store, id)?.reason;

const alarms = (rig: QueueRig, id: string) =>
  rig.store.events
    .page(id, 0, 100)
    .filter(({ type }) => type === 'diagnostic.dependency_failed')
    .map(({ data }) => data);

describe('what a request names', () => {
  it('is the live work unit of the handle, else the newest, or the one of that id', () => {
    const rig = fresh();
    const { a: old } = named(rig, 'a');
    rig.claimAll();
    rig.end(old);
    const { a: live, b } = named(rig, 'a', 'b');
    rig.claimAll();
    rig.end(b);
    const id = rig.submit(waitsFor(['a', 'b', old], 2));
    expect(rig.store.dependencies.of(id)).toMatchObject({
      needed: 2,
      on: [
        { id: live, handle: 'a', state: 'pending' },
        { id: b, handle: 'b', state: 'satisfied' },
        { id: old, handle: 'a', state: 'satisfied' },
      ],
    });
  });

  it.each([
    ['nothing there is', ['a', 'nobody'], 'not_found', '/after/workUnits/1'],
    ['the same handle twice', ['a', 'b', 'a'], 'invalid_request', '/after/workUnits/2'],
    ['itself', ['a', 'self'], 'invalid_request', '/after/workUnits/1'],
  ])('is refused when it is %s, naming the field, and leaves nothing', (_, names, code, path) => {
    const rig = fresh();
    named(rig, 'a', 'b');
    const error = refusal(() => rig.submit({ handle: 'self', ...waitsFor(names) }));
    expect(error).toMatchObject({ code, fields: [{ path }] });
    expect(rig.queued()).toHaveLength(2);
  });

  it('is refused when handle and id mean the same one', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    expect(refusal(() => rig.submit(waitsFor(['a', a])))).toMatchObject({
      code: 'invalid_request',
      fields: [{ path: '/after/workUnits/1' }],
    });
  });

  it('is refused as a circle where it is its own handle, though an ended one has it; by id it may', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    rig.claimAll();
    rig.end(a);
    const error = refusal(() => rig.submit({ handle: 'a', ...waitsFor(['a']) }));
    expect(error.message).toContain('nothing waits for itself');
    const next = rig.submit({ handle: 'a', ...waitsFor([a]) });
    expect(rig.claimAll()).toEqual([next]);
  });

  it('is stored as it was asked, and a repeated key is the first, whoever has the handle by then', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    const asked = { handle: 'x', idempotencyKey: 'k', ...waitsFor(['a']) };
    const first = rig.submitFully(asked);
    expect(first.workUnit.request).toMatchObject({ after: { workUnits: ['a'], needed: 'all' } });
    rig.cancel(a);
    named(rig, 'a');
    const again = rig.submitFully(asked);
    expect([again.created, again.workUnit.id]).toEqual([false, first.workUnit.id]);
    expect(rig.store.dependencies.of(first.workUnit.id)?.on.map(({ id }) => id)).toEqual([a]);
    const other = refusal(() => rig.submit({ ...asked, ...waitsFor(['a'], 'any') }));
    expect(other.code).toBe('idempotency_mismatch');
  });

  it('is refused at once instead of waited for with queueOnConflict=false', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    const error = refusal(() => rig.submit({ ...waitsFor(['a']), queueOnConflict: false }));
    expect(error).toMatchObject({ code: 'resource_busy', extra: { heldBy: a } });
    expect(error.message).toContain('it waits for a (queued)');
    rig.claimAll();
    rig.end(a);
    expect(rig.submitFully({ ...waitsFor(['a']), queueOnConflict: false }).claim).not.toBeNull();
  });

  it('is told by a dry run, which keeps nothing', () => {
    const executor = { describeStart: () => [] };
    const rig = new QueueRig(open(), {}, executor);
    named(rig, 'a');
    const request = startWorkUnitSchema.parse({
      ownerId: 'ada',
      runnerId: 'command',
      argv: ['true'],
      ...waitsFor(['a']),
    });
    const shown = preview(rig.context, request, { actor: 'user' });
    expect(shown.waiting).toMatchObject({ why: 'blocked', heldBy: 'a' });
    expect(shown.after?.on).toMatchObject([{ handle: 'a', state: 'pending' }]);
    expect(rig.queued()).toHaveLength(1);
  });
});

describe('the gate', () => {
  it('opens with the last success that is needed, in the transaction that tells of it', () => {
    const rig = fresh();
    const { a, b, c } = named(rig, 'a', 'b', 'c');
    const all = rig.submit(waitsFor(['a', 'b']));
    const two = rig.submit(waitsFor(['a', 'b', 'c'], 2));
    const any = rig.submit(waitsFor(['a', 'b', 'c'], 'any'));
    expect(rig.claimAll()).toEqual([a, b, c]);
    const blocked = (): (string | undefined)[] =>
      [all, two, any].map((id) => rig.store.queue.waitingFor(id)?.blockedOn?.split(' ')[0]);
    expect(blocked()).toEqual(['after', 'after', 'after']);
    rig.end(c);
    expect(blocked()).toEqual(['after', 'after', undefined]);
    expect(rig.claimAll()).toEqual([any]);
    rig.end(a);
    expect(rig.claimAll()).toEqual([two]);
    rig.end(b);
    expect(rig.claimAll()).toEqual([all]);
  });

  it('of a success that declared an outcome stays shut until that is satisfied', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    const next = rig.submit(waitsFor(['a']));
    declareOutcome(rig, a);
    rig.claimAll();
    rig.end(a);
    expect(rig.claimAll()).toEqual([]);
    expect(reasonOf(rig, next)).toBe('it waits for a (its outcome is pending)');
    settle(rig, a, 'pending');
    expect(rig.claimAll()).toEqual([]);
    settle(rig, a, 'satisfied');
    expect(rig.claimAll()).toEqual([next]);
  });

  it.each(['blocked', 'refuted', 'skipped'] as const)(
    'of a success whose outcome is %s cannot open, and says so',
    (state) => {
      const rig = fresh();
      const { a } = named(rig, 'a');
      const next = rig.submit(waitsFor(['a']));
      rig.claimAll();
      rig.end(a);
      settle(rig, a, state, { before: 'pending' });
      expect(rig.claimAll()).toEqual([]);
      expect(reasonOf(rig, next)).toContain(`a, which succeeded, but its outcome is ${state}`);
      expect(alarms(rig, next)).toMatchObject([{ failed: [{ handle: 'a', outcome: state }] }]);
    },
  );

  it('is opened by a retry of what failed, once that has succeeded', async () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    const next = rig.submit(waitsFor(['a']));
    rig.claimAll();
    rig.end(a, 'failed');
    expect(rig.claimAll()).toEqual([]);
    expect(reasonOf(rig, next)).toBe(
      'it waits for a, which failed: outlive retry a, or cancel this one',
    );
    await retry(rig.context, a, 'user');
    expect(reasonOf(rig, next)).toBe('it waits for a (queued)');
    expect(rig.claimAll()).toEqual([a]);
    rig.end(a);
    expect(rig.claimAll()).toEqual([next]);
  });

  it('that only a cancelled one could open offers no retry; its work is cancelled as any other', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    const next = rig.submit(waitsFor(['a']));
    rig.cancel(a);
    expect(reasonOf(rig, next)).toBe('it waits for a, which was cancelled: cancel this one');
    rig.cancel(next);
    expect(rig.store.workUnits.get(next)?.status).toBe('cancelled');
    expect(rig.queued()).toEqual([]);
  });

  it('is explained, with who is in the way', () => {
    const rig = fresh();
    const { a } = named(rig, 'a', 'b', 'c', 'd', 'e');
    const next = rig.submit(waitsFor(['a', 'b', 'c', 'd', 'e'], 4));
    rig.claimAll();
    const row = rig.store.workUnits.get(next);
    if (!row) throw new Error('gone');
    const { summary, waiting } = explain(rig.context, row);
    expect(summary).toBe(
      'It is queued: it waits for 4 of a (claimed), b (claimed), c (claimed) or 2 more.',
    );
    expect(waiting).toMatchObject({ why: 'blocked', resource: `after ${a}`, heldBy: 'a' });
  });

  it('is looked at again after a restart, should a wake-up have been missed', () => {
    const directory = temporaryDirectory();
    const rig = new QueueRig(open(directory));
    const { a } = named(rig, 'a');
    const next = rig.submit(waitsFor(['a']));
    rig.claimAll();
    rig.end(a);
    raw(directory)
      .prepare('UPDATE work_units SET blocked_on = ? WHERE id = ?')
      .run(`after ${a}`, next);
    expect(rig.claimAll()).toEqual([]);
    rig.store.write(() => rig.store.queue.wakeAll()); // As the scheduler's start does.
    expect(rig.claimAll()).toEqual([next]);
  });
});

describe('waiting for other work', () => {
  const PATH = { leases: [{ type: 'bound_path' as const, key: '/repo' }] };

  it('is no starvation: nothing is kept free meanwhile, and only the time after it counts', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    const waits = rig.submit({ ...waitsFor(['a']), ...PATH });
    rig.claimAll();
    rig.entropy.advance(STARVING_MS + 1);
    const other = rig.submit(PATH);
    expect(rig.claimAll()).toEqual([other]);
    rig.end(a);
    expect(rig.claimAll()).toEqual([]);
    const better = rig.submit({ ...PATH, priority: 5 });
    rig.end(other);
    expect(rig.claimAll()).toEqual([better]);
    rig.end(better);
    expect(rig.claimAll()).toEqual([waits]);
  });

  it('keeps what is waited for out of retention until what waits has ended', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    const next = rig.submit(waitsFor(['a']));
    rig.claimAll();
    rig.end(a);
    const seen = { id: a, status: 'succeeded', endedAt: '', events: 1 } as const;
    const endedAt = rig.store.workUnits.get(a)?.endedAt ?? '';
    const begin = (): boolean =>
      rig.store.write(() => rig.store.retention.begin({ ...seen, endedAt }, 'age', endedAt));
    expect(rig.store.retention.compactable(10)).toEqual([]);
    expect(begin()).toBe(false);
    expect(rig.claimAll()).toEqual([next]);
    expect(begin()).toBe(false);
    rig.end(next);
    expect(rig.store.retention.compactable(10).map(({ id }) => id)).toEqual([a, next]);
    expect(begin()).toBe(true);
  });
});

describe('a gate that cannot open any more', () => {
  it('is told once, however much fails after that and however often it is looked at', () => {
    const rig = fresh();
    const { a, b } = named(rig, 'a', 'b');
    const next = rig.submit(waitsFor(['a', 'b']));
    rig.claimAll();
    rig.end(a, 'failed');
    expect(alarms(rig, next)).toEqual([
      {
        message: 'it waits for a, which failed: outlive retry a, or cancel this one',
        failed: [{ workUnitId: a, handle: 'a', status: 'failed', outcome: null }],
        missing: 1,
      },
    ]);
    rig.end(b, 'failed');
    rig.store.write(() => rig.store.queue.wakeAll());
    rig.claimAll();
    expect(alarms(rig, next)).toHaveLength(1);
  });

  it('is told again when it could have opened meanwhile', async () => {
    const rig = fresh();
    const { a, b } = named(rig, 'a', 'b');
    const next = rig.submit(waitsFor(['a', 'b']));
    rig.claimAll();
    rig.end(a, 'failed');
    rig.end(b, 'failed');
    await retry(rig.context, a, 'user');
    rig.claimAll();
    rig.end(a, 'failed'); // b had failed before: it was stuck all the time.
    expect(alarms(rig, next)).toHaveLength(1);
    await retry(rig.context, a, 'user');
    await retry(rig.context, b, 'user');
    rig.claimAll();
    rig.end(b, 'failed');
    expect(alarms(rig, next)).toHaveLength(2);
  });

  it('from the beginning is told when it is submitted', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    rig.cancel(a);
    const next = rig.submit(waitsFor(['a']));
    expect(alarms(rig, next)).toHaveLength(1);
    expect(rig.claimAll()).toEqual([]);
  });

  it('is not told of an outcome that says no more than the failure did', () => {
    const rig = fresh();
    const { a } = named(rig, 'a');
    const next = rig.submit(waitsFor(['a']));
    rig.claimAll();
    rig.end(a, 'failed');
    settle(rig, a, 'skipped', { before: 'pending' });
    expect(alarms(rig, next)).toHaveLength(1);
  });
});

/** As the one who judges outcomes stores it: a row for the latest end, and an event. */
function settle(
  rig: QueueRig,
  id: string,
  state: OutcomeState,
  { before }: { before?: OutcomeState } = {},
): void {
  const db = raw(directoryOf(rig));
  const insert = db.prepare(`INSERT INTO outcomes (work_unit_id, attempt_number, state, created_at)
    VALUES (@id, 1, @state, @at) ON CONFLICT DO UPDATE SET state = @state`);
  if (before) insert.run({ id, state: before, at: newEvent(id).ts });
  insert.run({ id, state, at: newEvent(id).ts });
  rig.context.writer.commit((transaction) =>
    transaction.append(id, [{ type: 'outcome.settled', actor: 'system', data: { state } }]),
  );
}

const directoryOf = (rig: QueueRig): string => rig.store.file.replace(/\/[^/]*$/, '');

/** As a request that declares one. */
function declareOutcome(rig: QueueRig, id: string): void {
  raw(directoryOf(rig))
    .prepare(`UPDATE work_units SET request_json = json_set(request_json, '$.outcome', json('{"outputs":["x"]}'))
      WHERE id = ?`)
    .run(id);
}
