/** The daemon's process is killed, stopped, restarted, doubled. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ROOT } from '../../support/rig.ts';
import type { Round } from '../round.ts';
import { type Fault, strike } from './fault.ts';

/** Status of a daemon that finds the workspace taken (EXIT.conflict). */
const OWNED = 5;

const kill: Fault = {
  name: 'daemon-kill',
  family: 'daemon',
  inject: async (round) => {
    strike(round, 'daemon-kill', []);
    await round.keeper.end('SIGKILL');
  },
};

const killAgain: Fault = {
  name: 'daemon-kill-in-recovery',
  family: 'daemon',
  inject: async (round) => {
    strike(round, 'daemon-kill-in-recovery', []);
    for (let times = round.random.whole(2, 4); times > 0; times--) {
      await round.keeper.end('SIGKILL');
      await pause(round.random.whole(50, 700));
    }
  },
};

const stop: Fault = {
  name: 'daemon-stop',
  family: 'daemon',
  inject: async (round) => {
    strike(round, 'daemon-stop', []);
    round.keeper.signal('SIGSTOP');
    await pause(round.random.whole(100, 1_500));
    round.keeper.signal('SIGCONT');
  },
};

const stopThenKill: Fault = {
  name: 'daemon-stop-kill',
  family: 'daemon',
  inject: async (round) => {
    strike(round, 'daemon-stop-kill', []);
    round.keeper.signal('SIGSTOP');
    await pause(round.random.whole(100, 800));
    await round.keeper.end('SIGKILL');
  },
};

const restart: Fault = {
  name: 'daemon-restart',
  family: 'daemon',
  inject: async (round) => {
    strike(round, 'daemon-restart', []);
    await round.keeper.ready();
    await round.keeper.end('SIGTERM');
  },
};

/**
 * A second daemon of the same workspace must not get in beside the first.
 * @returns how it ended, null when the first went away meanwhile and nothing can be said.
 */
async function second(round: Round): Promise<string | null> {
  const child = spawn(process.execPath, [path.join(ROOT, 'dist/main.js')], {
    env: round.workshop.env,
    stdio: 'ignore',
  });
  const exited = once(child, 'exit').then(([code]) => String(code));
  const how = await Promise.race([exited, round.keeper.lifeEnds().then(() => null)]);
  child.kill('SIGKILL');
  await exited;
  return how;
}

const twice: Fault = {
  name: 'daemon-twice',
  family: 'daemon',
  inject: async (round) => {
    strike(round, 'daemon-twice', []);
    await round.keeper.ready();
    const how = await second(round);
    if (how === null || how === String(OWNED)) return;
    round.ledger.write({ what: 'daemon_ended', pid: 0, how, wanted: false, said: 'a second one' });
  },
};

export const DAEMON_FAULTS: readonly Fault[] = [
  kill,
  killAgain,
  stop,
  stopThenKill,
  restart,
  twice,
];
