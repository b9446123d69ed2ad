/**
 * What a daemon that was killed costs: until the next one serves, and until it has taken up
 * every attempt that lives, by how many live and by how much has ended before. And how long
 * a tree of processes lasts that does all it can to outlive its cancellation.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import Database from 'better-sqlite3';
import { appears, within } from '../support/rig.ts';
import { monotonicMs } from './clock.ts';
import { type Figure, figure } from './figure.ts';
import { cpuMs } from './process.ts';
import { inWorkshop, settle, type Workshop } from './workshop.ts';

const MANY = 200;
const FEW = 50;
const LONG = 10_000;
const SHORT = 100;
const READY_MS = 2_000;
/** A figure beside another may be off by so much before it grows with what it should not. */
const NOISE = 1.5;
/** Restarts measured for each number of attempts. */
const MOST_RESTARTS = 7;

const GRACE_MS = 2_000;
const SWEEP_MS = 1_000;

interface Restart {
  /** Spawned to serving. */
  readonly ready: number;
  /** Spawned to the last attempt taken up, its unit read and its wrapper listened to. */
  readonly attached: number;
  /** Processor time of the daemon until then: what else the machine does is not in it. */
  readonly cpu: number;
}

export async function measureRecovery(rounds: number): Promise<Figure[]> {
  const restarts = Math.max(3, Math.min(rounds, MOST_RESTARTS));
  return inWorkshop(async (workshop) => {
    const house = new House(workshop, restarts);
    await house.open();
    await house.remember(SHORT);
    const none = await house.restart();
    await house.grow(FEW);
    const few = await house.restart();
    await house.grow(MANY);
    const many = await house.restart();
    await house.remember(LONG);
    const long = await house.restart();
    return figures({ none, few, many, long });
  });
}

type Seen = Readonly<Record<'none' | 'few' | 'many' | 'long', readonly Restart[]>>;

function figures({ none, few, many, long }: Seen): Figure[] {
  const idle = median(none.map(({ cpu }) => cpu));
  const each = (seen: readonly Restart[], live: number): number[] =>
    seen.map(({ cpu }) => Math.max(0, cpu - idle) / live);
  const cpu = (seen: readonly Restart[]): number[] => seen.map((restart) => restart.cpu);
  const ready = (seen: readonly Restart[]): number[] => seen.map((restart) => restart.ready);
  const whole = (seen: readonly Restart[]): number[] => seen.map(({ attached }) => attached);
  const from = 'SIGKILLed daemon started anew to';
  const what = `${MANY} live attempts and ${LONG} ended work units`;
  return [
    figure({
      name: 'recovery.ready',
      unit: 'ms',
      measures: `${from} serving, with ${what}; beside it with nothing live and ${SHORT} ended`,
      ours: ready(long),
      beside: { what: 'nothing live', samples: ready(none) },
      target: { of: 'max', atMost: READY_MS },
    }),
    figure({
      name: 'recovery.attached',
      unit: 'ms',
      measures: `${from} every attempt taken up, with ${what}`,
      ours: whole(long),
      beside: { what: `${FEW} live`, samples: whole(few) },
    }),
    figure({
      name: 'recovery.each',
      unit: 'ms',
      measures: `processor time that each live attempt adds to that, of ${MANY}; beside it of ${FEW}`,
      ours: each(many, MANY),
      beside: { what: `of ${FEW}`, samples: each(few, FEW) },
      target: { of: 'ratio', atMost: NOISE },
    }),
    figure({
      name: 'recovery.history',
      unit: 'ms',
      measures: `processor time of that, ${MANY} live, with ${LONG} ended; beside it with ${SHORT}`,
      ours: cpu(long),
      beside: { what: `${SHORT} ended`, samples: cpu(many) },
      target: { of: 'ratio', atMost: NOISE },
    }),
  ];
}

function median(samples: readonly number[]): number {
  return samples.toSorted((a, b) => a - b)[Math.floor(samples.length / 2)] ?? Number.NaN;
}

/** A workspace whose daemon is killed and started anew, with what lives and what has ended in it. */
class House {
  readonly #workshop: Workshop;
  readonly #restarts: number;
  readonly #database: string;
  #daemon: Awaited<ReturnType<Workshop['rig']['startDaemon']>> | null = null;
  #live = 0;
  #ended = 0;

  constructor(workshop: Workshop, restarts: number) {
    this.#workshop = workshop;
    this.#restarts = restarts;
    const { directories } = workshop.rig.config;
    this.#database = path.join(directories.store, 'outlive.db');
    mkdirSync(path.dirname(directories.configFile), { recursive: true });
    writeFileSync(
      directories.configFile,
      JSON.stringify({ limits: { runner: { command: MANY } } }),
    );
  }

  async open(): Promise<void> {
    this.#daemon = await this.#workshop.rig.startDaemon();
    const { workUnit } = await this.#workshop.rig.runToEnd({ argv: ['/bin/true'] });
    if (workUnit.status !== 'succeeded') throw new Error(`the pattern ${workUnit.status}`);
    this.#ended = 1;
  }

  /** As many live attempts in all. */
  async grow(live: number): Promise<void> {
    const { rig } = this.#workshop;
    for (; this.#live < live; this.#live += 1) {
      const { id } = await rig.submit({ argv: ['/bin/sleep', '3600'] });
      await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    }
    await settle();
  }

