/** What a turn says to the model, with the words of turns whose place it took. */
import { continuationPrompt, type ResumeNote } from '../domain/resume.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { LinearSessionRow, LinearTurnRow } from '../store/linear-turns.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { attemptPaths } from '../supervisor/attempt-directory.ts';
import type { Context } from '../supervisor/context.ts';
import { gatherLoss, noteOf } from '../supervisor/lost.ts';
import { generationOf, hasBegun, wasTold } from './conversation.ts';

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
async function owed(context: Context, earlier: LinearTurnRow, seen: Seen): Promise<string[]> {
  if (earlier.stopped || earlier.state === 'stopped') return [];
  const { store } = context;
  const workUnit = workOf(context, earlier);
  if (workUnit === null || !(await wasTold(context, workUnit))) {
    return wordsOf(context, earlier, seen);
  }
  const last = store.attempts
    .listByWorkUnit(workUnit.id)
    .filter(({ opened }) => opened !== null)
    .at(-1);
  const note = workUnit.resume ?? (last ? await leftOpen(context, workUnit, last) : null);
  return note?.conversation ? [continuationPrompt(note)] : [];
}

/** Turns whose words are in already: nothing is said twice. */
type Seen = Set<string>;

function workOf({ store }: Context, { workUnitId }: LinearTurnRow): WorkUnitRow | null {
  return workUnitId === null ? null : store.workUnits.get(workUnitId);
}

async function wasTurnTold(context: Context, turn: LinearTurnRow): Promise<boolean> {
  const workUnit = workOf(context, turn);
  return workUnit !== null && (await wasTold(context, workUnit));
}

/** The turn that a continuation goes on with. */
function origin({ linear }: Context['store'], turn: LinearTurnRow): LinearTurnRow | null {
  const [, id = ''] = /^continue:(.+)$/.exec(turn.sourceKey) ?? [];
  return id === '' ? null : linear.turn(id);
}

/** Turns of the session that came before this one and after the newest that was told. */
async function sinceTold(context: Context, turn: LinearTurnRow): Promise<LinearTurnRow[]> {
  const all = context.store.linear.turnsOfSession(turn.sessionId);
  const before = all.slice(
    0,
    Math.max(
      0,
      all.findIndex(({ id }) => id === turn.id),
    ),
  );
  for (let index = before.length - 1; index >= 0; index--) {
    const one = before[index];
    if (one && (await wasTurnTold(context, one))) return before.slice(index + 1);
  }
  return before;
}

/**
 * The whole prompt, in the order in which things were said. Turns of the same session that
 * this one interrupted come first, and those that failed before the model had their words:
 * nothing that a person wrote is lost, nothing said twice.
 */
export async function promptOf(
  context: Context,
  turn: LinearTurnRow,
  session: LinearSessionRow,
): Promise<string> {
  const words = await wordsOf(context, turn, new Set());
  const said = words.filter((part) => part.trim() !== '').join('\n\n') || GO_ON;
  const opening = await openingOf(context, turn, session);
  return asText([...opening, said].join('\n\n'));
}

/** What the conversation has to be told before anything, where it knows nothing. */
async function openingOf(
  context: Context,
  turn: LinearTurnRow,
  session: LinearSessionRow,
): Promise<string[]> {
  const all = context.store.linear.turnsOfSession(turn.sessionId);
  const first = all.find(({ kind }) => kind === 'created');
  if (first === undefined || first.id === turn.id || hasBegun(context, session)) return [];
  // In another conversation than the first nobody knows what this is about.
  if (generationOf(context.store, session) > 1) return [BEGUN_ANEW, first.prompt, SAID_NOW];
  const isUnknown = first.state === 'stopped' || first.stopped;
  return isUnknown ? [STOPPED_ABOUT(session)] : [];
}

/** What was asked first was stopped: it is not to be done, and what it was about is still so. */
const STOPPED_ABOUT = ({ identifier, title, url }: LinearSessionRow): string => {
  const named = [identifier, title].filter((part) => part !== null).join(' ');
  const about = named === '' ? 'a thread in Linear' : `the Linear issue ${named}`;
  return `This is about ${about}.${url === null ? '' : ` ${url}`} What was asked there first was stopped before anything was done.`;
};

/** Pi takes what begins with a slash for a command of its own. */
const asText = (prompt: string): string => (prompt.startsWith('/') ? `Message: ${prompt}` : prompt);

/**
 * What a turn says, with all that is owed of turns whose place it took, or that failed before
 * anybody heard them. Each of those is older, so this ends.
 */
async function wordsOf(context: Context, turn: LinearTurnRow, seen: Seen): Promise<string[]> {
  seen.add(turn.id);
  const { linear } = context.store;
  const since = await sinceTold(context, turn);
  const failed = new Set(since.filter(({ state }) => state === 'failed').map(({ id }) => id));
  const earlier = linear
    .turnsOfSession(turn.sessionId)
    .filter(({ id, interruptedBy }) => interruptedBy === turn.id || failed.has(id));
  const words: string[] = [];
  for (const one of earlier) {
    if (!seen.has(one.id)) words.push(...(await owed(context, one, seen)));
  }
  const from = origin(context.store, turn);
  if (from === null) return [...words, turn.prompt];
  if (seen.has(from.id)) return words;
  const begun = await owed(context, from, seen);
  // Where nothing of it was ever told it is not gone on with but begun.
  const isBegun = begun.length > 0 && !(await wasTurnTold(context, from));
  return isBegun ? [...begun, ...words] : [...begun, turn.prompt, ...words];
}
