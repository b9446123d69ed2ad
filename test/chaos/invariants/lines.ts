/** What the ledger of outlive tells of the round: each attempt once, and nothing else. */
import { type AttemptStatus, TERMINAL_ATTEMPT_STATUSES } from '../../../src/domain/work-unit.ts';
import type { AttemptRow, History } from '../history.ts';

const isOver = ({ status }: AttemptRow): boolean =>
  TERMINAL_ATTEMPT_STATUSES.has(status as AttemptStatus);

/** How a line may read the status of its row. */
const MAY: Readonly<Record<string, RegExp>> = {
  succeeded: /^exit 0$/,
  failed: /^(exit [1-9]\d*|timeout 124|signal \d+|oom 137|spawn-error 127|stopped 130)$/,
  cancelled: /^stopped 130$/,
  lost: /^lost null$/,
};

/** One line for each attempt that has ended and none for any other, over all pages. */
export function oneLineAnAttempt({ attempts, lines, events }: History): string[] {
  const problems: string[] = [];
  for (const attempt of attempts) {
    const { id, unit, status } = attempt;
    const found = lines.filter(({ attemptId }) => attemptId === id);
    const [line] = found;
    if (found.length !== (isOver(attempt) ? 1 : 0)) {
      problems.push(`${unit} is ${status} and has ${found.length} lines`);
    }
    if (!line || !isOver(attempt)) continue;
    const said = `${line.result} ${line.rc}`;
    if (!MAY[status]?.test(said)) problems.push(`${unit} is ${status}, and its line says ${said}`);
    const again = events.some(
      ({ type, attempt_id }) => type === 'attempt.reattached' && attempt_id === id,
    );
    if (line.reattached !== again) {
      problems.push(`${unit}: its line says reattached ${line.reattached}, its events ${again}`);
    }
  }
  const known = new Set(attempts.map(({ id }) => id));
  for (const { attemptId } of lines) {
    if (!known.has(attemptId)) problems.push(`a line tells of ${attemptId}, which is no attempt`);
  }
  return problems;
}
