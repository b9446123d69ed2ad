import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { RuntimeOwner } from '../../src/store/owner-file.ts';
import { acquireHostLock, acquireRuntimeLock } from '../../src/store/runtime-lock.ts';
import { AT, type Child, cleanUp, open, refusal, startChild, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

const description = (directory: string): string => path.join(directory, 'runtime.lock');

const DEAD: RuntimeOwner = {
  workspaceId: 'main',
  runtimeInstanceId: 'dead',
  pid: 1,
  host: null,
  port: null,
  socket: '/run/user/1000/outlive/main/api/api.sock',
  startedAt: AT,
  version: '0.0.9',
  schemaVersion: 1,
  stateDirectory: null,
};

async function holder(directory: string, name: string): Promise<Child> {
  const child = startChild('hold-lock', [directory, name]);
  await child.next();
  return child;
}

const take = async (child: Child, at = 0): Promise<Record<string, unknown>> => {
  child.say(`take ${at}`);
  return child.next();
};

async function owner(directory: string, name: string): Promise<Child> {
  const child = await holder(directory, name);
  expect(await take(child)).toMatchObject({ owner: true });
  child.say('describe');
  await child.next();
  return child;
}

describe('row 001: daemons that start at the same moment', () => {
  it.each([
    [20, 8],
    [2, 15],
  ])(
    'leave exactly one owner: %i of them, %i times',
    async (count, rounds) => {
      const directory = temporaryDirectory();
      const children = await Promise.all(
        Array.from({ length: count }, (_, index) => holder(directory, `instance-${index}`)),
      );
      for (let round = 0; round < rounds; round++) {
        const at = Date.now() + 10 + 2 * count;
        const answers = await Promise.all(children.map((child) => take(child, at)));
        const owners = answers.filter((answer) => answer['owner'] === true);
        expect(owners, `round ${round}`).toHaveLength(1);
        const others = answers.filter((answer) => answer['owner'] === false);
        expect(new Set(others.map((answer) => answer['code']))).toEqual(
          new Set(['workspace_owned']),
        );
        for (const child of children) child.say('release');
        await Promise.all(children.map((child) => child.next()));
      }
    },
    60_000,
  ); // Twenty daemons take a while to start on a small machine.
});

describe('row 001: another that only tries', () => {
  it('refuses nobody: what it holds for an instant is waited for', async () => {
    const directory = temporaryDirectory();
    acquireRuntimeLock(directory, 'main').release();
    const child = startChild('touch-lock', [directory]);
    expect(await child.next()).toEqual({ touching: true });
    acquireRuntimeLock(directory, 'main').release();
    expect(await child.ended()).toBe(0);
  });
});

describe('a live owner', () => {
  it('row 001: is named in the refusal, by pid, instance and socket', async () => {
    const directory = temporaryDirectory();
    const child = await owner(directory, 'instance-of-the-owner');
    const error = refusal(() => acquireRuntimeLock(directory, 'main'));
    expect(error.code).toBe('workspace_owned');
    expect(error.message).toContain(`pid ${child.process.pid}`);
    expect(error.message).toContain('instance-of-the-owner');
    expect(error.message).toContain('api.sock');
    expect(error.extra['owner']).toMatchObject({
      pid: child.process.pid,
      runtimeInstanceId: 'instance-of-the-owner',
    });
  });

  it('row 003: is described with all its fields', async () => {
    const directory = temporaryDirectory();
    await owner(directory, 'me');
    const file = JSON.parse(readFileSync(description(directory), 'utf8')) as object;
    expect(Object.keys(file)).toEqual(
      expect.arrayContaining([
        'workspaceId',
        'runtimeInstanceId',
        'pid',
        'host',
        'port',
        'startedAt',
        'version',
        'schemaVersion',
      ]),
    );
  });

  it('row 004: that is stopped, not dead, keeps the workspace; T77 oban#1141', async () => {
    const directory = temporaryDirectory();
    const child = await owner(directory, 'slow');
    child.process.kill('SIGSTOP');
    expect(refusal(() => acquireRuntimeLock(directory, 'main')).message).toContain('slow');
    child.process.kill('SIGCONT');
    child.say('release');
    expect(await child.next()).toEqual({ released: true });
  });

  it.each([
    ['is not JSON', 'garbage {{{'],
    ['is empty', ''],
    ['is of another form', '{"pid":"one"}'],
    ['is binary', '\0\u0001\u0002'],
  ])('keeps it also when its description %s', async (_what, text) => {
    const directory = temporaryDirectory();
    await owner(directory, 'me');
    writeFileSync(description(directory), text);
    const error = refusal(() => acquireRuntimeLock(directory, 'main'));
    expect(error.code).toBe('workspace_owned');
    expect(error.extra).toEqual({});
  });

  it('that has not described itself yet is not taken for the one before it', async () => {
    const directory = temporaryDirectory();
    const first = await owner(directory, 'the-one-before');
    first.process.kill('SIGKILL');
    await first.ended();
    const second = await holder(directory, 'the-one-now');
    expect(await take(second)).toMatchObject({ owner: true, previous: 'the-one-before' });
    const error = refusal(() => acquireRuntimeLock(directory, 'main'));
    expect(error.message).not.toContain('the-one-before');
    expect(error.extra).toEqual({});
  });

  it('is refused a second time in its own process, too', () => {
    const directory = temporaryDirectory();
    const lock = acquireRuntimeLock(directory, 'main');
    expect(refusal(() => acquireRuntimeLock(directory, 'main')).code).toBe('workspace_owned');
    lock.release();
  });
});

describe('a dead owner', () => {
  it('row 004: killed by SIGKILL leaves the workspace free at once, and is told as the previous', async () => {
    const directory = temporaryDirectory();
    const child = await owner(directory, 'killed');
    child.process.kill('SIGKILL');
    await child.ended();
    const lock = acquireRuntimeLock(directory, 'main');
    expect(lock.dead).toMatchObject([{ runtimeInstanceId: 'killed', pid: child.process.pid }]);
    lock.release();
  });

  it('leaves it free whatever its description says about the pid', async () => {
    const directory = temporaryDirectory();
    const child = await owner(directory, 'killed');
    child.process.kill('SIGKILL');
    await child.ended();
    // A pid is used again: here by a process that is certainly alive, this one.
    const file = description(directory);
    writeFileSync(
      file,
      readFileSync(file, 'utf8').replace(String(child.process.pid), `${process.pid}`),
    );
    const lock = acquireRuntimeLock(directory, 'main');
    expect(lock.dead).toMatchObject([{ pid: process.pid }]);
    lock.release();
  });

  it('row 008: is none where there was no description: the lock alone decides', () => {
    const directory = temporaryDirectory();
    writeFileSync(description(directory), 'garbage');
    const lock = acquireRuntimeLock(directory, 'main');
    expect(lock.dead).toEqual([]);
    lock.release();
  });
});

describe('the owner', () => {
  it('that gives the workspace back can be followed by the next', () => {
    const directory = temporaryDirectory();
    const first = acquireRuntimeLock(directory, 'main');
    first.release();
    const second = acquireRuntimeLock(directory, 'main');
    expect(second.dead).toEqual([]);
    second.release();
  });

  it('describes itself in a file of its own user only', async () => {
    const directory = temporaryDirectory();
    await owner(directory, 'me');
    expect(statSync(description(directory)).mode & 0o777).toBe(0o600);
  });

  it('makes the state directory, private, when it is not there', () => {
    const directory = path.join(temporaryDirectory(), 'state', 'main');
    acquireRuntimeLock(directory, 'main').release();
    expect(statSync(directory).mode & 0o777).toBe(0o700);
    expect(existsSync(path.join(directory, 'runtime.lock.db'))).toBe(true);
  });

  it('cannot be where no file can be: the directory is named', () => {
    const directory = path.join(temporaryDirectory(), 'file');
    writeFileSync(directory, '');
    const error = refusal(() => acquireRuntimeLock(directory, 'main'));
    expect(error.code).toBe('state_dir_unwritable');
    expect(error.message).toContain(directory);
  });
});

describe('a takeover; row 004, row 289', () => {
  it('is owed until it is stored, by whoever comes, also when two died one after the other', async () => {
    const directory = temporaryDirectory();
    for (const name of ['first', 'second']) {
      const child = await owner(directory, name);
      child.process.kill('SIGKILL');
      await child.ended();
    }
    // One that dies before it could store anything changes nothing about that.
    const idle = await holder(directory, 'idle');
    expect(await take(idle)).toMatchObject({ owner: true });
    idle.process.kill('SIGKILL');
    await idle.ended();
    const lock = acquireRuntimeLock(directory, 'main');
    const names = lock.dead.map(({ runtimeInstanceId }) => runtimeInstanceId);
    expect(names.sort()).toEqual(['first', 'second']);
    for (const dead of lock.dead) lock.forget(dead);
    lock.release();
    const next = acquireRuntimeLock(directory, 'main');
    expect(next.dead).toEqual([]);
    next.release();
  });

  it('is none after an orderly end: the description is gone before the lock is', async () => {
    const directory = temporaryDirectory();
    const child = await owner(directory, 'orderly');
    child.say('release');
    await child.next();
    expect(existsSync(description(directory))).toBe(false);
    const lock = acquireRuntimeLock(directory, 'main');
    expect(lock.dead).toEqual([]);
    lock.release();
  });

  it('is stored once, with the start that took over, however often that is tried', () => {
    const store = open();
    const instance = { id: 'taker', pid: 2, version: '0.1.0', startedAt: AT };
    const dead = { ...DEAD, runtimeInstanceId: 'dead' };
    store.recordInstance(instance, [dead]);
    store.recordInstance({ ...instance, id: 'next' }, [dead]);
    expect(store.takeovers(10)).toEqual([
      {
        at: AT,
        runtimeInstanceId: 'taker',
        previousInstanceId: 'dead',
        previousPid: 1,
        previousStartedAt: AT,
        previousVersion: '0.0.9',
        evidence: 'kernel_lock_free',
      },
    ]);
  });
});

describe('row 005: an instance id', () => {
  it('that a start had before is refused, and nothing of it is written; T75 oban#862', () => {
    const store = open();
    const instance = { id: 'same', pid: 1, version: '0.1.0', startedAt: AT };
    store.recordInstance(instance);
    const error = refusal(() =>
      store.recordInstance(instance, [{ ...DEAD, runtimeInstanceId: 'dead' }]),
    );
    expect(error.code).toBe('internal');
    expect(error.message).toContain('same');
    expect(store.takeovers(10)).toEqual([]);
  });
});

describe('the place of a workspace on a user manager', () => {
  it('is one, whatever the state directory: the refusal names the other one', () => {
    const runtime = temporaryDirectory();
    const lock = acquireHostLock(runtime, 'main');
    lock.describe({ ...DEAD, stateDirectory: '/srv/lab-user/state/outlive/main' });
    const error = refusal(() => acquireHostLock(runtime, 'main'));
    expect(error.code).toBe('workspace_owned');
    expect(error.message).toContain('/srv/lab-user/state/outlive/main');
    acquireHostLock(runtime, 'lab').release();
    lock.release();
    acquireHostLock(runtime, 'main').release();
  });

  it('whose file was removed is taken again, unless somebody else has it by now', () => {
    const runtime = temporaryDirectory();
    const lock = acquireHostLock(runtime, 'main');
    lock.describe(DEAD);
    rmSync(path.join(runtime, 'outlive'), { recursive: true });
    lock.renew();
    expect(refusal(() => acquireHostLock(runtime, 'main')).extra['owner']).toMatchObject({
      pid: 1,
    });
    rmSync(path.join(runtime, 'outlive'), { recursive: true });
    const other = acquireHostLock(runtime, 'main');
    expect(refusal(() => lock.renew()).code).toBe('workspace_owned');
    other.describe({ ...DEAD, pid: 7 });
    lock.release();
    expect(refusal(() => acquireHostLock(runtime, 'main')).extra['owner']).toMatchObject({
      pid: 7,
    });
    other.release();
  });
});
