import { afterEach, describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import {
  anEvent,
  aRun,
  aRuntime,
  aWorkUnit,
  FakeDaemon,
  type Handler,
  json,
  problem,
  stream,
} from './fake-daemon.ts';
import { entry, launch, outlive } from './outlive.ts';

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.dispose()));
});

async function serve(handler: Handler): Promise<FakeDaemon> {
  const daemon = await new FakeDaemon(handler).listen();
  open.push(daemon);
  return daemon;
}

/** A daemon that knows one work unit and its events. */
function oneRun(events: readonly EventView[], workUnit = aWorkUnit()): Handler {
  return ({ method, url, headers }, response) => {
    const after = Number(url.searchParams.get('afterSeq'));
    const left = events.filter(({ seq }) => seq > after);
    if (url.pathname === '/runtime') json(response, 200, aRuntime());
    else if (url.pathname === '/work-units' && method === 'POST') json(response, 201, workUnit);
    else if (url.pathname === '/work-units') {
      json(response, 200, { items: [workUnit], nextCursor: null });
    } else if (!url.pathname.endsWith('/events')) json(response, 200, workUnit);
    else if (headers.accept === 'text/event-stream') stream(response, left);
    else json(response, 200, { items: left, nextCursor: null });
  };
}

const HOSTILE = anEvent(1, 'agent.message', { message: 1, block: 0, delta: 'a\u001b[2Jb\n' });

describe('reading', () => {
  it('ps --json is a list, of all pages', async () => {
    const daemon = await serve(({ url }, response) => {
      const first = url.searchParams.get('cursor') === null;
      const items = [aWorkUnit({ handle: first ? 'one' : 'two' })];
      json(response, 200, { items, nextCursor: first ? 'more' : null });
    });
    const { code, stdout } = await outlive(['ps', '--all', '--json'], daemon);
    const page = JSON.parse(stdout) as { items: { handle: string }[]; nextCursor: null };
    expect(page.items.map(({ handle }) => handle)).toEqual(['one', 'two']);
    expect(page.nextCursor).toBeNull();
    expect(code).toBe(0);
    expect(daemon.requests[0]?.url.searchParams.get('active')).toBe('false');
  });

  it('ps leaves out what outlive runs for itself, and says so when nothing is left', async () => {
    const own = aWorkUnit({ runnerId: 'command', createdByActor: 'scheduler' });
    const daemon = await serve(oneRun([], own));
    const { code, stdout, stderr } = await outlive(['ps'], daemon);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    expect(stderr).toContain('outlive ps --all');
    expect((await outlive(['ps', '--all'], daemon)).stdout).toContain('issue42');
  });

  it('show --json is the work unit', async () => {
    const daemon = await serve(oneRun([]));
    const { stdout } = await outlive(['show', 'issue42', '--json'], daemon);
    expect(JSON.parse(stdout)).toEqual(aWorkUnit());
  });

  it('events --json is NDJSON, one event per line, with and without --follow', async () => {
    const daemon = await serve(oneRun(aRun(5)));
    const lines = (text: string) =>
      text
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
    const stored = await outlive(['events', 'issue42', '--json'], daemon);
    expect(lines(stored.stdout)).toEqual(aRun(5));
    const followed = await outlive(
      ['events', 'issue42', '--json', '--follow', '--after', '2'],
      daemon,
    );
    expect(lines(followed.stdout)).toEqual(aRun(5).slice(2));
    expect([stored.code, followed.code, stored.stderr, followed.stderr]).toEqual([0, 0, '', '']);
  });

  it('logs gives a command back its own output, byte for byte and stream by stream', async () => {
    const events = [
      anEvent(1, 'started', { runner: 'command' }),
      anEvent(2, 'stdout_delta', { text: '\u001b[32mgreen\u001b[0m\n' }),
      anEvent(3, 'stderr_delta', { text: 'half a line' }),
      anEvent(4, 'work_unit.succeeded'),
    ];
    const daemon = await serve(oneRun(events, aWorkUnit({ runnerId: 'command' })));
    expect(await outlive(['logs', 'issue42'], daemon)).toMatchObject({
      code: 0,
      stdout: '\u001b[32mgreen\u001b[0m\n',
      stderr: 'half a line',
    });
  });

  it('daemon status --json has what scripts ask for', async () => {
    const daemon = await serve(oneRun([]));
    const { code, stdout } = await outlive(['daemon', 'status', '--json'], daemon);
    const { runtimeInstanceId, pid, socket, port } = aRuntime();
    expect(JSON.parse(stdout)).toMatchObject({
      runtimeInstanceId,
      pid,
      socket,
      port,
      workspace: 'main',
    });
    expect(code).toBe(0);
  });

  it('daemon start leaves a daemon that answers alone', async () => {
    const daemon = await serve(oneRun([]));
    const { code, stdout, stderr } = await outlive(['daemon', 'start'], daemon);
    expect(code).toBe(0);
    expect(stderr).toContain('running already');
    expect(stdout).toContain('4242');
  });
});

