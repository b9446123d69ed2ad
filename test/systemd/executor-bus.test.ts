/** What becomes of the executor when the bus or the manager goes away beneath it. */
import { existsSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Executor } from '../../src/executor/port.ts';
import { systemctl, within } from '../support/rig.ts';
import { failure, nextHint, Rig } from './executor-rig.ts';

/** A wire between executor and bus that can be held up and cut. */
class Cuttable {
  readonly path: string;
  readonly #sockets = new Set<net.Socket>();
  readonly #server: net.Server;
  readonly #bus: string;
  #mode: 'through' | 'deaf' | 'mute' = 'through';
  /** Connections that came so far. */
  connections = 0;
  #heard = (): void => {};

  constructor(directory: string, bus: string) {
    this.path = path.join(directory, 'bus.sock');
    this.#bus = bus;
    this.#server = net.createServer((client) => this.#join(client));
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(this.path, resolve));
  }

  /** deaf: nothing reaches the bus any more; mute: nothing comes back. */
  set mode(mode: 'through' | 'deaf' | 'mute') {
    this.#mode = mode;
  }

  /** Resolves when the executor has written something from now on. */
  request(): Promise<void> {
    return within(
      'a request',
      new Promise((resolve) => {
        this.#heard = resolve;
      }),
    );
  }

  /** Kills every connection as a dying bus does; new ones work. */
  cut(): void {
    this.#mode = 'through';
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): void {
    this.cut();
    this.#server.close();
  }

  #join(client: net.Socket): void {
    this.connections += 1;
    const bus = net.createConnection(this.#bus);
    for (const [from, to, blocked] of [
      [client, bus, 'deaf'],
      [bus, client, 'mute'],
    ] as const) {
      this.#sockets.add(from);
      from.on('data', (chunk) => {
        if (from === client) this.#heard();
        if (this.#mode !== blocked) to.write(chunk);
      });
      from.on('error', () => {});
      from.on('close', () => {
        this.#sockets.delete(from);
        to.destroy();
      });
    }
  }
}

const rig = new Rig();
const wire = new Cuttable(rig.home, rig.busPath);
let executor: Executor;
let direct: Executor;

beforeAll(async () => {
  await wire.listen();
  executor = await rig.connected({ busAddress: `unix:path=${wire.path}` });
  direct = await rig.connected();
});
afterAll(async () => {
  await rig.sweep();
  wire.close();
});

const everything = (unit: string | null): boolean => unit === null;

describe('a connection cut', () => {
  test('in the middle of a read rejects it, and afterwards hints arrive again', async () => {
    const attempt = rig.attempt('ready; gate');
    await rig.start(executor, attempt);
    wire.mode = 'deaf';
    const sent = wire.request();
    const reading = executor.read(attempt.unit);
    const rejected = failure(reading);
    await sent;
    const back = nextHint(executor, everything);
    const before = wire.connections;
    wire.cut();
    expect(await rejected).toMatchObject({ code: 'bus_unavailable' });
    expect(executor.healthy).toBe(false);
    await back;
    expect(executor.healthy).toBe(true);
    expect(wire.connections).toBe(before + 1);

    // Only a client that has subscribed again hears of the end.
    const heard = nextHint(executor, (unit) => unit === attempt.unit);
    attempt.open();
    expect(await heard).toBe(attempt.unit);
  });

  test('while nothing is asked is noticed all the same', async () => {
    const back = nextHint(executor, everything);
    wire.cut();
    await back;
    expect(executor.healthy).toBe(true);
  });

  test('makes questions fail at once, not at their deadline, until it is back', async () => {
    const back = nextHint(executor, everything);
    const reports = rig.reports.length;
    wire.cut();
    while (executor.healthy) await new Promise(setImmediate);
    await expect(executor.list()).rejects.toMatchObject({ code: 'bus_unavailable' });
    await expect(executor.hold('outlive-x-1.service')).rejects.toMatchObject({
      code: 'bus_unavailable',
    });
    expect(await executor.host()).toMatchObject({ manager: null, managerState: null });
    await back;
    expect(rig.reports.length).toBeGreaterThan(reports);
  });

  test('after a start that was carried out makes the result unknown; the unit is there', async () => {
    const attempt = rig.attempt('ready; gate');
    wire.mode = 'mute';
    const starting = executor.start(attempt.request);
    await attempt.ready();
    const back = nextHint(executor, everything);
    wire.cut();
    expect(await starting).toMatchObject({ kind: 'unknown' });
    await back;
    expect(await executor.read(attempt.unit)).toMatchObject({ nonce: attempt.request.nonce });
    attempt.open();
  });

  test('before a start reached the manager makes it unknown; nothing was started', async () => {
    const attempt = rig.attempt('ready; gate');
    wire.mode = 'deaf';
    const sent = wire.request();
    const starting = executor.start(attempt.request);
    await sent;
    const back = nextHint(executor, everything);
    wire.cut();
    const result = await starting;
    await back;
    expect(result).toMatchObject({ kind: 'unknown' });
    expect(await executor.read(attempt.unit)).toBeNull();
  });

  test('keeps what was held: an attempt that ends afterwards stays readable', async () => {
    const attempt = rig.attempt('ready; gate');
    await rig.start(executor, attempt);
    const back = nextHint(executor, everything);
    wire.cut();
    await back;
    attempt.open();
    await attempt.record();
    expect(await rig.ended(executor, attempt.unit)).toMatchObject({
      nonce: attempt.request.nonce,
      state: 'inactive',
      exit: { how: 'exited', status: 0 },
    });
  });

  test('touches no running attempt', async () => {
    const attempt = rig.attempt('ready; gate');
    const before = await rig.start(executor, attempt);
    const back = nextHint(executor, everything);
    wire.cut();
    await back;
    expect(await executor.read(attempt.unit)).toEqual(before);
    attempt.open();
  });
});

