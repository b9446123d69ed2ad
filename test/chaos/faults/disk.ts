/** The small file system under the whole state, the store, the spools or the exit records is full. */
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Round } from '../round.ts';
import { type OnSmallDisk, SMALL_DISK } from '../workshop.ts';
import { type Fault, strike } from './fault.ts';

const PREFIX = 'disk-full-';
/** Each says honestly what the want of room did to it. */
const ALLOWS = ['failed/disk_full', 'failed/spool_lost', 'failed/launch_failed'];

const filler = (round: Round): string =>
  path.join(SMALL_DISK, `filler-${round.workshop.workspace}`);

/** Writes until not a single byte more fits. */
function fill(file: string): void {
  const descriptor = openSync(file, 'a');
  try {
    for (let size = 1024 * 1024; size >= 1; size = Math.floor(size / 2)) {
      try {
        for (;;) writeSync(descriptor, Buffer.alloc(size));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    }
  } finally {
    closeSync(descriptor);
  }
}

const full = (what: Exclude<OnSmallDisk, null>): Fault => ({
  name: `${PREFIX}${what}`,
  family: 'disk',
  inject: async (round) => {
    strike(round, `${PREFIX}${what}`, 'all', ALLOWS);
    const free = (): void => rmSync(filler(round), { force: true });
    round.undo.push(free);
    for (let times = round.random.whole(1, 2); times > 0; times--) {
      fill(filler(round));
      await pause(round.random.whole(200, 1_500));
      free();
      await pause(round.random.whole(0, 300));
    }
  },
});

export const DISK_FAULTS: readonly Fault[] = (['state', 'store', 'attempts', 'exits'] as const).map(
  full,
);

/** Which directories have to lie on the small disk for these faults. */
export function smallDiskFor(names: readonly string[]): OnSmallDisk {
  const name = names.find((candidate) => candidate.startsWith(PREFIX));
  return name === undefined ? null : (name.slice(PREFIX.length) as OnSmallDisk);
}
