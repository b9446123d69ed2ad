/** What only root can do, outside the host: its power, its user manager. See outside-acts.ts. */
import type { Round } from '../round.ts';
import { type Fault, LOST, strike } from './fault.ts';

const outside = (name: string): Fault => ({
  name,
  family: 'outside',
  inject: async (round) => {
    strike(round, name, 'all', [LOST]);
    // After a power cut nobody is here to go on; the round is settled after the next boot.
    const act = (): Promise<void> => round.outside(name);
    if (diesWithManager(name, round)) await round.keeper.down(act);
    else await act();
  },
});

/**
 * As a unit the daemon goes with its manager; started by hand it lives on. With a manager
 * that is killed goes the runtime directory, and in it the socket of a daemon that lived on.
 */
const diesWithManager = (name: string, { random }: Round): boolean =>
  name === 'manager-kill' || (name === 'manager-restart' && random.chance(0.5));

/** These end the host: everything of the round that is not on its disk. */
export const POWER_FAULTS = ['power-cut', 'power-reboot'] as const;

export const OUTSIDE_FAULTS: readonly Fault[] = [
  ...POWER_FAULTS,
  'manager-restart',
  'manager-kill',
].map(outside);
