/** What /proc says about a process, and a process as a promise of its end. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';

const MIB = 1024;

/** Memory that is this process's alone and would be free without it, MiB. */
export function privateMiB(pid: number): number {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  return (kibOf(rollup, 'Private_Clean') + kibOf(rollup, 'Private_Dirty')) / MIB;
}

/** Resident memory, shared pages included, MiB. */
export function residentMiB(pid: number): number {
  return kibOf(readFileSync(`/proc/${pid}/status`, 'utf8'), 'VmRSS') / MIB;
}

function kibOf(text: string, field: string): number {
  const match = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(text);
  if (match === null) throw new Error(`/proc says no ${field}`);
  return Number(match[1]);
}

/** Time on a CPU of all its threads so far, ms (stat's ticks of 10 ms are too coarse). */
export function cpuMs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  return threads.reduce((sum, thread) => {
    const text = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8');
    return sum + Number(text.split(' ')[0]) / 1e6;
  }, 0);
}

/** Waits for its end; throws unless it ended as it should. */
export async function exited(child: ChildProcess, expected: number | NodeJS.Signals = 0) {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  const how = child.signalCode ?? child.exitCode;
  if (how !== expected) throw new Error(`${child.spawnargs.join(' ')} ended with ${how}`);
}
