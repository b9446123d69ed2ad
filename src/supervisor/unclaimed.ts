/**
 * Files in our directories that no row keeps: what a compaction that lost the power left,
 * and what belongs to nobody the store knows (an older store was put back, somebody
 * copied something in). The first go at once, the others when they are old.
 */
import { mkdirSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import { longId } from '../domain/ids.ts';
import type { Owner } from '../store/retention.ts';
import { isTrash, trashOf } from './compact.ts';
import type { Context } from './context.ts';
import {
  measureTree,
  moveAsideNow,
  NOTHING,
  namesIn,
  newestChange,
  removeEmpty,
  removeTree,
  sum,
  type Tally,
} from './trees.ts';

/** An exit record that is still being written is younger than this. */
const UNFINISHED_MS = 60 * 60_000;
const SHOWN = 20;

export interface Unclaimed {
  /** Things that belong to nobody, removed or not. */
  readonly found: number;
  readonly removed: number;
  readonly files: Tally;
  /** The first of those that stay, absolute. */
  readonly paths: readonly string[];
}

export interface UnclaimedOptions {
  readonly dryRun: boolean;
  /** Things of nobody that did not change since then go; null for none. */
  readonly before: number | null;
}

interface Thing {
  readonly file: string;
  /** Asked again before anything is done: a retry may have taken it up. */
  owner(): Owner;
}

async function* attempts(context: Context): AsyncGenerator<Thing> {
  const { attemptsDirectory } = context.settings;
  const { workUnits, retention } = context.store;
  for (const name of await namesIn(attemptsDirectory)) {
    if (isTrash(name)) continue;
    const directory = path.join(attemptsDirectory, name);
    const known = workUnits.get(name) !== null;
    if (!known || !(await lstat(directory)).isDirectory()) {
      yield { file: directory, owner: () => 'unknown' };
      continue;
    }
    for (const id of await namesIn(directory)) {
      yield { file: path.join(directory, id), owner: () => retention.ownerOfAttempt(id) };
    }
  }
}

async function* sessions(context: Context): AsyncGenerator<Thing> {
  const { sessionsDirectory } = context.settings;
  const { retention } = context.store;
  for (const name of await namesIn(sessionsDirectory)) {
    if (isTrash(name)) continue;
    const file = path.join(sessionsDirectory, name);
    yield { file, owner: () => retention.ownerOfSession(name) };
  }
}

async function* exits(context: Context): AsyncGenerator<Thing> {
  const { exitsDirectory } = context.settings;
  const { retention } = context.store;
  for (const name of await namesIn(exitsDirectory)) {
    if (isTrash(name)) continue;
    const file = path.join(exitsDirectory, name);
    if (name.startsWith('.') && name.endsWith('.tmp')) {
      const old = context.entropy.now() - (await newestChange(file)) > UNFINISHED_MS;
      yield { file, owner: () => (old ? 'compacted' : 'kept') };
      continue;
    }
    const nonce = name.replace(/\.(?:json|halt)$/, '');
    yield { file, owner: () => retention.ownerOfNonce(nonce) };
  }
}

async function* temporaries(context: Context): AsyncGenerator<Thing> {
  const { temporaryDirectory } = context.settings;
  const { retention } = context.store;
  for (const name of await namesIn(temporaryDirectory)) {
    const id = longId(name);
    yield {
      file: path.join(temporaryDirectory, name),
      owner: () => (id === null ? 'unknown' : retention.ownerOfAttempt(id)),
    };
  }
}

async function mayGo({ file, owner }: Thing, before: number | null): Promise<boolean> {
  if (owner() === 'compacted') return true;
  return before !== null && (await newestChange(file)) <= before;
}

/** Takes it away in one turn with the last look at its owner; then it is nobody's. */
async function remove(context: Context, { file, owner }: Thing): Promise<Tally> {
  if (owner() === 'kept') return NOTHING;
  const { attemptsDirectory, sessionsDirectory, exitsDirectory, temporaryDirectory } =
    context.settings;
  const root = [attemptsDirectory, sessionsDirectory, exitsDirectory].find((directory) =>
    file.startsWith(`${directory}${path.sep}`),
  );
  const aside = path.join(trashOf(root ?? attemptsDirectory), path.basename(file));
  mkdirSync(path.dirname(aside), { recursive: true, mode: 0o700 });
  moveAsideNow(file, aside);
  const gone = await removeTree(aside);
  const parent = path.dirname(file);
  if (parent !== root && parent !== temporaryDirectory) await removeEmpty(parent);
  return gone;
}

/** Looks through all four directories. Something that cannot be read or removed is told in `problems`. */
export async function sweepUnclaimed(
  context: Context,
  { dryRun, before }: UnclaimedOptions,
  problems: string[],
): Promise<Unclaimed> {
  const result = { found: 0, removed: 0, files: NOTHING, paths: [] as string[] };
  for (const things of [
    attempts(context),
    sessions(context),
    exits(context),
    temporaries(context),
  ]) {
    for await (const thing of things) {
      const owner = thing.owner();
      if (owner === 'kept') continue;
      try {
        if (owner === 'unknown') result.found += 1;
        if (!(await mayGo(thing, before))) {
          if (result.paths.length < SHOWN) result.paths.push(thing.file);
          continue;
        }
        result.removed += 1;
        const gone = await (dryRun ? measureTree(thing.file) : remove(context, thing));
        result.files = sum(result.files, gone);
      } catch (error) {
        problems.push(`${thing.file}: ${(error as Error).message}`);
      }
    }
  }
  return result;
}
