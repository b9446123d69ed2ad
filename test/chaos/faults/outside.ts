/** What only root can do, outside the host: its power, its user manager. See outside-acts.ts. */
import { type Fault, LOST, strike } from './fault.ts';

const outside = (name: string): Fault => ({
  name,
  family: 'outside',
  inject: async (round) => {
    strike(round, name, 'all', [LOST]);
    // After a power cut nobody is here to go on; the round is settled after the next boot.
    await round.outside(name);
  },
});

/** These end the host: everything of the round that is not on its disk. */
export const POWER_FAULTS = ['power-cut', 'power-reboot'] as const;

export const OUTSIDE_FAULTS: readonly Fault[] = [
  ...POWER_FAULTS,
  'manager-restart',
  'manager-kill',
].map(outside);
