/** The processes of one attempt and its unit are killed, stopped, frozen, forgotten. */
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { systemctl } from '../../support/rig.ts';
import type { JournalLine } from '../journal.ts';
import type { Manner } from '../plan.ts';
import { isPi, type Round, target } from '../round.ts';
import { ANY, type Fault, miss, strike } from './fault.ts';

async function mainPid(unit: string): Promise<number | null> {
  const asked = systemctl('show', '--property=MainPID', '--value', unit);
  const pid = Number(await asked.catch(() => '0')); // The manager may be away by another fault.
  return pid > 0 ? pid : null;
}

/** What keeps the attempt's nest open is a child of the wrapper too, and always of this name. */
const KEEPER = 'unshare';

function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return ''; // It has ended.
  }
}

const childThat =
  (suits: (name: string) => boolean) =>
  async (unit: string): Promise<number | null> => {
    const wrapper = await mainPid(unit);
    if (wrapper === null) return null;
    try {
      const children = readFileSync(`/proc/${wrapper}/task/${wrapper}/children`, 'utf8');
      const pids = children.trim().split(' ').filter(Boolean).map(Number);
      return pids.find((pid) => suits(nameOf(pid))) ?? null;
    } catch {
      return null; // It has ended.
    }
  };

/** The runner's program. */
const childPid = childThat((name) => name !== KEEPER && name !== '');
const keeperPid = childThat((name) => name === KEEPER);

function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false; // It has ended.
  }
}

interface Blow {
  readonly name: string;
  /** As what the struck one may end, beside its natural end. */
  readonly allows?: readonly string[];
  readonly needs?: Manner;
  readonly suits?: (round: Round, line: JournalLine) => boolean;
  readonly act: (round: Round, line: JournalLine) => Promise<unknown>;
}

/** Strikes one attempt that is under way. */
const blow = ({ name, allows = [], needs, suits, act }: Blow): Fault => ({
  name,
  family: 'attempt',
  ...(needs ? { needs } : {}),
  inject: async (round) => {
    const line = await target(round, (candidate) => suits?.(round, candidate) ?? true);
    if (line === null) {
      miss(round, name, 'nothing ran');
      return;
    }
    strike(round, name, [line.key], allows);
    await act(round, line);
  },
});

type FindPid = (unit: string) => Promise<number | null>;

const killOf = (find: FindPid) => async (_: Round, line: JournalLine) => {
  const pid = await find(line.unit);
  if (pid !== null) signal(pid, 'SIGKILL');
};

const stopOf = (find: FindPid) => async (round: Round, line: JournalLine) => {
  const pid = await find(line.unit);
  if (pid === null || !signal(pid, 'SIGSTOP')) return;
  round.undo.push(() => void signal(pid, 'SIGCONT'));
  await pause(round.random.whole(100, 1_200));
  signal(pid, 'SIGCONT');
};

/** A runner that is killed under its wrapper: the wrapper lives on and tells. */
const CHILD_KILLED = ['failed/killed', 'failed/runner_error', 'failed/crashed'];
const STOPPED = 'cancelled/stopped_externally';
const unitVerb =
  (...verb: readonly string[]) =>
  (_: Round, { unit }: JournalLine): Promise<unknown> =>
    systemctl(...verb, unit).catch(() => undefined); // It may have ended meanwhile.

export const ATTEMPT_FAULTS: readonly Fault[] = [
  blow({ name: 'wrapper-kill', allows: ['failed/killed'], act: killOf(mainPid) }),
  blow({ name: 'wrapper-stop', act: stopOf(mainPid) }),
  blow({ name: 'pi-kill', needs: 'pi', suits: isPi, allows: CHILD_KILLED, act: killOf(childPid) }),
  // Its call ends with the nest, and what the model makes of that is its own.
  blow({ name: 'nest-kill', needs: 'pi', suits: isPi, allows: [ANY], act: killOf(keeperPid) }),
  blow({ name: 'pi-stop', needs: 'pi', suits: isPi, act: stopOf(childPid) }),
  blow({
    name: 'command-kill',
    needs: 'plain',
    suits: (round, line) => !isPi(round, line),
    allows: CHILD_KILLED,
    act: killOf(childPid),
  }),
  blow({ name: 'unit-stop', allows: [STOPPED], act: unitVerb('stop', '--no-block') }),
  blow({
    name: 'unit-kill-term',
    allows: [STOPPED, 'failed/killed'],
    act: unitVerb('kill', '--signal=TERM'),
  }),
  blow({ name: 'unit-kill', allows: ['failed/killed'], act: unitVerb('kill', '--signal=KILL') }),
  blow({ name: 'unit-reset-failed', act: unitVerb('reset-failed') }),
  blow({
    name: 'unit-freeze',
    act: async (round, { unit }) => {
      const thaw = (): Promise<unknown> => systemctl('thaw', unit).catch(() => undefined);
      round.undo.push(async () => void (await thaw()));
      await systemctl('freeze', unit).catch(() => undefined);
      await pause(round.random.whole(100, 1_500));
      await thaw();
    },
  }),
];
