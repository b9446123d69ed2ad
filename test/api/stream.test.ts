import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PAGE } from '../../src/api/frames.ts';
import type { EventType } from '../../src/domain/events.ts';
import { openStream, problem, refused, send, start } from '../support/api-http.ts';
import { atTheEnd, bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await bootApi();
});
afterEach(cleanUp);

/** Commits events, as a running attempt would. */
function tell(id: string, count = 1, data: Record<string, unknown> = {}): void {
  const events = Array.from({ length: count }, (_, index) => ({
    type: 'stdout_delta' as EventType,
    actor: 'runner' as const,
    data: { index, ...data },
  }));
  rig.writer.commit((transaction) => transaction.append(id, events));
}

const cancel = (id: string): void => {
  rig.context.supervisor.cancel(id, { actor: 'user', reason: null });
};

const seqs = (events: readonly { id: string }[]): number[] => events.map(({ id }) => Number(id));
const upTo = (count: number, from = 1): number[] =>
  Array.from({ length: count }, (_, index) => from + index);

/** created, queued; then cancelling and cancelled. */
const BEGUN = 2;
const ENDED = 4;

describe('row 181: a stream of events', () => {
  it('replays what there is, then tells what comes, then ends with the work', async () => {
    const { id } = await start(rig.socket);
    const stream = await openStream(rig.socket, id);
    expect(stream.response.headers['content-type']).toBe('text/event-stream; charset=utf-8');
    expect(seqs(await stream.next(BEGUN))).toEqual([1, 2]);
    tell(id, 3);
    expect(seqs(await stream.next(3))).toEqual([3, 4, 5]);
    cancel(id);
    const last = await stream.rest();
    expect(last.map(({ event }) => event)).toEqual(['work_unit.cancelling', 'work_unit.cancelled']);
    expect(seqs(last)).toEqual([6, 7]);
  });

  it('row 184: listens before it replays: what is committed during a replay comes once, in order', async () => {
    const { id } = await start(rig.socket);
    tell(id, 1500);
    const stream = await openStream(rig.socket, id);
    const first = await stream.next(10);
    // The replay takes several pages; these come while it is under way.
    for (let round = 0; round < 5; round++) tell(id, 100);
    cancel(id);
    const all = [...first, ...(await stream.rest())];
    expect(seqs(all)).toEqual(upTo(BEGUN + 1500 + 500 + 2));
  });

  it('row 179: has the sequence number as id, the type as event, the event itself as data', async () => {
    const { id } = await start(rig.socket);
    cancel(id);
    const events = await (await openStream(rig.socket, id)).rest();
    const page = await send(rig.socket, { path: `/work-units/${id}/events` });
    const { items } = JSON.parse(page.text) as { items: { seq: number; type: string }[] };
    expect(events.map(({ data }) => data)).toEqual(items);
    for (const event of events) {
      expect([event.id, event.event]).toEqual([String(event.data.seq), event.data.type]);
      expect(event.data['workUnitId']).toBe(id);
      expect(event.data['id']).toBe(`${id}:${event.id}`);
      expect(event.data['ts']).toMatch(/^\d{4}-.*Z$/);
    }
  });

  it('is found by the handle, too', async () => {
    const { id, handle } = await start(rig.socket, { handle: 'issue42' });
    cancel(id);
    expect(await (await openStream(rig.socket, handle)).rest()).toHaveLength(ENDED);
  });

  it('is the same over TCP', async () => {
    const { id } = await start(rig.socket);
    cancel(id);
    expect(await (await openStream(rig.tcp, id)).rest()).toHaveLength(ENDED);
  });

  it('of ended work ends after the replay', async () => {
    const { id } = await start(rig.socket);
    cancel(id);
    expect(seqs(await (await openStream(rig.socket, id)).rest())).toEqual(upTo(ENDED));
  });

  it('of ended work that asks for what follows the end is empty and over', async () => {
    const { id } = await start(rig.socket);
    cancel(id);
    const stream = await openStream(rig.socket, id, { query: `?afterSeq=${ENDED}` });
    expect(await stream.rest()).toEqual([]);
  });

  it('of ended work ends also when a diagnostic came after the end', async () => {
    const { id } = await start(rig.socket);
    cancel(id);
    rig.writer.commit((transaction) =>
      transaction.append(id, [{ type: 'diagnostic.stale_event', actor: 'system' }]),
    );
    const events = await (await openStream(rig.socket, id)).rest();
    expect(events.at(-1)?.event).toBe('diagnostic.stale_event');
  });

  it('goes on through a failure that is taken up again', async () => {
    const { id } = await start(rig.socket);
    const stream = await openStream(rig.socket, id);
    await stream.next(BEGUN);
    rig.writer.commit((transaction) => {
      const claimed = transaction.moveWorkUnit(transaction.workUnit(id), 'claim', {
        actor: 'scheduler',
      });
      const failed = transaction.moveWorkUnit(claimed, 'launch_failed', { actor: 'system' });
      transaction.moveWorkUnit(failed, 'retry', { actor: 'user' });
    });
    const events = await stream.next(3);
    expect(events.map(({ event }) => event)).toEqual([
      'work_unit.claimed',
      'work_unit.failed',
      'work_unit.queued',
    ]);
    cancel(id);
    expect(await stream.rest()).toHaveLength(2);
  });

  it('of more events than a page holds has every one, in order', async () => {
    const { id } = await start(rig.socket);
    tell(id, 1_777);
    cancel(id);
    const events = await (await openStream(rig.socket, id)).rest();
    expect(seqs(events)).toEqual(upTo(1_777 + ENDED));
  });

  it('holds nothing of other work', async () => {
    const [one, other] = [await start(rig.socket), await start(rig.socket)];
    const stream = await openStream(rig.socket, one.id);
    await stream.next(BEGUN);
    tell(other.id, 5);
    tell(one.id, 1, { mine: true });
    const [event] = await stream.next(1);
    expect(event?.data).toMatchObject({ workUnitId: one.id, seq: 3, data: { mine: true } });
  });

  it('carries line ends and other characters of the data unharmed', async () => {
    const { id } = await start(rig.socket);
    const text = 'one\ntwo\r\nthree\rfour\n\nid: 99\ndata: x\u2028\0\ud83d\ude00';
    tell(id, 1, { text });
    cancel(id);
    const events = await (await openStream(rig.socket, id)).rest();
    expect(events[BEGUN]?.data['data']).toEqual({ index: 0, text });
  });
});

