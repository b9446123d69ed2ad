/**
 * What has to be true when it is quiet again; each check returns sentences, none when it holds.
 *
 * What is expected of a session follows from what people did, in the order in which it was
 * acted on (the ledger's), with its beginning first, since words that came before it are
 * joined to it: the last words are answered, once; words before those are answered or joined
 * by later ones, and the model hears each once; words that were said before a stop, whenever
 * they and it arrive, need no answer.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Activity, Session } from '../../support/linear-double/world.ts';
import type { LinearScene } from '../../support/linear-scene.ts';
import { type Evidence, type LedgerRow, type StoredTurn, saidToModel } from './evidence.ts';
import type { Done } from './people.ts';
import { SAID } from './plan.ts';

export interface Violation {
  /** Null where it is of the run as a whole. */
  readonly session: string | null;
  readonly what: string;
}

export interface Scope {
  readonly scene: LinearScene;
  readonly evidence: Evidence;
  readonly done: readonly Done[];
}

/** A session with all that is known of it. */
interface Story extends Scope {
  readonly session: Session;
  /** What people did, in the order in which it was acted on. */
  readonly deeds: readonly { readonly done: Done; readonly row: LedgerRow }[];
  /** Of the agent, in the order in which they arrived. */
  readonly activities: readonly Activity[];
  readonly turns: readonly StoredTurn[];
}

const LAST: ReadonlySet<string> = new Set(['response', 'error', 'elicitation']);
const STOPPED = /^response: Stopped/;
const ms = (text: string | null): number =>
  text === null ? Number.POSITIVE_INFINITY : Date.parse(text);

const wordsOf = ({ content }: Activity): string => `${content.type}: ${String(content['body'])}`;
const lastWords = ({ activities }: Story): Activity[] =>
  activities.filter(({ content }) => LAST.has(content.type));

function storyOf(scope: Scope, session: Session): Story {
  const { evidence, done, scene } = scope;
  const mine = done.filter((one) => one.session.id === session.id);
  const { world } = scene.linear;
  const rows = evidence.ledger.filter(({ sessionId }) => sessionId === session.id);
  const deeds = rows.flatMap((row) => {
    const found = mine.find(({ activityId }) => activityId === row.activityId);
    return found ? [{ done: found, row }] : [];
  });
  const activities = world.activities.filter(
    ({ sessionId, userId }) => sessionId === session.id && userId === world.app.id,
  );
  const turns = evidence.turns.filter(({ sessionId }) => sessionId === session.id);
  return { ...scope, session, deeds, activities, turns };
}

/** With its beginning first; what was said after the last stop is what has to be answered. */
function inOrder({ deeds }: Story): { before: Done[]; open: Done[]; hasStop: boolean } {
  const isFirst = ({ done }: Story['deeds'][number]): boolean => done.deed.kind === 'created';
  const ordered = [...deeds.filter(isFirst), ...deeds.filter((one) => !isFirst(one))];
  const all = ordered.map(({ done }) => done);
  const stops = all.filter(({ deed }) => deed.kind === 'stop').map(({ at }) => at);
  const stoppedAt = Math.max(Number.NEGATIVE_INFINITY, ...stops);
  const words = all.filter(({ deed }) => deed.kind !== 'stop');
  return {
    before: words.filter(({ at }) => at <= stoppedAt),
    open: words.filter(({ at }) => at > stoppedAt),
    hasStop: stops.length > 0,
  };
}

const isWord = ({ deed }: Done): boolean => deed.kind !== 'stop';

/** Everything that people did was acted on, once. */
function heard(story: Story): string[] {
  const { session, done, deeds } = story;
  const mine = done.filter((one) => one.session.id === session.id);
  return mine.flatMap(({ deed, activityId }) => {
    const times = deeds.filter(({ row }) => row.activityId === activityId).length;
    return times === 1 ? [] : [`${deed.kind} ${deed.word} was acted on ${times} times`];
  });
}

