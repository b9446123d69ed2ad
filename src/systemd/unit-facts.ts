/** From systemd's properties to the facts the supervisor knows. Pure. */
import os from 'node:os';
import type { ListedUnit, UnitFacts, UnitState } from '../executor/port.ts';
import type { ExitRecordDropIn } from './drop-in.ts';
import type { UnitSnapshot, UnitSummary } from './manager.ts';
import { hex, integer, list, type PropertyMap, text, texts } from './values.ts';

/** ExecMainCode is si_code of waitid(2). */
const HOW: Readonly<Record<string, UnitFacts['exit']['how']>> = {
  1: 'exited', // CLD_EXITED
  2: 'killed', // CLD_KILLED
  3: 'dumped', // CLD_DUMPED
};

/** First real-time signal of glibc, and the last (signal(7)). */
const SIGRTMIN = 34;
const SIGRTMAX = 64;

/** A signal's name as $EXIT_STATUS has it: without SIG, real-time ones as `RTMIN+n`. */
export function signalName(number: number): string {
  // The first name of a number is the usual one: ABRT before IOT, IO before POLL.
  const named = Object.entries(os.constants.signals).find(([, value]) => value === number);
  if (named) return named[0].slice(3);
  if (number < SIGRTMIN || number > SIGRTMAX) return String(number);
  return number === SIGRTMIN ? 'RTMIN' : `RTMIN+${number - SIGRTMIN}`;
}

/** States of other versions count as the known one that concludes least. */
function stateOf(activeState: string): UnitState {
  switch (activeState) {
    case 'activating':
    case 'active':
    case 'reloading':
    case 'deactivating':
    case 'inactive':
    case 'failed':
      return activeState;
    case 'refreshing':
      return 'reloading';
    default:
      return 'deactivating';
  }
}

function exitOf(service: PropertyMap): UnitFacts['exit'] {
  const how = HOW[String(integer(service['ExecMainCode']))] ?? 'unknown';
  const status = Number(integer(service['ExecMainStatus']));
  const started = integer(service['ExecMainStartTimestampMonotonic']);
  const exited = integer(service['ExecMainExitTimestampMonotonic']);
  return {
    how,
    status: how === 'exited' ? status : null,
    signal: how === 'killed' || how === 'dumped' ? signalName(status) : null,
    elapsedMs: started > 0n && exited >= started ? Number((exited - started) / 1000n) : null,
  };
}

function nonceOf(environment: unknown): string | null {
  const variable = texts(environment).findLast((entry) => entry.startsWith('OUTLIVE_NONCE='));
  return variable?.slice('OUTLIVE_NONCE='.length) || null;
}

/** The part of {@link unitFacts} that a list tells; null when the unit is not loaded. */
export function listedUnit(name: string, { unit, environment }: UnitSummary): ListedUnit | null {
  const state = stateOf(text(unit['ActiveState']));
  if (unit['LoadState'] === 'not-found' && state === 'inactive') return null;
  const jobPending = integer(list(unit['Job'])[0]) !== 0n; // (uo); 0 and "/" for none
  return { unit: name, nonce: nonceOf(environment), state, jobPending };
}

/**
 * The facts of a unit, null when it is not loaded. A unit whose file was removed under
 * it is `not-found` and may still run: that one is loaded.
 */
export function unitFacts(
  name: string,
  snapshot: UnitSnapshot,
  dropIn: Pick<ExitRecordDropIn, 'appliesTo'>,
): UnitFacts | null {
  const { unit, service } = snapshot;
  const listed = listedUnit(name, { unit, environment: service['Environment'] });
  if (listed === null) return null;
  return {
    ...listed,
    everRan: integer(service['ExecMainStartTimestamp']) > 0n,
    // frozen-by-parent too; freezing already stands still in part.
    frozen: /^fr(ozen|eezing)/.test(text(unit['FreezerState'])),
    invocationId: hex(unit['InvocationID']) || null,
    controlGroup: text(service['ControlGroup']) || null,
    mainPid: Number(integer(service['MainPID'])) || null,
    result: text(service['Result']),
    exit: exitOf(service),
    leavesExitRecord: dropIn.appliesTo(unit['DropInPaths'], service['ExecStopPost']),
  };
}
