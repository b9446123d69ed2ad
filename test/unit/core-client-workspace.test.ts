/** Following the workspace over daemons that go away, come back as others, or forget. */
import { afterEach, describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import type { SupervisorView } from '../../src/api/schemas-runtime.ts';
import { createClient } from '../../src/client/client.ts';
import type { Snapshot } from '../../src/client/workspace.ts';
import type { OutliveError } from '../../src/domain/errors.ts';
import { WORK_UNIT_STATUSES } from '../../src/domain/work-unit.ts';
import {
  anEvent,
  aRuntime,
  aWorkUnit,
  FakeDaemon,
  type Handler,
  json,
  problem,
} from '../cli/fake-daemon.ts';

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.dispose()));
});

function aSupervisor(position: number, runtimeInstanceId = 'runtime-1'): SupervisorView {
  const none = Object.fromEntries(WORK_UNIT_STATUSES.map((status) => [status, 0]));
  return {
    runtime: aRuntime({ runtimeInstanceId }),
    position,
    admission: 'open',
    counts: none as SupervisorView['counts'],
    queue: { queued: 0, blocked: 0, nextDueAt: null },
    watching: 0,
    blockers: [],
    backingOff: [],
    recovery: null,
    takeovers: [],
  };
}

const at = (position: number): EventView => ({ ...anEvent(position), position });
const frame = (event: EventView): string =>
  `id: ${event.position}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
const ready = (afterPosition: number, runtimeInstanceId = 'runtime-1'): string => {
  const window = { runtimeInstanceId, afterPosition, upTo: afterPosition, floor: 0, events: 0 };
  return `event: replay-ready\ndata: ${JSON.stringify(window)}\n\n`;
};

/** A workspace whose state a test changes under the client's feet. */
interface Script {
  position: number;
  instance: string;
  /** What GET /events does, by how often it was asked before. */
  readonly streams: Handler[];
  /** Held until it resolves, as a slow list is. */
  list: Promise<void>;
}

async function serve(script: Script) {
  let streams = 0;
  const daemon = await new FakeDaemon((received, response) => {
    const { pathname } = received.url;
    if (pathname === '/runtime/supervisor') {
      json(response, 200, aSupervisor(script.position, script.instance));
    } else if (pathname === '/work-units') {
      void script.list.then(() => json(response, 200, { items: [aWorkUnit()], nextCursor: null }));
    } else if (pathname === '/approvals') {
      json(response, 200, { items: [], nextCursor: null });
    } else script.streams[streams++]?.(received, response);
  }).listen();
  open.push(daemon);
  const follow = { minPauseMs: 1, maxPauseMs: 5, giveUpMs: 2_000 };
  const client = createClient({ socketPath: daemon.socketPath, follow });
  const asked = (): (string | null)[] =>
    daemon.requests
      .filter(({ url }) => url.pathname === '/events')
      .map(({ url }) => url.searchParams.get('afterPosition'));
  return { daemon, client, asked };
}

const streaming =
  (text: string, { keepOpen = false } = {}): Handler =>
  (_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(text);
    if (!keepOpen) response.end();
  };

/** Watches until an event of this position; tells what happened, in order. */
async function watchUntil(client: ReturnType<typeof createClient>, last: number) {
  const log: string[] = [];
  const snapshots: Snapshot[] = [];
  const stop = new AbortController();
  await client.watchWorkspace({
    signal: stop.signal,
    onSnapshot: (snapshot) => {
      snapshots.push(snapshot);
      log.push(`snapshot ${snapshot.runtimeInstanceId} ${snapshot.position}`);
    },
    onEvent: ({ position }) => {
      log.push(`event ${position}`);
      if (position === last) stop.abort();
    },
  });
  return { log, snapshots };
}

describe('watchWorkspace', () => {
  it('applies the snapshot before what streamed in while it was loaded', async () => {
    const slow = Promise.withResolvers<void>();
    const script: Script = {
      position: 5,
      instance: 'runtime-1',
      list: slow.promise,
      streams: [
        (received, response) => {
          streaming(`${frame(at(6))}${frame(at(7))}${ready(5)}${frame(at(8))}`, {
            keepOpen: true,
          })(received, response);
          setTimeout(() => slow.resolve(), 50);
        },
      ],
    };
    const { client, asked } = await serve(script);
    const { log, snapshots } = await watchUntil(client, 8);
    expect(log).toEqual(['snapshot runtime-1 5', 'event 6', 'event 7', 'event 8']);
    expect(snapshots[0]?.workUnits).toHaveLength(1);
    expect(asked()).toEqual(['5']);
  });

  it('goes on from its cursor when the same daemon is back, without a snapshot', async () => {
    const script: Script = {
      position: 5,
      instance: 'runtime-1',
      list: Promise.resolve(),
      streams: [
        streaming(`${ready(5)}${frame(at(6))}`),
        streaming(`${frame(at(6))}${frame(at(7))}${ready(6)}`, { keepOpen: true }),
      ],
    };
    const { client, asked } = await serve(script);
    const { log } = await watchUntil(client, 7);
    expect(log).toEqual(['snapshot runtime-1 5', 'event 6', 'event 7']);
    expect(asked()).toEqual(['5', '6']);
  });

  it('loads a snapshot when another daemon answers, before its cursor moves', async () => {
    const script: Script = {
      position: 5,
      instance: 'runtime-1',
      list: Promise.resolve(),
      streams: [
        (received, response) => {
          streaming(`${ready(5)}${frame(at(6))}`)(received, response);
          script.instance = 'runtime-2';
          script.position = 9;
        },
        streaming(`${ready(9, 'runtime-2')}${frame(at(10))}`, { keepOpen: true }),
      ],
    };
    const { client, asked } = await serve(script);
    const { log } = await watchUntil(client, 10);
    expect(log).toEqual(['snapshot runtime-1 5', 'event 6', 'snapshot runtime-2 9', 'event 10']);
    expect(asked()).toEqual(['5', '9']);
  });

  it.each<[string, Handler]>([
    [
      'refused at the start',
      (_, response) => problem(response, 'control_plane_snapshot_required', 'too old'),
    ],
    [
      'ended by a typed frame',
      (_, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        const body = {
          type: 'urn:x',
          title: 't',
          status: 410,
          code: 'control_plane_snapshot_required',
          detail: 'overtaken',
          errors: [],
        };
        response.end(`event: problem\ndata: ${JSON.stringify(body)}\n\n`);
      },
    ],
  ])('loads a snapshot when its cursor is %s', async (_what, refusal) => {
    const script: Script = {
      position: 5,
      instance: 'runtime-1',
      list: Promise.resolve(),
      streams: [
        streaming(`${ready(5)}${frame(at(6))}`),
        (received, response) => {
          script.position = 20;
          refusal(received, response);
        },
        streaming(`${ready(20)}${frame(at(21))}`, { keepOpen: true }),
      ],
    };
    const { client, asked } = await serve(script);
    const { log } = await watchUntil(client, 21);
    expect(log).toEqual(['snapshot runtime-1 5', 'event 6', 'snapshot runtime-1 20', 'event 21']);
    expect(asked()).toEqual(['5', '6', '20']);
  });

  it('goes on from its cursor when it was dismissed for taking nothing, without a snapshot', async () => {
    const body = { type: 'urn:x', title: 't', status: 408, code: 'stream_stalled', detail: 'd' };
    const problemFrame = `event: problem\ndata: ${JSON.stringify({ ...body, errors: [] })}\n\n`;
    const script: Script = {
      position: 5,
      instance: 'runtime-1',
      list: Promise.resolve(),
      streams: [
        streaming(`${ready(5)}${frame(at(6))}${problemFrame}`),
        streaming(`${frame(at(7))}${ready(6)}`, { keepOpen: true }),
      ],
    };
    const { client, asked } = await serve(script);
    const { log } = await watchUntil(client, 7);
    expect(log).toEqual(['snapshot runtime-1 5', 'event 6', 'event 7']);
    expect(asked()).toEqual(['5', '6']);
  });

  it('ends with what the caller threw, and gives up on a daemon that stays away', async () => {
    const script: Script = {
      position: 5,
      instance: 'runtime-1',
      list: Promise.resolve(),
      streams: [streaming(frame(at(6)), { keepOpen: true })],
    };
    const { client, daemon } = await serve(script);
    const thrown = client.watchWorkspace({
      onSnapshot: () => {},
      onEvent: () => {
        throw new Error('mine');
      },
    });
    await expect(thrown).rejects.toThrow('mine');
    await daemon.die();
    const impatient = createClient({
      socketPath: daemon.socketPath,
      follow: { minPauseMs: 1, maxPauseMs: 5, giveUpMs: 50 },
    });
    const failed = await impatient
      .watchWorkspace({ onSnapshot: () => {}, onEvent: () => {} })
      .catch((error: OutliveError) => error);
    expect(failed).toMatchObject({ code: 'daemon_unreachable' });
  });
});
