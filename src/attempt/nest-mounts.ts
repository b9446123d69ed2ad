/** What is mounted over what in a nest: worked out outside, carried out inside (nest-script.ts). */
import { accessSync, constants, readFileSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import type { SandboxSpec } from '../domain/attempt-files.ts';
import { makeDirectory } from './files.ts';
import { isWithin, type ProtectedPaths } from './nest-paths.ts';

/**
 * `pin`: mounted onto itself, since a directory that something is mounted on cannot be renamed:
 * else the way to a covered place could be moved aside and another one laid. `hide`: covered by
 * an empty one. `lock`: made read-only. `veil`: a file, covered by an empty one. One directory
 * may be seen in a hidden one: it is held (`hold`), covered by one that can still be written
 * (`shade`), put back (`show`), and what covers the rest is closed (`seal`). `clear`: as `hide`,
 * and can be looked into.
 */
export type MountKind =
  | 'pin'
  | 'hide'
  | 'clear'
  | 'lock'
  | 'veil'
  | 'hold'
  | 'shade'
  | 'show'
  | 'seal';

export interface Mount {
  readonly kind: MountKind;
  readonly path: string;
}

export interface NestPlan {
  /** In the order in which they have to be made. */
  readonly mounts: readonly Mount[];
  readonly paths: ProtectedPaths;
}

interface MountPoint {
  readonly path: string;
  readonly type: string;
  readonly readOnly: boolean;
}

/**
 * ssh refuses files in it that belong neither to root nor to the user, and in a user namespace of
 * one user root is nobody. Without them it runs, by its own defaults.
 */
const OF_ROOT = ['/etc/ssh/ssh_config.d'];

/** The plan cannot be made; the message is a sentence. */
export class NestPlanError extends Error {}

/** What is to be covered, and the one directory that stays in sight all the same. */
export type NestSpec = Pick<SandboxSpec, 'hidden' | 'veiled' | 'readOnly'> & {
  readonly shown?: string | null;
};

/**
 * The mounts for a work tree at `cwd`. Directories to lock that are missing are made, where we may.
 * @throws NestPlanError when the work tree lies in what is to be hidden.
 */
export function planNest(
  spec: NestSpec,
  cwd: string,
  mountInfo: string = readFileSync('/proc/self/mountinfo', 'utf8'),
): NestPlan {
  const { hidden, veiled, readOnly } = spec;
  const points = parseMountInfo(mountInfo);
  const tree = realpathSync(cwd);
  const hide = outermost(hidden.flatMap(existing).filter(isDirectory));
  const inTheWay = hide.find((each) => isWithin(each, tree));
  if (inTheWay !== undefined) {
    throw new NestPlanError(`the work tree ${cwd} lies in ${inTheWay}, which is hidden`);
  }
  const [shown = null] = spec.shown == null ? [] : existing(spec.shown);
  const outside = (file: string): boolean => !hide.some((each) => isWithin(each, file));
  for (const each of readOnly) makeIfMissing(each);
  // Whoever works on what is otherwise locked (this very program, say) is to be able to.
  const lock = outermost(readOnly.flatMap(existing)).filter(
    (each) => outside(each) && !isWithin(each, tree),
  );
  const veil = veiled.flatMap(existing).filter((each) => outside(each) && !isDirectory(each));
  const own = points.map((point) => point.path);
  const pins = new Set([...hide, ...lock, ...veil].flatMap((each) => ancestorsToPin(each, own)));
  for (const each of hide) pins.delete(each);
  const groups = points
    .filter(({ type, readOnly: isLocked }) => /^cgroup2?$/.test(type) && !isLocked)
    .map((point) => point.path)
    .filter(outside);
  const all = (kind: MountKind, paths: Iterable<string>): Mount[] =>
    [...paths].map((each) => ({ kind, path: each }));
  return {
    mounts: [
      ...all(
        'pin',
        [...pins].toSorted((a, b) => a.length - b.length),
      ),
      ...hide.flatMap((each) => hideMounts(each, shown)),
      ...all('clear', OF_ROOT.filter(isDirectory)),
      ...all('lock', [...lock, ...groups]),
      ...all('veil', veil),
    ],
    paths: { hidden: [...hide, ...veil], readOnly: lock, shown: shown === null ? [] : [shown] },
  };
}

/** Covers a directory, but for the one in it that is to be seen. */
function hideMounts(directory: string, shown: string | null): Mount[] {
  const isHolder = shown !== null && isWithin(directory, shown);
  if (!isHolder) return [{ kind: 'hide', path: directory }];
  return [
    { kind: 'hold', path: shown },
    { kind: 'shade', path: directory },
    { kind: 'show', path: shown },
    { kind: 'seal', path: directory },
  ];
}

/** Those that lie in no other one, without repetition. */
function outermost(paths: readonly string[]): string[] {
  const once = [...new Set(paths)];
  return once.filter((each) => !once.some((other) => other !== each && isWithin(other, each)));
}

/** The path without links, when it exists and we may look. */
function existing(file: string): string[] {
  try {
    return [realpathSync(file)];
  } catch {
    return [];
  }
}

const isDirectory = (file: string): boolean =>
  statSync(file, { throwIfNoEntry: false })?.isDirectory() ?? false;

function makeIfMissing(directory: string): void {
  try {
    makeDirectory(directory);
  } catch {
    // Not ours to make, so not ours to fill either.
  }
}

/** Directories on the way to `file` that its user could rename. */
function ancestorsToPin(file: string, mounted: readonly string[]): string[] {
  const pins: string[] = [];
  for (let each = path.dirname(file); each !== '/'; each = path.dirname(each)) {
    // Mounted on already: as fast as a pin.
    if (!mounted.includes(each) && isWritable(path.dirname(each))) pins.push(each);
  }
  return pins;
}

function isWritable(directory: string): boolean {
  try {
    accessSync(directory, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** The fields of man proc_pid_mountinfo that count here. */
function parseMountInfo(text: string): MountPoint[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [before = '', after = ''] = line.split(' - ');
      const fields = before.split(' ');
      return {
        path: unescaped(fields[4] ?? ''),
        readOnly: (fields[5] ?? '').split(',').includes('ro'),
        type: after.split(' ')[0] ?? '',
      };
    });
}

/** Blanks and backslashes are written as octal numbers. */
const unescaped = (text: string): string =>
  text.replace(/\\(\d{3})/g, (_all, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
