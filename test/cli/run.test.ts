import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { EventView, WorkUnitView } from '../../src/api/schemas.ts';
import {
  anEvent,
  aWorkUnit,
  FakeDaemon,
  frame,
  json,
  problem,
  type Received,
  stream,
  WORK_UNIT_ID,
} from './fake-daemon.ts';
import { outlive, start } from './outlive.ts';

const open: FakeDaemon[] = [];
const scratch = mkdtempSync(path.join(os.tmpdir(), 'outlive-run-'));
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.dispose()));
});
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }));

type Streamed = (received: Received, response: http.ServerResponse) => void;

/** A daemon that takes any work and lets the test decide what its events are. */
async function serve(
  streamed: Streamed,
  workUnit: WorkUnitView = aWorkUnit(),
): Promise<FakeDaemon> {
  const daemon = await new FakeDaemon((received, response) => {
    if (received.headers.accept === 'text/event-stream') streamed(received, response);
    else json(response, received.method === 'POST' ? 201 : 200, workUnit);
  }).listen();
  open.push(daemon);
  return daemon;
}

const ending = (type: EventView['type'], errorCode: string | null = null): Streamed => {
  return (_, response) =>
    stream(response, [anEvent(1, 'work_unit.started'), anEvent(2, type, { errorCode })]);
};

const request = (daemon: FakeDaemon) =>
  JSON.parse(daemon.requests[0]?.body ?? '') as Record<string, unknown>;

describe('the exit status of run', () => {
  it.each([
    ['work_unit.succeeded', null, 0],
    ['work_unit.failed', 'exit_code', 1],
    ['work_unit.failed', 'provider_auth', 1],
    ['work_unit.failed', 'hard_timeout', 124],
    ['work_unit.failed', 'idle_timeout', 124],
    ['work_unit.failed', 'heartbeat_timeout', 124],
    ['work_unit.failed', 'tool_timeout', 124],
    ['work_unit.cancelled', 'stopped_externally', 130],
  ] as const)('%s %s is %d', async (type, errorCode, exit) => {
    const daemon = await serve(ending(type, errorCode));
    const { code, stdout, stderr } = await outlive(['run', '--', 'x'], daemon);
    expect({ code, stdout }).toEqual({ code: exit, stdout: '' });
    expect(stderr).toContain(`issue42 ${type.slice('work_unit.'.length)} after 1s`);
    expect(stderr).toContain(errorCode === null ? '' : `\n${errorCode}: `);
  });
});

describe('what run sends', () => {
  it('words after "--" as they are, and who asks from where', async () => {
    const daemon = await serve(ending('work_unit.succeeded'));
    const args = [
      '--handle',
      'h1',
      '--json',
      '--',
      '@notes',
      '-x',
      '--workspace',
      'z',
      '--',
      'end',
    ];
    const { code } = await outlive(['run', ...args], {
      runtimeDirectory: daemon.runtimeDirectory,
      cwd: scratch,
    });
    expect(code).toBe(0);
    expect(request(daemon)).toMatchObject({
      prompt: '@notes -x --workspace z -- end',
      handle: 'h1',
      cwd: scratch,
      ownerId: os.userInfo().username,
      createdByClientId: 'cli',
    });
  });

  it('a prompt of 1 MB from a file and from stdin', async () => {
    const daemon = await serve(ending('work_unit.succeeded'));
    const prompt = `@${'0123456789abcde\n'.repeat(65_536)}`;
    const file = path.join(scratch, 'prompt');
    writeFileSync(file, prompt);
    for (const [source, stdin] of [
      [file, ''],
      ['-', prompt],
    ] as const) {
      daemon.requests.length = 0;
      const ended = await outlive(['run', '--prompt-file', source], {
        runtimeDirectory: daemon.runtimeDirectory,
        stdin,
      });
      expect(ended.code).toBe(0);
      expect(request(daemon)['prompt']).toBe(prompt);
    }
  });

  it('a command as its words', async () => {
    const daemon = await serve(ending('work_unit.succeeded'), aWorkUnit({ runnerId: 'command' }));
    await outlive(['run', '--runner', 'command', '--', 'ls', '-la', '--json'], daemon);
    expect(request(daemon)).toMatchObject({ runnerId: 'command', argv: ['ls', '-la', '--json'] });
  });
});

describe('what run prints', () => {
  it('--detach gives the handle, or the work unit as JSON, and does not wait', async () => {
    const daemon = await serve(() => {});
    const plain = await outlive(['run', '--detach', '--', 'x'], daemon);
    expect(plain).toMatchObject({ code: 0, stdout: 'issue42\n' });
    expect(plain.stderr).toContain('outlive logs issue42 --follow');
    const asJson = await outlive(['run', '--detach', '--json', '--', 'x'], daemon);
    expect(JSON.parse(asJson.stdout)).toEqual(aWorkUnit());
  });

  it('--json gives the events and nothing else on stdout', async () => {
    const events = [anEvent(1), anEvent(2, 'work_unit.failed', { errorCode: 'oom' })];
    const daemon = await serve((_, response) => stream(response, events));
    const { code, stdout } = await outlive(['run', '--json', '--', 'x'], daemon);
    expect(stdout).toBe(`${events.map((event) => JSON.stringify(event)).join('\n')}\n`);
    expect(code).toBe(1);
  });

  it("a command's stdout and stderr go to ours", async () => {
    const events = [
      anEvent(1, 'stdout_delta', { text: 'data' }),
      anEvent(2, 'stderr_delta', { text: 'talk\n' }),
      anEvent(3, 'work_unit.succeeded'),
    ];
    const workUnit = aWorkUnit({ runnerId: 'command' });
    const daemon = await serve((_, response) => stream(response, events), workUnit);
    const { stdout, stderr } = await outlive(['run', '--runner', 'command', '--', 'x'], daemon);
    expect(stdout).toBe('data');
    expect(stderr).toContain('\ntalk\n');
  });

  it('still tells the outcome when nobody reads its stdout any more', async () => {
    const workUnit = aWorkUnit({ runnerId: 'command' });
    let response: http.ServerResponse | undefined;
    const daemon = await serve((_, answer) => {
      response = answer;
      stream(answer, [anEvent(1, 'stdout_delta', { text: 'first\n' })], { keepOpen: true });
    }, workUnit);
    const { child, said, ended } = start(['run', '--runner', 'command', '--', 'x'], daemon);
    await said('stdout', 'first');
    child.stdout.destroy();
    response?.write(frame(anEvent(2, 'stdout_delta', { text: 'second\n' })));
    response?.end(frame(anEvent(3, 'work_unit.failed', { errorCode: 'exit_code' })));
    expect((await ended).code).toBe(1);
  });
});

