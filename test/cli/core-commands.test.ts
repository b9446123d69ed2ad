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
    [['completion', 'csh'], 'Allowed choices are bash, zsh, fish'],
    [['channels', 'set', 'x', '--max-concurrent-runs', '0'], '--max-concurrent-runs "0"'],
    [['channels', 'set', 'x', '--on-newer', 'y'], 'Allowed choices are block, supersede, queue'],
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
