/** The ledger of Linear's webhooks: what is taken from it, what becomes of it, and when it goes. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OutliveError } from '../../src/domain/errors.ts';
import { uuidv7 } from '../../src/domain/ids.ts';
import {
  createDeliveries,
  createHandlers,
  type Delivery,
  type WorkOffOptions,
  workOffNext,
} from '../../src/linear/deliveries.ts';
import type { NewDelivery } from '../../src/store/linear-deliveries.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { createdBody, otherBody, promptedBody } from '../support/linear-webhooks.ts';

const AT = '2027-02-03T10:11:12.345Z';
let directory: string;
let store: Store;
beforeEach(() => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-ledger-'));
  store = openStore(directory, 'main', AT);
});
afterEach(() => {
  store.close();
  rmSync(directory, { recursive: true });
});

let clock = Date.parse(AT);
function record(body: object | string, more: Partial<NewDelivery> = {}): string {
  clock += 1;
  const now = clock;
  const id = uuidv7({ now: () => now, random: (size) => new Uint8Array(size) });
  const raw = typeof body === 'string' ? body : JSON.stringify(body);
  const row: NewDelivery = {
    id,
    contentKey: id,
    deliveryId: null,
    type: 'AgentSessionEvent',
    action: 'created',
    organizationId: null,
    sessionId: null,
    source: 'webhook',
    receivedAt: new Date(now).toISOString(),
    signedAt: null,
    body: Buffer.from(raw),
    state: 'new',
    detail: null,
    ...more,
  };
  store.write(() => store.linearDeliveries.record(row));
  return id;
}

interface Work extends WorkOffOptions<Store> {
  readonly reported: { readonly delivery: Delivery; readonly error: unknown }[];
}

function work(): Work {
  const reported: Work['reported'] = [];
  return {
    deliveries: createDeliveries(store.linearDeliveries),
    handlers: createHandlers<Store>(),
    commit: (inside) => store.write(() => inside(store)),
    now: () => AT,
    report: (delivery, error) => reported.push({ delivery, error }),
    reported,
  };
}

function workOffAll(options: Work): void {
  while (workOffNext(options));
}

describe('the ledger', () => {
  it('keeps the first of what has the same key, and counts the others, in whatever state it is', () => {
    const id = record('one', { contentKey: 'k' });
    record('two', { contentKey: 'k' });
    store.linearDeliveries.settle(id, 'failed', 'because', AT);
    record('three', { contentKey: 'k' });
    const row = store.linearDeliveries.byKey('k');
    expect(row).toMatchObject({ id, repeats: 2, state: 'failed', detail: 'because' });
    expect(Buffer.from(row?.body ?? []).toString()).toBe('one');
    expect(store.linearDeliveries.counts()).toEqual({
      new: 0,
      processed: 0,
      ignored: 0,
      failed: 1,
      repeats: 2,
    });
  });

  it('tells how many wait, and since when', () => {
    expect(store.linearDeliveries.waiting()).toEqual({ count: 0, since: null });
    const first = record('one');
    record('two');
    record('three', { state: 'ignored', detail: 'of another organization' });
    const since = store.linearDeliveries.get(first)?.receivedAt;
    expect(store.linearDeliveries.waiting()).toEqual({ count: 2, since });
  });

  it('is not that of another workspace', () => {
    record('one', { contentKey: 'k' });
    store.close();
    store = openStore(directory, 'other', AT);
    expect(store.linearDeliveries.byKey('k')).toBeNull();
    expect(store.linearDeliveries.next()).toBeNull();
    const id = record('two', { contentKey: 'k' });
    expect(store.linearDeliveries.byKey('k')).toMatchObject({ id, repeats: 0 });
  });
});

describe('what works it off', () => {
  it('takes each once, oldest first, with what it says', () => {
    record(createdBody('a'));
    record(promptedBody('a', 'p'));
    const { deliveries } = work();
    expect(deliveries.takeNext()?.event).toMatchObject({ kind: 'created', session: { id: 'a' } });
    expect(deliveries.takeNext()?.event).toMatchObject({ kind: 'prompted', activity: { id: 'p' } });
    expect(deliveries.takeNext()).toBeNull();
  });

  it('gives one back that could not be worked off yet, and finds it new after a death', () => {
    record(createdBody('a'));
    const { deliveries } = work();
    const taken = deliveries.takeNext();
    expect(work().deliveries.takeNext()?.row.id).toBe(taken?.row.id);
    if (taken) deliveries.giveBack(taken);
    expect(deliveries.takeNext()?.row.id).toBe(taken?.row.id);
  });

  it('calls the handler of a kind, and ignores with a reason what has none', () => {
    const created = record(createdBody('a'));
    const prompted = record(promptedBody('a', 'p'), { action: 'prompted' });
    const unknown = record(otherBody('Kettle', 'whistled'), { type: 'Kettle', action: 'whistled' });
    const options = work();
    options.handlers.on('created', ({ event }) => ({
      state: 'processed',
      detail: event.session.id,
    }));
    workOffAll(options);
    const { get } = store.linearDeliveries;
    expect(get(created)).toMatchObject({ state: 'processed', detail: 'a', processedAt: AT });
    expect(get(prompted)).toMatchObject({
      state: 'ignored',
      detail: 'nothing is done for AgentSessionEvent prompted',
    });
    expect(get(unknown)).toMatchObject({
      state: 'ignored',
      detail: 'a type or action that outlive does not know',
    });
  });

  it('has one handler for each kind', () => {
    const { handlers } = work();
    handlers.on('created', () => ({ state: 'processed', detail: null }));
    const twice = () => handlers.on('created', () => ({ state: 'ignored', detail: null }));
    expect(twice).toThrow('two handlers for created');
  });

  it('goes on after a handler’s mistake: that one has failed, its effects are undone, and no text of it is told', () => {
    const bad = record(createdBody('a'));
    const good = record(createdBody('b'));
    const options = work();
    options.handlers.on('created', ({ event }, inside) => {
      inside.linearDeliveries.settle(good, 'failed', 'an effect', AT);
      if (event.session.id === 'a') throw new Error('The kettle whistles');
      return { state: 'processed', detail: null };
    });
    expect(workOffNext(options)).toBe(true);
    expect(store.linearDeliveries.get(bad)).toMatchObject({
      state: 'failed',
      detail: 'its handler failed: internal',
    });
    expect(store.linearDeliveries.get(good)?.state).toBe('new');
    expect(options.reported).toMatchObject([{ delivery: { row: { id: bad } } }]);
  });

  it('leaves a delivery new when it is the store that fails', () => {
    const id = record(createdBody('a'));
    const options = work();
    let isFull = true;
    options.handlers.on('created', () => {
      if (isFull) throw new OutliveError('disk_full', 'no room');
      return { state: 'processed', detail: null };
    });
    expect(() => workOffNext(options)).toThrow('no room');
    expect(store.linearDeliveries.get(id)?.state).toBe('new');
    isFull = false;
    expect(workOffNext(options)).toBe(true);
    expect(store.linearDeliveries.get(id)?.state).toBe('processed');
  });

  it('undoes what it did for one that somebody else has settled meanwhile', () => {
    const id = record(createdBody('a'));
    const other = record(createdBody('b'));
    const options = work();
    options.handlers.on('created', (_delivery, inside) => {
      inside.linearDeliveries.settle(other, 'failed', 'an effect', AT);
      return { state: 'processed', detail: null };
    });
    const { deliveries } = options;
    const stale: Work = {
      ...options,
      deliveries: {
        ...deliveries,
        takeNext: () => {
          const taken = deliveries.takeNext();
          store.linearDeliveries.settle(id, 'ignored', 'by a sweep', AT);
          return taken;
        },
      },
    };
    expect(workOffNext(stale)).toBe(true);
    expect(store.linearDeliveries.get(id)).toMatchObject({ state: 'ignored' });
    expect(store.linearDeliveries.get(other)?.state).toBe('new');
  });
});

describe('the removal', () => {
  it('takes settled ones that came before, oldest first, and never a new one', () => {
    const ids = ['a', 'b', 'c', 'd'].map((session) => record(createdBody(session)));
    const [a = '', b = '', c = '', d = ''] = ids;
    for (const id of [a, c, d]) store.linearDeliveries.settle(id, 'processed', null, AT);
    const drop = (limit: number): number =>
      store.write(() => store.linearDeliveries.drop(d, limit));
    expect(drop(1)).toBe(1);
    expect(store.linearDeliveries.get(a)).toBeNull();
    expect(drop(10)).toBe(1);
    expect([b, c, d].map((id) => store.linearDeliveries.get(id)?.state)).toEqual([
      'new',
      undefined,
      'processed',
    ]);
  });
});
