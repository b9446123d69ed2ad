/** The connection to the bus, against a bus that misbehaves on purpose. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Bus } from '../../src/systemd/bus.ts';
import { refusedAs } from '../../src/systemd/bus-error.ts';
import { BUS_DRIVER, SYSTEMD } from '../../src/systemd/bus-names.ts';
import { type Call, FakeBus } from './systemd-fake-bus.ts';
import { ManualTimers } from './systemd-manual-timers.ts';

const CONNECT_MS = 77_777;
const CALL_MS = 55_555;
const isRetry = (ms: number): boolean => ms <= 10_000;
const half = { random: (size: number) => new Uint8Array(size).fill(255) };
const PING = { ...SYSTEMD, interface: 'org.example', member: 'Ping' };

let scratch = '';
let timers = new ManualTimers();
let reports: string[] = [];
let fake: FakeBus | null = null;
let bus: Bus;

beforeEach(() => {
  scratch = mkdtempSync(path.join(os.tmpdir(), 'outlive-bus-'));
  timers = new ManualTimers();
  reports = [];
  bus = client();
});
afterEach(async () => {
  bus.close();
  await fake?.close();
  fake = null;
  rmSync(scratch, { recursive: true });
});

function client(maxInFlight = 8): Bus {
  return new Bus({
    address: `unix:path=${scratch}/bus`,
    connectDeadlineMs: CONNECT_MS,
    maxInFlight,
    timers,
    entropy: half,
    report: (problem) => reports.push(problem),
  });
}

/** What every bus answers, so that a test says only what is special. */
function usual(call: Call, except = ''): boolean {
  if (call.member === except) return false;
  if (call.member === 'Hello') call.reply('s', ':1.7');
  else if (['AddMatch', 'Subscribe'].includes(call.member)) call.reply();
  else return false;
  return true;
}

async function serve(onCall: (call: Call) => void = (call) => void usual(call)): Promise<FakeBus> {
  fake = await FakeBus.listen(`${scratch}/bus`, onCall);
  return fake;
}

/** What a promise is rejected with; listened to from the start, awaited when due. */
const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    (value) => {
      throw new Error(`resolved to ${String(value)}`);
    },
    (error: unknown) => error,
  );

const owner = (server: FakeBus, from: string, to: string): void =>
  server.last.signal(
    BUS_DRIVER.path,
    BUS_DRIVER.interface,
    'NameOwnerChanged',
    'sss',
    SYSTEMD.destination,
    from,
    to,
  );

const up = (of: Bus): Promise<void> =>
  new Promise((resolve) => {
    const stop = of.onUp(() => {
      stop();
      resolve();
    });
  });

describe('connecting', () => {
  test('says Hello, adds two match rules and subscribes, each once', async () => {
    const server = await serve();
    await Promise.all([bus.connect(), bus.connect()]);
    await bus.connect();
    expect(server.called).toEqual(['Hello', 'AddMatch', 'AddMatch', 'Subscribe']);
    expect(bus.ready).toBe(true);
    expect(timers.pending).toBe(0);
  });

  test('to nothing is no_user_manager, and is not tried again by itself', async () => {
    await expect(bus.connect()).rejects.toMatchObject({ code: 'no_user_manager' });
    expect([bus.ready, timers.pending]).toEqual([false, 0]);
  });

  test('to a bus that refuses Hello is no_user_manager, with its words', async () => {
    await serve((call) => call.refuse('org.freedesktop.DBus.Error.LimitsExceeded', 'too many'));
    await expect(bus.connect()).rejects.toMatchObject({
      code: 'no_user_manager',
      message: expect.stringContaining('too many'),
    });
  });

  test('to a bus that never answers Hello ends at the deadline', async () => {
    const server = await serve(() => {});
    const connecting = failure(bus.connect());
    await server.got('Hello', 1);
    await timers.pass((ms) => ms === CONNECT_MS);
    expect(await connecting).toMatchObject({ code: 'no_user_manager' });
  });

  test('to a bus without a manager waits for one, and is no_user_manager at the deadline', async () => {
    const server = await serve((call) => {
      if (usual(call, 'Subscribe')) return;
      call.refuse('org.freedesktop.DBus.Error.ServiceUnknown', 'no such name');
      server.last.signal(SYSTEMD.path, 'org.example', 'AfterTheRefusal', '');
    });
    const refused = new Promise((resolve) => bus.onSignal(resolve));
    const connecting = failure(bus.connect());
    await refused;
    await new Promise(setImmediate); // The refusal before it has now been dealt with.
    await timers.pass((ms) => ms === CONNECT_MS);
    expect(await connecting).toMatchObject({
      code: 'no_user_manager',
      message: expect.stringContaining('no such name'),
    });
    expect(bus.ready).toBe(false);
  });

  test('to a bus whose manager comes a moment later works', async () => {
    let there = false;
    const server = await serve((call) => {
      if (there || call.member !== 'Subscribe') usual(call);
      else call.refuse('org.freedesktop.DBus.Error.NameHasNoOwner', 'not yet');
    });
    const connecting = bus.connect();
    await server.got('Subscribe', 1);
    there = true;
    owner(server, '', ':1.2');
    await connecting;
    expect([bus.ready, server.clients.length, timers.pending]).toEqual([true, 1, 0]);
  });

  test('to a manager that refuses is no_user_manager at once', async () => {
    await serve((call) => {
      if (call.member !== 'Subscribe') usual(call);
      else call.refuse('org.freedesktop.DBus.Error.AccessDenied', 'not you');
    });
    expect(await failure(bus.connect())).toMatchObject({ code: 'no_user_manager' });
  });

  test('to a manager that says AlreadySubscribed works', async () => {
    await serve((call) => {
      if (call.member !== 'Subscribe') usual(call);
      else call.refuse('org.freedesktop.systemd1.AlreadySubscribed', 'you are');
    });
    await bus.connect();
    expect(bus.ready).toBe(true);
  });

  test('can be tried again after a failure', async () => {
    await expect(bus.connect()).rejects.toMatchObject({ code: 'no_user_manager' });
    await serve();
    await bus.connect();
    expect(bus.ready).toBe(true);
  });
});

