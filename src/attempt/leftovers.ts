/** What is still alive in the unit when the runner has ended: it will be swept, we name it. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

export interface Leftover {
  readonly pid: number;
  /** The kernel's name of the process, 15 characters at most. */
  readonly name: string;
}

/** Where to look; tests look elsewhere. */
export interface ProcessTree {
  readonly proc: string;
  /** Mounts of the unified hierarchy: of a v2 host, of a hybrid one. */
  readonly cgroupRoots: readonly string[];
}

export const HOST_TREE: ProcessTree = {
  proc: '/proc',
  cgroupRoots: ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'],
};

const MOST = 50;

/**
 * Processes of this process's cgroup other than itself. Only within a unit (it has
 * an invocation id) is the cgroup ours alone; else the list is empty.
 */
export function readLeftovers(
  invocationId: string | undefined,
  tree: ProcessTree = HOST_TREE,
): Leftover[] {
  if (!invocationId) return [];
  return membersOf(ownCgroup(tree), tree)
    .filter((pid) => pid !== process.pid)
    .slice(0, MOST)
    .flatMap((pid) => nameOf(pid, tree));
}

/**
 * The same without systemd: what carries the attempt's mark in its environment, and is not
 * of those who carry its nonce (the wrapper, and who keeps it).
 */
export function readMarked(
  mark: string,
  nonce: string | undefined,
  tree: ProcessTree = HOST_TREE,
): Leftover[] {
  const carries = (pid: number, variable: string): boolean =>
    `\0${readText(path.join(tree.proc, String(pid), 'environ'))}`.includes(`\0${variable}\0`);
  return readdirSync(tree.proc)
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter(
      (pid) =>
        carries(pid, `OUTLIVE_MARK=${mark}`) && !carries(pid, `OUTLIVE_NONCE=${nonce ?? ''}`),
    )
    .slice(0, MOST)
    .flatMap((pid) => nameOf(pid, tree));
}

function ownCgroup(tree: ProcessTree): string | null {
  const lines = readText(path.join(tree.proc, 'self/cgroup')).split('\n');
  return lines.find((line) => line.startsWith('0::'))?.slice('0::'.length) ?? null;
}

function membersOf(cgroup: string | null, tree: ProcessTree): number[] {
  if (cgroup === null) return [];
  const list = tree.cgroupRoots
    .map((root) => readText(path.join(root, cgroup, 'cgroup.procs')))
    .find((text) => text !== '');
  // 0 stands for a process of another pid namespace.
  return (list ?? '')
    .split('\n')
    .map(Number)
    .filter((pid) => pid > 0);
}

function nameOf(pid: number, tree: ProcessTree): Leftover[] {
  const name = readText(path.join(tree.proc, String(pid), 'comm')).trimEnd();
  return name === '' ? [] : [{ pid, name }];
}

/** The text of a kernel file, empty when it is gone: processes end while one looks. */
function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
