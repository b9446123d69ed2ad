/** /drivers over real HTTP; nothing is claimed here, so a census stays queued. */
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type DriverSpecInput,
  driverDetailSchema,
  driverPageSchema,
} from '../../src/api/schemas-drivers.ts';
import type { Client } from '../../src/client/client.ts';
import { createClient } from '../../src/client/client.ts';
import type { ErrorCode } from '../../src/domain/errors.ts';
import { OutliveError } from '../../src/domain/errors.ts';
import { refused, send } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
let client: Client;
beforeEach(async () => {
  rig = await bootApi();
  client = createClient({ socketPath: rig.socketPath });
});
afterEach(cleanUp);

const spec = (more: Partial<DriverSpecInput> = {}): DriverSpecInput => ({
  census: { argv: ['census'] },
  run: { argv: ['work'] },
  cwd: rig.directory,
  ...more,
});

async function codeOf(call: Promise<unknown>): Promise<ErrorCode> {
  const error = await call.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (error instanceof OutliveError) return error.code;
  throw new Error('it was not refused');
}

describe('a driver', () => {
  it('is made with defaults, listed, shown, and made again without effect', async () => {
    const made = await client.putDriver('issues', spec());
    expect(made).toMatchObject({
      name: 'issues',
      source: 'cli',
      state: 'active',
      revision: 1,
      nextAt: null,
      underWay: null,
      last: null,
      spec: {
        census: { argv: ['census'], timeoutMs: 120_000 },
        leftovers: 'fail',
        hardTimeoutMs: 5_400_000,
        maxAtOnce: 1,
        handleFrom: 'handle',
      },
    });
    expect(await client.putDriver('issues', spec())).toEqual(made);
    expect((await client.drivers()).items).toEqual([made]);
    expect(await client.driver('issues')).toEqual({ ...made, holds: [], subjects: [] });
  });

  it('takes another specification only when told so, and grows its revision', async () => {
    await client.putDriver('issues', spec());
    expect(await codeOf(client.putDriver('issues', spec({ priority: 1 })))).toBe('state_conflict');
    const replaced = await client.putDriver('issues', spec({ priority: 1 }), true);
    expect(replaced).toMatchObject({ revision: 2, spec: { priority: 1 } });
  });

  it('shows the names of its variables and not their values', async () => {
    await client.putDriver('issues', spec({ environment: { TOKEN: 'hunter2' } }));
    const { text } = await send(rig.socket, { path: '/drivers/issues' });
    expect(text).toContain('"TOKEN"');
    expect(text).not.toContain('hunter2');
  });

  it('has a channel of its own that holds as many runs as may be', async () => {
    await client.putDriver('issues', spec({ maxAtOnce: 3 }));
    expect(await client.getChannel('driver:issues')).toMatchObject({ maxConcurrentRuns: 3 });
  });

  it.each([
    [
      'X24: a prompt file that is missing',
      { run: { promptFile: '/nowhere/p.md' } },
      '/run/promptFile',
    ],
    ['a directory that is none', { cwd: '/nowhere/at/all' }, '/cwd'],
    ['two things to run', { run: { argv: ['a'], prompt: 'b' } }, '/run'],
    ['a model for a command', { run: { argv: ['a'], model: 'b/c' } }, '/run/model'],
    ['a tool policy for a command', { toolPolicy: { rules: [] } }, '/toolPolicy'],
  ])('with %s is refused, naming the field', async (_, more, at) => {
    const answer = await send(rig.socket, {
      method: 'PUT',
      path: '/drivers/issues',
      body: spec(more as Partial<DriverSpecInput>),
    });
    const { status, paths } = refused(answer);
    expect(status).toBe(422);
    expect(paths).toEqual([at]);
    expect((await client.drivers()).items).toEqual([]);
  });

  it('is paused, resumed and removed; whoever is not there is not found', async () => {
    await client.putDriver('issues', spec());
    expect((await client.pauseDriver('issues')).state).toBe('paused');
    expect(await codeOf(client.tickDriver('issues'))).toBe('state_conflict');
    expect(await client.resumeDriver('issues')).toMatchObject({
      driver: { state: 'active' },
      released: [],
    });
    await client.removeDriver('issues');
    expect((await client.drivers()).items).toEqual([]);
    for (const call of [
      client.driver('issues'),
      client.pauseDriver('issues'),
      client.resumeDriver('issues'),
      client.removeDriver('issues'),
      client.tickDriver('issues'),
    ]) {
      expect(await codeOf(call)).toBe('not_found');
    }
  });
});

describe('a tick', () => {
  it('is under way until its census has ended; a second request is told of it', async () => {
    await client.putDriver('issues', spec());
    const begun = await client.tickDriver('issues');
    expect(begun).toMatchObject({ tick: 1, begun: true, driver: { underWay: { tick: 1 } } });
    expect(await client.tickDriver('issues')).toMatchObject({ tick: 1, begun: false });
    const census = await client.getWorkUnit(begun.driver.underWay?.censusId ?? '');
    expect(census).toMatchObject({
      handle: 'issues-census-1',
      ownerType: 'driver_census',
      ownerId: 'issues',
      idempotencyKey: 'driver-census issues 1',
      status: 'queued',
      hardTimeoutMs: 120_000,
      cwd: rig.directory,
    });
  });

  it('whose census is cancelled has failed, and is told with its message', async () => {
    await client.putDriver('issues', spec());
    const { driver } = await client.tickDriver('issues');
    await client.cancelWorkUnit(driver.underWay?.censusId ?? '');
    expect(await client.driver('issues')).toMatchObject({
      failures: 1,
      underWay: null,
      last: { tick: 1, ok: false, message: expect.stringContaining('was cancelled') as string },
    });
  });

  it('is refused while the workspace is paused', async () => {
    await client.putDriver('issues', spec());
    await client.pause();
    expect(await codeOf(client.tickDriver('issues'))).toBe('state_conflict');
    await client.resume();
    expect((await client.tickDriver('issues')).begun).toBe(true);
  });

  it('of a driver whose directory is gone by then has failed without a census', async () => {
    const cwd = path.join(rig.directory, 'run');
    const row = rig.context.drivers.put(
      'issues',
      (await client.putDriver('issues', spec())).spec,
      true,
    );
    rig.store.write(() =>
      rig.store.drivers.put({
        ...row,
        spec: { ...row.spec, cwd },
        nextAt: null,
        at: row.createdAt,
      }),
    );
    expect(await client.tickDriver('issues')).toMatchObject({
      tick: 1,
      driver: {
        underWay: null,
        failures: 1,
        last: { censusId: null, message: expect.stringContaining(cwd) as string },
      },
    });
  });
});

describe('one subject', () => {
  it('is held and taken up again', async () => {
    await client.putDriver('issues', spec());
    await client.pauseDriver('issues', 'a');
    const { holds, held } = await client.driver('issues');
    expect({ holds, held }).toMatchObject({
      held: 1,
      holds: [{ subject: 'a', workUnitId: null, code: 'held_by_request' }],
    });
    expect((await client.resumeDriver('issues', 'a')).released).toEqual(['a']);
    expect(await codeOf(client.resumeDriver('issues', 'a'))).toBe('not_found');
  });
});

it('answers are as the document says', async () => {
  await client.putDriver('issues', spec());
  const page = await send(rig.socket, { path: '/drivers' });
  const one = await send(rig.socket, { path: '/drivers/issues' });
  expect(() => driverPageSchema.parse(JSON.parse(page.text))).not.toThrow();
  expect(() => driverDetailSchema.parse(JSON.parse(one.text))).not.toThrow();
});
