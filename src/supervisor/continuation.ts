/** What an attempt says to a conversation that an earlier attempt of the same work began. */
import { UNANSWERED_CODES } from '../domain/provider-retry.ts';
import { continuationPrompt } from '../domain/resume.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';

const GO_ON =
  'The model provider failed in the middle of this conversation; nothing else happened. ' +
  'Go on from exactly where it stands. What is done already is done: do not do it again.';

/**
 * The words to go on with, when the attempt before this one was failed by its provider:
 * no tool call is open then, and the session holds all that was done. To say the prompt
 * once more would have it done twice. After a loss, what was open and what was lost. Null
 * after any other end.
 */
export function continuationOf(
  { store }: Context,
  workUnit: WorkUnitRow,
  attempt: Pick<AttemptRow, 'attemptNumber'>,
): string | null {
  if (workUnit.resume)
    return workUnit.resume.conversation ? continuationPrompt(workUnit.resume) : null;
  const before = store.attempts
    .listByWorkUnit(workUnit.id)
    .filter(({ attemptNumber }) => attemptNumber < attempt.attemptNumber)
    // One that never ran changed nothing.
    .filter(({ opened }) => opened !== null)
    .at(-1);
  const code = before?.errorCode ?? null;
  return code !== null && UNANSWERED_CODES.has(code) ? GO_ON : null;
}
