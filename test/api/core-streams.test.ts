/** Events of the whole workspace and runs as streams, over real HTTP. */
import { once } from 'node:events';
import http from 'node:http';
import Database from 'better-sqlite3';
import { afterEach, describe, expect, it } from 'vitest';
import {
  type ReplayWindow,
  type WorkspaceEventPage,
  workspaceEventPageSchema,
} from '../../src/api/schemas-runtime.ts';
import { type SseMessage, SseParser } from '../../src/client/sse-parser.ts';
import { json, problem, refused, send, start } from '../support/api-http.ts';
import { atTheEnd, bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

afterEach(cleanUp);

interface Reader {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  /** The next message; undefined at the end. */
  next(): Promise<SseMessage | undefined>;
  take(count: number): Promise<SseMessage[]>;
  until(event: string): Promise<SseMessage[]>;
  drop(): void;
}

async function openSse(rig: Rig, path: string, body?: object, headers = {}): Promise<Reader> {
  const request = http.request({
    socketPath: rig.socketPath,
    path,
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      accept: 'text/event-stream',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    agent: false,
  });
  request.on('error', () => undefined);
  atTheEnd(() => {
    request.destroy();
  });
  request.end(body === undefined ? undefined : JSON.stringify(body));
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  async function* read(): AsyncGenerator<SseMessage, void> {
    const parser = new SseParser();
    for await (const chunk of response) yield* parser.push(chunk as Buffer);
  }
  const messages = read();
  const next = async (): Promise<SseMessage | undefined> => {
    const result = await messages.next();
    return result.done ? undefined : result.value;
  };
  const until = async (event: string): Promise<SseMessage[]> => {
    const taken: SseMessage[] = [];
    for (let message = await next(); message; message = await next()) {
      taken.push(message);
      if (message.event === event) return taken;
    }
    throw new Error(`the stream ended without ${event}`);
  };
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    next,
    until,
    take: async (count) => {
      const taken: SseMessage[] = [];
      while (taken.length < count) {
        const message = await next();
        if (!message) throw new Error(`the stream ended after ${taken.length}`);
        taken.push(message);
      }
      return taken;
    },
    drop: () => request.destroy(),
  };
}

/** What retention does: the floor is raised, then events go. */
function dropEvents(rig: Rig, upTo: number): void {
  const db = new Database(rig.store.file);
  db.prepare('UPDATE store_state SET floor_position = ?').run(upTo);
  db.prepare('DELETE FROM runtime_events WHERE position <= ?').run(upTo);
  db.close();
}

const positions = (messages: readonly SseMessage[]): number[] =>
  messages.filter(({ event }) => event.startsWith('work_unit.')).map(({ id }) => Number(id));