describe('row 181: a client that comes again', () => {
  it('gets what it missed after the id it says', async () => {
    const { id } = await start(rig.socket);
    tell(id, 5);
    cancel(id);
    const byQuery = await openStream(rig.socket, id, { query: '?afterSeq=4' });
    expect(seqs(await byQuery.rest())).toEqual([5, 6, 7, 8, 9]);
    const byHeader = await openStream(rig.socket, id, { headers: { 'last-event-id': '7' } });
    expect(seqs(await byHeader.rest())).toEqual([8, 9]);
  });

  it('is believed by its header more than by the query of the first time', async () => {
    const { id } = await start(rig.socket);
    tell(id, 5);
    cancel(id);
    const stream = await openStream(rig.socket, id, {
      query: '?afterSeq=1',
      headers: { 'last-event-id': '8' },
    });
    expect(seqs(await stream.rest())).toEqual([9]);
  });

  it('and drops in the middle, again and again, sees each event once', async () => {
    const { id } = await start(rig.socket);
    tell(id, 40);
    const seen: number[] = [];
    while (seen.length < 40 + BEGUN) {
      const stream = await openStream(rig.socket, id, {
        headers: seen.length === 0 ? {} : { 'last-event-id': String(seen.at(-1)) },
      });
      seen.push(...seqs(await stream.next(Math.min(7, 40 + BEGUN - seen.length))));
      stream.drop();
    }
    expect(seen).toEqual(upTo(40 + BEGUN));
  });

  it('row 182: starts nothing by it', async () => {
    const { id } = await start(rig.socket);
    const before = rig.counts();
    for (let round = 0; round < 3; round++) {
      const stream = await openStream(rig.socket, id);
      await stream.next(1);
      stream.drop();
    }
    expect(rig.counts()).toEqual(before);
  });

  it.each(['0', '', '2'])('may say %j', async (lastEventId) => {
    const { id } = await start(rig.socket);
    cancel(id);
    const stream = await openStream(rig.socket, id, { headers: { 'last-event-id': lastEventId } });
    expect(seqs(await stream.rest()).at(-1)).toBe(ENDED);
  });

  it.each(['-1', 'abc', '1.5', '1e3', '0x1', '9'.repeat(16)])(
    'that says %j is refused: that is no id of ours',
    async (lastEventId) => {
      const { id } = await start(rig.socket);
      const answer = await send(rig.socket, {
        path: `/work-units/${id}/events`,
        headers: { accept: 'text/event-stream', 'last-event-id': lastEventId },
      });
      const { status, code } = refused(answer);
      expect([status, code]).toEqual([400, 'invalid_cursor']);
    },
  );

  it('rows 183 and 186: from ahead of the store is told to load a snapshot', async () => {
    const { id } = await start(rig.socket);
    for (const headers of [{ accept: 'text/event-stream' }, { accept: 'application/json' }]) {
      const answer = await send(rig.socket, {
        path: `/work-units/${id}/events?afterSeq=3`,
        headers,
      });
      expect(refused(answer)).toMatchObject({
        status: 410,
        code: 'control_plane_snapshot_required',
      });
      expect(problem(answer).extra).toEqual({ first: 1, last: 2, afterSeq: 3 });
    }
  });
});

