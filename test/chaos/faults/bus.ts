/** The user's message bus dies, is away for a while, comes back; the manager reloads and re-executes. */
import { execFile } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { systemctl } from '../../support/rig.ts';
import type { Round } from '../round.ts';
import { type Fault, strike } from './fault.ts';

const run = promisify(execFile);

/** The manager may be away itself, by another fault; it comes back with a bus. */
const tell = async (...words: readonly string[]): Promise<void> => {
  await systemctl(...words).catch(() => undefined);
};

const MANAGER = ['org.freedesktop.systemd1', '/org/freedesktop/systemd1'] as const;
const ASK = ['call', ...MANAGER, 'org.freedesktop.DBus.Peer', 'Ping'] as const;

const answers = (): Promise<boolean> =>
  run('busctl', ['--user', '--timeout=2', ...ASK], { timeout: 5_000 }).then(
    () => true,
    () => false,
  );

/**
 * A killed bus is started again by its socket, up to systemd's limit of starts (5 in 10 s,
 * those of other rounds counted), and then the socket refuses for good. That is the host's to
 * mend, as by its operator: outlive's attempts have to run on until then, and they do.
 */
const mend =
  ({ ledger }: Round) =>
  async (): Promise<void> => {
    if (await answers()) return;
    const state = await systemctl('show', '-P', 'Result', 'dbus.socket', 'dbus.service').catch(
      String,
    );
    ledger.write({ what: 'note', text: `the bus did not come back by itself: ${state}` });
    await tell('reset-failed', 'dbus.service', 'dbus.socket');
    await tell('restart', 'dbus.socket', 'dbus.service');
    if (!(await answers())) await tell('daemon-reexec');
  };

// systemctl --user speaks with the manager over a socket of its own, so it works without the bus.
const kill: Fault = {
  name: 'bus-kill',
  family: 'bus',
  inject: async (round) => {
    strike(round, 'bus-kill', []);
    round.undo.push(mend(round));
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