describe('GET /events', () => {
  it('pages through the events of all work units in order, with the window they are of', async () => {
    const rig = await bootApi();
    for (let index = 0; index < 3; index++) await start(rig.socket);
    const first = json<WorkspaceEventPage>(await send(rig.socket, { path: '/events?limit=4' }));
    expect(workspaceEventPageSchema.parse(first).items.map(({ position }) => position)).toEqual([
      1, 2, 3, 4,
    ]);
    expect(first).toMatchObject({ nextCursor: '4', window: { floor: 0, upTo: 6, events: 4 } });
    const path = `/events?limit=4&afterPosition=${first.nextCursor}`;
    const second = json<WorkspaceEventPage>(await send(rig.socket, { path }));
    expect(second.items.map(({ position }) => position)).toEqual([5, 6]);
    expect(second.nextCursor).toBeNull();
  });

  it('streams the replay, says that it is whole, then the news', async () => {
    const rig = await bootApi();
    await start(rig.socket);
    const stream = await openSse(rig, '/events?afterPosition=1');
    expect(stream.headers['content-type']).toContain('text/event-stream');
    const replay = await stream.until('replay-ready');
    expect(positions(replay)).toEqual([2]);
    const window = JSON.parse(replay.at(-1)?.data ?? '') as ReplayWindow;
    expect(window).toMatchObject({ afterPosition: 1, upTo: 2, floor: 0, events: 1 });
    expect(window.runtimeInstanceId).toBe(rig.context.runtime().runtimeInstanceId);
    await start(rig.socket);
    expect(positions(await stream.take(2))).toEqual([3, 4]);
  });

  it('goes on after Last-Event-ID, and numeric gaps are legal', async () => {
    const rig = await bootApi();
    for (let index = 0; index < 3; index++) await start(rig.socket);
    const db = new Database(rig.store.file);
    db.prepare('DELETE FROM runtime_events WHERE position IN (4, 5)').run();
    db.close();
    const stream = await openSse(rig, '/events', undefined, { 'last-event-id': '2' });
    expect(positions(await stream.until('replay-ready'))).toEqual([3, 6]);
  });

  it('refuses a cursor ahead of the store or behind what is kept', async () => {
    const rig = await bootApi();
    for (let index = 0; index < 2; index++) await start(rig.socket);
    dropEvents(rig, 2);
    const extra = { floor: 2, upTo: 4, runtimeInstanceId: expect.any(String) as string };
    for (const after of [5, 1, 0]) {
      for (const accept of ['application/json', 'text/event-stream']) {
        const path = `/events?afterPosition=${after}`;
        const answer = problem(await send(rig.socket, { path, headers: { accept } }));
        expect(answer).toMatchObject({
          status: 410,
          code: 'control_plane_snapshot_required',
          extra: { ...extra, afterPosition: after },
        });
      }
    }
    // All gone: the newest position is still known, and still a good cursor.
    dropEvents(rig, 4);
    const page = json<WorkspaceEventPage>(
      await send(rig.socket, { path: '/events?afterPosition=4' }),
    );
    expect(page).toMatchObject({ items: [], window: { floor: 4, upTo: 4 } });
    expect((await send(rig.socket, { path: '/events?afterPosition=3' })).status).toBe(410);
  });

  it.each(['-1', '1.5', 'x', '9'.repeat(40)])('refuses afterPosition=%s', async (text) => {
    const rig = await bootApi();
    const answer = refused(await send(rig.socket, { path: `/events?afterPosition=${text}` }));
    expect(answer).toMatchObject({ status: 422, paths: ['/afterPosition'] });
  });

  it('a stream whose client leaves takes nothing with it', async () => {
    const rig = await bootApi();
    const stream = await openSse(rig, '/events');
    await stream.until('replay-ready');
    stream.drop();
    await start(rig.socket);
    expect(rig.store.events.window().last).toBe(2);
  });
});

describe('row 185: domains', () => {
  const tell = (rig: Rig, id: string, type: 'tool.start' | 'stdout_delta'): void =>
    rig.writer.commit((transaction) =>
      transaction.append(id, [{ type, actor: 'runner', data: { toolCallId: 'x' } }]),
    );

  it('streams the named ones only, at their own positions, and says the cursor past the others', async () => {
    const rig = await bootApi();
    const { id } = await start(rig.socket); // 1, 2: work_unit
    for (const type of ['tool.start', 'stdout_delta', 'tool.start'] as const) tell(rig, id, type);
    const stream = await openSse(rig, '/events?domains=tool');
    const replay = await stream.until('replay-ready');
    expect(replay.slice(0, -1).map((message) => [message.event, message.id])).toEqual([
      ['tool.start', '3'],
      ['tool.start', '5'],
    ]);
    tell(rig, id, 'stdout_delta');
    tell(rig, id, 'tool.start');
    expect(await stream.next()).toMatchObject({ event: 'tool.start', id: '7' });
    const both = await openSse(rig, '/events?domains=tool,work_unit');
    expect((await both.until('replay-ready')).map(({ id: cursor }) => cursor).slice(0, -1)).toEqual(
      ['1', '2', '3', '5', '7'],
    );
  });

  it('pages the named ones only, and the next page goes on behind them', async () => {
    const rig = await bootApi();
    const { id } = await start(rig.socket);
    for (let round = 0; round < 6; round++) {
      tell(rig, id, 'stdout_delta');
      tell(rig, id, 'tool.start');
    }
    const path = '/events?domains=runner&limit=4';
    const first = json<WorkspaceEventPage>(await send(rig.socket, { path }));
    expect(first.items.map(({ position }) => position)).toEqual([3, 5, 7, 9]);
    const next = `${path}&afterPosition=${first.nextCursor}`;
    const second = json<WorkspaceEventPage>(await send(rig.socket, { path: next }));
    expect(second.items.map(({ position }) => position)).toEqual([11, 13]);
    expect(second.nextCursor).toBeNull();
  });

  it.each(['', 'tool,', 'weather', 'tool.start', ',', 'x'.repeat(600)])(
    'refuses domains=%s',
    async (domains) => {
      const rig = await bootApi();
      const answer = refused(await send(rig.socket, { path: `/events?domains=${domains}` }));
      expect(answer.status).toBe(422);
      expect(answer.paths[0]).toMatch(/^\/domains/);
    },
  );
});

