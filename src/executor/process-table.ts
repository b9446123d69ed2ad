/**
 * Processes as /proc shows them. A pid alone is nobody: pid and start time together are one
 * process of one boot, and its environment says whose it is (proc(5)).
 */
import { readdir, readFile } from 'node:fs/promises';

export interface ProcessStat {
  readonly pid: number;
  readonly ppid: number;
  /** Process id of the leader of its session; not given to another process while one is in it. */
  readonly session: number;
  /** Field 22 of stat: clock ticks after boot. */
  readonly startTicks: number;
}

/**
 * Start time of a process in clock ticks after boot: field 22 of its stat (proc(5)), null
 * when the text is none. Field 2 is the name and may hold anything, so fields are counted
 * after its last parenthesis.
 */
export function startTicksOf(stat: string): number | null {
  const ticks = Number(fieldsOf(stat)[19]);
  return stat.includes(')') && Number.isSafeInteger(ticks) ? ticks : null;
}

const fieldsOf = (stat: string): string[] => stat.slice(stat.lastIndexOf(')') + 2).split(' ');

/** The process of a stat text; null for what is none, and for the dead that nobody has reaped. */
export function parseStat(text: string): ProcessStat | null {
  const startTicks = startTicksOf(text);
  const [state = '', ppid, , session] = fieldsOf(text);
  if (startTicks === null || 'ZXx'.includes(state)) return null;
  return {
    pid: Number.parseInt(text, 10),
    ppid: Number(ppid),
    session: Number(session),
    startTicks,
  };
}

/** Nobody there any more, or not ours to look into. */
const NOBODY: ReadonlySet<unknown> = new Set(['ENOENT', 'ESRCH', 'EACCES', 'EPERM']);

/** The text of a file of /proc, empty for nobody. Any other failure passes: it proves no death. */
async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (NOBODY.has((error as NodeJS.ErrnoException).code)) return '';
    throw error;
  }
}

/** Null when no such process lives. */
export async function readProcess(pid: number): Promise<ProcessStat | null> {
  return parseStat(await readText(`/proc/${pid}/stat`));
}

/** A living process with its environment. */
export interface Bearer extends ProcessStat {
  /** True when it was started with this very `NAME=value`. */
  has(variable: string): boolean;
}

/** One living process, null when there is none. */
export async function readBearer(pid: number): Promise<Bearer | null> {
  const [stat, environ] = await Promise.all([readProcess(pid), readText(`/proc/${pid}/environ`)]);
  if (stat === null) return null;
  const all = `\0${environ}`;
  return { ...stat, has: (variable) => all.includes(`\0${variable}\0`) };
}

const AT_ONCE = 32;

/** Every living process that can be seen. Not one moment: some are gone by the end, some new. */
export async function listProcesses(): Promise<readonly Bearer[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const found: Bearer[] = [];
  // Some at a time: each holds files open, and a machine has more processes than we may open.
  for (let from = 0; from < pids.length; from += AT_ONCE) {
    const some = pids.slice(from, from + AT_ONCE).map((pid) => readBearer(Number(pid)));
    found.push(...(await Promise.all(some)).filter((bearer) => bearer !== null));
  }
  return found;
}

/** Sends a signal to this process and to no later one of its pid, as far as anything without a pidfd can. */
export async function signalProcess(target: ProcessStat, signal: number): Promise<void> {
  const now = await readProcess(target.pid);
  if (now?.startTicks !== target.startTicks) return;
  try {
    process.kill(target.pid, signal);
  } catch (error) {
    // EPERM: a setuid program. Who waits for it to end says so.
    if (!['ESRCH', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

/** Seconds since boot, without the time asleep on most kernels. */
export async function uptimeSeconds(): Promise<number> {
  return Number.parseFloat(await readFile('/proc/uptime', 'utf8'));
}

export async function bootId(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
}
