/**
 * What it costs to have a webhook of Linear's on the disk before it is answered, beside the
 * same server that checks and reads it just so, and stores nothing.
 */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Worker } from 'node:worker_threads';
import pino from 'pino';
import type { ApiContext } from '../../src/api/context.ts';
import { listenOnTcp } from '../../src/api/server.ts';
import { systemEntropy } from '../../src/compose.ts';
import { createIngress } from '../../src/linear/ingress.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { SECRET } from '../support/linear-webhooks.ts';
import { type Figure, figure, inTurn } from './figure.ts';
import type { Sending, Sent } from './webhook-sender.ts';

const COUNT = 4_000;
/** At once: a burst. */
const CONNECTIONS = 128;
const RATE_SECONDS = 4;

/** Takes everything and keeps nothing. */
const nowhere = {
  write: <Result>(work: () => Result): Result => work(),
  linearDeliveries: { record: () => true },
} as unknown as Store;

async function send(port: number, sending: Omit<Sending, 'port'>): Promise<Sent> {
  const workerData: Sending = { port, ...sending };
  const worker = new Worker(new URL('./webhook-sender.ts', import.meta.url), { workerData });
  const [sent] = (await once(worker, 'message')) as [Sent];
  await worker.terminate();
  return sent;
}

/** A server over this store while `work` runs. */
async function serving<Result>(
  store: Store,
  work: (port: number) => Promise<Result>,
): Promise<Result> {
  const log = pino({ level: 'silent' });
  const linear = createIngress({
    store: () => store,
    secret: SECRET,
    organizationId: null,
    entropy: systemEntropy,
    log,
    onDelivery: () => undefined,
  });
  const options = { log, version: 'bench', context: {} as ApiContext, gate: () => null, linear };
  const listener = await listenOnTcp(options, 0, 'no-token-is-asked-for');
  try {
    return await work(listener.port);
  } finally {
    await listener.close();
  }
}

async function withStore<Result>(work: (store: Store) => Promise<Result>): Promise<Result> {
  const directory = mkdtempSync(path.join(os.homedir(), 'bench-linear-'));
  const store = openStore(directory, 'main', new Date().toISOString());
  try {
    return await work(store);
  } finally {
    store.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Acknowledgements a second over this store. */
const throughput = (store: Store): Promise<number> =>
  serving(store, async (port) => {
    const { ms } = await send(port, { connections: CONNECTIONS, count: COUNT, rate: null });
    return (COUNT / ms) * 1_000;
  });

const durable = (): Promise<number> =>
  withStore(async (store) => {
    const rate = await throughput(store);
    const { new: stored } = store.linearDeliveries.counts();
    if (stored !== COUNT) throw new Error(`${stored} of ${COUNT} are stored`);
    return rate;
  });

/** Ages at this rate, after a second of it that is not counted. */
const agesAt = (rate: number): Promise<readonly number[]> =>
  withStore((store) =>
    serving(store, async (port) => {
      const sending = { connections: CONNECTIONS, rate };
      await send(port, { ...sending, count: Math.ceil(rate) });
      return (await send(port, { ...sending, count: Math.ceil(rate * RATE_SECONDS) })).ages;
    }),
  );

export async function measureLinear(rounds: number): Promise<Figure[]> {
  const some = Math.max(3, Math.ceil(rounds / 5));
  const { ours, beside } = await inTurn(some, durable, () => throughput(nowhere));
  const acknowledged = figure({
    name: 'linear.acknowledged',
    unit: '1/s',
    measures: `webhooks stored and answered 200, ${CONNECTIONS} at once, each a new one`,
    ours,
    beside: { what: 'the same server, storing nothing', samples: beside },
    target: { of: 'ratio', atLeast: 0.6 },
  });
  const half = acknowledged.ours.p50 / 2;
  return [
    acknowledged,
    figure({
      name: 'linear.age',
      unit: 'ms',
      measures: `a webhook due to its answer, at half that rate (${Math.round(half)}/s)`,
      ours: await agesAt(half),
      target: { of: 'p99', atMost: 50 },
    }),
  ];
}
