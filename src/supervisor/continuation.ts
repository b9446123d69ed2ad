/** What an attempt says to a conversation that an earlier attempt of the same work began. */
import { UNANSWERED_CODES } from '../domain/provider-retry.ts';
import { continuationPrompt, type ResumeNote } from '../domain/resume.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';

const GO_ON =
  'The model provider failed in the middle of this conversation; nothing else happened. ' +
  'Go on from exactly where it stands. What is done already is done: do not do it again.';

/** What a person was asked about is told beside the answer, by the wrapper that acts on it. */
function withoutAnswered(store: Context['store'], note: ResumeNote, attemptId: string): ResumeNote {
  const answered = new Set(store.approvals.boundTo(attemptId).map(({ toolCallId }) => toolCallId));
  return { ...note, notRun: note.notRun.filter(({ toolCallId }) => !answered.has(toolCallId)) };
}

/**
 * The words to go on with, when the attempt before this one was failed by its provider:
 * no tool call is open then, and the session holds all that was done. To say the prompt
 * once more would have it done twice. After a loss, what was open and what was lost. Null
 * after any other end.
 */
export function continuationOf(
  { store }: Context,
  workUnit: WorkUnitRow,
  attempt: Pick<AttemptRow, 'id' | 'attemptNumber'>,
): string | null {
  if (workUnit.resume) {
    const note = withoutAnswered(store, workUnit.resume, attempt.id);
    return note.conversation ? continuationPrompt(note) : null;
  }
  const before = store.attempts
    .listByWorkUnit(workUnit.id)
    .filter(({ attemptNumber }) => attemptNumber < attempt.attemptNumber)
    // One that never ran changed nothing.
    .filter(({ opened }) => opened !== null)
    .at(-1);
  const code = before?.errorCode ?? null;
  return code !== null && UNANSWERED_CODES.has(code) ? GO_ON : null;
}
