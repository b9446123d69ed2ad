/**
 * What tools that act outside the nest may touch. Pi's own edit, write and read run in Pi's
 * process, which sees everything that its user sees: for them a path is judged, where
 * commands simply find nothing.
 *
 * A judgement is of the moment: something the model left running could put a link in place
 * of a directory before the tool acts.
 */
import { lstatSync, readlinkSync } from 'node:fs';
import path from 'node:path';

/** Absolute paths without links; each stands for all that is below it. */
export interface ProtectedPaths {
  /** Neither to be read nor written. */
  readonly hidden: readonly string[];
  /** To be read only. */
  readonly readOnly: readonly string[];
  /** Free all the same. */
  readonly shown: readonly string[];
}

export interface PathJudgement {
  readonly allowed: boolean;
  /** The path with every link resolved, also where its end does not exist yet. */
  readonly resolved: string;
  /** For the model; null when it is allowed. */
  readonly reason: string | null;
}

/** As the kernel, which counts 40 (man path_resolution). */
const MAX_LINKS = 40;
/** The kernel's own files are other processes and their memory. */
const KERNEL = ['/proc', '/sys'];

/**
 * The path with all links resolved; what does not exist is kept as it is. Null when links
 * lead in a circle. A link whose target is missing counts as its target: writing makes that.
 */
export function resolveLinks(file: string): string | null {
  let pending = path.resolve('/', file).split('/').filter(Boolean);
  let done = '/';
  for (let links = 0; pending.length > 0; ) {
    const [name = '', ...rest] = pending;
    pending = rest;
    if (name === '..') {
      done = path.dirname(done);
      continue;
    }
    const next = path.join(done, name);
    const target = linkTarget(next);
    if (target === null) {
      done = next;
      continue;
    }
    links += 1;
    if (links > MAX_LINKS) return null;
    // Not normalized: `..` after a link is the parent of where the link leads.
    pending = [...target.split('/').filter((part) => part !== '' && part !== '.'), ...pending];
    if (path.isAbsolute(target)) done = '/';
  }
  return done;
}

function linkTarget(file: string): string | null {
  try {
    return lstatSync(file).isSymbolicLink() ? readlinkSync(file) : null;
  } catch {
    return null;
  }
}

/** True when `file` is the directory or below it; both absolute and normalized. */
export const isWithin = (directory: string, file: string): boolean =>
  file === directory || file.startsWith(directory === '/' ? '/' : `${directory}/`);

/** Judges a path as a tool got it: absolute, or relative to `cwd`. */
export function judgePath(
  { hidden, readOnly, shown }: ProtectedPaths,
  access: 'read' | 'write',
  file: string,
  cwd: string,
): PathJudgement {
  const asked = path.resolve(cwd, file);
  const resolved = resolveLinks(asked);
  const refuse = (reason: string): PathJudgement => ({
    allowed: false,
    resolved: resolved ?? asked,
    reason: `${file} ${reason}`,
  });
  if (resolved === null) return refuse('is a link that leads in a circle');
  const within = (directories: readonly string[]): boolean =>
    directories.some((each) => isWithin(each, resolved) || isWithin(each, asked));
  if (shown.some((each) => isWithin(each, resolved))) {
    return { allowed: true, resolved, reason: null };
  }
  if (within(hidden)) return refuse('is out of bounds for this run');
  if (access === 'write' && within(readOnly)) return refuse('is read-only for this run');
  if (within(KERNEL) && (access === 'write' || within(['/proc']))) {
    return refuse('is of the kernel; use a command');
  }
  return { allowed: true, resolved, reason: null };
}