describe('refusals', () => {
  it.each([
    ['not_found', 3],
    ['state_conflict', 5],
    ['unauthorized', 1],
    ['store_newer', 4],
    ['invalid_request', 2],
  ] as const)('%s exits with %d and says what the daemon said', async (code, exit) => {
    const daemon = await serve((_, response) => problem(response, code, `Because ${code}.`));
    const ended = await outlive(['cancel', 'x', '--json'], daemon);
    expect(ended).toMatchObject({
      code: exit,
      stdout: '',
      stderr: `outlive: ${code}: Because ${code}.\n`,
    });
  });

  it('a work tree that the daemon does not find exits with 2', async () => {
    const fields = [{ path: '/cwd', message: 'it does not exist' }];
    const daemon = await serve((_, response) =>
      problem(response, 'cwd_missing', '/nowhere: it does not exist. Give a directory.', fields),
    );
    const ended = await outlive(['run', '--cwd', '/nowhere', '--', 'x'], daemon);
    expect(ended.code).toBe(2);
    expect(ended.stderr).toBe(
      'outlive: cwd_missing: /nowhere: it does not exist. Give a directory.\n',
    );
  });
});

describe('the terminal', () => {
  /** With stdin, stdout and stderr on one pseudo-terminal (script, of bsdutils). */
  const onTerminal = (args: string, daemon: FakeDaemon, env: Record<string, string> = {}) =>
    launch('script', ['-qec', `${process.execPath} ${entry} ${args}`, '/dev/null'], {
      runtimeDirectory: daemon.runtimeDirectory,
      env,
    }).ended;

  it('has colour, but not with NO_COLOR, and never an escape sequence of a model', async () => {
    const call = anEvent(2, 'tool.start', { toolCallId: 'a', tool: 'bash' });
    const daemon = await serve(oneRun([HOSTILE, call, anEvent(3, 'work_unit.succeeded')]));
    const coloured = await onTerminal('logs issue42', daemon);
    expect(coloured.stdout).toContain('a\\x1b[2Jb');
    expect(coloured.stdout).toContain('\u001b[36m→ bash\u001b[39m');
    const plain = await onTerminal('logs issue42', daemon, { NO_COLOR: '1' });
    expect(plain.stdout).toContain('→ bash');
    expect(plain.stdout).not.toContain('\u001b');
  });

  it('shows the final text of a run once, and wipes the status line', async () => {
    const said = anEvent(2, 'agent.message', { message: 1, block: 0, delta: 'All done.' });
    const word = {
      verdict: 'ok',
      code: null,
      message: null,
      text: 'All done.',
      exitCode: 0,
      signal: null,
      usage: null,
      costUsd: 0.5,
      leftovers: [],
    };
    const events = [
      anEvent(1, 'attempt.opened'),
      said,
      anEvent(3, 'runner.finished', word),
      anEvent(4, 'work_unit.succeeded'),
    ];
    const daemon = await serve(oneRun(events));
    const { code, stdout } = await onTerminal('run -- x', daemon, { NO_COLOR: '1' });
    expect(code).toBe(0);
    expect(stdout.split('All done.')).toHaveLength(2);
    expect(stdout).toContain('\r\u001b[2KAll done.\r\nissue42 succeeded · $0.50\r\n');
    const piped = await outlive(['run', '--', 'x'], daemon);
    expect(piped.stdout).toBe('All done.\n');
  });

  it('ends quietly when its reader has gone', async () => {
    const many = Array.from({ length: 5_000 }, (_, index) =>
      anEvent(index + 1, 'progress', { message: 'x'.repeat(200) }),
    );
    const daemon = await serve(oneRun(many));
    const pipeline = `"${process.execPath}" "${entry}" events issue42 --json | head -n 1; echo "\${PIPESTATUS[0]}"`;
    const { stdout, stderr } = await launch('bash', ['-c', pipeline], daemon).ended;
    const [first = '', status] = stdout.split('\n');
    expect(JSON.parse(first)).toEqual(many[0]);
    expect({ status, stderr }).toEqual({ status: '0', stderr: '' });
  });
});
