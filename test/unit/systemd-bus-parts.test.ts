/** The small parts the connection to the bus is made of. */
import { describe, expect, test } from 'vitest';
import { backoffMs } from '../../src/systemd/backoff.ts';
import { busSocket } from '../../src/systemd/bus-address.ts';
import { asUnavailable, BusError } from '../../src/systemd/bus-error.ts';
import { InFlight } from '../../src/systemd/in-flight.ts';
import { JobWatch } from '../../src/systemd/jobs.ts';
import { ManualTimers } from './systemd-manual-timers.ts';

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
  const most = { random: (size: number) => new Uint8Array(size).fill(255) };
  const least = { random: (size: number) => new Uint8Array(size) };
  expect([0, 1, 20].map((failures) => backoffMs(failures, least))).toEqual([50, 100, 5_000]);
  expect([0, 1, 20].map((failures) => backoffMs(failures, most))).toEqual([100, 200, 10_000]);
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
  const timers = new ManualTimers();

  const settled = async (promise: Promise<unknown>): Promise<boolean> => {
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
    jobs.onEnded('a.service', '/job/1', 'done');
    expect(await settled(early.ended('/job/1'))).toBe(true);
    const waiting = jobs.watch('a.service', 1);
    const ended = waiting.ended('/job/3');
    jobs.onEnded('b.service', '/job/3', 'done');
    jobs.onEnded('a.service', '/job/2', 'done');
    expect(await settled(ended)).toBe(false);
    jobs.onEnded('a.service', '/job/3', 'done');
    expect(await settled(ended)).toBe(true);
    expect(await ended, 'with its result').toBe('done');
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
    expect([await late, await missed], 'nobody knows how').toEqual([null, null]);
  });
});

test('only what went wrong on the bus becomes bus_unavailable', () => {
  expect(asUnavailable(new BusError('unanswered', 'x'))).toMatchObject({ code: 'bus_unavailable' });
  const other = new Error('x');
  expect(asUnavailable(other)).toBe(other);
});