describe('a deadline', () => {
  test('ends a call that nobody answers, and the next one works', async () => {
    const impatient = await rig.connected({
      busAddress: `unix:path=${wire.path}`,
      deadlines: { readMs: 50 },
    });
    wire.mode = 'deaf';
    await expect(impatient.read('outlive-x-1.service')).rejects.toMatchObject({
      code: 'bus_unavailable',
    });
    expect(impatient.healthy).toBe(true);
    await impatient.close();
    wire.cut();
  });
});

describe('a connection that cannot be made', () => {
  test('is no_user_manager, whether the socket is missing or answers nothing', async () => {
    const missing = rig.executor({ busAddress: `unix:path=${rig.home}/missing` });
    await expect(missing.connect()).rejects.toMatchObject({ code: 'no_user_manager' });

    const silent = path.join(rig.home, 'silent.sock');
    const server = net.createServer(() => {});
    await new Promise<void>((resolve) => server.listen(silent, resolve));
    const patient = rig.executor({
      busAddress: `unix:path=${silent}`,
      deadlines: { connectMs: 50 },
    });
    await expect(patient.connect()).rejects.toMatchObject({ code: 'no_user_manager' });
    server.close();
    expect(existsSync(rig.dropInDirectory)).toBe(true); // of the others
  });
});

describe('a bus that dies with the daemon', () => {
  test('leaves the unit it held loaded, and the next daemon lets it go', async () => {
    const before = await rig.connected();
    const attempt = rig.attempt('exit 0');
    await rig.start(before, attempt);
    await rig.ended(before, attempt.unit);
    // The executor that the other tests share loses it too, and they need it back.
    const back = nextHint(direct, everything);
    await systemctl('stop', 'dbus.socket', 'dbus.service'); // It has a socket of its own.
    try {
      await before.close();
    } finally {
      await systemctl('start', 'dbus.socket');
    }
    const next = await rig.connected();
    expect(await next.read(attempt.unit)).toMatchObject({ state: 'inactive' });
    await next.release(attempt.unit);
    expect(await rig.until(next, attempt.unit, (facts) => facts === null)).toBeNull();
    await next.close();
    await back;
    expect(direct.healthy).toBe(true);
  });
});

describe('the manager', () => {
  test('reloaded mid-run keeps unit, drop-in and record', async () => {
    const attempt = rig.attempt('ready; gate; exit 3');
    const before = await rig.start(direct, attempt);
    const reloaded = nextHint(direct, everything);
    await systemctl('daemon-reload');
    await reloaded;
    expect(await direct.read(attempt.unit)).toEqual(before);
    attempt.open();
    expect(await rig.ended(direct, attempt.unit)).toMatchObject({
      state: 'failed',
      invocationId: before.invocationId,
      exit: { how: 'exited', status: 3 },
    });
    expect(await attempt.record()).toMatchObject({
      invocationId: before.invocationId,
      exitStatus: '3',
    });
  });

  test('re-executed mid-run keeps unit, drop-in and record, and is subscribed to again', async () => {
    const attempt = rig.attempt('ready; gate; exit 3');
    const before = await rig.start(direct, attempt);
    const { manager } = await direct.host();
    const back = nextHint(direct, everything);
    await systemctl('daemon-reexec');
    await back;
    expect(direct.healthy).toBe(true);
    expect((await direct.host()).manager).toEqual(manager);
    expect(await direct.read(attempt.unit)).toEqual(before);

    const heard = nextHint(direct, (unit) => unit === attempt.unit);
    attempt.open();
    await heard;
    expect(await rig.ended(direct, attempt.unit)).toMatchObject({
      state: 'failed',
      invocationId: before.invocationId,
      exit: { how: 'exited', status: 3 },
      leavesExitRecord: true,
    });
    expect(await attempt.record()).toMatchObject({ exitStatus: '3', manager });
  });

  test('re-executed keeps an ended unit readable', async () => {
    const attempt = rig.attempt('exit 0');
    await rig.start(direct, attempt);
    const ended = await rig.ended(direct, attempt.unit);
    const back = nextHint(direct, everything);
    await systemctl('daemon-reexec');
    await back;
    expect(await direct.read(attempt.unit)).toEqual(ended);
    await direct.release(attempt.unit);
    expect(await direct.read(attempt.unit)).toBeNull();
  });
});