describe('row 189: two clients of one stream', () => {
  it('get the same events', async () => {
    const { id } = await start(rig.socket);
    const one = await openStream(rig.socket, id);
    tell(id, 10);
    const other = await openStream(rig.tcp, id);
    await one.next(5);
    tell(id, 10);
    cancel(id);
    const [first, second] = [await one.rest(), await other.rest()];
    expect(seqs(first)).toEqual(upTo(19, 6));
    expect(second.slice(5)).toEqual(first);
  });

  it('do not depend on each other: one leaves, the other goes on', async () => {
    const { id } = await start(rig.socket);
    const [one, other] = [await openStream(rig.socket, id), await openStream(rig.socket, id)];
    await Promise.all([one.next(BEGUN), other.next(BEGUN)]);
    one.drop();
    tell(id, 3);
    expect(seqs(await other.next(3))).toEqual([3, 4, 5]);
    cancel(id);
    expect(await other.rest()).toHaveLength(2);
  });

  it('of which one never reads: the other gets all, the silent one is not buffered without bound', async () => {
    const { id } = await start(rig.socket);
    const { pages, connections } = watchServer();
    const silent = net.connect(rig.socketPath);
    await once(silent, 'connect');
    atTheEnd(() => {
      silent.destroy();
    });
    silent.pause();
    silent.write(
      `GET /work-units/${id}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n`,
    );
    const [connection] = await connections.next();
    // 24 MB of events.
    for (let round = 0; round < 12; round++) tell(id, 1_000, { text: 'x'.repeat(2_000) });
    const reader = await openStream(rig.socket, id);
    await reader.next(12_000 + BEGUN);
    expect(pages.bytes).toBeGreaterThan(24_000_000);
    // Of all that, what waits in the daemon for the silent one is part of a page.
    expect(connection?.writableLength).toBeLessThan(2 * PAGE.bytes);
  });

  it('forty that never read a run of 20 MB: each costs a page at most, and nothing more is read', async () => {
    const { id } = await start(rig.socket);
    // Rows of 100 kB: a page by rows would be 50 MB.
    for (let round = 0; round < 20; round++) tell(id, 10, { text: 'x'.repeat(100_000) });
    const { pages, connections } = watchServer();
    const silent = await Promise.all(Array.from({ length: 40 }, () => stalledReader(id)));
    const opened = await connections.next(silent.length);
    await Promise.all(opened.map(isFull));
    expect(pages.largest).toBeLessThanOrEqual(PAGE.bytes + 100_100);
    // All forty stand at the same place and share what was read: some pages, not forty times some.
    expect(pages.bytes).toBeLessThanOrEqual(4 * (SOCKET_BYTES + PAGE.bytes));
    for (const { writableLength } of opened) expect(writableLength).toBeLessThan(PAGE.bytes);
    const before = pages.bytes;
    tell(id, 10, { text: 'y'.repeat(100_000) });
    const reader = await openStream(rig.socket, id);
    await reader.next(210 + BEGUN);
    // One reader's worth, whoever else is there.
    expect(pages.bytes - before).toBeLessThan(25_000_000);
  });

  /** What the kernel may take of a connection that is not read, both ends. */
  const SOCKET_BYTES = 2 * 212_992;

  /** Asks for the stream and never reads it. */
  async function stalledReader(id: string): Promise<net.Socket> {
    const socket = net.connect(rig.socketPath);
    await once(socket, 'connect');
    atTheEnd(() => {
      socket.destroy();
    });
    socket.pause();
    socket.write(
      `GET /work-units/${id}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n`,
    );
    return socket;
  }

  /** Resolves once the server waits for this connection. */
  async function isFull(socket: net.Socket): Promise<void> {
    while (!socket.writableNeedDrain) await pause(5);
  }

  /** What the server does: how many bytes of events it reads, and its end of each new connection. */
  function watchServer() {
    const pages = { bytes: 0, largest: 0 };
    const { events } = rig.store;
    const read = events.slice;
    Object.assign(events, {
      slice: (...args: Parameters<typeof read>) => {
        const slice = read(...args);
        const bytes = slice.events.reduce((sum, { data }) => sum + data.length, 0);
        pages.bytes += bytes;
        pages.largest = Math.max(pages.largest, bytes);
        return slice;
      },
    });
    const opened: net.Socket[] = [];
    const { server } = rig.listeners.socket.app;
    server.on('connection', (socket: net.Socket) => opened.push(socket));
    return {
      pages,
      connections: {
        next: async (count = 1): Promise<net.Socket[]> => {
          while (opened.length < count) await once(server, 'connection');
          return opened.splice(0);
        },
      },
    };
  }
});

