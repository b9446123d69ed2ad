/** Every fault by its name. */
import { ATTEMPT_FAULTS } from './attempt.ts';
import { BUS_FAULTS } from './bus.ts';
import { CLOCK_FAULTS } from './clock.ts';
import { DAEMON_FAULTS } from './daemon.ts';
import { DAMAGE_FAULTS } from './damage.ts';
import { DISK_FAULTS } from './disk.ts';
import type { Fault } from './fault.ts';
import { OUTSIDE_FAULTS } from './outside.ts';
import { POINT_FAULTS } from './points.ts';
import { STORE_FAULTS } from './store.ts';

export const FAULTS: readonly Fault[] = [
  ...POINT_FAULTS,
  ...DAEMON_FAULTS,
  ...ATTEMPT_FAULTS,
  ...BUS_FAULTS,
  ...CLOCK_FAULTS,
  ...DISK_FAULTS,
  ...DAMAGE_FAULTS,
  ...STORE_FAULTS,
  ...OUTSIDE_FAULTS,
];

export function faultNamed(name: string): Fault {
  const fault = FAULTS.find((candidate) => candidate.name === name);
  if (!fault) throw new Error(`there is no fault ${name}; see npm run chaos -- --list`);
  return fault;
}
