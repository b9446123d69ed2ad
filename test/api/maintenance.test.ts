/** Retention and backups over the real API: what goes, what stays, and what readers are told. */
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, describe, expect, it } from 'vitest';
import {
  type BackupView,
  type CollectView,
  collectViewSchema,
} from '../../src/api/schemas-maintenance.ts';
import type { FaultPoint } from '../../src/supervisor/faults.ts';
import { createMaintenance, type MaintenanceOptions } from '../../src/supervisor/maintenance.ts';
import { insertAttempt, insertWorkUnit, newEvent } from '../store/rig.ts';
import { json, openStream, post, problem, refused, send } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

afterEach(cleanUp);

const DAY = 86_400_000;
const ago = (days: number): string => new Date(Date.now() - days * DAY).toISOString();

/** Everything for ever, unless a test says otherwise. */
const upkeep = (known: Partial<MaintenanceOptions['policy']> = {}): MaintenanceOptions => ({
  policy: { maxAgeMs: 30 * DAY, budgetBytes: null, ...known },
  intervalMs: DAY,
});

interface Planted {
  readonly id: string;
  readonly attempt: string;
  readonly nonce: string;
  readonly directory: string;
  readonly session: string;
  readonly exit: string;
}

let planted = 0;

/** A work unit with one attempt, events and all its files; ended so many days ago, or live. */
function plant(rig: Rig, endedDaysAgo: number | null, size = 1_000): Planted {
  const { store } = rig;
  const { attemptsDirectory, sessionsDirectory, exitsDirectory } = rig.inner.settings;
  const id = insertWorkUnit(store);
  planted += 1;
  const nonce = String(planted).padStart(32, '0');
  const attempt = insertAttempt(store, id, { nonce, unit: `outlive-main-p${planted}-1.service` });
  const directory = path.join(attemptsDirectory, id, attempt);
  const session = path.join(sessionsDirectory, id);
  const exit = path.join(exitsDirectory, `${nonce}.json`);
  for (const each of [directory, session, exitsDirectory]) mkdirSync(each, { recursive: true });
  writeFileSync(path.join(directory, 'events.jsonl'), 'x'.repeat(size));
  writeFileSync(path.join(directory, 'stdout.log'), 'out');
  writeFileSync(path.join(session, 'session.jsonl'), 'hello');
  writeFileSync(exit, '{}');
  writeFileSync(path.join(exitsDirectory, `${nonce}.halt`), '');
  store.write(() => store.events.append(id, [newEvent(id), newEvent(id), newEvent(id)]));
  if (endedDaysAgo !== null) end(rig, id, attempt, ago(endedDaysAgo));
  return { id, attempt, nonce, directory, session, exit };
}

function end({ store }: Rig, id: string, attemptId: string, endedAt: string): void {
  store.write(() => {
    const attempt = store.attempts.get(attemptId);
    const workUnit = store.workUnits.get(id);
    if (!attempt || !workUnit) throw new Error('it is not there');
    store.attempts.move(attempt, 'failed', { endedAt });
    store.workUnits.move(workUnit, 'failed', { endedAt }, endedAt);
  });
}

