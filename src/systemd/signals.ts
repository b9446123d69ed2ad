/** What a signal of the manager hints at. Pure; the facts are read afterwards. */
import { BUS_DRIVER, SYSTEMD } from './bus-names.ts';
import { unitOfPath } from './unit-path.ts';
import { text } from './values.ts';
import type { BusSignal } from './wire.ts';

export type Hint =
  /** Something about this unit may have changed. */
  | { readonly kind: 'unit'; readonly unit: string }
  /** This job of this unit has ended (whether well or not). */
  | {
      readonly kind: 'job';
      readonly unit: string;
      readonly job: string;
      /** `done`, `failed`, `dependency`, `timeout`, `canceled`, …; empty when not told. */
      readonly result: string;
    }
  /** Anything may have changed. */
  | { readonly kind: 'everything' };

const MANAGER = `${SYSTEMD.destination}.Manager`;

function managerHint(signal: BusSignal): Hint | null {
  const [first, second, third, fourth] = signal.body;
  switch (signal.member) {
    case 'JobRemoved': // u id, o job, s unit, s result
      return typeof second === 'string' && typeof third === 'string'
        ? { kind: 'job', job: second, unit: third, result: text(fourth) }
        : null;
    case 'UnitNew':
    case 'UnitRemoved': // s unit, o path
      return typeof first === 'string' ? { kind: 'unit', unit: first } : null;
    case 'Reloading': // b: false once it is over
      return first === false ? { kind: 'everything' } : null;
    default:
      return null;
  }
}

/** The hint in a signal, null when it says nothing about units. */
export function hintOf(signal: BusSignal): Hint | null {
  if (signal.interface === MANAGER) return managerHint(signal);
  if (signal.interface !== `${BUS_DRIVER.interface}.Properties`) return null;
  const unit = unitOfPath(signal.path);
  return unit === null ? null : { kind: 'unit', unit };
}
