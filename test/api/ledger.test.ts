/** GET /ledger over real HTTP. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { OpenApi } from '../../src/api/openapi.ts';
import { type LedgerPage, ledgerPageSchema } from '../../src/api/schemas-ledger.ts';
import { createClient } from '../../src/client/client.ts';
import { json, refused, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await bootApi();
});
afterEach(cleanUp);

const FIRST = Date.parse('2026-01-02T03:04:05.678Z');
const moment = (n: number): string => new Date(FIRST + n * 60_000).toISOString();
const attemptId = (n: number): string => `018f0000-0000-7000-8000-${String(n).padStart(12, '0')}`;

/** Attempt `n` ended in minute `n`; the same goes for its work unit's handle. */
async function ended(n: number, known: object = {}): Promise<void> {
  const workUnit = await start(rig.socket, { handle: `h${n}`, ...known });
  const id = attemptId(n);
  rig.writer.commit((transaction) => {
    rig.store.attempts.insert({
      id,
      workUnitId: workUnit.id,
      attemptNumber: 1,
      runtimeInstanceId: 'instance',
      runnerId: 'command',
      providerPresetId: null,
      unit: `outlive-main-h${n}-1.service`,
      nonce: `nonce ${n}`,
      executor: 'direct',
      resumesAttemptId: null,
      hardTimeoutMs: null,
      conversation: null,
      at: moment(n),
    });
    transaction.moveAttempt(transaction.attempt(id), 'lost', { endedAt: moment(n) });
  });
}

async function page(query = ''): Promise<LedgerPage> {
  const answer = await send(rig.socket, { path: `/ledger${query}` });
  expect(answer.status, answer.text).toBe(200);
  return ledgerPageSchema.parse(JSON.parse(answer.text));
}
const handles = async (query = ''): Promise<string[]> =>
  (await page(query)).items.map(({ handle }) => handle);

describe('GET /ledger', () => {
  it('is empty at first, and leaves out what has not ended', async () => {
    await start(rig.socket);
    expect(await page()).toEqual({ items: [], nextCursor: null });
  });

  it('pages in both orders, without a gap and without a line twice', async () => {
    for (let n = 1; n <= 5; n++) await ended(n);
    const first = await page('?limit=2');
    expect(first.items.map(({ handle }) => handle)).toEqual(['h5', 'h4']);
    // What ends meanwhile comes before what is still to be read.
    await ended(6);
    const second = await page(`?limit=2&cursor=${first.nextCursor}`);
    expect(second.items.map(({ handle }) => handle)).toEqual(['h3', 'h2']);
    const third = await page(`?limit=2&cursor=${second.nextCursor}`);
    expect(third).toMatchObject({ items: [{ handle: 'h1' }], nextCursor: null });
    const oldest = await page('?limit=4&order=oldest');
    expect(oldest.items.map(({ handle }) => handle)).toEqual(['h1', 'h2', 'h3', 'h4']);
    expect(await handles(`?limit=2&order=oldest&cursor=${oldest.nextCursor}`)).toEqual([
      'h5',
      'h6',
    ]);
  });

  it('filters by moment, driver and handle; what outlive runs for itself only with all=true', async () => {
    await ended(1);
    await ended(2, { ownerType: 'driver', ownerId: 'nightly' });
    await ended(3, { ownerType: 'outcome_verify', ownerId: 'h2' });
    expect(await handles()).toEqual(['h2', 'h1']);
    expect(await handles('?all=true')).toEqual(['h3', 'h2', 'h1']);
    expect((await page('?driver=nightly')).items).toMatchObject([
      { handle: 'h2', driver: 'nightly' },
    ]);
    expect(await handles('?handle=h1')).toEqual(['h1']);
    expect(await handles(`?since=${moment(2)}`)).toEqual(['h2']);
    // The same moment, told in another zone.
    const elsewhere = moment(2).replace('T03:', 'T05:').replace('Z', '+02:00');
    expect(await handles(`?since=${encodeURIComponent(elsewhere)}`)).toEqual(['h2']);
  });

  it('is what the client reads', async () => {
    await ended(1);
    await ended(2);
    const client = createClient({ socketPath: rig.socketPath });
    const first = await client.ledger({ limit: 1, order: 'oldest', all: false });
    expect(first).toMatchObject({ items: [{ handle: 'h1', result: 'lost', rc: null }] });
    const cursor = first.nextCursor ?? '';
    expect((await client.ledger({ cursor, order: 'oldest' })).items).toMatchObject([
      { handle: 'h2' },
    ]);
  });

  it.each<[string, number, string, string[]]>([
    ['?cursor=12', 400, 'invalid_cursor', []],
    ['?cursor=', 400, 'invalid_cursor', []],
    [`?cursor=${attemptId(404)}`, 400, 'invalid_cursor', []],
    ['?since=yesterday', 422, 'invalid_request', ['/since']],
    ['?since=24h', 422, 'invalid_request', ['/since']],
    ['?order=up', 422, 'invalid_request', ['/order']],
    ['?limit=0', 422, 'invalid_request', ['/limit']],
    ['?limit=1001', 422, 'invalid_request', ['/limit']],
    ['?all=1', 422, 'invalid_request', ['/all']],
    ['?driver=', 422, 'invalid_request', ['/driver']],
    ['?colour=red', 422, 'invalid_request', ['/colour']],
  ])('%s is refused with %i', async (query, status, code, paths) => {
    const answer = await send(rig.socket, { path: `/ledger${query}` });
    expect(refused(answer)).toEqual({ status, code, paths });
  });

  it('stands in the document', async () => {
    const document = json<OpenApi>(await send(rig.socket, { path: '/openapi.json' }));
    const operation = document.paths['/ledger']?.['get'];
    expect(operation?.parameters?.map(({ name }) => name).sort()).toEqual(
      ['all', 'cursor', 'driver', 'handle', 'limit', 'order', 'since'].sort(),
    );
  });
});
