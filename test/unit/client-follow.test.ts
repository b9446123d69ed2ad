import { once } from 'node:events';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import { createClient } from '../../src/client/client.ts';
import type { FollowOptions } from '../../src/client/follow.ts';
import type { FollowTimes } from '../../src/client/link.ts';
import {
  anEvent,
  aRun,
  aWorkUnit,
  FakeDaemon,
  frame,
  type Handler,
  json,
  problem,
  type Received,
  stream,
  WORK_UNIT_ID,
} from '../cli/fake-daemon.ts';

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.dispose()));
});

const FAST: FollowTimes = {
  giveUpMs: 5_000,
  minPauseMs: 1,
  maxPauseMs: 20,
  silenceMs: 5_000,
  lingerMs: 50,
};

async function serve(handler: Handler, times: Partial<FollowTimes> = {}) {
  const daemon = await new FakeDaemon(handler).listen();
  open.push(daemon);
  const follow = { ...FAST, ...times };
  return {
    daemon,
    client: createClient({ socketPath: daemon.socketPath, timeoutMs: 300, follow }),
  };
}

const afterSeqOf = ({ url }: Received): number => Number(url.searchParams.get('afterSeq'));
const isStream = ({ headers }: Received): boolean => headers.accept === 'text/event-stream';

async function collect(events: AsyncIterable<EventView>): Promise<number[]> {
  const seqs: number[] = [];
  for await (const event of events) seqs.push(event.seq);
  return seqs;
}

const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);