const gc = (rig: Rig, body: object = {}) =>
  send(rig.socket, {
    method: 'POST',
    path: '/maintenance/gc',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
const collected = async (rig: Rig, body: object = {}): Promise<CollectView> => {
  const answer = await gc(rig, body);
  expect(answer.status, answer.text).toBe(200);
  return collectViewSchema.parse(json<CollectView>(answer));
};
const files = ({ directory, session, exit }: Planted): boolean[] =>
  [directory, session, exit].map((file) => existsSync(file));
const GONE = [false, false, false];
const KEPT = [true, true, true];

describe('POST /maintenance/gc', () => {
  it('removes old work with all its files, and leaves young and live work whole; row 352', async () => {
    const rig = await bootApi({}, upkeep());
    const [old, young, live] = [plant(rig, 31), plant(rig, 29), plant(rig, null)];
    const would = await collected(rig, { dryRun: true });
    expect([old, young, live].map(files)).toEqual([KEPT, KEPT, KEPT]);
    expect(rig.store.events.window().floor).toBe(0);
    const report = await collected(rig);
    expect(report).toMatchObject({ workUnits: { age: 1, budget: 0 }, events: 3, problems: [] });
    expect(would).toMatchObject({ workUnits: report.workUnits, events: report.events });
    expect([old, young, live].map(files)).toEqual([GONE, KEPT, KEPT]);
    expect(existsSync(path.dirname(old.directory))).toBe(false);
    expect(rig.store.workUnits.get(old.id)?.status).toBe('failed');
    expect(rig.store.events.page(live.id, 0, 10)).toHaveLength(3);
    expect(await collected(rig)).toMatchObject({ workUnits: { age: 0, budget: 0 }, events: 0 });
  });

  it('tells a reader from zero and a cursor behind the floor, and nobody else; row 183', async () => {
    const rig = await bootApi({}, upkeep());
    const live = plant(rig, null);
    const old = plant(rig, 31);
    rig.store.write(() => rig.store.events.append(live.id, [newEvent(live.id)]));
    await collected(rig);
    const statusOf = async (id: string, afterSeq: number) =>
      (await send(rig.socket, { path: `/work-units/${id}/events?afterSeq=${afterSeq}` })).status;
    expect([await statusOf(old.id, 0), await statusOf(old.id, 2)]).toEqual([410, 410]);
    expect([await statusOf(old.id, 3), await statusOf(live.id, 0)]).toEqual([200, 200]);
    const whole = async (after: number) =>
      (await send(rig.socket, { path: `/events?afterPosition=${after}` })).status;
    // 1-3 are of the live one, 4-6 went, 7 is of the live one again.
    expect([await whole(0), await whole(5), await whole(6)]).toEqual([410, 410, 200]);
    const answer = problem(await send(rig.socket, { path: `/work-units/${old.id}/events` }));
    expect(answer).toMatchObject({
      code: 'control_plane_snapshot_required',
      extra: { first: 4, last: 3, afterSeq: 0 },
    });
  });

  it('leaves a stream that is up to date alone', async () => {
    const rig = await bootApi({}, upkeep());
    plant(rig, 31);
    const live = plant(rig, null);
    const stream = await openStream(rig.socket, live.id);
    await stream.next(3);
    await collected(rig);
    rig.writer.commit(({ append }) =>
      append(live.id, [{ type: 'work_unit.progress', actor: 'system' }]),
    );
    expect((await stream.next(1)).map(({ id }) => id)).toEqual(['4']);
    stream.drop();
  });

  it('lets failed work be retried afterwards: its numbers go on after the floor', async () => {
    const rig = await bootApi({}, upkeep());
    const { id } = plant(rig, 31);
    await collected(rig);
    await rig.context.supervisor.retry(id, 'user');
    const page = json<{ items: { seq: number; type: string }[] }>(
      await send(rig.socket, { path: `/work-units/${id}/events?afterSeq=3` }),
    );
    expect(page.items.map(({ seq, type }) => [seq, type])).toEqual([[4, 'work_unit.queued']]);
    expect(await collected(rig, { olderThanMs: 0 })).toMatchObject({ workUnits: { age: 0 } });
  });

  it('follows no link an agent left, neither in its directory nor in its place', async () => {
    const rig = await bootApi({}, upkeep());
    const [inside, instead] = [plant(rig, 31), plant(rig, 31)];
    const outside = path.join(rig.directory, 'outside');
    mkdirSync(path.join(outside, instead.attempt), { recursive: true });
    writeFileSync(path.join(outside, 'precious'), 'precious');
    writeFileSync(path.join(outside, instead.attempt, 'precious'), 'precious');
    symlinkSync(outside, path.join(inside.directory, 'link'));
    symlinkSync(path.join(outside, 'precious'), path.join(inside.directory, 'file'));
    rmSync(path.dirname(instead.directory), { recursive: true });
    symlinkSync(outside, path.dirname(instead.directory));
    rmSync(instead.session, { recursive: true });
    symlinkSync(outside, instead.session);
    const report = await collected(rig);
    expect(report.workUnits.age).toBe(2);
    expect(readFileSync(path.join(outside, 'precious'), 'utf8')).toBe('precious');
    expect(existsSync(path.join(outside, instead.attempt, 'precious'))).toBe(true);
    expect(files(inside)).toEqual(GONE);
    expect(lstatSync(instead.session, { throwIfNoEntry: false })).toBeUndefined();
  });

  it('tells of files of nobody, and removes them when they are old', async () => {
    const rig = await bootApi({}, upkeep());
    const { attemptsDirectory, sessionsDirectory, exitsDirectory } = rig.inner.settings;
    const known = plant(rig, 1);
    const places = [
      path.join(attemptsDirectory, 'nobody', 'attempt'),
      path.join(attemptsDirectory, known.id, 'unknown-attempt'),
      path.join(sessionsDirectory, 'nobody'),
    ];
    for (const place of places) mkdirSync(place, { recursive: true });
    const exit = path.join(exitsDirectory, `${'f'.repeat(32)}.json`);
    writeFileSync(exit, '{}');
    const first = await collected(rig);
    expect(first.unclaimed).toMatchObject({ found: 4, removed: 0 });
    expect(first.unclaimed.paths).toContain(exit);
    const old = new Date(Date.now() - 31 * DAY);
    const aged = [...places, path.join(attemptsDirectory, 'nobody'), exit];
    for (const file of aged) utimesSync(file, old, old);
    expect((await collected(rig, { dryRun: true })).unclaimed).toMatchObject({ removed: 4 });
    expect((await collected(rig)).unclaimed).toMatchObject({ found: 4, removed: 4, paths: [] });
    expect(aged.map((file) => existsSync(file))).toEqual(aged.map(() => false));
    expect(files(known)).toEqual(KEPT);
  });

  it.each<[string, unknown, string]>([
    ['a negative age', { olderThanMs: -1 }, '/olderThanMs'],
    ['a field that is none', { all: true }, '/all'],
    ['a word for a flag', { dryRun: 'yes' }, '/dryRun'],
  ])('refuses %s by its field', async (_what, body, field) => {
    const rig = await bootApi({}, upkeep());
    expect(refused(await gc(rig, body as object))).toMatchObject({ status: 422, paths: [field] });
  });

  it('is one at a time: another is told so', async () => {
    const rig = await bootApi({}, upkeep());
    for (let index = 0; index < 5; index++) plant(rig, 31);
    const [first, second] = await Promise.all([gc(rig), gc(rig)]);
    expect(new Set([first.status, second.status])).toEqual(new Set([200, 409]));
    const late = first.status === 409 ? first : second;
    expect(problem(late).code).toBe('maintenance_running');
    expect((await gc(rig)).status).toBe(200);
  });
});

describe('the disk budget', () => {
  it('takes the oldest ended work first, as much as is needed, and nothing just ended', async () => {
    const rig = await bootApi({}, upkeep({ maxAgeMs: null, budgetBytes: 3_700_000 }));
    const size = 1_000_000;
    const works = [3, 1, 4, 2].map((days) => plant(rig, days, size));
    const justNow = plant(rig, 0, size);
    const report = await collected(rig);
    expect(report.workUnits).toEqual({ age: 0, budget: 2 });
    expect(works.map((work) => files(work)[0])).toEqual([false, true, false, true]);
    expect(files(justNow)).toEqual(KEPT);
    expect(report.usage.excessBytes).toBe(0);
    expect(report.usage.fileBytes + report.usage.storeBytes).toBeLessThanOrEqual(3_700_000);
  });

  it('that live work alone exceeds is said loudly, and live work is not touched', async () => {
    const rig = await bootApi({}, upkeep({ maxAgeMs: null, budgetBytes: 1_048_576 }));
    const live = plant(rig, null, 3_000_000);
    const old = plant(rig, 5);
    const report = await collected(rig);
    expect(report.workUnits).toEqual({ age: 0, budget: 1 });
    expect(files(old)).toEqual(GONE);
    expect(files(live)).toEqual(KEPT);
    expect(report.usage.excessBytes).toBeGreaterThan(1_900_000);
    expect(rig.context.maintenance.problems()[0]).toMatch(/^disk_budget_exceeded: /);
    rmSync(path.join(live.directory, 'events.jsonl'));
    await collected(rig);
    expect(rig.context.maintenance.problems()).toEqual([]);
  });
});

class Cut extends Error {}

/** A run that ends at this point, as if the daemon had died there. */
async function cutAt(rig: Rig, point: FaultPoint): Promise<void> {
  const fault = (passed: FaultPoint): void => {
    if (passed === point) throw new Cut(point);
  };
  const { problems } = await createMaintenance({ ...rig.inner, fault }, upkeep()).collect({
    dryRun: false,
  });
  expect(problems).toEqual([expect.stringContaining(point)]);
}

describe('a run that is cut off', () => {
  const points = ['gc_marked', 'gc_moved', 'gc_events_dropped', 'gc_finished'] as const;

  it.each(points)('at %s is finished by the next', async (point) => {
    const rig = await bootApi({}, upkeep());
    const old = plant(rig, 31);
    const live = plant(rig, null);
    await cutAt(rig, point);
    // From the intent on nobody reads half of it.
    const { status } = await send(rig.socket, { path: `/work-units/${old.id}/events` });
    expect(status).toBe(410);
    await collected(rig);
    expect([files(old), files(live)]).toEqual([GONE, KEPT]);
    expect(rig.store.retention.pending()).toEqual([]);
    expect(rig.store.events.page(old.id, 0, 10)).toEqual([]);
    const { attemptsDirectory, sessionsDirectory, exitsDirectory } = rig.inner.settings;
    for (const directory of [attemptsDirectory, sessionsDirectory, exitsDirectory])
      expect(readdirSync(path.join(directory, '.trash'))).toEqual([]);
  });

  it.each(points.slice(0, 3))(
    'at %s and retried before the next: the retry keeps its files and its conversation',
    async (point) => {
      const rig = await bootApi({}, upkeep());
      const old = plant(rig, 31);
      await cutAt(rig, point);
      await rig.context.supervisor.retry(old.id, 'user');
      const second = insertAttempt(rig.store, old.id, { attemptNumber: 2 });
      const directory = path.join(path.dirname(old.directory), second);
      for (const each of [directory, old.session]) mkdirSync(each, { recursive: true });
      writeFileSync(path.join(old.session, 'session.jsonl'), 'new');
      await collected(rig);
      expect(existsSync(directory)).toBe(true);
      expect(readFileSync(path.join(old.session, 'session.jsonl'), 'utf8')).toBe('new');
      expect(rig.store.events.page(old.id, 3, 10)).toHaveLength(1);
      expect(rig.store.retention.pending()).toEqual([]);
    },
  );

  it('by the power, with renames lost, is mended: files that came back go', async () => {
    const rig = await bootApi({}, upkeep());
    const old = plant(rig, 31);
    const aside = `${rig.directory}/aside`;
    renameSync(path.dirname(old.directory), aside);
    await collected(rig);
    renameSync(aside, path.dirname(old.directory));
    const { unclaimed } = await collected(rig);
    expect(unclaimed).toMatchObject({ found: 0, removed: 1 });
    expect(files(old)).toEqual(GONE);
  });
});

describe('a reader that retention overtakes', () => {
  it('is told in its stream', async () => {
    const rig = await bootApi({}, upkeep());
    const { id } = plant(rig, 31);
    const data = { text: 'x'.repeat(40_000) };
    for (let page = 0; page < 4; page++)
      rig.store.write(() =>
        rig.store.events.append(
          id,
          Array.from({ length: 500 }, () => newEvent(id, data)),
        ),
      );
    const stream = await openStream(rig.socket, id);
    const [first] = await stream.next(1); // Then it reads no more, until all is gone.
    expect(first?.id).toBe('1');
    await collected(rig);
    const rest = await stream.rest();
    expect(rest.at(-1)?.event).toBe('problem');
    expect(rest.at(-1)?.data).toMatchObject({ code: 'control_plane_snapshot_required' });
    expect(rest.length).toBeLessThan(2_000);
  });
});

describe('GET /events with more than a replay may have', () => {
  it('row 186: is refused as an overflow, before anything is sent', async () => {
    const rig = await bootApi({}, upkeep());
    const { id } = plant(rig, null);
    const db = new Database(rig.store.file);
    db.prepare(
      `WITH RECURSIVE n (i) AS (SELECT 4 UNION ALL SELECT i + 1 FROM n WHERE i < 50001)
       INSERT INTO runtime_events (work_unit_id, seq, ts, type, actor, data_json)
       SELECT ?, i, '2026-01-02T03:04:05.678Z', 'progress', 'runner', '{}' FROM n`,
    ).run(id);
    db.close();
    const headers = { accept: 'text/event-stream' };
    const answer = await send(rig.socket, { path: '/events?afterPosition=0', headers });
    expect(problem(answer)).toMatchObject({
      status: 410,
      code: 'control_plane_snapshot_required',
      extra: { upTo: 50_001, floor: 0, afterPosition: 0 },
    });
    // A page at a time it can be had.
    const page = json<{ items: unknown[]; nextCursor: string }>(
      await send(rig.socket, { path: '/events?afterPosition=0&limit=5000' }),
    );
    expect([page.items.length, page.nextCursor]).toEqual([5_000, '5000']);
  });
});

describe('the epoch of the store', () => {
  it('comes with the events, and a cursor of another one is refused', async () => {
    const rig = await bootApi({}, upkeep());
    const { id } = plant(rig, null);
    const events = `/work-units/${id}/events`;
    const answer = await send(rig.socket, { path: events });
    const epoch = String(answer.headers['outlive-epoch']);
    expect(epoch).toMatch(/^[0-9a-f]{32}$/);
    const again = await send(rig.socket, { path: `${events}?afterSeq=1&epoch=${epoch}` });
    expect(again.status).toBe(200);
    for (const accept of ['application/json', 'text/event-stream']) {
      const path = `${events}?afterSeq=1&epoch=${'0'.repeat(32)}`;
      const other = problem(await send(rig.socket, { path, headers: { accept } }));
      expect(other).toMatchObject({ code: 'control_plane_snapshot_required', extra: { epoch } });
    }
  });
});

describe('POST /maintenance/backup', () => {
  const backup = (rig: Rig, body: object) =>
    send(rig.socket, {
      method: 'POST',
      path: '/maintenance/backup',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });

  it('writes a copy and tells what it holds', async () => {
    const rig = await bootApi({}, upkeep());
    plant(rig, 1);
    const file = path.join(rig.directory, 'copy.db');
    const answer = await backup(rig, { path: file });
    expect(answer.status, answer.text).toBe(200);
    expect(json<BackupView>(answer)).toMatchObject({ file, workUnits: 1, attempts: 1, events: 3 });
    const again = await backup(rig, { path: file });
    expect(problem(again)).toMatchObject({ status: 409, code: 'target_exists' });
    expect((await backup(rig, { path: file, force: true })).status).toBe(200);
  });

  it.each(['relative.db', '/', '', 'x'.repeat(5_000)])('refuses the path %j', async (file) => {
    const rig = await bootApi({}, upkeep());
    const { status, paths } = refused(await backup(rig, { path: file }));
    expect([status, paths]).toEqual([422, ['/path']]);
  });

  it('says that it could not be written, and leaves nothing', async () => {
    const rig = await bootApi({}, upkeep());
    const answer = await backup(rig, { path: `${rig.directory}/no/copy.db` });
    expect(problem(answer)).toMatchObject({ status: 500, code: 'backup_failed' });
    expect((await post(rig.socket, {})).status).toBe(422);
  });
});