describe('a call', () => {
  test('resolves to the values of the answer', async () => {
    await serve((call) => {
      if (!usual(call)) call.reply('st', 'pong', 7n);
    });
    await bus.connect();
    expect(await bus.call(PING, CALL_MS)).toEqual(['pong', 7n]);
    expect(timers.pending).toBe(0);
  });

  test('that is refused has the name and the words of the error', async () => {
    await serve((call) => {
      if (!usual(call)) call.refuse('org.freedesktop.systemd1.NoSuchUnit', 'not loaded');
    });
    await bus.connect();
    const error: unknown = await bus.call(PING, CALL_MS).catch((e: unknown) => e);
    expect(error).toMatchObject({ failure: 'refused', message: 'not loaded' });
    expect(refusedAs(error, 'UnitExists', 'NoSuchUnit')).toBe(true);
    expect(refusedAs(error, 'UnitExists')).toBe(false);
  });

  test('to which dbus-daemon says NoReply is unanswered, not refused', async () => {
    await serve((call) => {
      if (!usual(call)) call.refuse('org.freedesktop.DBus.Error.NoReply', 'gone');
    });
    await bus.connect();
    await expect(bus.call(PING, CALL_MS)).rejects.toMatchObject({ failure: 'unanswered' });
  });

  test('is unanswered at its deadline; its late answer disturbs nothing', async () => {
    const calls: Call[] = [];
    await serve((call) => {
      if (!usual(call)) calls.push(call);
    });
    await bus.connect();
    const first = failure(bus.call(PING, CALL_MS));
    await timers.pass((ms) => ms === CALL_MS);
    expect(await first).toMatchObject({ failure: 'unanswered' });
    const second = bus.call(PING, CALL_MS);
    await fake?.got('Ping', 2);
    calls[0]?.reply('s', 'late');
    calls[1]?.reply('s', 'in time');
    expect(await second).toEqual(['in time']);
  });

  test('is not_sent when its values do not fit its signature', async () => {
    await serve();
    await bus.connect();
    const odd = { ...PING, signature: 'su', body: ['only one'] };
    await expect(bus.call(odd, CALL_MS)).rejects.toMatchObject({ failure: 'not_sent' });
  });

  test('is not_sent while there is no connection', async () => {
    await expect(bus.call(PING, CALL_MS)).rejects.toMatchObject({ failure: 'not_sent' });
  });

  test('waits while as many as allowed are under way, and is sent when one ends', async () => {
    const calls: Call[] = [];
    const server = await serve((call) => {
      if (!usual(call)) calls.push(call);
    });
    bus = client(2);
    await bus.connect();
    const answers = [1, 2, 3].map(() => bus.call(PING, CALL_MS));
    await server.got('Ping', 2);
    calls[0]?.reply('s', 'a');
    await answers[0];
    await server.got('Ping', 3);
    expect(calls.length).toBe(3);
    calls[1]?.reply('s', 'b');
    calls[2]?.reply('s', 'c');
    expect(await Promise.all(answers)).toEqual([['a'], ['b'], ['c']]);
  });

  test('that still waits its turn at the deadline was not sent', async () => {
    const server = await serve();
    bus = client(1);
    await bus.connect();
    const sent = failure(bus.call(PING, 11_111));
    const waiting = failure(bus.call(PING, CALL_MS));
    await server.got('Ping', 1);
    await timers.pass((ms) => ms === CALL_MS);
    expect(await waiting).toMatchObject({ failure: 'not_sent' });
    await timers.pass((ms) => ms === 11_111);
    expect(await sent).toMatchObject({ failure: 'unanswered' });
    expect(server.called.filter((member) => member === 'Ping')).toEqual(['Ping']);
  });

  test('is rejected when the connection dies, sent or waiting', async () => {
    const server = await serve();
    bus = client(1);
    await bus.connect();
    const calls = [bus.call(PING, CALL_MS), bus.call(PING, CALL_MS)];
    const all = Promise.allSettled(calls);
    await server.got('Ping', 1);
    server.last.cut();
    for (const outcome of await all) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { name: 'BusError' } });
    }
  });

  test('keeps its answer when a listener throws at the signal before it', async () => {
    const server = await serve((call) => {
      if (usual(call)) return;
      server.last.signal(SYSTEMD.path, 'org.example', 'Odd', 's', 'x');
      call.reply('s', 'pong');
    });
    await bus.connect();
    const heard: unknown[] = [];
    bus.onSignal(() => {
      throw new Error('clumsy');
    });
    bus.onSignal((signal) => heard.push(signal.member));
    expect(await bus.call(PING, CALL_MS)).toEqual(['pong']);
    expect(heard).toEqual(['Odd']);
    expect(reports).toEqual(['a listener failed: clumsy']);
  });
});

