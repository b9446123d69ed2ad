import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  eventPageSchema,
  runtimeViewSchema,
  type WorkUnitPage,
  workUnitPageSchema,
  workUnitViewSchema,
} from '../../src/api/schemas.ts';
import { OutliveError } from '../../src/domain/errors.ts';
import { json, refused, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await bootApi();
});
afterEach(cleanUp);

const get = (path: string) => send(rig.socket, { path });
const cancel = (id: string) => rig.context.supervisor.cancel(id, { actor: 'user', reason: null });

async function pages(query: string): Promise<WorkUnitPage[]> {
  const all: WorkUnitPage[] = [];
  let cursor: string | null = '';
  while (cursor !== null) {
    const answer = await get(`/work-units?${query}${cursor && `&cursor=${cursor}`}`);
    const page = workUnitPageSchema.parse(json(answer));
    all.push(page);
    cursor = page.nextCursor;
  }
  return all;
}

describe('row 167: GET /runtime', () => {
  it('says which daemon this is', async () => {
    const view = runtimeViewSchema.parse(json(await get('/runtime')));
    expect(view).toMatchObject({
      runtimeInstanceId: '018f0000-0000-7000-8000-000000000000',
      workspaceId: 'main',
      status: 'ready',
      schemaVersion: 1,
    });
  });
});

describe('row 169: GET /work-units/:id', () => {
  it('shows one by id and by handle, the same', async () => {
    const { id } = await start(rig.socket, { handle: 'issue42' });
    const byId = await get(`/work-units/${id}`);
    const byHandle = await get('/work-units/issue42');
    expect(workUnitViewSchema.parse(json(byId)).id).toBe(id);
    expect(json(byHandle)).toEqual(json(byId));
  });

  it('by a handle used again shows the live one, by id also the ended one', async () => {
    const first = await start(rig.socket, { handle: 'issue42' });
    cancel(first.id);
    const second = await start(rig.socket, { handle: 'issue42' });
    expect(json(await get('/work-units/issue42')).id).toBe(second.id);
    expect(json(await get(`/work-units/${first.id}`)).status).toBe('cancelled');
  });

  it.each([
    'nobody',
    '018f0000-0000-7000-8000-999999999999',
    'Issue%2042',
    '..%2F..%2Fetc',
    '%00',
    '%F0%9F%98%80',
    "'%20OR%201=1--",
  ])('of %s is not found', async (id) => {
    for (const path of [`/work-units/${id}`, `/work-units/${id}/events`]) {
      expect(refused(await get(path))).toMatchObject({ status: 404, code: 'not_found' });
    }
  });

  it('row 024: shows absent values as null, never leaves them out', async () => {
    const shown = json<Record<string, unknown>>(
      await get(`/work-units/${(await start(rig.socket)).id}`),
    );
    expect(Object.keys(shown).sort()).toEqual(Object.keys(workUnitViewSchema.shape).sort());
    expect(shown).toMatchObject({ channelId: null, startedAt: null, errorCode: null });
  });

  it('does not show what the store keeps for itself', async () => {
    const { id } = await start(rig.socket, { argv: ['echo', 'the-argument'] });
    const { text } = await get(`/work-units/${id}`);
    expect(text).not.toContain('the-argument');
    expect(text).not.toContain('lastSeq');
  });
});

describe('row 168: GET /work-units', () => {
  it('is empty at the beginning', async () => {
    expect(json(await get('/work-units'))).toEqual({ items: [], nextCursor: null });
  });

  it('lists the newest first', async () => {
    // Ids carry the millisecond; one work unit in each makes the order certain.
    const ids: string[] = [];
    while (ids.length < 3) {
      const { id } = await start(rig.socket);
      if (ids.at(-1)?.slice(0, 13) !== id.slice(0, 13)) ids.push(id);
      else cancel(id);
    }
    const [page] = await pages('active=true');
    expect(page?.items.map(({ id }) => id)).toEqual(ids.reverse());
  });

  it('comes in pages that join without gap or overlap', async () => {
    const made = new Set<string>();
    for (let index = 0; index < 23; index++) made.add((await start(rig.socket)).id);
    const all = await pages('limit=5');
    expect(all.map(({ items }) => items.length)).toEqual([5, 5, 5, 5, 3]);
    const ids = all.flatMap(({ items }) => items.map(({ id }) => id));
    expect(new Set(ids)).toEqual(made);
    expect(ids).toEqual([...made].sort().reverse());
  });

  it('has no next page after one that is exactly full', async () => {
    for (let index = 0; index < 4; index++) await start(rig.socket);
    expect((await pages('limit=2')).map(({ items }) => items.length)).toEqual([2, 2]);
  });

  it('can leave out what has ended, or show one status', async () => {
    const ended = await start(rig.socket);
    cancel(ended.id);
    const queued = await start(rig.socket);
    const ids = async (query: string) =>
      json<WorkUnitPage>(await get(`/work-units?${query}`)).items.map(({ id }) => id);
    expect(await ids('active=true')).toEqual([queued.id]);
    expect(await ids('status=cancelled')).toEqual([ended.id]);
    expect(await ids('status=running')).toEqual([]);
    expect((await ids('active=false')).sort()).toEqual([ended.id, queued.id].sort());
  });

  it.each(['x', '-1', "'", '018f0000', '%00', '%F0%9F%98%80', '1'])(
    'refuses the cursor %s: it is not one of ours',
    async (cursor) => {
      expect(refused(await get(`/work-units?cursor=${cursor}`))).toMatchObject({
        status: 400,
        code: 'invalid_cursor',
      });
    },
  );

  it('takes a cursor of a work unit that is not there: the ids behind it are', async () => {
    const { id } = await start(rig.socket);
    const ahead = 'ffffffff-ffff-7fff-bfff-ffffffffffff';
    const page = json<WorkUnitPage>(await get(`/work-units?cursor=${ahead}`));
    expect(page.items.map((item) => item.id)).toEqual([id]);
  });

  it('takes a cursor in upper case as the same', async () => {
    await start(rig.socket);
    await start(rig.socket);
    const [first, second] = await pages('limit=1');
    const upper = first?.nextCursor?.toUpperCase();
    expect(json(await get(`/work-units?limit=1&cursor=${upper}`))).toEqual(second);
  });

  it.each([
    ['limit=0', '/limit'],
    ['limit=0x10', '/limit'],
    ['limit=1001', '/limit'],
    ['limit=many', '/limit'],
    ['limit=', '/limit'],
    ['limit=1.5', '/limit'],
    ['limit=1&limit=2', '/limit'],
    ['active=yes', '/active'],
    ['status=asleep', '/status'],
    ['order=asc', '/order'],
    [`cursor=${'c'.repeat(201)}`, '/cursor'],
  ])('refuses ?%s by the name of the parameter', async (query, path) => {
    expect(refused(await get(`/work-units?${query}`))).toEqual({
      status: 422,
      code: 'invalid_request',
      paths: [path],
    });
  });
});

