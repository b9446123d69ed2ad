/** What a turn says to the model, with the words of turns whose place it took. */
import { continuationPrompt } from '../domain/resume.ts';
import type { LinearSessionRow, LinearTurnRow } from '../store/linear-turns.ts';
import type { Store } from '../store/store.ts';
import { conversationOf, generationOf } from './conversation.ts';
import type { Heard } from './heard.ts';

type Read = Pick<Store, 'linear' | 'linearFacts' | 'workUnits' | 'attempts'>;

/** Sent where there is nothing to say but to go on. */
const GO_ON = 'Go on.';

const BEGUN_ANEW =
  'An earlier conversation about this was lost. Files may hold what was done: look before you do ' +
  'anything again. It began with:';
const SAID_NOW = 'Now you are asked:';

/**
 * What is still owed of an earlier turn: its prompt where the conversation has not heard it, the
 * note of a loss that was not gone on from, nothing where the conversation has it all or a
 * person stopped it.
 */
function owed(store: Read, heard: Heard, earlier: LinearTurnRow): string | null {
  if (earlier.workUnitId === null) return earlier.prompt;
  const workUnit = store.workUnits.get(earlier.workUnitId);
  if (workUnit?.errorCode === 'cancelled_by_request') return null;
  if (!heard(earlier.workUnitId)) return earlier.prompt;
  const note = workUnit?.resume ?? null;
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
  heard: Heard,
): string {
  const said = wordsOf(store, turn, heard);
  const conversation = conversationOf(store, session);
  // In another conversation than the first nobody knows what this is about.
  if (generationOf(store, session) === 1 || store.workUnits.hasSpoken(conversation)) return said;
  const first = store.linear.turnsOfSession(turn.sessionId).find(({ kind }) => kind === 'created');
  return first === undefined || first.id === turn.id
    ? said
    : [BEGUN_ANEW, first.prompt, SAID_NOW, said].join('\n\n');
}

/** Turns of the session whose place this one took, itself or by others between, oldest first. */
function takenBy({ linear }: Read, { id, sessionId }: LinearTurnRow): LinearTurnRow[] {
  const turns = linear.turnsOfSession(sessionId);
  const taken = new Set([id]);
  // Who takes a place came later, so one pass from the newest finds them all.
  return turns
    .toReversed()
    .filter((earlier) => {
      const isTaken = earlier.interruptedBy !== null && taken.has(earlier.interruptedBy);
      if (isTaken) taken.add(earlier.id);
      return isTaken;
    })
    .toReversed();
}

/**
 * The turns whose work may have left something owed, oldest first: those whose place this one
 * took, and where it or one of those goes on with another, that one's.
 */
function worked(store: Read, turn: LinearTurnRow): LinearTurnRow[] {
  const found = [...takenBy(store, turn), turn].flatMap((one) => {
    const from = origin(store, one);
    return [
      ...(from === null ? [] : worked(store, from)),
      ...(one.workUnitId === null ? [] : [one]),
    ];
  });
  return [...new Map(found.map((one) => [one.id, one])).values()];
}

function wordsOf(store: Read, turn: LinearTurnRow, heard: Heard): string {
  const from = origin(store, turn);
  const before = worked(store, turn);
  // What came before something that was heard is settled: that one told of it.
  const last = before.findLastIndex(({ workUnitId }) => workUnitId !== null && heard(workUnitId));
  const begun = before.slice(Math.max(0, last)).flatMap((one) => owed(store, heard, one) ?? []);
  // Nobody has heard what it would go on with: it begins.
  if (from !== null && begun.at(-1) === from.prompt) return begun.join('\n\n');
  return [...begun, turn.prompt].filter((part) => part.trim() !== '').join('\n\n') || GO_ON;
}
