/** The user's message bus dies, is away for a while, comes back; the manager reloads and re-executes. */
import { setTimeout as pause } from 'node:timers/promises';
import { systemctl } from '../../support/rig.ts';
import { type Fault, strike } from './fault.ts';

/** The manager may be away itself, by another fault; it comes back with a bus. */
const tell = async (...words: readonly string[]): Promise<void> => {
  await systemctl(...words).catch(() => undefined);
};

// systemctl --user speaks with the manager over a socket of its own, so it works without the bus.
const kill: Fault = {
  name: 'bus-kill',
  family: 'bus',
  inject: async (round) => {
    strike(round, 'bus-kill', []);
    await tell('kill', '--signal=KILL', 'dbus.service');
  },
};

const away: Fault = {
  name: 'bus-away',
  family: 'bus',
  inject: async (round) => {
    strike(round, 'bus-away', []);
    const back = (): Promise<void> => tell('start', 'dbus.socket');
    round.undo.push(back);
    await tell('stop', 'dbus.socket', 'dbus.service');
    await pause(round.random.whole(200, 2_000));
    await back();
  },
};

const manager = (verb: 'daemon-reload' | 'daemon-reexec'): Fault => ({
  name: `manager-${verb.slice('daemon-'.length)}`,
  family: 'manager',
  inject: async (round) => {
    strike(round, `manager-${verb.slice('daemon-'.length)}`, []);
    for (let times = round.random.whole(1, 3); times > 0; times--) {
      await tell(verb);
      await pause(round.random.whole(0, 200));
    }
  },
});

export const BUS_FAULTS: readonly Fault[] = [
  kill,
  away,
  manager('daemon-reload'),
  manager('daemon-reexec'),
];
