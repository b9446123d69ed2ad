/** What a turn says to the model, with the words of turns whose place it took. */
import { continuationPrompt, type ResumeNote } from '../domain/resume.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { LinearSessionRow, LinearTurnRow } from '../store/linear-turns.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { attemptPaths } from '../supervisor/attempt-directory.ts';
import type { Context } from '../supervisor/context.ts';
import { gatherLoss, noteOf } from '../supervisor/lost.ts';
import { conversationOf, generationOf } from './conversation.ts';

/** Sent where there is nothing to say but to go on. */
const GO_ON = 'Go on.';

const BEGUN_ANEW =
  'An earlier conversation about this was lost. Files may hold what was done: look before you do ' +
  'anything again. It began with:';
const SAID_NOW = 'Now you are asked:';

/** Calls that the conversation leaves open: an attempt that was to be interrupted died first. */
async function leftOpen(
  context: Context,
  workUnit: WorkUnitRow,
  attempt: AttemptRow,
): Promise<ResumeNote | null> {
  const evidence = await gatherLoss(workUnit, attemptPaths(context.settings, attempt));
  const { session } = evidence;
  if (session?.kind !== 'whole' || session.openCalls.length === 0) return null;
  return noteOf(context, attempt, 'no_evidence', evidence);
}

/**
 * What is still owed of an earlier turn: its whole prompt where nothing ever ran of it, the note
 * of a loss that was not gone on from, nothing where the conversation has it all.
 */
async function owed(context: Context, earlier: LinearTurnRow): Promise<string | null> {
  const { store } = context;
  const workUnit = earlier.workUnitId === null ? null : store.workUnits.get(earlier.workUnitId);
  if (workUnit === null) return earlier.prompt;
  const last = store.attempts
    .listByWorkUnit(workUnit.id)
    .filter(({ opened }) => opened !== null)
    .at(-1);
  // It may carry words of turns before it.
  if (last === undefined) return workUnit.request.prompt ?? earlier.prompt;
  const note = workUnit.resume ?? (await leftOpen(context, workUnit, last));
  return note === null ? null : continuationPrompt(note);
}

/** The turn that a continuation goes on with. */
function origin({ linear }: Context['store'], turn: LinearTurnRow): LinearTurnRow | null {
  const [, id = ''] = /^continue:(.+)$/.exec(turn.sourceKey) ?? [];
  return id === '' ? null : linear.turn(id);
}

/**
 * The whole prompt, in the order in which things were said. Turns of the same session that
 * this one interrupted come first: nothing that a person wrote is lost, nothing said twice.
 */
export async function promptOf(
  context: Context,
  turn: LinearTurnRow,
  session: Pick<LinearSessionRow, 'id'>,
): Promise<string> {
  const { store } = context;
  const said = await wordsOf(context, turn);
  const conversation = conversationOf(store, session);
  // In another conversation than the first nobody knows what this is about.
  if (generationOf(store, session) === 1 || store.workUnits.hasSpoken(conversation)) return said;
  const first = store.linear.turnsOfSession(turn.sessionId).find(({ kind }) => kind === 'created');
  return first === undefined || first.id === turn.id
    ? said
    : [BEGUN_ANEW, first.prompt, SAID_NOW, said].join('\n\n');
}

async function wordsOf(context: Context, turn: LinearTurnRow): Promise<string> {
  const { store } = context;
  const from = origin(store, turn);
  const begun = from && (await owed(context, from));
  // Nothing of it ever ran: it is not gone on with but begun.
  if (from !== null && begun !== null && !hasRun(context, from)) return begun;
  const taken = store.linear
    .turnsOfSession(turn.sessionId)
    .filter(({ interruptedBy, workUnitId }) => interruptedBy === turn.id && workUnitId !== null);
  const parts: string[] = [];
  for (const earlier of taken) parts.push((await owed(context, earlier)) ?? '');
  parts.push(begun ?? '', turn.prompt);
  return parts.filter((part) => part.trim() !== '').join('\n\n') || GO_ON;
}

const hasRun = ({ store }: Context, { workUnitId }: LinearTurnRow): boolean =>
  workUnitId !== null &&
  store.attempts.listByWorkUnit(workUnitId).some(({ opened }) => opened !== null);