/** Each word is answered once or joined by a later one; nothing else is a last word. */
function answered(story: Story): string[] {
  const { before, open, hasStop } = inOrder(story);
  const told = lastWords(story).map(wordsOf);
  const times = ({ deed }: Done): number =>
    told.filter((one) => one === `response: ${deed.word}`).length;
  const wrong = [...before, ...open].flatMap((one) =>
    times(one) > 1 ? [`${one.deed.word} was answered ${times(one)} times`] : [],
  );
  // What comes late joins newer words that wait, before them, and follows those that do not.
  const newest = open.toSorted((one, other) => one.at - other.at).at(-1);
  const last = open.at(-1);
  if (last && newest && times(last) + times(newest) === 0) {
    wrong.push(`neither ${last.deed.word} nor ${newest.deed.word} was answered`);
  }
  const words = [...before, ...open].map(({ deed }) => `response: ${deed.word}`);
  for (const one of told) {
    if (!words.includes(one) && !(hasStop && STOPPED.test(one))) wrong.push(`said "${one}"`);
  }
  const stops = story.deeds.filter(({ done }) => done.deed.kind === 'stop').length;
  const stopped = told.filter((one) => STOPPED.test(one)).length;
  if (stopped > stops) wrong.push(`${stops} stops were confirmed ${stopped} times`);
  return wrong;
}

/** The model heard each word once; what was stopped it need not have heard. */
function reached(story: Story): string[] {
  const { before, open } = inOrder(story);
  const said = saidToModel(story.scene, story.session.id);
  const told = lastWords(story).map(wordsOf);
  const check = ({ deed }: Done, mayBeMissing: boolean): string[] => {
    const times = said.join('\n').split(`${SAID}${deed.word}.`).length - 1;
    if (times === 1) return [];
    const isAnswered = told.includes(`response: ${deed.word}`);
    return times === 0 && mayBeMissing && !isAnswered
      ? []
      : [`the model heard ${deed.word} ${times} times`];
  };
  return [
    ...before.flatMap((one) => check(one, true)),
    ...open.flatMap((one) => check(one, false)),
  ];
}

/** The session is over, as people see it. */
function isOver({ scene, session, deeds, activities }: Story): string[] {
  const status = scene.linear.world.status(session);
  if (status !== 'complete') return [`is ${status} in Linear`];
  const last = deeds.at(-1)?.done;
  const word = activities.findLast(({ content }) => LAST.has(content.type));
  return last && word && Date.parse(word.createdAt) < last.at && last.deed.kind !== 'created'
    ? [`nothing was said after ${last.deed.word}`]
    : [];
}

/** Turns as the store has them: a turn that is done has one last word, and nothing after it. */
function turnsAgree(story: Story): string[] {
  return story.turns.flatMap((turn) => turnAgrees(story, turn));
}

function turnAgrees({ evidence, activities }: Story, turn: StoredTurn): string[] {
  const name = `turn ${turn.id} (${turn.kind}, ${turn.state})`;
  const rows = evidence.outbox.filter(
    ({ turnId, kind }) => turnId === turn.id && kind === 'activity',
  );
  const told = activities.filter(({ id }) => rows.some((row) => row.id === id));
  const last = told.filter(({ content }) => LAST.has(content.type));
  const wrong: string[] = [];
  if (last.length > 1) wrong.push(`${name} has ${last.length} last words`);
  if (last.length === 1 && told.at(-1) !== last[0])
    wrong.push(`${name} speaks after its last word`);
  // Words that came before their session was known are done when its first turn has them.
  const isDone = turn.state === 'done' && turn.workUnitId !== null;
  if (isDone && last.length === 0) wrong.push(`${name} has no last word`);
  if (turn.state === 'failed') wrong.push(`${name} failed`);
  if (turn.state === 'interrupted' && last.length > 0) wrong.push(`${name} has a last word`);
  const expected = isDone ? answerOf(evidence, turn) : null;
  if (expected !== null && last[0] && wordsOf(last[0]) !== `response: ${expected}`)
    wrong.push(`${name} answers "${wordsOf(last[0])}", not ${expected}`);
  return wrong;
}

/** The last word of what the turn was asked. */
function answerOf(evidence: Evidence, turn: StoredTurn): string | null {
  const asked = [...turn.prompt.matchAll(new RegExp(`${SAID}(\\w+)\\.`, 'g'))].at(-1)?.[1];
  if (asked !== undefined) return asked;
  const [, from] = /^continue:(.+)$/.exec(turn.sourceKey) ?? [];
  const origin = evidence.turns.find(({ id }) => id === from);
  return origin ? answerOf(evidence, origin) : null;
}

