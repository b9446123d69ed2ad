/** What the daemon itself takes, with nothing to do and with attempts attached. Nothing to compare it with. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { defaultTimeouts } from '../../src/domain/work-unit.ts';
import { type Figure, figure, type Target } from './figure.ts';
import { cpuMs, residentMiB } from './process.ts';
import { inWorkshop, settle, type Workshop } from './workshop.ts';

const ATTEMPTS = 50;
/** Of one core. */
const CPU_SHARE = 0.01;
const RESIDENT_MIB = 150;
const IDLE_MS = 5_000;
/** One heartbeat of each attempt. */
const ATTACHED_MS = defaultTimeouts('task_run').heartbeatIntervalMs;
const SAMPLES = 10;

interface Watched {
  readonly resident: readonly number[];
  readonly cpu: number;
}

export async function measureDaemon(): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    allowAll(workshop);
    const { pid } = await workshop.rig.startDaemon();
    await settle();
    const idle = await watch(pid, IDLE_MS);
    await attach(workshop);
    await settle();
    const busy = await watch(pid, ATTACHED_MS);
    const cpu = 'CPU time of the daemon over';
    const resident = 'resident memory of the daemon with';
    return [
      memory('daemon.rss.idle', `${resident} no attempt, fresh`, idle),
      memory('daemon.rss.attempts', `${resident} ${ATTEMPTS} attempts attached`, busy, {
        of: 'max',
        atMost: RESIDENT_MIB,
      }),
      time('daemon.cpu.idle', `${cpu} ${IDLE_MS / 1000} s with no attempt`, idle),
      time(
        'daemon.cpu.attempts',
        `${cpu} ${ATTACHED_MS / 1000} s with ${ATTEMPTS} sleeping attempts, a heartbeat of each`,
        busy,
        { of: 'max', atMost: ATTACHED_MS * CPU_SHARE },
      ),
    ];
  });
}

function memory(name: string, measures: string, { resident }: Watched, target?: Target): Figure {
  return figure({ name, unit: 'MiB', measures, ours: resident, ...(target ? { target } : {}) });
}

function time(name: string, measures: string, { cpu }: Watched, target?: Target): Figure {
  return figure({ name, unit: 'ms', measures, ours: [cpu], ...(target ? { target } : {}) });
}

async function watch(pid: number, forMs: number): Promise<Watched> {
  const before = cpuMs(pid);
  const resident: number[] = [];
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    await pause(forMs / SAMPLES);
    resident.push(residentMiB(pid));
  }
  return { resident, cpu: cpuMs(pid) - before };
}

/** As many commands at once as are attached. */
function allowAll({ rig }: Workshop): void {
  const { configFile } = rig.config.directories;
  mkdirSync(path.dirname(configFile), { recursive: true });
  writeFileSync(configFile, JSON.stringify({ limits: { runner: { command: ATTEMPTS } } }));
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