describe('followEvents', () => {
  it('says on a new connection which store its number is of, once it was told', async () => {
    const epochs: (string | null)[] = [];
    const { client } = await serve((received, response) => {
      if (!isStream(received)) return json(response, 200, aWorkUnit());
      epochs.push(received.url.searchParams.get('epoch'));
      response.setHeader('outlive-epoch', 'first');
      const after = afterSeqOf(received);
      return stream(response, aRun(4).slice(after, after + 2));
    });
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 4));
    expect(epochs).toEqual([null, 'first']);
  });

  it('hands out what is stored and what comes, to the terminal event', async () => {
    const { client, daemon } = await serve((_, response) => stream(response, aRun(5)));
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 5));
    expect(daemon.requests).toHaveLength(1);
  });

  it('starts after a sequence number', async () => {
    const { client } = await serve((received, response) =>
      stream(response, aRun(5).slice(afterSeqOf(received))),
    );
    expect(await collect(client.followEvents('issue42', { afterSeq: 3 }))).toEqual([4, 5]);
  });

  it('resumes after the last event, by id, when the connection breaks in mid-frame; T49 #25657', async () => {
    const { client, daemon } = await serve((received, response) => {
      if (daemon.requests.length > 1) {
        stream(response, aRun(4).slice(afterSeqOf(received)));
        return;
      }
      stream(response, aRun(4).slice(0, 2), { keepOpen: true });
      response.write(frame(anEvent(3)).slice(0, 40), () => response.destroy());
    });
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 4));
    expect(daemon.requests.map(({ url }) => `${url.pathname}${url.search}`)).toEqual([
      '/work-units/issue42/events?afterSeq=0',
      `/work-units/${WORK_UNIT_ID}/events?afterSeq=2`,
    ]);
  });

  it('never hands out an event twice, whatever the daemon repeats', async () => {
    const { client, daemon } = await serve((_, response) =>
      stream(response, daemon.requests.length === 1 ? aRun(9).slice(0, 4) : aRun(6)),
    );
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 6));
  });

  it('fetches what is missing after a gap', async () => {
    const { client, daemon } = await serve((received, response) => {
      const rest = aRun(6).slice(afterSeqOf(received));
      stream(response, daemon.requests.length === 1 ? rest.filter(({ seq }) => seq !== 3) : rest);
    });
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 6));
  });

  it('ends with control_plane_snapshot_required when the gap stays', async () => {
    const { client, daemon } = await serve((_, response) =>
      stream(
        response,
        aRun(6).filter(({ seq }) => seq !== 3),
      ),
    );
    await expect(collect(client.followEvents('issue42'))).rejects.toMatchObject({
      code: 'control_plane_snapshot_required',
    });
    expect(daemon.requests).toHaveLength(2);
  });

  it('outlives a restart of the daemon and says so', async () => {
    const states: string[] = [];
    const { client, daemon } = await serve((_, response) =>
      stream(response, aRun(4).slice(0, 2), { keepOpen: true }),
    );
    const options: FollowOptions = {
      onConnection: (state) => {
        states.push(state);
        if (state === 'connected') return;
        daemon.handle((received, answer) => stream(answer, aRun(4).slice(afterSeqOf(received))));
        void daemon.listen();
      },
    };
    const seqs: number[] = [];
    for await (const { seq } of client.followEvents('issue42', options)) {
      seqs.push(seq);
      if (seq === 2) await daemon.die();
    }
    expect(seqs).toEqual(range(1, 4));
    expect(states).toEqual(['away', 'connected']);
  });

  it('tries again where the daemon says that it is shutting down', async () => {
    const { client, daemon } = await serve((_, response) => {
      if (daemon.requests.length < 3) problem(response, 'shutting_down', 'Later.');
      else stream(response, aRun(2));
    });
    expect(await collect(client.followEvents('issue42'))).toEqual([1, 2]);
  });

  it('gives up after so long without any connection', async () => {
    const { client, daemon } = await serve(() => {}, { giveUpMs: 200 });
    await daemon.die();
    const began = performance.now();
    await expect(collect(client.followEvents('issue42'))).rejects.toMatchObject({
      code: 'daemon_unreachable',
    });
    expect(performance.now() - began).toBeGreaterThanOrEqual(190);
  });

  it('passes other refusals on at once', async () => {
    const { client, daemon } = await serve((_, response) =>
      problem(response, 'not_found', 'There is no work unit "x".'),
    );
    await expect(collect(client.followEvents('x'))).rejects.toMatchObject({
      code: 'not_found',
      message: 'There is no work unit "x".',
    });
    expect(daemon.requests).toHaveLength(1);
  });

  const broken = `event: problem\ndata: ${JSON.stringify({
    type: '',
    title: '',
    status: 410,
    code: 'control_plane_snapshot_required',
    detail: 'Read again.',
    errors: [],
  })}\n\n`;

  it('reads on from the store where the stream says that it cannot go on', async () => {
    const { client, daemon } = await serve((received, response) => {
      const rest = aRun(4).slice(afterSeqOf(received));
      stream(response, daemon.requests.length === 1 ? rest.slice(0, 2) : rest, { keepOpen: true });
      response.end(daemon.requests.length === 1 ? broken : '');
    });
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 4));
  });

  it('goes on after its last event when it was dismissed for taking nothing', async () => {
    const dismissed = broken.replace('control_plane_snapshot_required', 'stream_stalled');
    const { client, daemon } = await serve((received, response) => {
      const rest = aRun(4).slice(afterSeqOf(received));
      const last = daemon.requests.length === 3;
      stream(response, last ? rest : rest.slice(0, 1), { keepOpen: true });
      response.end(last ? '' : dismissed);
    });
    const told: string[] = [];
    const onConnection = (state: string): unknown => told.push(state);
    expect(await collect(client.followEvents('issue42', { onConnection }))).toEqual(range(1, 4));
    expect(daemon.requests.map(afterSeqOf)).toEqual([0, 1, 2]);
    expect(told, 'the daemon was never away').toEqual([]);
  });

  it('passes the problem on where reading again does not help', async () => {
    const { client, daemon } = await serve((_, response) =>
      response.writeHead(200, { 'content-type': 'text/event-stream' }).end(broken),
    );
    await expect(collect(client.followEvents('x'))).rejects.toMatchObject({
      code: 'control_plane_snapshot_required',
      message: 'Read again.',
    });
    expect(daemon.requests).toHaveLength(2);
  });

  it('takes a silent stream for dead and asks again', async () => {
    const { client, daemon } = await serve(
      (received, response) => {
        const rest = aRun(4).slice(afterSeqOf(received));
        if (daemon.requests.length === 1) stream(response, rest.slice(0, 2), { keepOpen: true });
        else stream(response, rest);
      },
      { silenceMs: 100 },
    );
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 4));
    expect(daemon.requests).toHaveLength(2);
  });

  it('ends after the terminal event though the stream stays open', async () => {
    const { client, daemon } = await serve(
      (_, response) => stream(response, aRun(2), { keepOpen: true }),
      { silenceMs: 3_600_000 },
    );
    expect(await collect(client.followEvents('issue42'))).toEqual([1, 2]);
    expect(daemon.requests).toHaveLength(1);
  });

  it('goes on past a terminal event that a retry followed', async () => {
    const events = [...aRun(2, 'work_unit.failed'), anEvent(3), anEvent(4, 'work_unit.succeeded')];
    const { client } = await serve((_, response) => stream(response, events));
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 4));
  });

  it('goes on past an end whose outcome is owed, and ends with that', async () => {
    const events = [
      anEvent(1),
      anEvent(2, 'work_unit.succeeded', { outcome: 'pending', outcomeOf: 1 }),
      anEvent(3, 'outcome.settled', { state: 'satisfied', attemptNumber: 1 }),
    ];
    const { client, daemon } = await serve(
      (received, response) =>
        afterSeqOf(received) === 0
          ? stream(response, events.slice(0, 2))
          : stream(response, events.slice(2), { keepOpen: true }),
      { silenceMs: 3_600_000 },
    );
    expect(await collect(client.followEvents('issue42'))).toEqual([1, 2, 3]);
    expect(daemon.requests).toHaveLength(2);
  });

  it('does not take the outcome of the attempt before for that of the last', async () => {
    const events = [
      anEvent(1, 'work_unit.failed', { outcome: 'pending', outcomeOf: 1 }),
      anEvent(2, 'work_unit.queued'),
      anEvent(3, 'work_unit.succeeded', { outcome: 'pending', outcomeOf: 2 }),
      anEvent(4, 'outcome.settled', { state: 'satisfied', attemptNumber: 1 }),
      anEvent(5, 'outcome.settled', { state: 'refuted', attemptNumber: 2 }),
    ];
    const { client } = await serve((_, response) => stream(response, events, { keepOpen: true }), {
      silenceMs: 3_600_000,
    });
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 5));
  });

  it('does not end with the outcome of an end that a retry undid', async () => {
    const events = [
      anEvent(1, 'work_unit.failed', { outcome: 'pending', outcomeOf: 1 }),
      anEvent(2, 'work_unit.queued'),
      anEvent(3, 'outcome.settled', { state: 'refuted', attemptNumber: 1 }),
      anEvent(4, 'work_unit.succeeded', { outcome: 'skipped' }),
    ];
    const { client } = await serve((received, response) =>
      stream(response, events.slice(afterSeqOf(received), afterSeqOf(received) === 0 ? 3 : 4)),
    );
    expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 4));
  });

  it('ends at once where everything was read before', async () => {
    const { client } = await serve((received, response) => {
      if (isStream(received)) stream(response, []);
      else if (received.url.pathname.endsWith('/events')) {
        json(response, 200, { items: [], nextCursor: null });
      } else json(response, 200, aWorkUnit({ status: 'succeeded' }));
    });
    expect(await collect(client.followEvents('issue42', { afterSeq: 9 }))).toEqual([]);
  });

  it('ends quietly when it is told to, and lets go of the connection', async () => {
    const stop = new AbortController();
    let closed: Promise<unknown> = Promise.reject(new Error('never asked'));
    closed.catch(() => {});
    const { client } = await serve((_, response) => {
      closed = once(response, 'close');
      stream(response, [anEvent(1)], { keepOpen: true });
    });
    const seqs: number[] = [];
    for await (const { seq } of client.followEvents('issue42', { signal: stop.signal })) {
      seqs.push(seq);
      stop.abort();
    }
    expect(seqs).toEqual([1]);
    await closed;
  });

  it('hands out each event once and in order, wherever connections are cut', async () => {
    const events = aRun(12);
    const { client, daemon } = await serve(() => {});
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(1_200), { maxLength: 8 }), async (cuts) => {
        const left = [...cuts];
        daemon.handle((received, response) => {
          if (!isStream(received)) {
            json(response, 200, aWorkUnit());
            return;
          }
          const text = events.slice(afterSeqOf(received)).map(frame).join('');
          const cut = left.shift();
          response.writeHead(200, { 'content-type': 'text/event-stream' });
          if (cut === undefined) response.end(text);
          else response.write(text.slice(0, cut) || ':', () => response.destroy());
        });
        expect(await collect(client.followEvents('issue42'))).toEqual(range(1, 12));
      }),
      { numRuns: 60 },
    );
  });
});
