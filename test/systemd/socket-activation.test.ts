/** Sockets that systemd keeps: who connects while no daemon runs waits, and is answered. */

import { execFile } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RuntimeView } from '../../src/api/schemas.ts';
import { cli } from '../support/cli.ts';
import {
  apiSocket,
  dropIn,
  freePort,
  httpSocket,
  install,
  property,
  service,
  uninstall,
} from '../support/installed.ts';
import { type Knock, knock } from '../support/knock.ts';
import { Rig, sequenceIsWhole, systemctl, within } from '../support/rig.ts';

const run = promisify(execFile);

const RESTARTS = 100;
/** More than Node's own backlog, 511, and more than one listener has open otherwise, 1024. */
const CROWD = 3_000;

let rig: Rig;
let port: number;
let tcp: { port: number; token: string };
let unix: { socketPath: string };
beforeAll(async () => {
  rig = await Rig.create();
  port = await freePort();
  await install(rig, '--port', String(port));
  const { directories } = rig.config;
  tcp = { port, token: readFileSync(path.join(directories.token, 'api-token'), 'utf8').trim() };
  unix = { socketPath: directories.apiSocket };
});
afterAll(async () => {
  await uninstall(rig);
  await rig.end();
});

const mainPid = async (): Promise<number> => Number(await property(service(rig), 'MainPID'));

/** Knocks at both sockets, again and again, until told to stop; resolves with what became of each. */
function keepKnocking(everyMs: number): { stop: () => Promise<readonly Knock[]> } {
  const knocks: Promise<Knock>[] = [];
  let goesOn = true;
  const going = (async () => {
    while (goesOn) {
      knocks.push(knock(unix), knock(tcp));
      await pause(everyMs);
    }
  })();
  const stop = async (): Promise<readonly Knock[]> => {
    goesOn = false;
    await going;
    return within('every answer', Promise.all(knocks));
  };
  return { stop };
}

/**
 * Resolves once so many connections wait on the port (for a listening socket ss prints them as
 * Recv-Q), or can no longer be expected to: what became of each is told by its answer.
 */
async function untilWaiting(connections: number): Promise<void> {
  for (const end = performance.now() + 10_000; performance.now() < end; ) {
    const { stdout } = await run('ss', ['-Hltn', `sport = :${port}`]);
    if (Number(stdout.trim().split(/\s+/)[1]) >= connections) return;
    await pause(50); // The kernel tells nobody of its backlog.
  }
}

const count = (knocks: readonly Knock[], kind: Knock['kind']): number =>
  knocks.filter((one) => one.kind === kind).length;

/** How many were not answered, by error. */
function failures(knocks: readonly Knock[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const one of knocks) {
    if (one.kind === 'answered') continue;
    const what = `${one.kind} ${one.code}`;
    counts[what] = (counts[what] ?? 0) + 1;
  }
  return counts;
}

describe('the sockets', () => {
  it('belong to the daemon’s unit by name, and no child of it has them', async () => {
    expect(await knock(unix)).toMatchObject({ kind: 'answered', status: 200 });
    const view = JSON.parse((await cli(rig, ['daemon', 'status', '--json'])).stdout) as RuntimeView;
    expect(view).toMatchObject({ socket: unix.socketPath, host: '127.0.0.1', port });
    expect(await knock({ ...tcp, token: 'another' })).toMatchObject({ status: 401 });
    expect(await property(service(rig), 'TriggeredBy')).toContain(apiSocket(rig));
    // An attempt is the manager's child; what the daemon itself starts is systemd-notify.
    const inherited = readdirSync(`/proc/${view.pid}/fdinfo`)
      .filter((fd) => fd === '3' || fd === '4')
      .map((fd) => readFileSync(`/proc/${view.pid}/fdinfo/${fd}`, 'utf8'))
      .map((info) => Number.parseInt(/flags:\s*(\d+)/.exec(info)?.[1] ?? '', 8));
    const CLOSE_ON_EXEC = 0o2000000;
    expect(inherited.map((flags) => flags & CLOSE_ON_EXEC)).toEqual([CLOSE_ON_EXEC, CLOSE_ON_EXEC]);
  });

  it('are for nobody else: 0600 in directories of 0700', () => {
    expect(statSync(unix.socketPath).mode & 0o777).toBe(0o600);
    for (const up of ['..', '../..']) {
      expect(statSync(path.resolve(unix.socketPath, up)).mode & 0o777).toBe(0o700);
    }
  });

  it('start the daemon on demand, also after its unit was stopped', async () => {
    await systemctl('stop', service(rig));
    expect(await property(service(rig), 'ActiveState')).toBe('inactive');
    expect(existsSync(unix.socketPath)).toBe(true);
    expect(await knock(unix)).toMatchObject({ kind: 'answered', status: 200 });
    await systemctl('stop', service(rig));
    expect(await knock(tcp)).toMatchObject({ kind: 'answered', status: 200 });
    expect(await property(service(rig), 'ActiveState')).toBe('active');
  });
});