/** From a stop to the next words nothing begins, and nothing is said once it was confirmed. */
function stopsHold(story: Story): string[] {
  const { deeds, evidence, turns, activities } = story;
  const ids = new Set(turns.map(({ workUnitId }) => workUnitId));
  const attempts = evidence.attempts.filter(({ workUnitId }) => ids.has(workUnitId));
  return deeds.flatMap(({ done, row }, index) => {
    if (done.deed.kind !== 'stop') return [];
    // Late: somebody had spoken since, and that had been acted on.
    if (deeds.slice(0, index).some((one) => isWord(one.done) && one.done.at > done.at)) return [];
    const from = ms(row.processedAt);
    const next = deeds
      .slice(index + 1)
      .find((one) => one.done.deed.kind === 'prompt' && one.done.at > done.at);
    const until = ms(next?.row.processedAt ?? null);
    const isWithin = (at: number): boolean => at > from && at < until;
    const begun = attempts.filter(({ createdAt }) => isWithin(ms(createdAt)));
    const within = activities.filter(({ createdAt }) => isWithin(ms(createdAt)));
    // What an earlier stop was answered may arrive late, and another stop is answered again.
    const at = within.findLastIndex((one) => STOPPED.test(wordsOf(one)));
    const later = within.slice(at + 1);
    return [
      ...begun.map(({ unit }) => `${unit} began after ${done.deed.word}`),
      ...(at < 0 ? [] : later.map((one) => `said "${wordsOf(one)}" after ${done.deed.word}`)),
    ];
  });
}

const CHECKS = [heard, answered, reached, isOver, turnsAgree, stopsHold];

/** Attempts of an issue do not overlap, by the store. */
function oneAtATime({ evidence }: Scope): Violation[] {
  const channelOf = new Map(evidence.turns.map((turn) => [turn.workUnitId, turn]));
  const byChannel = Map.groupBy(
    evidence.attempts,
    ({ workUnitId }) => channelOf.get(workUnitId)?.channelKey ?? null,
  );
  return [...byChannel].flatMap(([channel, attempts]) =>
    attempts.flatMap((one, index) => {
      if (channel === null) return [{ session: null, what: `${one.unit} belongs to no turn` }];
      const next = attempts[index + 1];
      if (!next || ms(next.createdAt) >= ms(one.endedAt)) return [];
      const session = channelOf.get(one.workUnitId)?.sessionId ?? null;
      return [{ session, what: `${next.unit} began before ${one.unit} had ended` }];
    }),
  );
}

/** What was said is what was stored to be said, and all of that was said. */
function outboxAgrees({ evidence, scene }: Scope): Violation[] {
  const { world } = scene.linear;
  const byId = new Map(evidence.outbox.map((row) => [row.id, row]));
  const strangers = world.activities.filter(
    ({ userId, id }) => userId === world.app.id && !byId.has(id),
  );
  const arrived = new Set(world.activities.map(({ id }) => id));
  const wrong = evidence.outbox.filter(
    ({ id, kind, state }) =>
      state === 'failed' ||
      state === 'expired' ||
      (kind === 'activity' && (state === 'delivered') !== arrived.has(id) && state !== 'dropped'),
  );
  return [
    ...strangers.map((one) => ({
      session: one.sessionId,
      what: `nobody stored "${wordsOf(one)}"`,
    })),
    ...wrong.map(({ sessionId, state, body }) => ({
      session: sessionId,
      what: `is ${state} in the outbox: ${body}`,
    })),
  ];
}

function ofTheRun({ scene, evidence }: Scope): string[] {
  const together = readdirSync(scene.rig.base, { recursive: true, encoding: 'utf8' })
    .filter((name) => path.basename(name) === 'together')
    .map((name) => readFileSync(path.join(scene.rig.base, name), 'utf8'));
  return [
    ...together.map((who) => `worked on together: ${who}`),
    ...scene.linear.violations().map((one) => `Linear objects: ${JSON.stringify(one)}`),
    ...scene.rig.model.violations().map((one) => `the model objects: ${JSON.stringify(one)}`),
    ...evidence.ledger
      .filter(({ state }) => state !== 'processed')
      .map((row) => `a delivery is ${row.state}: ${JSON.stringify(row)}`),
  ];
}

/** All that is wrong. */
export function violationsOf(scope: Scope): Violation[] {
  const { sessions } = scope.scene.linear.world;
  const ofSessions = sessions.flatMap((session) => {
    const story = storyOf(scope, session);
    return CHECKS.flatMap((check) => check(story)).map((what) => ({ session: session.id, what }));
  });
  const general = ofTheRun(scope).map((what) => ({ session: null, what }));
  return [...general, ...ofSessions, ...oneAtATime(scope), ...outboxAgrees(scope)];
}
