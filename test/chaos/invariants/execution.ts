/** What really ran, as work told it itself: nothing lost, nothing twice, nothing at once. */
import { type AttemptStatus, TERMINAL_ATTEMPT_STATUSES } from '../../../src/domain/work-unit.ts';
import type { History } from '../history.ts';
import { attemptsOf, eventsOf, isRetry, storeWasReplaced, workUnitOf } from './expected.ts';

/** Whatever was accepted is there, and whatever was sent was answered in the end. */
export function nothingLost(history: History): string[] {
  const { ledger, workUnits, work } = history;
  const accepted = ledger.flatMap((entry) => (entry.what === 'accepted' ? [entry] : []));
  const refused = ledger.flatMap((entry) => (entry.what === 'refused' ? [entry] : []));
  const lost = accepted
    .filter(({ id }) => !workUnits.some((row) => row.id === id))
    .map(({ key, id }) => `${key} was accepted as ${id} and is not in the store`);
  const unanswered = work
    .filter(({ key }) => ![...accepted, ...refused].some((entry) => entry.key === key))
    .map(({ key }) => `${key} was never accepted`);
  const refusals = refused.map(({ key, code }) => `${key} was refused: ${code}`);
  const doubles = work
    .filter(({ key }) => workUnits.filter(({ handle }) => handle === key).length > 1)
    .map(({ key }) => `${key} is in the store more than once`);
  if (storeWasReplaced(history)) return [...unanswered, ...refusals, ...doubles];
  return [...lost, ...unanswered, ...refusals, ...doubles];
}

/** Kernel locks saw two at once, of one work unit or on one lease. */
export function oneAtATime(history: History): string[] {
  if (storeWasReplaced(history)) return [];
  return history.journal
    .filter(({ word }) => word === 'two_of_one_key' || word === 'two_on_one_lease')
    .map(({ word, key, unit }) => `${word}: ${key} in ${unit}`);
}

/** A body begins once per attempt, and again only after a retry or a loss. */
export function nothingTwice(history: History): string[] {
  // It does not know which unit names were used since, and may use them again.
  if (storeWasReplaced(history)) return [];
  const begun = history.journal.filter(({ word }) => word === 'begin');
  const within = begun
    .filter(({ unit }, index) => begun.findIndex((other) => other.unit === unit) !== index)
    .map(({ key, unit }) => `${key} began twice in ${unit}`);
  const over = history.work.flatMap((work) => {
    const row = workUnitOf(history, work);
    if (!row) return [];
    const attempts = attemptsOf(history, row);
    const ran = begun.filter(({ key }) => key === work.key);
    const reasons =
      eventsOf(history, row).filter(isRetry).length +
      attempts.filter(
        ({ status, error_code }) => status === 'lost' && error_code !== 'never_started',
      ).length;
    const problems: string[] = [];
    if (ran.length > 1 + reasons) {
      problems.push(
        `${work.key} ran ${ran.length} times: ${ran.map(({ unit }) => unit).join(', ')}`,
      );
    }
    for (const { unit, error_code } of attempts) {
      if (error_code === 'never_started' && ran.some((line) => line.unit === unit)) {
        problems.push(`${unit} is said never to have started, and ran`);
      }
    }
    const won = attempts.findIndex(({ status }) => status === 'succeeded');
    if (won !== -1 && won < attempts.length - 1) {
      problems.push(`${work.key} was run again after it had succeeded`);
    }
    return problems;
  });
  return [...within, ...over];
}

const hasEnded = (status: string): boolean =>
  TERMINAL_ATTEMPT_STATUSES.has(status as AttemptStatus);

/** What runs has a row that says so, what is said to run does. */
export function rowsAndProcessesAgree(history: History): string[] {
  const { attempts, processes } = history;
  const running = attempts.filter(({ status }) => !hasEnded(status));
  const strays = processes
    .filter(({ cgroup }) => !running.some(({ unit }) => cgroup.includes(`/${unit}`)))
    .map(({ pid, cgroup, command }) => `process ${pid} without a row: ${command} in ${cgroup}`);
  const ghosts = running
    .filter(({ unit }) => !processes.some(({ cgroup }) => cgroup.includes(`/${unit}`)))
    .map(({ unit, status }) => `${unit} is said to be ${status}, and no process of it runs`);
  return storeWasReplaced(history) ? ghosts : [...strays, ...ghosts];
}

/** A unit whose attempt has ended is let go. */
export function nothingLeftLoaded(history: History): string[] {
  if (storeWasReplaced(history)) return [];
  const running = history.attempts.filter(({ status }) => !hasEnded(status));
  return history.loaded
    .filter((line) => !running.some(({ unit }) => line.includes(unit)))
    .map((line) => `still loaded: ${line.trim()}`);
}

/** Work comes to its end once everything is back. */
export function everythingCameToRest({ restless }: History): string[] {
  return restless.map((key) => `${key} did not come to its end`);
}
