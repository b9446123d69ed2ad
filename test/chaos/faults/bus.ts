/** The user's message bus dies, is away for a while, comes back; the manager reloads and re-executes. */
import { setTimeout as pause } from 'node:timers/promises';
import { systemctl } from '../../support/rig.ts';
import { type Fault, strike } from './fault.ts';

// systemctl --user speaks with the manager over a socket of its own, so it works without the bus.
const kill: Fault = {
  name: 'bus-kill',
  family: 'bus',
  inject: async (round) => {
    strike(round, 'bus-kill', []);
    await systemctl('kill', '--signal=KILL', 'dbus.service').catch(() => undefined);
  },
};

const away: Fault = {
  name: 'bus-away',
  family: 'bus',
  inject: async (round) => {
    strike(round, 'bus-away', []);
    const back = (): Promise<unknown> => systemctl('start', 'dbus.socket');
    round.undo.push(async () => void (await back()));
    await systemctl('stop', 'dbus.socket', 'dbus.service');
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
      await systemctl(verb);
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