describe('when the daemon goes away', () => {
  it('run says so, waits and goes on where it was', async () => {
    const daemon = await serve((_, response) =>
      stream(response, [anEvent(1), anEvent(2)], { keepOpen: true }),
    );
    const { said, ended } = start(['run', '--json', '--', 'x'], daemon);
    await said('stdout', '"seq":2');
    await daemon.die();
    await said('stderr', 'daemon away, the run goes on; waiting');
    daemon.handle((_, response) => stream(response, [anEvent(3, 'work_unit.succeeded')]));
    await daemon.listen();
    const { code, stdout, stderr } = await ended;
    expect(code).toBe(0);
    expect(stderr).toContain('daemon back');
    expect(stdout.match(/"seq":\d/g)).toEqual(['"seq":1', '"seq":2', '"seq":3']);
    expect(daemon.requests.at(-1)?.url.search).toBe('?afterSeq=2');
  });
});

describe('Ctrl-C', () => {
  it('detaches: the run is left alone, and the shell sees an interrupt', async () => {
    const daemon = await serve((_, response) => stream(response, [anEvent(1)], { keepOpen: true }));
    const { child, said, ended } = start(['run', '--json', '--', 'x'], daemon);
    await said('stdout', '"seq":1');
    child.kill('SIGINT');
    const { signal, stderr } = await ended;
    expect(signal).toBe('SIGINT');
    expect(stderr).toContain('detached; it runs on. Cancel with: outlive cancel issue42\n');
    expect(daemon.requests.some(({ url }) => url.pathname.endsWith('/cancel'))).toBe(false);
  });

  it('with --cancel-on-interrupt cancels and stays to the end', async () => {
    let response: http.ServerResponse | undefined;
    const daemon = await serve((_, answer) => {
      response = answer;
      stream(answer, [anEvent(1)], { keepOpen: true });
    });
    const args = ['run', '--json', '--cancel-on-interrupt', '--', 'x'];
    const { child, said, ended } = start(args, daemon);
    await said('stdout', '"seq":1');
    daemon.handle((received, answer) => {
      json(answer, 200, aWorkUnit({ status: 'cancelling' }));
      expect(received.url.pathname).toBe(`/work-units/${WORK_UNIT_ID}/cancel`);
      response?.end(
        frame(anEvent(2, 'work_unit.cancelled', { errorCode: 'cancelled_by_request' })),
      );
    });
    child.kill('SIGINT');
    const { code, stderr } = await ended;
    expect(stderr).toContain('Cancelling issue42');
    expect(code).toBe(130);
  });

  it('with --cancel-on-interrupt cancels what verifies a run that has ended', async () => {
    const VERIFY_ID = '01a22907-87b6-7000-8000-000000000009';
    let response: http.ServerResponse | undefined;
    const daemon = await serve((_, answer) => {
      response = answer;
      stream(answer, [anEvent(1, 'work_unit.succeeded', { outcome: 'pending', outcomeOf: 1 })], {
        keepOpen: true,
      });
    });
    const args = ['run', '--json', '--cancel-on-interrupt', '--', 'x'];
    const { child, said, ended } = start(args, daemon);
    await said('stdout', '"seq":1');
    const outcome = { state: 'pending', code: null, message: null, verify: VERIFY_ID } as const;
    daemon.handle(({ method, url }, answer) => {
      if (method === 'GET') {
        json(
          answer,
          200,
          aWorkUnit({ status: 'succeeded', outcome: { ...outcome, result: null } }),
        );
      } else if (!url.pathname.includes(VERIFY_ID)) {
        problem(answer, 'state_conflict', 'It has ended.');
      } else {
        json(answer, 200, aWorkUnit({ status: 'cancelling' }));
        const settled = {
          state: 'blocked',
          code: 'verify_not_run',
          message: 'no',
          attemptNumber: 1,
        };
        response?.end(frame(anEvent(2, 'outcome.settled', settled)));
      }
    });
    child.kill('SIGINT');
    const { code } = await ended;
    expect(code).toBe(1);
    expect(daemon.requests.map(({ url }) => url.pathname)).toContain(
      `/work-units/${VERIFY_ID}/cancel`,
    );
  });

  it('twice with --cancel-on-interrupt does not wait for the end', async () => {
    const daemon = await serve((_, response) => stream(response, [anEvent(1)], { keepOpen: true }));
    const args = ['run', '--json', '--cancel-on-interrupt', '--', 'x'];
    const { child, said, ended } = start(args, daemon);
    await said('stdout', '"seq":1');
    child.kill('SIGINT');
    await said('stderr', 'Ctrl-C again');
    child.kill('SIGINT');
    expect(await ended).toMatchObject({ signal: 'SIGINT' });
  });
});
