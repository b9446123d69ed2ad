/** The commands of the durable core as processes, against a daemon that answers by script. */
import { afterEach, describe, expect, it } from 'vitest';
import { aWorkUnit, FakeDaemon, type Handler, json, problem } from './fake-daemon.ts';
import { outlive } from './outlive.ts';

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.dispose()));
});

async function serve(handler: Handler): Promise<FakeDaemon> {
  const daemon = await new FakeDaemon(handler).listen();
  open.push(daemon);
  return daemon;
}

const COMMANDS = [
  ['retry'],
  ['reconcile'],
  ['channels'],
  ['channels', 'list'],
  ['channels', 'pause'],
  ['channels', 'resume'],
  ['channels', 'archive'],
  ['channels', 'set'],
  ['active'],
  ['stuck'],
  ['leases'],
  ['slots'],
  ['attempts'],
  ['artifacts'],
  ['artifact'],
  ['explain'],
  ['pause'],
  ['drain'],
  ['resume'],
  ['completion'],
];

describe('help', () => {
  it.each(COMMANDS)('%s %s has one, with an example that calls it', async (...words) => {
    const command = words.filter((word) => typeof word === 'string');
    const { code, stdout, stderr } = await outlive([...command, '--help']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain(`Usage: outlive ${command.join(' ')}`);
    expect(stdout).toMatch(new RegExp(`Example:\\n  outlive ${command.join(' ')}\\b`));
  });
});

describe('without a daemon', () => {
  it.each([
    [['retry', 'x']],
    [['reconcile']],
    [['channels']],
    [['channels', 'pause', 'x']],
    [['active']],
    [['stuck']],
    [['leases']],
    [['slots']],
    [['attempts', 'x']],
    [['artifacts', 'x']],
    [['artifact', 'x', 'diff']],
    [['explain', 'x']],
    [['pause']],
    [['drain', '--wait']],
    [['resume']],
    [['run', '--dry-run', '--', 'x']],
  ])('%j exits with 4', async (args) => {
    const { code, stdout, stderr } = await outlive(args);
    expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
    expect(stderr).toContain('Start it with: outlive daemon start\n');
  });

  it('completion needs none', async () => {
    for (const shell of ['bash', 'zsh', 'fish']) {
      const { code, stdout } = await outlive(['completion', shell]);
      expect(code).toBe(0);
      expect(stdout).toContain('outlive');
    }
  });
});

describe('usage', () => {
  it.each<[string[], string]>([
    [['retry'], "missing required argument 'handle'"],
    [['artifact', 'x', 'core'], 'Allowed choices are stdout, stderr, transcript, diff'],
    [['artifact', 'x', 'diff', '--attempt', '0'], '"0" is not the number of an attempt'],
    [['completion', 'csh'], 'Allowed choices are bash, zsh, fish'],
    [['channels', 'set', 'x', '--max-concurrent-runs', '0'], '--max-concurrent-runs "0"'],
    [['channels', 'set', 'x', '--on-newer', 'y'], 'Allowed choices are block, supersede, queue'],
    [['run', '--max-cost', '0', '--', 'y'], '--max-cost "0" is not an amount of US dollars'],
    [['run', '--max-cost', '1e3', '--', 'y'], '--max-cost "1e3"'],
    [['run', '--max-tokens', '1g', '--', 'y'], '--max-tokens "1g" is not a number of tokens'],
    [['run', '--provider-attempts', '0', '--', 'y'], '--provider-attempts "0"'],
    [['channels', 'set', 'x', '--max-cost-per-day', 'x'], '--max-cost-per-day "x"'],
    [['providers', 'resume'], "missing required argument 'name'"],
    [['run', '--lease', 'x', '--', 'y'], '--lease "x" is not TYPE:KEY'],
    [['run', '--lease', 'moon:x', '--', 'y'], 'Types: task, channel'],
    [['run', '--channel', '', '--', 'y'], '--channel: '],
    [['run', '--on-newer', 'z', '--', 'y'], 'Allowed choices are block, supersede, queue'],
  ])('%j exits with 2', async (args, said) => {
    const { code, stdout, stderr } = await outlive(args);
    expect(stderr).toContain(said);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  });
});

describe('what is sent', () => {
  it('run: channel, subject, policy, leases and no queue', async () => {
    const daemon = await serve((_, response) => json(response, 201, aWorkUnit()));
    const { runtimeDirectory } = daemon;
    const args = [
      ...['run', '--detach', '--channel', 'eng', '--subject', 'github:a/b#1'],
      ...['--on-newer', 'supersede', '--no-queue', '--no-exclusive', '--cwd', '/repo'],
      ...['--lease', 'bound_path:data', '--lease', 'task:7', '--', 'fix', 'it'],
    ];
    expect((await outlive(args, { runtimeDirectory, cwd: '/tmp' })).code).toBe(0);
    expect(JSON.parse(daemon.requests[0]?.body ?? '')).toMatchObject({
      channelId: 'eng',
      externalSubject: 'github:a/b#1',
      onNewerSubject: 'supersede',
      queueOnConflict: false,
      exclusive: false,
      prompt: 'fix it',
      leases: [
        { type: 'bound_path', key: '/tmp/data' },
        { type: 'task', key: '7' },
      ],
    });
  });

  it('run: preset, ceilings and how often its provider may fail', async () => {
    const daemon = await serve((_, response) => json(response, 201, aWorkUnit()));
    const { runtimeDirectory } = daemon;
    const args = [
      ...['run', '--detach', '--preset', 'fast', '--max-cost', '$2.50', '--max-tokens', '200k'],
      ...['--provider-attempts', '1', '--', 'fix'],
    ];
    expect((await outlive(args, { runtimeDirectory, cwd: '/tmp' })).code).toBe(0);
    expect(JSON.parse(daemon.requests[0]?.body ?? '')).toMatchObject({
      providerPresetId: 'fast',
      spendCeiling: { maxCostUsd: 2.5, maxTokens: 200_000 },
      providerRetry: { maxAttempts: 1 },
    });
  });

  it('channels set: ceilings of a day, and none takes one away', async () => {
    const channel = {
      id: 'eng',
      status: 'active',
      maxConcurrentRuns: 1,
      onNewerSubject: 'queue',
      running: 0,
      queued: 0,
      spend: aWorkUnit().spend,
      createdAt: '2026-01-02T03:04:05.678Z',
      updatedAt: '2026-01-02T03:04:05.678Z',
    };
    const daemon = await serve((_, response) => json(response, 200, channel));
    const { runtimeDirectory } = daemon;
    const args = [
      'channels',
      'set',
      'eng',
      '--max-cost-per-day',
      '20',
      '--max-tokens-per-day',
      'none',
    ];
    expect((await outlive(args, { runtimeDirectory })).code).toBe(0);
    expect(JSON.parse(daemon.requests[0]?.body ?? '')).toEqual({
      maxCostUsdPerDay: 20,
      maxTokensPerDay: null,
    });
  });

  it('providers: listed with what pauses them; resume names its provider', async () => {
    const provider = {
      name: 'acme/eu',
      state: 'open',
      failures: 3,
      openUntil: '2026-01-02T03:04:05.678Z',
      errorCode: 'rate_limited',
      errorMessage: '429',
      blocked: 'provider acme/eu is paused until later',
      waiting: 4,
      used: 0,
      limit: null,
      model: null,
    };
    const daemon = await serve(({ method }, response) =>
      json(
        response,
        200,
        method === 'GET'
          ? { items: [provider], nextCursor: null }
          : { ...provider, state: 'closed', blocked: null },
      ),
    );
    const { runtimeDirectory } = daemon;
    const { stdout } = await outlive(['providers'], { runtimeDirectory });
    expect(stdout).toMatch(/^acme\/eu +open +0 +none +4 +- +provider acme\/eu is paused/m);
    const { code, stderr } = await outlive(['providers', 'resume', 'acme/eu'], {
      runtimeDirectory,
    });
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: 'acme/eu is closed; what waited for it may start.\n',
    });
    expect(daemon.requests[1]?.url.pathname).toBe('/providers/acme%2Feu/resume');
  });

  it('spend: today, of what may be, by channel, and what has no price', async () => {
    const some = {
      costUsd: 1.25,
      tokens: 1_000,
      unpricedTokens: 0,
      maxCostUsd: 20,
      maxTokens: null,
      remainingCostUsd: 18.75,
      remainingTokens: null,
    };
    const none = { ...some, maxCostUsd: null, remainingCostUsd: null, unpricedTokens: 7 };
    const daemon = await serve((_, response) =>
      json(response, 200, {
        ...some,
        day: '2026-01-02',
        timeZone: 'Europe/Berlin',
        channels: [{ ...none, channelId: 'eng' }],
      }),
    );
    const { stdout } = await outlive(['spend'], daemon);
    expect(stdout.split('\n')).toEqual([
      '2026-01-02 (Europe/Berlin)  $1.25 of $20.00 (left $18.75), 1000 tokens',
      '  channel eng               $1.25, 1000 tokens, the cost of 7 tokens is not known',
      '',
    ]);
  });

  it('retry: a key of its own, or the given one; lost answers are asked for again', async () => {
    const daemon = await serve((_, response) => {
      if (daemon.requests.length === 1) response.destroy();
      else json(response, 200, aWorkUnit({ status: 'queued' }));
    });
    const { runtimeDirectory } = daemon;
    expect(await outlive(['retry', 'issue42'], { runtimeDirectory })).toMatchObject({ code: 0 });
    const keys = daemon.requests.map(({ headers }) => headers['idempotency-key']);
    expect(keys).toHaveLength(2);
    expect(keys[0]).toBe(keys[1]);
    await outlive(['retry', 'issue42', '--idempotency-key', 'k'], { runtimeDirectory });
    expect(daemon.requests.at(-1)?.headers['idempotency-key']).toBe('k');
  });

  it('a refusal exits with the status of its code', async () => {
    const daemon = await serve((_, response) =>
      problem(response, 'stale_unproved', 'Something of outlive-main-x-1.service may still run.'),
    );
    const { runtimeDirectory } = daemon;
    const { code, stderr } = await outlive(['retry', 'x'], { runtimeDirectory });
    expect(code).toBe(5);
    expect(stderr).toContain('outlive-main-x-1.service');
  });
});

describe('lists', () => {
  it.each(['active', 'stuck', 'leases', 'slots', 'channels'])(
    '%s prints an empty one as JSON, and for people a word on stderr',
    async (command) => {
      const daemon = await serve((_, response) =>
        json(response, 200, { items: [], nextCursor: null }),
      );
      const { runtimeDirectory } = daemon;
      const args = command === 'channels' ? ['channels', 'list'] : [command];
      const forPrograms = await outlive([...args, '--json'], { runtimeDirectory });
      expect(forPrograms).toMatchObject({ code: 0, stdout: '{"items":[],"nextCursor":null}\n' });
      const forPeople = await outlive(args, { runtimeDirectory });
      expect(forPeople).toMatchObject({ code: 0, stdout: '' });
      expect(forPeople.stderr).not.toBe('');
    },
  );
});
