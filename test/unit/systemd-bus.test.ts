/** The connection to the bus, against a bus that misbehaves on purpose. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { backoffMs } from '../../src/systemd/backoff.ts';
import { BUS_DRIVER, Bus, SYSTEMD } from '../../src/systemd/bus.ts';
import { busSocket } from '../../src/systemd/bus-address.ts';
import { asUnavailable, BusError, refusedAs } from '../../src/systemd/bus-error.ts';
import { InFlight } from '../../src/systemd/in-flight.ts';
import { JobWatch } from '../../src/systemd/jobs.ts';
import type { Timers } from '../../src/systemd/timers.ts';
import { type Call, FakeBus } from './systemd-fake-bus.ts';

/** Deadlines that pass only when told to. */
class ManualTimers implements Timers {
  readonly #set = new Set<{ ms: number; callback: () => void }>();
  readonly #waiting = new Set<() => void>();

  after(ms: number, callback: () => void): () => void {
    const timer = { ms, callback };
    this.#set.add(timer);
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
    return () => this.#set.delete(timer);
  }

  /** Lets the first matching deadline pass, waiting for it to be set; returns its length. */
  async pass(matches: (ms: number) => boolean): Promise<number> {
    for (;;) {
      const found = [...this.#set].find((timer) => matches(timer.ms));
      if (found) {
        this.#set.delete(found);
        found.callback();
        return found.ms;
      }
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  get pending(): number {
    return this.#set.size;
  }
}

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
function usual(call: Call): boolean {
  if (call.member === 'Hello') call.reply('s', ':1.7');
  else if (['AddMatch', 'Subscribe'].includes(call.member)) call.reply();
  else return false;
  return true;
}

async function serve(onCall: (call: Call) => void = usual): Promise<FakeBus> {
  fake = await FakeBus.listen(`${scratch}/bus`, onCall);
  return fake;
}

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
    const connecting = expect(bus.connect()).rejects.toMatchObject({ code: 'no_user_manager' });
    await server.got('Hello', 1);
    await timers.pass((ms) => ms === CONNECT_MS);
    await connecting;
  });

  test('to a bus without a manager is no_user_manager', async () => {
    await serve((call) => {
      if (call.member !== 'Subscribe') usual(call);
      else call.refuse('org.freedesktop.DBus.Error.ServiceUnknown', 'no such name');
    });
    await expect(bus.connect()).rejects.toMatchObject({ code: 'no_user_manager' });
    expect(bus.ready).toBe(false);
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
    const first = expect(bus.call(PING, CALL_MS)).rejects.toMatchObject({ failure: 'unanswered' });
    await timers.pass((ms) => ms === CALL_MS);
    await first;
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
    const sent = expect(bus.call(PING, 11_111)).rejects.toMatchObject({ failure: 'unanswered' });
    const waiting = expect(bus.call(PING, CALL_MS)).rejects.toMatchObject({ failure: 'not_sent' });
    await server.got('Ping', 1);
    await timers.pass((ms) => ms === CALL_MS);
    await waiting;
    await timers.pass((ms) => ms === 11_111);
    await sent;
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
    const pending = expect(bus.call(PING, CALL_MS)).rejects.toThrow('closed by outlive');
    bus.close();
    await pending;
    await expect(bus.call(PING, CALL_MS)).rejects.toMatchObject({ failure: 'not_sent' });
    expect([bus.ready, timers.pending, server.clients.length]).toEqual([false, 0, 1]);
  });
});

describe('a manager', () => {
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

describe('the address of a bus', () => {
  test.each([
    ['unix:path=/run/user/1000/bus', '/run/user/1000/bus'],
    ['unix:path=/run/user/1000/bus,guid=abc', '/run/user/1000/bus'],
    ['unix:guid=abc,path=/a%20b', '/a b'],
    ['unix:abstract=/tmp/dbus-x', '\0/tmp/dbus-x'],
    ['tcp:host=localhost;unix:path=/b', '/b'],
  ])('%s', (address, socket) => {
    expect(busSocket(address)).toBe(socket);
  });

  test.each(['', 'tcp:host=localhost', 'unix:tmpdir=/tmp', 'unix:path=', 'unix:path=/a%2cb'])(
    '%j names none that can be used',
    (address) => {
      expect(() => busSocket(address)).toThrow(
        expect.objectContaining({ code: 'no_user_manager' }),
      );
    },
  );
});

test('a backoff is between half and all of its ceiling', () => {
  const least = { random: (size: number) => new Uint8Array(size) };
  expect([0, 1, 20].map((failures) => backoffMs(failures, least))).toEqual([50, 100, 5_000]);
  expect([0, 1, 20].map((failures) => backoffMs(failures, half))).toEqual([100, 200, 10_000]);
});

test('a cap lets in as many as leave, in order, without those that withdrew', () => {
  const cap = new InFlight(1);
  const ran: string[] = [];
  const enter = (name: string) => cap.enter(() => ran.push(name));
  expect(enter('a')()).toBe(false);
  const withdraw = enter('b');
  enter('c');
  expect(ran).toEqual(['a']);
  expect(withdraw()).toBe(true);
  cap.leave();
  expect(ran).toEqual(['a', 'c']);
  cap.leave();
  enter('d');
  expect(ran).toEqual(['a', 'c', 'd']);
});

describe('waiting for a job', () => {
  const settled = async (promise: Promise<void>): Promise<boolean> => {
    let done = false;
    promise.then(
      () => {
        done = true;
      },
      () => {},
    );
    await new Promise(setImmediate);
    return done;
  };

  test('ends with that job of that unit only, also when it ended before it was asked for', async () => {
    const jobs = new JobWatch(timers);
    const early = jobs.watch('a.service', 1);
    jobs.onEnded('a.service', '/job/1');
    expect(await settled(early.ended('/job/1'))).toBe(true);
    const waiting = jobs.watch('a.service', 1);
    const ended = waiting.ended('/job/3');
    jobs.onEnded('b.service', '/job/3');
    jobs.onEnded('a.service', '/job/2');
    expect(await settled(ended)).toBe(false);
    jobs.onEnded('a.service', '/job/3');
    expect(await settled(ended)).toBe(true);
    early.stop();
    waiting.stop();
    expect(timers.pending).toBe(0);
  });

  test('ends at its deadline, and when signals were missed', async () => {
    const jobs = new JobWatch(timers);
    const late = jobs.watch('a.service', 42).ended('/job/1');
    await timers.pass((ms) => ms === 42);
    expect(await settled(late)).toBe(true);
    const missed = jobs.watch('a.service', 43).ended('/job/1');
    jobs.onMissed();
    expect(await settled(missed)).toBe(true);
  });
});

test('only what went wrong on the bus becomes bus_unavailable', () => {
  expect(asUnavailable(new BusError('unanswered', 'x'))).toMatchObject({ code: 'bus_unavailable' });
  const other = new Error('x');
  expect(asUnavailable(other)).toBe(other);
});
