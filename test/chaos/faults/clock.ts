/** The daemon's wall clock jumps, forth and back: never the machine's own. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Workshop } from '../workshop.ts';
import { type Fault, strike, TOO_OLD } from './fault.ts';

const MODULE = fileURLToPath(new URL('../skewed-clock.mjs', import.meta.url));
const HOUR = 3_600_000;

const clockFile = ({ base }: Workshop): string => path.join(base, 'clock');

/** What the daemon's environment needs so that its clock can be set. */
export const clockEnvironment = (workshop: Workshop): Record<string, string> => ({
  NODE_OPTIONS: `--import=${MODULE}`,
  OUTLIVE_CHAOS_CLOCK: clockFile(workshop),
});

export const CLOCK_JUMP = 'clock-jump';
export const CLOCK_FAULTS: readonly Fault[] = [
  {
    name: CLOCK_JUMP,
    family: 'clock',
    inject: async (round) => {
      strike(round, CLOCK_JUMP, 'all', [TOO_OLD]);
      await round.keeper.ready(); // Before that nobody listens for the signal.
      for (let times = round.random.whole(1, 3); times > 0; times--) {
        const offset = round.random.pick([
          -24 * HOUR,
          -HOUR,
          -1_000,
          0,
          HOUR,
          24 * HOUR,
          400 * HOUR,
        ]);
        writeFileSync(clockFile(round.workshop), String(offset));
        round.keeper.tell('SIGUSR2');
        await pause(round.random.whole(50, 500));
      }
    },
  },
];