  /** As many ended work units in all, each with all the rows that the first one left. */
  async remember(ended: number): Promise<void> {
    await this.#kill();
    const db = new Database(this.#database);
    try {
      const fill = db.transaction(() => {
        for (const table of HISTORY)
          db.prepare(copies(db, table)).run({ from: this.#ended, below: ended });
      });
      fill();
    } finally {
      db.close();
    }
    this.#ended = ended;
    this.#daemon = await this.#workshop.rig.startDaemon();
  }

  async restart(): Promise<readonly Restart[]> {
    const seen: Restart[] = [];
    for (let round = 0; round < this.#restarts; round += 1) {
      await settle();
      await this.#kill();
      const before = this.#taken();
      const began = monotonicMs();
      this.#daemon = await this.#workshop.rig.startDaemon();
      const ready = monotonicMs() - began;
      await within('every attempt to be taken up', this.#takenUp(before + this.#live));
      const attached = Math.max(ready, monotonicMs() - began);
      seen.push({ ready, attached, cpu: cpuMs(this.#daemon.pid) });
    }
    return seen;
  }

  async #kill(): Promise<void> {
    this.#daemon?.kill('SIGKILL');
    await this.#daemon?.exited;
  }

  #taken(): number {
    const db = new Database(this.#database, { readonly: true });
    try {
      return db.prepare('SELECT sum(reattached) FROM work_unit_attempts').pluck().get() as number;
    } finally {
      db.close();
    }
  }

  /** The store is asked: following events of two hundred streams would be measured along. */
  async #takenUp(count: number): Promise<void> {
    while (this.#taken() < count) await pause(20);
  }
}

/** What ended work leaves, parents first. */
const HISTORY = [
  'work_units',
  'work_unit_attempts',
  'runtime_events',
  'runtime_heartbeats',
  'runtime_semaphore_slots',
] as const;

/** Columns that tell one row from the next. */
const OWN: ReadonlySet<string> = new Set([
  'id',
  'work_unit_id',
  'attempt_id',
  'active_attempt_id',
  'handle',
  'idempotency_key',
  'unit',
  'nonce',
]);

/** Copies the rows of the first work unit, numbered from @from and below @below. */
function copies(db: Database.Database, table: (typeof HISTORY)[number]): string {
  const names = (db.pragma(`table_info(${table})`) as { name: string }[])
    .map(({ name }) => name)
    .filter((name) => name !== 'position');
  const values = names.map((name) => (OWN.has(name) ? `t.${name} || '-' || n` : `t.${name}`));
  const first = '(SELECT id FROM work_units ORDER BY created_at LIMIT 1)';
  const owner = table === 'work_units' ? 'id' : 'work_unit_id';
  return `WITH RECURSIVE number(n) AS
      (SELECT @from + 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < @below)
    INSERT INTO ${table} (${names.join(', ')})
    SELECT ${values.join(', ')} FROM ${table} t, number WHERE t.${owner} = ${first}`;
}

/** Ignores SIGTERM, twice forked, in a session of its own; its parents are gone or deaf as well. */
const TREE = [
  "trap '' TERM HUP",
  'setsid sh -c \'(trap "" TERM HUP; while :; do sleep 3600; done) & (setsid sleep 3600 &) &\' </dev/null >/dev/null 2>&1 &',
  'sleep 0.2; : >"$1/up-$$.new"; mv "$1/up-$$.new" "$1/up"',
  'while :; do sleep 3600; done',
].join('\n');

export async function measureTree(rounds: number): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    await workshop.rig.startDaemon();
    const took: number[] = [];
    for (let round = 0; round < Math.max(3, Math.min(rounds, 10)); round += 1) {
      took.push(await fell(workshop, round));
    }
    return [
      figure({
        name: 'cancel.tree',
        unit: 'ms',
        measures: `cancelled to an empty cgroup: a tree that ignores SIGTERM, forks twice and calls setsid, grace ${GRACE_MS} ms`,
        ours: took,
        target: { of: 'max', atMost: GRACE_MS + SWEEP_MS },
      }),
    ];
  });
}

async function fell({ rig }: Workshop, round: number): Promise<number> {
  const directory = path.join(rig.base, `tree-${round}`);
  mkdirSync(directory);
  const { id } = await rig.submit({
    argv: ['/bin/sh', '-c', TREE, 'tree', directory],
    timeoutPolicy: { cancelGraceMs: GRACE_MS },
  });
  await appears(path.join(directory, 'up'));
  const group = (await rig.client.getWorkUnit(id)).attempts[0]?.controlGroup;
  if (!group) throw new Error('its cgroup is not known');
  const count = population(group);
  if (count < 4) throw new Error(`the tree has ${count} processes`);
  const began = monotonicMs();
  await rig.client.cancelWorkUnit(id);
  while (population(group) > 0) await pause(5);
  const took = monotonicMs() - began;
  const { workUnit } = await rig.outcome(id);
  if (workUnit.status !== 'cancelled') throw new Error(`the tree ${workUnit.status}`);
  return took;
}

/** Processes in a cgroup; none when it is gone. */
function population(group: string): number {
  try {
    const pids = readFileSync(path.join('/sys/fs/cgroup', group, 'cgroup.procs'), 'utf8');
    return pids.split('\n').length - 1;
  } catch (error) {
    if (['ENOENT', 'ENODEV'].includes((error as NodeJS.ErrnoException).code ?? '')) return 0;
    throw error;
  }
}
