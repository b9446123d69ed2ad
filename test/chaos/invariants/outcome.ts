/** Each piece of work ended as something that what was done to it implies. */
import { ANY, LOST, TOO_OLD } from '../faults/fault.ts';
import type { AttemptRow, History, WorkUnitRow } from '../history.ts';
import type { Work } from '../plan.ts';
import {
  attemptsOf,
  endOf,
  faultEnds,
  faultNames,
  mayBeLost,
  naturalEnd,
  workUnitOf,
} from './expected.ts';

const CANCELLED = 'cancelled/cancelled_by_request';

const asked = ({ ledger }: History, { key }: Work): boolean =>
  ledger.some((entry) => entry.what === 'asked' && entry.act === 'cancel' && entry.key === key);

/** What the answers to its cancellation said that it is; nothing when none acknowledged it. */
const acknowledged = ({ ledger }: History, { key }: Work): string[] =>
  ledger.flatMap((entry) => {
    if (entry.what !== 'answered' || entry.act !== 'cancel' || entry.key !== key) return [];
    return entry.status === 'cancelling' || entry.status === 'cancelled' ? [entry.status] : [];
  });

const saidOk = ({ last_word_json }: AttemptRow): boolean =>
  last_word_json !== null && (JSON.parse(last_word_json) as { verdict?: string }).verdict === 'ok';

/** The daemon itself had decided that it fails. */
const wasFailed = ({ intent_json }: AttemptRow): boolean =>
  intent_json !== null && (JSON.parse(intent_json) as { kind?: string }).kind === 'fail';

/** It said that all went well, nobody had decided to end it, and nothing struck it itself. */
function wentWell(attempt: AttemptRow, ends: ReadonlySet<string>): boolean {
  const onlyLost = [...ends].every((end) => end === LOST || end === TOO_OLD);
  return saidOk(attempt) && attempt.intent_json === null && onlyLost;
}

/**
 * Its end was decided before the cancellation came, and stands: the answer named the end that
 * it had then, or said "cancelling" of work that the daemon was about to fail.
 */
const wasEarlier = (
  { status }: WorkUnitRow,
  last: AttemptRow | undefined,
  said: readonly string[],
): boolean =>
  (last !== undefined && wasFailed(last)) ||
  (status === 'cancelled' && said.every((word) => word === 'cancelled'));

function problemOf(history: History, work: Work, row: WorkUnitRow): string | null {
  const end = endOf(row);
  const ends = faultEnds(history, work);
  if (ends.has(ANY)) return null;
  const natural = naturalEnd(work);
  const last = attemptsOf(history, row).at(-1);
  if (row.status === 'succeeded') {
    const ran = history.journal.filter(({ unit }) => unit === last?.unit).map(({ word }) => word);
    const resumed = attemptsOf(history, row).length > 1 && work.manner === 'pi';
    if (!resumed && !(ran.includes('begin') && ran.includes('end'))) {
      return 'succeeded, and its body did not run to its end';
    }
  }
  const said = acknowledged(history, work);
  if (said.length > 0 && !(ends.has(end) && wasEarlier(row, last, said))) {
    return end === CANCELLED ? null : `${end}, though its cancellation was acknowledged`;
  }
  if (last && wentWell(last, ends) && end !== natural) {
    return `${end}, though its last word was good`;
  }
  if (end === natural || ends.has(end) || (end === CANCELLED && asked(history, work))) return null;
  return `${end}; may be ${[natural, ...ends].join(', ')}`;
}

/** Ends that are of no fault, no client and no nature. */
export function outcomesAreImplied(history: History): string[] {
  return history.work.flatMap((work) => {
    const row = workUnitOf(history, work);
    if (!row || history.restless.includes(work.key)) return [];
    const problem = problemOf(history, work, row);
    return problem === null ? [] : [`${work.key} (${work.manner}) ended as ${problem}`];
  });
}

/** Faults that take the host, or its manager, from under an attempt; or suspend it. */
const LOSSES: Readonly<Record<string, RegExp>> = {
  host_shutdown: /^(power-|manager-(restart|kill)$)/,
  suspended: /^point:suspended$/,
};

/** An attempt is lost only by what can lose it. */
export function lossesAreImplied(history: History): string[] {
  const faults = faultNames(history);
  return history.work.flatMap((work) => {
    const row = workUnitOf(history, work);
    if (!row) return [];
    return attemptsOf(history, row).flatMap(({ unit, status, error_code }) => {
      if (status !== 'lost' || error_code === 'never_started') return [];
      const by = LOSSES[error_code ?? ''];
      const implied = by ? faults.some((name) => by.test(name)) : mayBeLost(history, work);
      return implied ? [] : [`${unit} (${work.manner}) is lost: ${error_code}`];
    });
  });
}

/** Faults under which a daemon that starts just then may give up, and what it then says. */
const MAY_GIVE_UP: readonly { readonly faults: RegExp; readonly says: RegExp }[] = [
  { faults: /^(bus|manager|power)-/, says: /no_user_manager|bus_unavailable/ },
  // It met the second one, which had got in after the first was killed.
  { faults: /^daemon-twice$/, says: /workspace_owned/ },
  { faults: /^disk-/, says: /disk_full/ },
];

/** The daemon ends only when it is ended. */
export function daemonsLive(history: History): string[] {
  const names = faultNames(history);
  const excused = (said: string | null): boolean =>
    MAY_GIVE_UP.some(
      ({ faults, says }) => names.some((name) => faults.test(name)) && says.test(said ?? ''),
    );
  const gone = history.ledger.flatMap((entry) =>
    entry.what === 'daemon_ended' && !entry.wanted && !excused(entry.said)
      ? [`a daemon ended by itself with ${entry.how}: ${entry.said ?? 'it said nothing'}`]
      : [],
  );
  const { lastDaemon } = history;
  return lastDaemon === '0' ? gone : [...gone, `the last daemon was told to end: ${lastDaemon}`];
}
