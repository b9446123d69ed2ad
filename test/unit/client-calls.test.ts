import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { createClient } from '../../src/client/client.ts';
import type { OutliveError } from '../../src/domain/errors.ts';
import {
  anEvent,
  aRuntime,
  aWorkUnit,
  FakeDaemon,
  type Handler,
  json,
  problem,
  WORK_UNIT_ID,
} from '../cli/fake-daemon.ts';

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.dispose()));
});

async function serve(handler: Handler, timeoutMs = 5_000) {
  const daemon = await new FakeDaemon(handler).listen();
  open.push(daemon);
  return { daemon, client: createClient({ socketPath: daemon.socketPath, timeoutMs }) };
}

const START = { runnerId: 'pi', ownerId: 'ada', prompt: 'hello', cwd: '/repo' } as const;

const failure = (promise: Promise<unknown>): Promise<OutliveError> =>
  promise.then(
    () => expect.unreachable('it should have been refused'),
    (error: OutliveError) => error,
  );

describe('startWorkUnit', () => {
  it('sends a key of its own making in header and body, and tells new from known', async () => {
    let status = 201;
    const { daemon, client } = await serve((_, response) => json(response, status, aWorkUnit()));
    expect(await client.startWorkUnit(START)).toEqual({ workUnit: aWorkUnit(), created: true });
    status = 200;
    expect((await client.startWorkUnit(START)).created).toBe(false);
    const keys = daemon.requests.map(({ headers }) => headers['idempotency-key']);
    expect(keys[0]).toMatch(/^[0-9a-f-]{36}$/);
    expect(keys[1]).not.toBe(keys[0]);
    const body = JSON.parse(daemon.requests[0]?.body ?? '') as { idempotencyKey: string };
    expect(body.idempotencyKey).toBe(keys[0]);
  });

  it('keeps the key it is given', async () => {
    const { daemon, client } = await serve((_, response) => json(response, 201, aWorkUnit()));
    await client.startWorkUnit({ ...START, idempotencyKey: 'mine' });
    expect(daemon.requests[0]?.headers['idempotency-key']).toBe('mine');
  });

  it('sends the same again, once, when the connection is lost before the answer', async () => {
    const { daemon, client } = await serve((_, response) => {
      if (daemon.requests.length === 1) response.destroy();
      else json(response, 200, aWorkUnit());
    });
    expect((await client.startWorkUnit(START)).workUnit.handle).toBe('issue42');
    const [first, second] = daemon.requests;
    expect(second?.body).toBe(first?.body);
    expect(second?.headers['idempotency-key']).toBe(first?.headers['idempotency-key']);
  });

  it('waits for a daemon that died with the request to come back', async () => {
    const { daemon, client } = await serve((_, response) => {
      response.destroy();
      daemon.handle((_again, answer) => json(answer, 200, aWorkUnit()));
      void daemon.die().then(() => setTimeout(() => void daemon.listen(), 200));
    });
    expect((await client.startWorkUnit(START)).workUnit.id).toBe(WORK_UNIT_ID);
    expect(daemon.requests).toHaveLength(2);
  });

  it('gives up after the second loss', async () => {
    const { daemon, client } = await serve((_, response) => void response.destroy());
    const error = await failure(client.startWorkUnit(START));
    expect(error).toMatchObject({ code: 'daemon_unreachable', exit: 4, extra: { reason: 'lost' } });
    expect(daemon.requests).toHaveLength(2);
  });

  it('does not repeat what was refused', async () => {
    const { daemon, client } = await serve((_, response) =>
      problem(response, 'handle_taken', 'Handle "x" is taken.', [
        { path: '/handle', message: 'taken' },
      ]),
    );
    const error = await failure(client.startWorkUnit({ ...START, handle: 'x' }));
    expect(error).toMatchObject({
      code: 'handle_taken',
      message: 'Handle "x" is taken.',
      exit: 5,
      fields: [{ path: '/handle', message: 'taken' }],
    });
    expect(daemon.requests).toHaveLength(1);
  });

  it('refuses what the schema refuses without asking, naming the field', async () => {
    const { daemon, client } = await serve((_, response) => json(response, 201, aWorkUnit()));
    const error = await failure(client.startWorkUnit({ ...START, handle: 'Not Good' }));
    expect(error.code).toBe('invalid_request');
    expect(error.fields[0]?.path).toBe('/handle');
    expect(daemon.requests).toHaveLength(0);
  });
});

