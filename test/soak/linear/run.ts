/** One run: people, weather and mayhem, then quiet, then what has to be true. */
import { cpSync, lstatSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Random } from '../../chaos/random.ts';
import { LinearScene } from '../../support/linear-scene.ts';
import { commit, git } from '../../support/linear-trees.ts';
import { readEvidence, readUnrest, type Unrest } from './evidence.ts';
import { historyOf } from './history.ts';
import { type Scope, type Violation, violationsOf } from './invariants.ts';
import { Keeper } from './keeper.ts';
import type { Options } from './options.ts';
import { People } from './people.ts';
import { dealIssues } from './plan.ts';
import { StoreWatch } from './watch.ts';
import { badWeather } from './weather.ts';

/** A resumed attempt waits some seconds, a failed call up to minutes; more is a failure. */
const QUIET_MS = 240_000;
/** Histories that are printed whole. */
const SHOWN = 3;

export interface Result {
  readonly violations: readonly Violation[];
  /** Histories of offending sessions. */
  readonly histories: readonly string[];
  readonly figures: Readonly<Record<string, number>>;
}

const isQuiet = (unrest: Unrest, deeds: number): boolean =>
  unrest.settled === deeds && unrest.deliveries + unrest.turns + unrest.outbox + unrest.work === 0;

/** Everything that goes on at once; resolves when people are through and the daemon stays up. */
async function traffic(
  scene: LinearScene,
  keeper: Keeper,
  people: People,
  { seed, sessions, parallel }: Options,
): Promise<void> {
  const stop = new AbortController();
  const weather = badWeather(scene.linear, new Random(`${seed}/weather`), stop.signal);
  const mayhem = keeper.mayhem(stop.signal);
  try {
    await people.play(dealIssues(seed, sessions), parallel);
  } finally {
    stop.abort();
    await Promise.all([weather, mayhem]);
  }
}

function isKept(file: string): boolean {
  const info = lstatSync(file, { throwIfNoEntry: false });
  return info !== undefined && (info.isFile() || info.isDirectory());
}

function keep(scene: LinearScene, keeper: Keeper, logs: string, result: Result): void {
  mkdirSync(logs, { recursive: true });
  const told = result.violations.map(({ session, what }) => `${session ?? 'run'}: ${what}`);
  writeFileSync(path.join(logs, 'violations'), [...told, '', ...result.histories].join('\n'));
  cpSync(path.join(scene.rig.base, 'state'), path.join(logs, 'state'), {
    recursive: true,
    // A socket or a pipe of an attempt that was killed cannot be copied.
    filter: (file) => isKept(file),
  });
  for (const [index, daemon] of keeper.daemons.entries()) {
    writeFileSync(path.join(logs, `daemon-${index + 1}.log`), daemon.output());
  }
  const calls = scene.linear.calls().map((one) => JSON.stringify(one));
  writeFileSync(path.join(logs, 'calls'), calls.join('\n'));
}

function figuresOf({ scene, evidence, done }: Scope, keeper: Keeper): Result['figures'] {
  const { world, webhooks, limits } = scene.linear;
  const calls = scene.linear.calls();
  const struck = (word: RegExp): number =>
    keeper.blows.filter(({ what }) => word.test(what) && !what.endsWith('over')).length;
  return {
    sessions: world.sessions.length,
    issues: world.issues.length,
    words: done.filter(({ deed }) => deed.kind !== 'stop').length,
    stops: done.filter(({ deed }) => deed.kind === 'stop').length,
    'webhooks sent': webhooks.tries.length,
    'never sent': done.filter(({ deed }) => deed.sending.never).length,
    'found by sweeps': evidence.ledger.filter(({ source }) => source === 'sweep').length,
    turns: evidence.turns.length,
    interrupted: evidence.turns.filter(({ state }) => state === 'interrupted').length,
    continuations: evidence.turns.filter(({ kind }) => kind === 'continuation').length,
    attempts: evidence.attempts.length,
    'attempts lost': evidence.attempts.filter(({ status }) => status === 'lost').length,
    activities: world.activities.length,
    'calls of Linear': calls.length,
    'calls that failed': calls.filter(({ effective }) => !effective).length,
    'calls beyond the budget': limits.refused,
    'daemons killed': struck(/^SIGKILL/),
    'daemons ended': struck(/^SIGTERM/),
    'attempts killed': struck(/^attempt/),
    'power cuts': struck(/^power/),
  };
}

/** Each issue gets a work tree of it, so that issues are worked on at once. */
function repositoryIn(base: string): string {
  const repository = path.join(base, 'repository');
  mkdirSync(repository);
  git(repository, 'init', '--quiet', '--initial-branch=main');
  commit(repository, 'README', 'The lamps\n');
  return repository;
}

/** Plays a run. What failed leaves its files in `logs`. @throws what the scene throws. */
export async function soak(options: Options, logs: string): Promise<Result> {
  const scene = await LinearScene.create({ withoutSystemd: true });
  const repositories = [{ path: repositoryIn(scene.rig.base), default: true }];
  scene.configure({ repositories }, { limits: { runner: { pi: options.parallel } } });
  const keeper = new Keeper(scene, new Random(`${options.seed}/mayhem`));
  const { store } = scene.rig.config.directories;
  try {
    await keeper.start();
    const watch = new StoreWatch(store);
    const people = new People(scene, watch);
    await traffic(scene, keeper, people, options);
    const began = Date.now();
    // What never came is found by a sweep: the next daemon begins with one.
    await keeper.restart('SIGTERM');
    const deeds = people.done.length;
    const became = await watch.until(() => isQuiet(readUnrest(store), deeds), QUIET_MS);
    watch.close();
    const scope = { scene, evidence: readEvidence(store), done: people.done };
    const restless = became
      ? []
      : [`not quiet: ${JSON.stringify(readUnrest(store))} of ${deeds} deeds`];
    const violations = [
      ...[...restless, ...keeper.died].map((what) => ({ session: null, what })),
      ...violationsOf(scope),
    ];
    const offending = [...new Set(violations.flatMap(({ session }) => session ?? []))];
    const histories = offending.slice(0, SHOWN).map((id) => historyOf(scope, id, keeper.blows));
    const figures = { ...figuresOf(scope, keeper), 'ms to quiet': Date.now() - began };
    const result = { violations, histories, figures };
    if (violations.length > 0) keep(scene, keeper, logs, result);
    return result;
  } finally {
    await scene.end();
  }
}
