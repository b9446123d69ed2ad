/** What a turn says to the model, with the words of turns whose place it took. */
import { continuationPrompt, type ResumeNote } from '../domain/resume.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { LinearSessionRow, LinearTurnRow } from '../store/linear-turns.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { attemptPaths } from '../supervisor/attempt-directory.ts';
import type { Context } from '../supervisor/context.ts';
import { gatherLoss, noteOf } from '../supervisor/lost.ts';
import { conversationOf, generationOf, wasTold } from './conversation.ts';

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
 * What is still owed of an earlier turn: all of it where its conversation does not have it, a
 * note where it was cut off in the middle, nothing where somebody stopped it.
 */
async function owed(context: Context, earlier: LinearTurnRow): Promise<readonly string[]> {
  if (earlier.stopped || earlier.state === 'stopped') return [];
  const { store } = context;
  const workUnit = earlier.workUnitId === null ? null : store.workUnits.get(earlier.workUnitId);
  if (workUnit === null || !(await wasTold(context, workUnit))) return wordsOf(context, earlier);
  const last = store.attempts
    .listByWorkUnit(workUnit.id)
    .filter(({ opened }) => opened !== null)
    .at(-1);
  const note = workUnit.resume ?? (last ? await leftOpen(context, workUnit, last) : null);
  return note?.conversation ? [continuationPrompt(note)] : [];
}

/** Prompts that met a conversation that was gone, and were answered by a question. */
const unheard = (turns: readonly LinearTurnRow[]): string[] =>
  turns
    .slice(turns.findLastIndex(({ workUnitId }) => workUnitId !== null) + 1)
    .filter(({ state, kind }) => state === 'failed' && kind === 'prompted')
    .map(({ prompt }) => prompt);

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
  const words = (await wordsOf(context, turn)).filter((part) => part.trim() !== '');
  const said = words.join('\n\n') || GO_ON;
  const conversation = conversationOf(store, session);
  // In another conversation than the first nobody knows what this is about.
  if (generationOf(store, session) === 1 || store.workUnits.hasSpoken(conversation)) return said;
  const all = store.linear.turnsOfSession(turn.sessionId);
  const first = all.find(({ kind }) => kind === 'created');
  if (first === undefined || first.id === turn.id) return said;
  return [BEGUN_ANEW, first.prompt, SAID_NOW, ...unheard(all), said].join('\n\n');
}

/**
 * What a turn says, with all that is owed of turns whose place it took. Each turn took the place
 * of older ones only, so this ends.
 */
async function wordsOf(context: Context, turn: LinearTurnRow): Promise<readonly string[]> {
  const { linear } = context.store;
  const taken = linear
    .turnsOfSession(turn.sessionId)
    .filter(({ interruptedBy }) => interruptedBy === turn.id);
  const words: string[] = [];
  for (const earlier of taken) words.push(...(await owed(context, earlier)));
  const from = origin(context.store, turn);
  if (from === null) return [...words, turn.prompt];
  const begun = from.stopped ? [] : await owed(context, from);
  // Where nothing of it was ever told it is not gone on with but begun.
  const isBegun = begun.length > 0 && !(await wasBegun(context, from));
  return isBegun ? [...begun, ...words] : [...begun, turn.prompt, ...words];
}

async function wasBegun(context: Context, { workUnitId }: LinearTurnRow): Promise<boolean> {
  const workUnit = workUnitId === null ? null : context.store.workUnits.get(workUnitId);
  return workUnit !== null && (await wasTold(context, workUnit));
}
