/** How much memory there is for another run: of the machine, and of the user's slice. */
import { readFileSync } from 'node:fs';
import path from 'node:path';

const CGROUPS = '/sys/fs/cgroup';

const textOf = (file: string): string | null => {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null; // Not this kernel, or not this hierarchy: it says nothing.
  }
};

/** `MemAvailable` of /proc/meminfo (proc_meminfo(5)) in bytes, null when it is not there. */
export function availableOf(meminfo: string): number | null {
  const kibibytes = /^MemAvailable:\s+(\d+) kB$/m.exec(meminfo)?.[1];
  return kibibytes === undefined ? null : Number(kibibytes) * 1024;
}

/** What a cgroup leaves below its limit, bytes; null without a limit. */
export function leftOf(max: string | null, current: string | null): number | null {
  if (max === null || current === null || max.trim() === 'max') return null;
  const left = Number(max) - Number(current);
  return Number.isFinite(left) ? Math.max(0, left) : null;
}

/** The slices and services above a process, outermost last, from /proc/self/cgroup. */
export function groupsOf(cgroup: string): readonly string[] {
  const own = /^0::(\/.*)$/m.exec(cgroup)?.[1] ?? '/';
  const slice = own.slice(0, own.lastIndexOf('.slice') + '.slice'.length);
  // Runs live in a slice of their own below the user manager: only what is above both counts.
  const user = /^.*?\/user-\d+\.slice(?:\/user@\d+\.service)?/.exec(slice)?.[0] ?? '';
  const groups: string[] = [];
  for (let at = user; at !== '' && at !== '/'; at = path.dirname(at)) groups.push(at);
  return groups;
}

/** Reads the free memory afresh at each call: the least of machine and slices, bytes. */
export function createMemoryReader(root = '/'): () => number | null {
  const groups = groupsOf(textOf(path.join(root, 'proc/self/cgroup')) ?? '');
  return () => {
    const limits = groups.map((group) => {
      const at = (name: string): string | null => textOf(path.join(root, CGROUPS, group, name));
      return leftOf(at('memory.max'), at('memory.current'));
    });
    const machine = availableOf(textOf(path.join(root, 'proc/meminfo')) ?? '');
    const known = [machine, ...limits].filter((bytes) => bytes !== null);
    return known.length === 0 ? null : Math.min(...known);
  };
}
