/** The conformance table on real systemd. */
import { describe } from 'vitest';
import { conformance } from '../support/conformance.ts';
import { Rig } from '../support/rig.ts';

describe('what every runner does, on the systemd executor', () => {
  conformance('systemd', () => Rig.create(), [
    'succeeds',
    'fails',
    'is cancelled',
    'is interrupted, by a daemon of this process: no endpoint does that yet',
    'answers its cancellation with a success that comes too late',
    'is stopped from outside, with SIGTERM to its wrapper',
    'meets its hard timeout',
    'has a wrapper that is killed with SIGKILL',
    'ignores SIGTERM and is killed when its grace is over; T51 #20899',
    'leaves children in sessions of their own, which are named and killed; T47 PR#3318',
    'prints a lot',
    'outlives its daemon: SIGKILL, and the next one takes it up; T13 claude-code#79569, T68 supervisor#925',
    'ends while no daemon lives; T60 containerd#6771',
    'is at its deadline with its daemon dead and its wrapper stopped by SIGSTOP',
    'whose daemon dies between the start and its record runs once; T59 containerd#6860',
    'asks, is approved, and acts once',
    'asks, is denied, and the model is told',
    'asks, is suspended before its deadline, and acts once in its next attempt',
    'asks, is lost with its daemon and everything that told of it, and acts once when it is approved',
  ]);
});
