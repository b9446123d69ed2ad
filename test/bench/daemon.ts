/** What the daemon itself takes, with nothing to do and with attempts attached. Nothing to compare it with. */
import { setTimeout as pause } from 'node:timers/promises';
import { type Figure, figure } from './figure.ts';
import { cpuMs, residentMiB } from './process.ts';
import { inWorkshop, settle, type Workshop } from './workshop.ts';

const ATTEMPTS = 20;
const WATCHED_MS = 5_000;
const SAMPLES = 10;

interface Watched {
  readonly resident: readonly number[];
  readonly cpu: number;
}

export async function measureDaemon(): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    const { pid } = await workshop.rig.startDaemon();
    await settle();
    const idle = await watch(pid);
    await attach(workshop);
    await settle();
    const busy = await watch(pid);
    const cpu = `CPU time of the daemon over ${WATCHED_MS / 1000} s with`;
    const resident = 'resident memory of the daemon with';
    return [
      memory('daemon.rss.idle', `${resident} no attempt, fresh`, idle),
      memory(`daemon.rss.attempts`, `${resident} ${ATTEMPTS} attempts attached`, busy),
      time('daemon.cpu.idle', `${cpu} no attempt`, idle),
      time('daemon.cpu.attempts', `${cpu} ${ATTEMPTS} sleeping attempts attached`, busy),
    ];
  });
}

function memory(name: string, measures: string, { resident }: Watched): Figure {
  return figure({ name, unit: 'MiB', measures, ours: resident });
}

function time(name: string, measures: string, { cpu }: Watched): Figure {
  return figure({ name, unit: 'ms', measures, ours: [cpu] });
}

async function watch(pid: number): Promise<Watched> {
  const before = cpuMs(pid);
  const resident: number[] = [];
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    await pause(WATCHED_MS / SAMPLES);
    resident.push(residentMiB(pid));
  }
  return { resident, cpu: cpuMs(pid) - before };
}

async function attach({ rig }: Workshop): Promise<void> {
  const sleeper = { argv: ['/bin/sleep', '600'] };
  for (let number = 0; number < ATTEMPTS; number += 1) {
    const { id } = await rig.submit(sleeper);
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
  }
  const { activeAttempts } = await rig.client.runtime();
  if (activeAttempts !== ATTEMPTS) throw new Error(`${activeAttempts} attempts are attached`);
}
