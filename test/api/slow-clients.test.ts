/** Readers that do not keep up: what they cost, when they are dismissed, and that they lose nothing. */
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PAGE } from '../../src/api/frames.ts';
import { REPLAY_MAX } from '../../src/api/workspace-events.ts';
import { type SseMessage, SseParser } from '../../src/client/sse-parser.ts';
import { json, openStream, send, start } from '../support/api-http.ts';
import { atTheEnd, bootApi, cleanUp, type Rig, STALL_MS } from '../support/api-rig.ts';
import { ManualTimers } from '../unit/systemd-manual-timers.ts';

let rig: Rig;
let timers: ManualTimers;
beforeEach(async () => {
  timers = new ManualTimers();
  rig = await bootApi({}, undefined, timers);
});
afterEach(cleanUp);

const HANG_UP_MS = 5_000;
const isStall = (ms: number): boolean => ms === STALL_MS;
const isHangUp = (ms: number): boolean => ms === HANG_UP_MS;

function tell(id: string, count: number, bytes: number): void {
  const data = { text: 'x'.repeat(bytes) };
  const events = Array.from({ length: count }, () => ({
    type: 'stdout_delta' as const,
    actor: 'runner' as const,
    data,
  }));
  rig.writer.commit((transaction) => transaction.append(id, events));
}

/** A reader that has asked and reads only when told. */
interface Lazy {
  /** The daemon's end of its connection. */
  readonly served: net.Socket;
  /** Resolves once the daemon waits for it. */
  full(): Promise<void>;
  /** Everything until the connection ends. */
  readOn(): Promise<SseMessage[]>;
  readonly socket: net.Socket;
}

async function lazyReader(path: string): Promise<Lazy> {
  const accepted = once(rig.listeners.socket.app.server, 'connection') as Promise<[net.Socket]>;
  const socket = net.connect(rig.socketPath);
  await once(socket, 'connect');
  atTheEnd(() => {
    socket.destroy();
  });
  socket.pause();
  // HTTP/1.0: the body ends with the connection, and comes as it is.
  socket.write(`GET ${path} HTTP/1.0\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n`);
  const [served] = await accepted;
  return {
    served,
    socket,
    full: async () => {
      while (!served.writableNeedDrain) await pause(5);
    },
    readOn: async () => {
      const parser = new SseParser();
      const messages: SseMessage[] = [];
      let head = Buffer.alloc(0);
      let inBody = false;
      for await (const chunk of socket as AsyncIterable<Buffer>) {
        if (inBody) messages.push(...parser.push(chunk));
        else {
          head = Buffer.concat([head, chunk]);
          const end = head.indexOf('\r\n\r\n');
          if (end === -1) continue;
          inBody = true;
          messages.push(...parser.push(head.subarray(end + 4)));
        }
      }
      return messages;
    },
  };
}

