/** What a turn says to the model, with the words of turns whose place it took. */
import { continuationPrompt } from '../domain/resume.ts';
import type { LinearSessionRow, LinearTurnRow } from '../store/linear-turns.ts';
import type { Store } from '../store/store.ts';
import { conversationOf, generationOf } from './conversation.ts';

type Read = Pick<Store, 'linear' | 'linearFacts' | 'workUnits' | 'attempts'>;

/** Sent where there is nothing to say but to go on. */
const GO_ON = 'Go on.';

const BEGUN_ANEW =
  'An earlier conversation about this was lost. Files may hold what was done: look before you do ' +
  'anything again. It began with:';
const SAID_NOW = 'Now you are asked:';

/**
 * What is still owed of an earlier turn: its prompt where nothing ever ran of it, the note of
 * a loss that was not gone on from, nothing where the conversation has it all.
 */
function owed(store: Read, earlier: LinearTurnRow): string | null {
  if (earlier.workUnitId === null) return earlier.prompt;
  const hasRun = store.attempts
    .listByWorkUnit(earlier.workUnitId)
    .some(({ opened }) => opened !== null);
  if (!hasRun) return earlier.prompt;
  const note = store.workUnits.get(earlier.workUnitId)?.resume ?? null;
  return note === null ? null : continuationPrompt(note);
}

/** The turn that a continuation goes on with. */
function origin({ linear }: Read, turn: LinearTurnRow): LinearTurnRow | null {
  const [, id = ''] = /^continue:(.+)$/.exec(turn.sourceKey) ?? [];
  return id === '' ? null : linear.turn(id);
}

/**
 * The whole prompt, in the order in which things were said. Turns of the same session that
 * this one interrupted come first: nothing that a person wrote is lost, nothing said twice.
 */
export function promptOf(
  store: Read,
  turn: LinearTurnRow,
  session: Pick<LinearSessionRow, 'id'>,
): string {
  const said = wordsOf(store, turn);
  const conversation = conversationOf(store, session);
  // In another conversation than the first nobody knows what this is about.
  if (generationOf(store, session) === 1 || store.workUnits.hasSpoken(conversation)) return said;
  const first = store.linear.turnsOfSession(turn.sessionId).find(({ kind }) => kind === 'created');
  return first === undefined || first.id === turn.id
    ? said
    : [BEGUN_ANEW, first.prompt, SAID_NOW, said].join('\n\n');
}

function wordsOf(store: Read, turn: LinearTurnRow): string {
  const from = origin(store, turn);
  const begun = from && owed(store, from);
  if (from !== null && begun === from.prompt) return begun;
  const taken = store.linear
    .turnsOfSession(turn.sessionId)
    .filter(({ interruptedBy, workUnitId }) => interruptedBy === turn.id && workUnitId !== null)
    .flatMap((earlier) => owed(store, earlier) ?? []);
  const parts = [...taken, ...(begun === null ? [] : [begun]), turn.prompt];
  return parts.filter((part) => part.trim() !== '').join('\n\n') || GO_ON;
}
