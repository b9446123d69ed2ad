/** How soon a line of a spool is with the readers of its stream, and what many readers cost. */
import net from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { type Figure, figure } from './figure.ts';
import { cpuMs, residentMiB } from './process.ts';
import { AgeReader, Feed, feedFor } from './spool-feed.ts';
import { inWorkshop, settle, type Workshop } from './workshop.ts';

const ATTEMPTS = 20;
const PER_SECOND = 1_000;
const SECONDS = 10;

const READERS = 200;
/** Each is delivered two hundred times. */
const FANNED_PER_SECOND = 50;
const FANNED_SECONDS = 8;
const STALLED = 40;

/** Waits until every reader has this many lines, or for what cannot be delivery any more. */
async function allHave(readers: readonly AgeReader[], count: number): Promise<void> {
  for (let waited = 0; waited < 600; waited++) {
    if (readers.every(({ ages }) => ages.length >= count)) return;
    await pause(50);
  }
  const had = readers.map(({ ages }) => ages.length);
  throw new Error(`readers have ${Math.min(...had)} to ${Math.max(...had)} lines of ${count}`);
}

export async function measureDelivery(): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    const { rig } = workshop;
    const daemon = await rig.startDaemon();
    const feeds: Feed[] = [];
    for (let made = 0; made < ATTEMPTS; made++) feeds.push(await Feed.start(workshop));
    const socket = rig.config.directories.apiSocket;
    const readers = await Promise.all(
      feeds.map(({ workUnitId }) => AgeReader.open(socket, `/work-units/${workUnitId}/events`)),
    );
    await settle();
    await feedFor(feeds, PER_SECOND, 1); // Code that has run before is what a day is like.
    await allHave(readers, PER_SECOND / ATTEMPTS);
    for (const { ages } of readers) ages.length = 0;
    const before = cpuMs(daemon.pid);
    const written = await feedFor(feeds, PER_SECOND, SECONDS);
    await allHave(readers, written / ATTEMPTS);
    const cpu = cpuMs(daemon.pid) - before;
    for (const one of [...readers, ...feeds]) await one.close();
    return [
      figure({
        name: 'delivery.age',
        unit: 'ms',
        measures: `a line in a spool to its frame at the reader, ${PER_SECOND}/s over ${ATTEMPTS} attempts`,
        ours: readers.flatMap(({ ages }) => ages),
        target: { of: 'p99', atMost: 50 },
      }),
      figure({
        name: 'delivery.cpu',
        unit: 'ms',
        measures: 'CPU time of the daemon for each second of that',
        ours: [cpu / SECONDS],
      }),
    ];
  });
}

/** Ages at 200 readers of one stream while its spool grows. */
async function fanOut(feed: Feed, socket: string): Promise<number[]> {
  const path = `/work-units/${feed.workUnitId}/events`;
  const known = await AgeReader.open(socket, path);
  await pause(500);
  const old = known.ages.length;
  known.close();
  const readers = await Promise.all(
    Array.from({ length: READERS }, () => AgeReader.open(socket, path)),
  );
  await allHave(readers, old);
  for (const { ages } of readers) ages.length = 0;
  const written = await feedFor([feed], FANNED_PER_SECOND, FANNED_SECONDS);
  await allHave(readers, written);
  for (const reader of readers) reader.close();
  return readers.flatMap(({ ages }) => ages);
}

/** Asks for a stream and never reads it. */
async function stall(socketPath: string, workUnitId: string): Promise<net.Socket> {
  const socket = net.connect(socketPath);
  socket.on('error', () => undefined);
  socket.pause();
  socket.write(
    `GET /work-units/${workUnitId}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n`,
  );
  await pause(20);
  return socket;
}

const percentile = (ages: readonly number[], share: number): number =>
  ages.toSorted((a, b) => a - b)[Math.ceil(share * ages.length) - 1] ?? Number.NaN;

/** p99 with and without stalled readers, in turn. */
async function stalledOrNot(workshop: Workshop, feed: Feed, rounds: number) {
  const socket = workshop.rig.config.directories.apiSocket;
  const p99 = { alone: [] as number[], beside: [] as number[] };
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? (['alone', 'beside'] as const) : (['beside', 'alone'] as const);
    for (const which of order) {
      const stalled = which === 'beside' ? [await stall(socket, feed.workUnitId)] : [];
      p99[which].push(percentile(await fanOut(feed, socket), 0.99));
      for (const one of stalled) one.destroy();
    }
  }
  return p99;
}

export async function measureFanOut(rounds: number): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    const { rig } = workshop;
    const { pid } = await rig.startDaemon();
    const feed = await Feed.start(workshop);
    const socket = rig.config.directories.apiSocket;
    await settle();
    await fanOut(feed, socket);
    const p99 = await stalledOrNot(workshop, feed, Math.max(2, Math.ceil(rounds / 10)));
    const before = residentMiB(pid);
    // Forty megabytes of events, which nobody of the forty takes.
    await feedFor([feed], 4_000, 40);
    const stalled: net.Socket[] = [];
    for (let made = 0; made < STALLED; made++) stalled.push(await stall(socket, feed.workUnitId));
    await settle();
    const grown = residentMiB(pid) - before;
    for (const one of stalled) one.destroy();
    await feed.close();
    return [
      figure({
        name: 'fanout.p99',
        unit: 'ms',
        measures: `p99 of a line's age at ${READERS} readers of one stream, one more of it stalled`,
        ours: p99.beside,
        beside: { what: 'none stalled', samples: p99.alone },
        target: { of: 'ratio', atMost: 1.5 },
      }),
      figure({
        name: 'fanout.memory',
        unit: 'MiB',
        measures: `resident memory that ${STALLED} stalled readers of 40 MB of events add`,
        ours: [grown],
        target: { of: 'max', atMost: 100 },
      }),
    ];
  });
}