describe('row 174: GET /work-units/:id/events', () => {
  const page = async (path: string) => eventPageSchema.parse(json(await get(path)));

  function fill(id: string, count: number): void {
    rig.writer.commit((transaction) =>
      transaction.append(
        id,
        Array.from({ length: count }, (_, index) => ({
          type: 'progress' as const,
          actor: 'runner' as const,
          data: { index },
        })),
      ),
    );
  }

  it('comes in pages by afterSeq that join without gap', async () => {
    const { id } = await start(rig.socket);
    fill(id, 50);
    const seqs: number[] = [];
    let cursor: string | null = '0';
    while (cursor !== null) {
      const { items, nextCursor } = await page(
        `/work-units/${id}/events?limit=10&afterSeq=${cursor}`,
      );
      seqs.push(...items.map(({ seq }) => seq));
      cursor = nextCursor;
    }
    expect(seqs).toEqual(Array.from({ length: 52 }, (_, index) => index + 1));
  });

  it('after the last one is empty, not refused', async () => {
    const { id } = await start(rig.socket);
    expect(await page(`/work-units/${id}/events?afterSeq=2`)).toEqual({
      items: [],
      nextCursor: null,
    });
  });

  it('is not moved by a Last-Event-ID: that is for streams', async () => {
    const { id } = await start(rig.socket);
    const answer = await send(rig.socket, {
      path: `/work-units/${id}/events`,
      headers: { 'last-event-id': 'garbage' },
    });
    expect(json<{ items: unknown[] }>(answer).items).toHaveLength(2);
  });

  it('row 185: counts by itself: the positions of the workspace have gaps, the numbers have none', async () => {
    const [one, other] = [await start(rig.socket), await start(rig.socket)];
    fill(one.id, 1);
    fill(other.id, 1);
    const { items } = await page(`/work-units/${other.id}/events`);
    expect(items.map(({ seq }) => seq)).toEqual([1, 2, 3]);
    expect(items.map(({ position }) => position)).toEqual([3, 4, 6]);
  });

  it.each([
    ['afterSeq=-1', '/afterSeq'],
    ['afterSeq=x', '/afterSeq'],
    ['afterSeq=1.5', '/afterSeq'],
    ['afterSeq=', '/afterSeq'],
    ['afterSeq=1e999', '/afterSeq'],
    ['limit=5001', '/limit'],
    ['limit=0', '/limit'],
    ['after=1', '/after'],
  ])('refuses ?%s by the name of the parameter', async (query, path) => {
    const { id } = await start(rig.socket);
    expect(refused(await get(`/work-units/${id}/events?${query}`))).toEqual({
      status: 422,
      code: 'invalid_request',
      paths: [path],
    });
  });
});

describe('a mistake of the daemon', () => {
  it('is told without its inside, as a problem', async () => {
    Object.assign(rig.store.workUnits, {
      list: () => {
        throw new Error('secret details at /srv/lab-user');
      },
    });
    const answer = await get('/work-units');
    expect(refused(answer)).toMatchObject({ status: 500, code: 'internal' });
    expect(answer.text).not.toContain('secret');
  });

  it('does not happen for a store that cannot be read: that has a code', async () => {
    Object.assign(rig.store.workUnits, {
      list: () => {
        throw new OutliveError('store_damaged', 'the file: malformed');
      },
    });
    expect(refused(await get('/work-units'))).toMatchObject({
      status: 503,
      code: 'store_damaged',
    });
  });
});