describe('a stream of connections', () => {
  it('of 3000 on each socket while nobody takes them: all wait, all are answered', async () => {
    const pid = await mainPid();
    process.kill(pid, 'SIGSTOP');
    const all = (where: Parameters<typeof knock>[0]): Promise<Knock>[] =>
      Array.from({ length: CROWD }, () => knock(where));
    const knocks = Promise.all([...all(unix), ...all(tcp)]);
    try {
      await untilWaiting(CROWD);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    const answers = await within('every answer', knocks);
    expect(failures(answers)).toEqual({});
    expect(await mainPid()).toBe(pid);
  });

  it('through 100 restarts: none is refused, none is cut off, all are answered', {
    timeout: 400_000,
  }, async () => {
    const { id } = await rig.submit({ argv: ['sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    const knocking = keepKnocking(50);
    const pids = new Set<number>();
    for (let restart = 0; restart < RESTARTS; restart += 1) {
      await systemctl('restart', service(rig));
      pids.add(await mainPid());
    }
    const knocks = await knocking.stop();
    expect(pids.size).toBeGreaterThan(RESTARTS * 0.9); // A pid may come round again.
    expect(knocks.length).toBeGreaterThan(RESTARTS);
    expect(failures(knocks)).toEqual({});
    const statuses = new Set(knocks.map((one) => (one.kind === 'answered' ? one.status : 0)));
    expect([...statuses]).toEqual([200]);
    await rig.client.cancelWorkUnit(id);
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit).toMatchObject({ status: 'cancelled', attempts: [{ attemptNumber: 1 }] });
    // A daemon that is stopped at once may not have come to taking it up.
    expect(workUnit.attempts[0]?.reattached).toBeGreaterThan(RESTARTS / 2);
    expect(sequenceIsWhole(events)).toBe(true);
  });

  it('that submit through restarts: none is told that the daemon stops, each is there once', async () => {
    await rig.client.pause(); // Queued is enough here.
    let goesOn = true;
    const ids: string[] = [];
    const submitting = async (): Promise<void> => {
      while (goesOn) ids.push((await rig.submit({ argv: ['true'] })).id);
    };
    const restarting = async (): Promise<void> => {
      for (let restart = 0; restart < 10; restart += 1) await systemctl('restart', service(rig));
      goesOn = false;
    };
    await Promise.all([restarting(), submitting(), submitting(), submitting()]);
    expect(ids.length).toBeGreaterThan(30);
    expect(new Set(ids).size).toBe(ids.length);
    for (const id of ids) await rig.client.cancelWorkUnit(id);
    await rig.client.resume();
  });

  it('through SIGKILL after SIGKILL: none is refused, and systemd does not give up', async () => {
    const knocking = keepKnocking(20);
    for (let kills = 0; kills < 8; kills += 1) {
      const before = await mainPid();
      await systemctl('kill', '-s', 'KILL', '--kill-who=main', service(rig));
      // Answered again: by the next one, after RestartSec=1.
      await expect.poll(() => knock(unix), { timeout: 20_000 }).toMatchObject({ status: 200 });
      expect(await mainPid()).not.toBe(before);
    }
    const knocks = await knocking.stop();
    expect(count(knocks, 'refused')).toBe(0);
    expect(count(knocks, 'answered')).toBeGreaterThan(100);
    for (const unit of [apiSocket(rig), httpSocket(rig)]) {
      expect(await property(unit, 'ActiveState')).toBe('active');
    }
  });
});

describe('a daemon that cannot work', () => {
  it('with a store it cannot read stays up and answers 503 on both sockets', async () => {
    await systemctl('stop', service(rig));
    const file = path.join(rig.config.directories.store, 'outlive.db');
    const whole = readFileSync(file);
    writeFileSync(file, Buffer.concat([Buffer.from('no store'), whole.subarray(8)]));
    try {
      for (const where of [unix, tcp]) {
        expect(await knock(where)).toMatchObject({
          status: 503,
          body: expect.stringContaining('store_damaged') as string,
        });
      }
      expect(await property(service(rig), 'StatusText')).toBe('refusing: store_damaged');
      expect(await property(service(rig), 'NRestarts')).toBe('0');
    } finally {
      await systemctl('stop', service(rig));
      writeFileSync(file, whole);
    }
    expect(await knock(unix)).toMatchObject({ status: 200 });
  });

  it('with a configuration it cannot read says so to who waits, and is not started again by that', async () => {
    await systemctl('stop', service(rig));
    const config = rig.config.directories.configFile;
    mkdirSync(path.dirname(config), { recursive: true });
    writeFileSync(config, '{"api":{"port":"many"}}');
    const both = await Promise.all([knock(unix), knock(tcp)]);
    for (const answer of both) {
      expect(answer).toMatchObject({ status: 500 });
      expect(answer).toMatchObject({
        body: expect.stringContaining('config_unreadable') as string,
      });
    }
    await expect.poll(() => property(service(rig), 'ActiveState')).toBe('failed');
    const invocation = await property(service(rig), 'InvocationID');
    await pause(2_500); // More than RestartSec=1: nothing may happen, so there is nothing to wait for.
    expect(await property(service(rig), 'InvocationID')).toBe(invocation);
    rmSync(config);
    expect(await knock(unix)).toMatchObject({ status: 200 });
  });
});

describe('a daemon whose socket path a person changed by a drop-in', () => {
  it('serves what it is handed and opens nothing of its own', async () => {
    const other = path.join(rig.config.directories.runtime, 'api', 'other.sock');
    await systemctl('stop', apiSocket(rig), httpSocket(rig), service(rig));
    const file = await dropIn(apiSocket(rig), `[Socket]\nListenStream=\nListenStream=${other}\n`);
    await systemctl('start', service(rig));
    expect(await knock({ socketPath: other })).toMatchObject({ status: 200 });
    expect(existsSync(unix.socketPath)).toBe(false);
    rmSync(path.dirname(file), { recursive: true });
  });
});