describe('a reader that takes nothing for the stall time', () => {
  it('is dismissed, and loses nothing: it goes on after the last event it has', async () => {
    const { id } = await start(rig.socket);
    tell(id, 400, 10_000);
    const lazy = await lazyReader(`/work-units/${id}/events`);
    await lazy.full();
    await timers.pass(isStall);
    await timers.pass(isHangUp);
    const had = await lazy.readOn();
    expect(had.length).toBeGreaterThan(0);
    expect(had.length, 'it was cut off in the middle').toBeLessThan(402);
    const last = had.at(-1)?.id ?? '';
    const again = await openStream(rig.socket, id, { headers: { 'last-event-id': last } });
    const rest = await again.next(402 - had.length);
    const seqs = [...had, ...rest].map((message) => Number(message.id));
    expect(seqs).toEqual(Array.from({ length: 402 }, (_, index) => index + 1));
  });

  it('that wakes a moment later is told where to go on, behind a whole page', async () => {
    const { id } = await start(rig.socket);
    tell(id, 400, 10_000);
    const lazy = await lazyReader(`/work-units/${id}/events`);
    await lazy.full();
    await timers.pass(isStall);
    const had = await lazy.readOn();
    const told = had.at(-1);
    expect(told?.event).toBe('problem');
    const problem = JSON.parse(told?.data ?? '') as {
      code: string;
      extra: { resumeAfter: number };
    };
    expect(problem).toMatchObject({ code: 'stream_stalled', status: 408 });
    expect(problem.extra.resumeAfter).toBe(Number(had.at(-2)?.id));
    // The hang-up was called off with the connection: nothing is left to wait for.
    while (timers.pending > 0) await pause(5);
  });

  it('holds no more than a page while it waits, however much is committed meanwhile', async () => {
    const { id } = await start(rig.socket);
    tell(id, 400, 10_000);
    const lazy = await lazyReader(`/work-units/${id}/events`);
    await lazy.full();
    for (let round = 0; round < 10; round++) tell(id, 100, 10_000);
    await timers.pass(isStall);
    expect(lazy.served.writableLength).toBeLessThan(2 * PAGE.bytes);
    await timers.pass(isHangUp);
    await once(lazy.served, 'close');
  });

  it('is forgotten by the hub at once, before the connection is cut', async () => {
    const { id } = await start(rig.socket);
    const { hub } = rig.context;
    const { subscribe } = hub;
    const { promise: forgotten, resolve } = Promise.withResolvers<void>();
    Object.assign(hub, {
      subscribe: (listener: Parameters<typeof subscribe>[0]) => {
        const unsubscribe = subscribe(listener);
        return () => {
          resolve();
          return unsubscribe();
        };
      },
    });
    tell(id, 400, 10_000);
    const lazy = await lazyReader(`/work-units/${id}/events`);
    await lazy.full();
    await timers.pass(isStall);
    await expect(forgotten).resolves.toBeUndefined();
    expect(lazy.served.destroyed).toBe(false);
  });

  it('a slow one is not: whatever it takes begins the time anew', async () => {
    const { id } = await start(rig.socket);
    tell(id, 100, 10_000);
    const set: number[] = [];
    const { after } = timers;
    Object.assign(timers, {
      after: (ms: number, callback: () => void) => {
        if (isStall(ms)) set.push(ms);
        return after.call(timers, ms, callback);
      },
    });
    const lazy = await lazyReader(`/work-units/${id}/events`);
    await lazy.full();
    const waits = set.length;
    // The kernel tells of room only when most of its buffer is free: so in small bites.
    while (set.length === waits) {
      lazy.socket.resume();
      await once(lazy.socket, 'data');
      lazy.socket.pause();
      await pause(1);
    }
    expect(lazy.served.destroyed).toBe(false);
  });
});

describe('row 186: a reader of the workspace that falls behind by more than a replay', () => {
  it('is told to load a snapshot, in the stream', async () => {
    const { id } = await start(rig.socket);
    tell(id, 100, 10_000);
    const lazy = await lazyReader('/events');
    await lazy.full();
    for (let round = 0; round < 6; round++) tell(id, REPLAY_MAX / 5, 1);
    const had = await lazy.readOn();
    const told = had.at(-1);
    expect(told?.event).toBe('problem');
    const { last } = rig.store.events.window();
    expect(JSON.parse(told?.data ?? '')).toMatchObject({
      code: 'control_plane_snapshot_required',
      status: 410,
      extra: { upTo: last, afterPosition: Number(had.at(-2)?.id) },
    });
    expect(last - Number(had.at(-2)?.id)).toBeGreaterThan(REPLAY_MAX);
  });
});

describe('a page of events as JSON', () => {
  it.each(['/work-units/ID/events?limit=5000', '/events?limit=5000'])(
    '%s ends early when the events are large, and the cursor goes on',
    async (template) => {
      const { id } = await start(rig.socket);
      tell(id, 30, 100_000);
      const path = template.replace('ID', id);
      const cursor = template.startsWith('/events') ? 'afterPosition' : 'afterSeq';
      const positions: number[] = [];
      let calls = 0;
      for (let next: string | null = '0'; next !== null; calls++) {
        const answer = await send(rig.socket, { path: `${path}&${cursor}=${next}` });
        expect(answer.text.length).toBeLessThan(PAGE.bytes + 2 * 101_000);
        const page = json<{ items: { position: number }[]; nextCursor: string | null }>(answer);
        expect(page.items.length).toBeGreaterThan(0);
        positions.push(...page.items.map(({ position }) => position));
        next = page.nextCursor;
      }
      expect(positions).toEqual(Array.from({ length: 32 }, (_, index) => index + 1));
      expect(calls).toBeGreaterThan(5);
    },
  );

  it('has one event at least, however large that is', async () => {
    const { id } = await start(rig.socket);
    tell(id, 2, 900_000);
    const answer = await send(rig.socket, { path: `/work-units/${id}/events?afterSeq=2` });
    const page = json<{ items: { seq: number }[]; nextCursor: string | null }>(answer);
    expect(page.items.map(({ seq }) => seq)).toEqual([3]);
    expect(page.nextCursor).toBe('3');
  });
});