describe('a lost connection', () => {
  test('is made again, with rules and subscription, and says that it is up', async () => {
    const server = await serve();
    await bus.connect();
    const back = up(bus);
    server.last.cut();
    await timers.pass(isRetry);
    await back;
    expect(server.called.slice(4)).toEqual(['Hello', 'AddMatch', 'AddMatch', 'Subscribe']);
    expect(bus.ready).toBe(true);
  });

  test('is sought at growing intervals, and the interval starts anew after success', async () => {
    const server = await serve();
    await bus.connect();
    await server.close();
    const waits: number[] = [];
    for (let tries = 0; tries < 9; tries++) waits.push(await timers.pass(isRetry));
    expect(waits).toEqual([100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    await serve();
    const back = up(bus);
    await timers.pass(isRetry);
    await back;
    fake?.last.cut();
    expect(await timers.pass(isRetry)).toBe(100);
  });

  test('whose set-up is cut short is sought once, not twice', async () => {
    let served = 0;
    const server = await serve((call) => {
      if (call.member === 'Hello') served += 1;
      if (served === 2 && call.member === 'AddMatch') server.last.cut();
      else usual(call);
    });
    await bus.connect();
    server.last.cut();
    await timers.pass(isRetry);
    const back = up(bus);
    expect(await timers.pass(isRetry)).toBe(200);
    await back;
    expect(server.called.filter((member) => member === 'Hello').length).toBe(3);
    expect(timers.pending).toBe(0);
  });

  test('whose new manager refuses is sought once more each time, not twice', async () => {
    let refuse = false;
    const server = await serve((call) => {
      if (refuse && call.member === 'Subscribe') call.refuse('org.example.No', 'no');
      else usual(call);
    });
    await bus.connect();
    refuse = true;
    server.last.cut();
    const waits: number[] = [];
    for (let tries = 0; tries < 4; tries++) {
      await server.got('Subscribe', tries + 1);
      await server.last.gone();
      waits.push(await timers.pass(isRetry));
    }
    refuse = false;
    await up(bus);
    expect(waits).toEqual([100, 200, 400, 800]);
    expect([server.clients.length, timers.pending]).toEqual([5, 0]);
  });

  test('after close stays lost', async () => {
    const server = await serve();
    await bus.connect();
    const pending = failure(bus.call(PING, CALL_MS));
    bus.close();
    expect(await pending).toMatchObject({ message: 'closed by outlive' });
    await expect(bus.call(PING, CALL_MS)).rejects.toMatchObject({ failure: 'not_sent' });
    expect([bus.ready, timers.pending, server.clients.length]).toEqual([false, 0, 1]);
  });
});

describe('a manager', () => {
  test('that leaves the bus makes it unready; one that returns is subscribed to again', async () => {
    const server = await serve();
    await bus.connect();
    owner(server, ':1.1', '');
    while (bus.ready) await new Promise(setImmediate);
    const back = up(bus);
    owner(server, '', ':1.9');
    await back;
    expect(bus.ready).toBe(true);
    expect(server.called.slice(4)).toEqual(['Subscribe']);
    expect(server.clients.length).toBe(1);
  });

  test('that returns and does not take the subscription costs the connection, which is made anew', async () => {
    let refuse = false;
    const server = await serve((call) => {
      if (!(refuse && call.member === 'Subscribe')) usual(call);
      else call.refuse('org.freedesktop.DBus.Error.NoReply', 'busy');
      if (call.member === 'Subscribe') refuse = false;
    });
    await bus.connect();
    refuse = true;
    owner(server, '', ':1.9');
    const back = up(bus);
    await timers.pass(isRetry);
    await back;
    expect([bus.ready, server.clients.length]).toEqual([true, 2]);
  });
});