describe('POST /runs', () => {
  it('makes a task_run from a prompt alone and streams it, first frame the run', async () => {
    const rig = await bootApi();
    const stream = await openSse(rig, '/runs', { prompt: 'hello' });
    expect(stream.status).toBe(200);
    const [first, created, queued] = await stream.take(3);
    expect(first).toMatchObject({ event: 'run', id: '' });
    const run = JSON.parse(first?.data ?? '') as { runId: string; workUnitId: string };
    expect(run).toEqual({
      runId: run.workUnitId,
      workUnitId: expect.any(String) as string,
      handle: expect.any(String) as string,
      created: true,
    });
    expect(stream.headers.location).toBe(`/work-units/${run.workUnitId}`);
    expect([created, queued]).toMatchObject([
      { id: '1', event: 'work_unit.created' },
      { id: '2', event: 'work_unit.queued' },
    ]);
    expect(rig.store.workUnits.get(run.workUnitId)).toMatchObject({
      kind: 'task_run',
      runnerId: 'pi',
    });
    rig.context.supervisor.cancel(run.workUnitId, { actor: 'user', reason: null });
    expect((await stream.until('work_unit.cancelled')).length).toBeGreaterThan(0);
    expect(await stream.next()).toBeUndefined();
  });

  it('with a key makes one run however often it is posted', async () => {
    const rig = await bootApi();
    const headers = { 'idempotency-key': 'k' };
    const streams = await Promise.all(
      Array.from({ length: 5 }, () => openSse(rig, '/runs', { prompt: 'hello' }, headers)),
    );
    const runs = await Promise.all(
      streams.map(async (stream) => JSON.parse((await stream.next())?.data ?? '') as object),
    );
    expect(new Set(runs.map((run) => (run as { runId: string }).runId)).size).toBe(1);
    expect(runs.filter((run) => (run as { created: boolean }).created)).toHaveLength(1);
    expect(rig.counts()['work_units']).toBe(1);
  });

  it('leaves the run alone when the client leaves', async () => {
    const rig = await bootApi();
    const stream = await openSse(rig, '/runs', { runnerId: 'command', argv: ['true'] });
    const run = JSON.parse((await stream.next())?.data ?? '') as { runId: string };
    stream.drop();
    expect(rig.store.workUnits.get(run.runId)?.status).toBe('queued');
  });

  it.each<[string, object, string[]]>([
    ['no prompt', {}, ['/prompt']],
    ['an empty prompt', { prompt: ' ' }, ['/prompt']],
    ['another kind', { prompt: 'x', kind: 'media_job' }, ['/kind']],
    ['an unknown field', { prompt: 'x', colour: 1 }, ['/colour']],
    ['an unknown runner', { prompt: 'x', runnerId: 'shell' }, ['/runnerId']],
    ['a wrong type', { prompt: 1 }, ['/prompt']],
  ])('refuses %s before any stream', async (_what, body, paths) => {
    const rig = await bootApi();
    const before = rig.counts();
    const answer = refused(await send(rig.socket, { path: '/runs', body }));
    expect(answer).toEqual({ status: 422, code: 'invalid_request', paths });
    expect(rig.counts()).toEqual(before);
  });
});