describe('other calls', () => {
  it('list, get, cancel and runtime ask for what they say', async () => {
    const { daemon, client } = await serve(({ url }, response) => {
      if (url.pathname === '/runtime') json(response, 200, aRuntime());
      else if (url.pathname === '/work-units') {
        json(response, 200, { items: [aWorkUnit()], nextCursor: 'next' });
      } else json(response, 200, aWorkUnit({ status: 'cancelling' }));
    });
    expect((await client.runtime()).pid).toBe(4242);
    const page = await client.listWorkUnits({ active: true, limit: 5, cursor: 'a b' });
    expect(page.nextCursor).toBe('next');
    await client.getWorkUnit('a/../b');
    await client.cancelWorkUnit('issue42', { reason: 'why' });
    expect(
      daemon.requests.map(({ method, url }) => `${method} ${url.pathname}${url.search}`),
    ).toEqual([
      'GET /runtime',
      'GET /work-units?active=true&limit=5&cursor=a+b',
      'GET /work-units/a%2F..%2Fb',
      'POST /work-units/issue42/cancel',
    ]);
    expect(daemon.requests[3]?.body).toBe('{"reason":"why"}');
  });

  it('allEvents reads every page, by id from the first event on', async () => {
    const { daemon, client } = await serve(({ url }, response) => {
      const after = Number(url.searchParams.get('afterSeq'));
      json(response, 200, {
        items: [anEvent(after + 1), anEvent(after + 2)],
        nextCursor: after < 4 ? String(after + 2) : null,
      });
    });
    const seqs = [];
    for await (const event of client.allEvents('issue42')) seqs.push(event.seq);
    expect(seqs).toEqual([1, 2, 3, 4, 5, 6]);
    expect(daemon.requests.map(({ url }) => url.pathname)).toEqual([
      '/work-units/issue42/events',
      `/work-units/${WORK_UNIT_ID}/events`,
      `/work-units/${WORK_UNIT_ID}/events`,
    ]);
  });
});

describe('errors', () => {
  it('keeps the detail of a code it does not know', async () => {
    const { client } = await serve((_, response) =>
      json(response, 418, {
        type: 'x',
        title: 'x',
        status: 418,
        code: 'teapot',
        detail: 'Short and stout.',
        errors: [],
      }),
    );
    const error = await failure(client.runtime());
    expect(error.code).toBe('internal');
    expect(error.message).toContain('Short and stout.');
    expect(error.message).toContain('teapot');
  });

  it('shows the start of a refusal that is no problem document', async () => {
    const { client } = await serve((_, response) => void response.writeHead(502).end('<h1>bad'));
    const error = await failure(client.runtime());
    expect(error.message).toBe('The daemon answered 502 without saying why: <h1>bad');
  });

  it('names the field of an answer it does not understand', async () => {
    const { client } = await serve((_, response) =>
      json(response, 200, { ...aRuntime(), pid: 'x' }),
    );
    const error = await failure(client.runtime());
    expect(error.code).toBe('internal');
    expect(error.message).toContain('pid');
  });

  it('says that nobody listens where there is no socket', async () => {
    const { daemon, client } = await serve(() => {});
    await daemon.die();
    expect(existsSync(daemon.socketPath)).toBe(false);
    expect((await failure(client.runtime())).extra['reason']).toBe('absent');
  });

  it('says the same of a socket that a killed daemon left behind', async () => {
    const { daemon, client } = await serve(() => {});
    await daemon.die();
    const script = `require('net').createServer().listen(process.argv[1], () => console.log('up'))`;
    const child = spawn(process.execPath, ['-e', script, daemon.socketPath]);
    await once(child.stdout, 'data');
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(existsSync(daemon.socketPath)).toBe(true);
    expect((await failure(client.runtime())).extra['reason']).toBe('absent');
  });

  it('waits for an answer only so long, head and body alike', async () => {
    const mute = await serve(() => {}, 150);
    const began = performance.now();
    expect((await failure(mute.client.runtime())).extra['reason']).toBe('timeout');
    const endless = await serve((_, response) => void response.writeHead(200).write('{'), 150);
    expect((await failure(endless.client.runtime())).extra['reason']).toBe('timeout');
    expect(performance.now() - began).toBeLessThan(3_000);
  });

  it('names a socket path that no socket can have', async () => {
    const client = createClient({ socketPath: `/tmp/${'x'.repeat(120)}/api.sock` });
    const error = await failure(client.runtime());
    expect(error.code).toBe('socket_path_too_long');
    expect(error.message).toContain('XDG_RUNTIME_DIR');
  });
});