describe('a client that leaves', () => {
  it('is forgotten at once, also when it had stopped reading', async () => {
    const { id } = await start(rig.socket);
    const { hub } = rig.context;
    const { subscribe } = hub;
    const { promise: gone, resolve } = Promise.withResolvers<void>();
    Object.assign(hub, {
      subscribe: (listener: Parameters<typeof subscribe>[0]) => {
        const unsubscribe = subscribe(listener);
        return () => {
          unsubscribe();
          resolve();
        };
      },
    });
    tell(id, 4_000, { text: 'x'.repeat(2_000) });
    const silent = net.connect(rig.socketPath);
    await once(silent, 'connect');
    silent.write(
      `GET /work-units/${id}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n`,
    );
    await once(silent, 'readable');
    silent.destroy();
    await expect(gone).resolves.toBeUndefined();
  });

  it('leaves everything stored: its events are there for the next', async () => {
    const { id } = await start(rig.socket);
    const stream = await openStream(rig.socket, id);
    await stream.next(1);
    stream.drop();
    tell(id, 3);
    cancel(id);
    expect(await (await openStream(rig.socket, id)).rest()).toHaveLength(3 + ENDED);
  });
});

describe('a stream that the store cannot go on with', () => {
  it('is cut off, not ended: so the client knows that there is more', async () => {
    const { id } = await start(rig.socket);
    const stream = await openStream(rig.socket, id);
    await stream.next(BEGUN);
    Object.assign(rig.store.events, {
      slice: () => {
        throw new Error('the disk is gone');
      },
    });
    tell(id);
    await expect(stream.rest()).rejects.toThrow('aborted');
  });
});

describe('a daemon that ends', () => {
  it('ends its streams in order; the client can go on later', async () => {
    const { id } = await start(rig.socket);
    const stream = await openStream(rig.socket, id);
    await stream.next(BEGUN);
    const rest = stream.rest();
    await rig.listeners.socket.close();
    expect(await rest).toEqual([]);
  });
});
