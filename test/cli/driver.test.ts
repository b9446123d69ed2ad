/** `outlive driver` as a process, against a daemon that answers by script. */
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { DriverDetail, DriverView } from '../../src/api/schemas-drivers.ts';
import { driverSpecSchema, type TickReport } from '../../src/domain/driver.ts';
import {
  anEvent,
  FakeDaemon,
  type Handler,
  json,
  problem,
  stream,
  WORK_UNIT_ID,
} from './fake-daemon.ts';
import { type Ended, outlive } from './outlive.ts';

const undo: (() => void | Promise<void>)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0)) await step();
});

const AT = '2026-11-29T20:00:00.000Z';
const REPORT: TickReport = {
  tick: 3,
  censusId: WORK_UNIT_ID,
  startedAt: AT,
  endedAt: AT,
  ok: true,
  message: null,
  found: 2,
  started: 1,
  subjects: [
    {
      subject: 'issue:1',
      handle: 'i1',
      action: 'started',
      code: null,
      message: null,
      workUnitId: 'w1',
    },
    {
      subject: 'issue:2',
      handle: 'i2',
      action: 'skipped',
      code: 'busy',
      message: 'there is work on it that has not ended (i2)',
      workUnitId: 'w2',
    },
  ],
};

const aDriver = (more: Partial<DriverView> = {}): DriverView => ({
  name: 'issues',
  source: 'cli',
  state: 'active',
  revision: 1,
  spec: driverSpecSchema.parse({
    census: { argv: ['sh', '-c', 'census'] },
    run: { argv: ['sh', '-c', 'work'] },
    every: 300_000,
    cwd: '/w',
    maxAtOnce: 4,
  }),
  underWay: null,
  nextAt: '2026-11-29T20:05:00.000Z',
  failures: 0,
  last: REPORT,
  working: 1,
  held: 1,
  createdAt: AT,
  updatedAt: AT,
  ...more,
});
const FAILED: Partial<DriverView> = {
  failures: 2,
  last: { ...REPORT, ok: false, message: 'The census failed (status 1): no token', subjects: [] },
};
const aDetail = (more: Partial<DriverView> = {}): DriverDetail => ({
  ...aDriver(more),
  holds: [{ subject: 'issue:3', workUnitId: 'w3', code: 'halted', heldAt: AT }],
  subjects: [
    {
      subject: 'issue:1',
      workUnitId: 'w1',
      handle: 'i1',
      status: 'succeeded',
      errorCode: null,
      outcome: 'satisfied',
      attempts: 1,
      createdAt: AT,
      endedAt: AT,
    },
  ],
});

async function serve(handler: Handler): Promise<FakeDaemon> {
  const daemon = await new FakeDaemon(handler).listen();
  undo.push(() => daemon.dispose());
  return daemon;
}
const driver = (daemon: FakeDaemon, args: readonly string[], cwd?: string): Promise<Ended> =>
  outlive(['driver', ...args], {
    runtimeDirectory: daemon.runtimeDirectory,
    ...(cwd === undefined ? {} : { cwd }),
  });
const answering = (body: unknown): Promise<FakeDaemon> =>
  serve((_, response) => json(response, 200, body));

