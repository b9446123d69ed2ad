/** What one submit and one claim cost when the queue is long, beside the same when it is short. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { openStore, type Store } from '../../src/store/store.ts';
import { QueueRig } from '../support/core-queue.ts';
import { monotonicMs } from './clock.ts';
import { type Figure, figure } from './figure.ts';

const LONG = 10_000;
const SHORT = 100;
/** Submits and claims measured in a row before the other queue has its turn. */
const TURN = 10;
const RUNNING = 8;

/** A queue with this many waiting behind a runner's slots, half of them aside and half in line. */
class Line {
  readonly #directory: string;
  readonly #store: Store;
  readonly #rig: QueueRig;
  readonly #running: string[] = [];

  constructor(waiting: number) {
    this.#directory = mkdtempSync(path.join(os.homedir(), 'bench-queue-'));
    this.#store = openStore(this.#directory, 'main', new Date().toISOString());
    this.#rig = new QueueRig(this.#store, { runner: { command: RUNNING } });
    // One transaction for all would be quicker, and another line: each is a submit of its own.
    for (let made = 0; made < waiting + RUNNING; made++) this.#rig.submit();
    this.#running.push(...this.#rig.claimAll());
  }

  submit(): number {
    const began = monotonicMs();
    this.#rig.submit();
    return monotonicMs() - began;
  }

  /** A slot gets free, and who is next is claimed. */
  claim(): number {
    const ended = this.#running.shift();
    if (ended === undefined) throw new Error('nothing runs');
    const began = monotonicMs();
    this.#rig.end(ended);
    const { claim } = this.#rig.claimOnce();
    const took = monotonicMs() - began;
    if (!claim) throw new Error('nothing was claimed');
    this.#running.push(claim.workUnit.id);
    return took;
  }

  close(): void {
    this.#store.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

interface Cost {
  /** Elapsed, the disk included. */
  readonly wall: number[];
  readonly cpu: number[];
}
const nothing = (): Cost => ({ wall: [], cpu: [] });

function measured({ wall, cpu }: Cost, work: () => number): void {
  const before = process.cpuUsage();
  wall.push(work());
  const { user, system } = process.cpuUsage(before);
  cpu.push((user + system) / 1_000);
}

/** Every claim is made up for by a submit, so that the lines keep their lengths. */
export async function measureQueue(rounds: number): Promise<Figure[]> {
  const lines = { long: new Line(LONG), short: new Line(SHORT) };
  const submits = { long: nothing(), short: nothing() };
  const claims = { long: nothing(), short: nothing() };
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? (['long', 'short'] as const) : (['short', 'long'] as const);
    for (const which of order) {
      for (let turn = 0; turn < TURN; turn++) {
        measured(submits[which], () => lines[which].submit());
        measured(claims[which], () => lines[which].claim());
      }
    }
  }
  for (const line of Object.values(lines)) line.close();
  return Promise.resolve([
    ...costs('queue.submit', 'a submit', submits),
    ...costs('queue.claim', 'an end and the claim of the next', claims),
  ]);
}

function costs(name: string, what: string, { long, short }: { long: Cost; short: Cost }): Figure[] {
  const beside = `with ${SHORT} waiting`;
  const target = { of: 'ratio', atMost: 2 } as const;
  return (['wall', 'cpu'] as const).map((clock) =>
    figure({
      name: clock === 'wall' ? name : `${name}.cpu`,
      unit: 'ms',
      measures: `${clock === 'wall' ? '' : 'CPU time of '}${what} with ${LONG} work units waiting`,
      ours: long[clock],
      beside: { what: beside, samples: short[clock] },
      target,
    }),
  );
}