function directory(): string {
  const made = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'outlive-driver-')));
  undo.push(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

describe('driver add', () => {
  it('sends what its options stand for, with paths as meant from here', async () => {
    const daemon = await answering(aDriver());
    const here = directory();
    writeFileSync(path.join(here, 'p.md'), 'Mend {{subject}}');
    const ended = await driver(
      daemon,
      [
        ...['add', 'issues', '--census', './census', '--every', '5m', '--prompt-file', 'p.md'],
        ...['--handle-from', 'number', '--verify', 'make test', '--output', 'out/*.js'],
        ...['--hard-timeout', '90m', '--cwd', 'tree', '--env-file', '.env', '--env-file', '-more'],
        ...['--env', 'A=b=c', '--max-at-once', '4', '--priority=-2', '--max-cost', '2.50'],
        ...['--model', 'lab/x', '--sandbox', 'off', '--leftovers', 'ignore', '--replace'],
      ],
      here,
    );
    expect(ended).toMatchObject({ code: 0, stdout: '' });
    expect(ended.stderr).toContain('It looks for work by itself.');
    const [request] = daemon.requests;
    expect(request).toMatchObject({ method: 'PUT' });
    expect(request?.url.pathname).toBe('/drivers/issues');
    expect(request?.url.searchParams.get('replace')).toBe('true');
    expect(JSON.parse(request?.body ?? '')).toMatchObject({
      census: { argv: ['sh', '-c', './census'], timeoutMs: 120_000 },
      run: { promptFile: path.join(here, 'p.md'), model: 'lab/x' },
      every: 300_000,
      handleFrom: 'number',
      outcome: { verify: { argv: ['sh', '-c', 'make test'] }, outputs: ['out/*.js'] },
      hardTimeoutMs: 5_400_000,
      cwd: path.join(here, 'tree'),
      environment: { A: 'b=c' },
      environmentFiles: [path.join(here, '.env'), `-${path.join(here, 'more')}`],
      maxAtOnce: 4,
      priority: -2,
      spendCeiling: { maxCostUsd: 2.5 },
      sandbox: 'off',
      leftovers: 'ignore',
    });
  });

  it.each<[string, string[], string]>([
    [
      'X24: a prompt file that is missing',
      ['--prompt-file', 'nowhere.md'],
      '--prompt-file cannot be read',
    ],
    ['nothing to run', [], 'Give one of --run, --prompt and --prompt-file'],
    ['two things to run', ['--run', 'a', '--prompt', 'b'], 'Give one of'],
    ['a model for a command', ['--run', 'a', '--model', 'b/c'], '--model: is for prompts'],
    ['an interval below a second', ['--run', 'a', '--every', '10ms'], '--every: '],
    ['a number that is none', ['--run', 'a', '--max-at-once', 'all'], '--max-at-once "all"'],
    ['a variable without a value', ['--run', 'a', '--env', 'A'], '--env "A" is not NAME=VALUE'],
    ['a verify timeout alone', ['--run', 'a', '--verify-timeout', '1m'], 'is for --verify'],
  ])('with %s is a usage error that asks no daemon', async (_, args, message) => {
    const daemon = await answering(aDriver());
    const ended = await driver(daemon, ['add', 'issues', '--census', 'c', ...args]);
    expect(ended).toMatchObject({ code: 2, stdout: '' });
    expect(ended.stderr).toContain(message);
    expect(daemon.requests).toEqual([]);
  });

  it('without a census is a usage error', async () => {
    const ended = await outlive(['driver', 'add', 'issues', '--run', 'x']);
    expect(ended.code).toBe(2);
    expect(ended.stderr).toContain('--census');
  });
});

describe('driver list', () => {
  it('tells of each in a line', async () => {
    const { code, stdout } = await driver(
      await answering({ items: [aDriver()], nextCursor: null }),
      [],
    );
    expect(code).toBe(0);
    expect(
      stdout
        .trim()
        .split('\n')
        .map((line) => line.split(/ {2,}/)),
    ).toEqual([
      ['DRIVER', 'STATE', 'EVERY', 'NEXT', 'WORKING', 'HELD', 'LAST'],
      [
        'issues',
        'active',
        '5m',
        '2026-11-29T20:05:00Z',
        '1 of 4',
        '1',
        '1 of 2 started at 2026-11-29T20:00:00Z',
      ],
    ]);
  });

  it('shows FAILING with the message where censuses fail', async () => {
    const daemon = await answering({ items: [aDriver(FAILED)], nextCursor: null });
    const { stdout } = await driver(daemon, ['list']);
    expect(stdout).toMatch(/issues\s+FAILING .*The census failed \(status 1\): no token/);
  });
});

describe('driver show', () => {
  it('has the last census, subjects and holds', async () => {
    const { code, stdout } = await driver(await answering(aDetail()), ['show', 'issues']);
    expect(code).toBe(0);
    expect(stdout).toContain('issues  active\n');
    expect(stdout).toContain('issues: tick 3 found 2 and started 1\n');
    expect(stdout).toMatch(/skipped {2}issue:2 {2}i2 {2}busy: there is work on it/);
    expect(stdout).toMatch(/held until they are resumed:\n {2}issue:3 {2}halted/);
    expect(stdout).toMatch(/newest work:\n {2}issue:1 {2}i1 {2}succeeded {2}satisfied/);
  });

  it('of one that is not there exits with 3', async () => {
    const daemon = await serve((_, response) => problem(response, 'not_found', 'There is none.'));
    expect((await driver(daemon, ['show', 'x'])).code).toBe(3);
  });
});

describe('driver tick', () => {
  /** A tick that is under way until its census's events have been read. */
  const ticking = (last: TickReport): Promise<FakeDaemon> =>
    serve(({ url, method }, response) => {
      const underWay = { tick: 3, censusId: WORK_UNIT_ID, startedAt: AT };
      if (url.pathname === '/drivers/issues/tick')
        json(response, 200, { driver: aDriver({ underWay, last: null }), tick: 3, begun: true });
      else if (url.pathname.endsWith('/events'))
        stream(response, [anEvent(1, 'work_unit.succeeded')]);
      else if (method === 'GET' && url.pathname === '/drivers/issues')
        json(response, 200, aDetail({ last, failures: last.ok ? 0 : 1 }));
      else problem(response, 'not_found', url.pathname);
    });

  it('waits for the census, and says what was started, what was not, and why', async () => {
    const { code, stdout } = await driver(await ticking(REPORT), ['tick', 'issues']);
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: `issues: tick 3 found 2 and started 1
  started  issue:1  i1
  skipped  issue:2  i2  busy: there is work on it that has not ended (i2)
`,
    });
  });

  it('exits with 1 where it failed, and says why', async () => {
    const failed = { ...REPORT, ok: false, message: 'line 2: it is not JSON' };
    const { code, stdout } = await driver(await ticking(failed), ['tick', 'issues']);
    expect(code).toBe(1);
    expect(stdout).toBe('issues: tick 3 failed. line 2: it is not JSON\n');
  });

  it('with --no-wait only begins it', async () => {
    const daemon = await ticking(REPORT);
    const { code, stdout, stderr } = await driver(daemon, ['tick', 'issues', '--no-wait']);
    expect({ code, stdout, stderr }).toEqual({
      code: 0,
      stdout: '',
      stderr: 'Tick 3 of issues has begun.\n',
    });
    expect(daemon.requests).toHaveLength(1);
  });
});

describe('driver pause, resume and remove', () => {
  it.each<[string[], object, object, string]>([
    [['pause', 'issues'], aDriver({ state: 'paused' }), {}, 'issues is paused; what runs goes on.'],
    [['pause', 'issues', 'issue:1'], aDriver(), { subject: 'issue:1' }, 'issue:1 is held'],
    [
      ['resume', 'issues'],
      { driver: aDriver(), released: ['issue:3'] },
      {},
      'issues is active. Held no more: issue:3.',
    ],
    [['remove', 'issues'], { name: 'issues' }, {}, 'issues is removed; what runs goes on.'],
  ])('%j says what it did', async (args, answer, body, said) => {
    const daemon = await answering(answer);
    const ended = await driver(daemon, args);
    expect(ended).toMatchObject({ code: 0, stdout: '' });
    expect(ended.stderr).toContain(said);
    expect(daemon.requests[0]?.url.pathname).toBe(`/drivers/issues/${args[0]}`);
    expect(JSON.parse(daemon.requests[0]?.body ?? '')).toEqual(body);
  });
});
