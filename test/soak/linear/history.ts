/** All that happened around one session, in order, for whoever looks for the cause. */
import type { Scope } from './invariants.ts';
import type { Blow } from './keeper.ts';

const CUT = 140;

interface Line {
  readonly at: number;
  readonly what: string;
}

const at = (text: string | null): number => (text === null ? 0 : Date.parse(text));
const short = (id: string | null): string => (id === null ? '-' : id.slice(-6));
const cut = (text: string): string => JSON.stringify(text.slice(0, CUT));

/** Sessions of the same issue, this one first. */
function together({ scene }: Scope, id: string): string[] {
  const { sessions } = scene.linear.world;
  const issue = sessions.find((one) => one.id === id)?.issue?.id;
  return [
    id,
    ...sessions.filter((one) => one.issue?.id === issue && one.id !== id).map((one) => one.id),
  ];
}

/** A session, as its lines are made of it. */
interface Subject extends Scope {
  readonly id: string;
  readonly mine: Scope['done'];
  readonly turns: Scope['evidence']['turns'];
}

function ofPeople({ id, mine, evidence }: Subject): Line[] {
  const wordOf = (activityId: string | null): string =>
    mine.find((one) => one.activityId === activityId)?.deed.word ?? '?';
  const deeds = mine.map(({ at: when, deed: { kind, word, sending } }) => ({
    at: when,
    what: `person ${kind} ${word} ${JSON.stringify(sending)}`,
  }));
  const rows = evidence.ledger.filter(({ sessionId }) => sessionId === id);
  const ledger = rows.flatMap((row) => {
    const word = wordOf(row.activityId);
    const became = `${row.state} ${word} ${row.detail ?? ''} repeats ${row.repeats}`;
    return [
      { at: at(row.receivedAt), what: `ledger received ${word} by ${row.source}` },
      { at: at(row.processedAt), what: `ledger ${became}` },
    ];
  });
  return [...deeds, ...ledger];
}

function ofTurns({ turns }: Subject): Line[] {
  return turns.flatMap((turn) => {
    const name = `turn ${short(turn.id)}`;
    const end = `${name} ${turn.state}, interrupted by ${short(turn.interruptedBy)}`;
    return [
      { at: at(turn.createdAt), what: `${name} made: ${turn.kind} ${turn.sourceKey}` },
      { at: at(turn.startedAt), what: `${name} started` },
      { at: at(turn.endedAt ?? turn.createdAt), what: end },
    ];
  });
}

function ofAttempts({ evidence, turns }: Subject): Line[] {
  return turns.flatMap((turn) => {
    const attempts = evidence.attempts.filter(({ workUnitId }) => workUnitId === turn.workUnitId);
    const work = evidence.work.find(({ id }) => id === turn.workUnitId);
    return attempts.flatMap((one) => {
      const name = `attempt ${one.unit}`;
      const end = `${one.status} ${one.errorCode ?? ''} (work ${work?.status})`;
      return [
        { at: at(one.createdAt), what: `${name} claimed for ${short(turn.id)}` },
        { at: at(one.startedAt), what: `${name} started` },
        { at: at(one.endedAt), what: `${name} ${end}` },
      ];
    });
  });
}

function ofWords({ id, evidence, scene }: Subject): Line[] {
  const outbox = evidence.outbox
    .filter(({ sessionId }) => sessionId === id)
    .map((row) => {
      const end = `${row.state} tries ${row.tries}${row.terminal ? ' LAST' : ''}`;
      const what = `outbox ${short(row.id)} turn ${short(row.turnId)} ${end} ${cut(row.body)}`;
      return { at: at(row.createdAt), what };
    });
  const told = scene.linear.world.activities
    .filter(({ sessionId }) => sessionId === id)
    .map(({ id: name, content, ephemeral, createdAt }) => {
      const kind = `${content.type}${ephemeral ? ' (passing)' : ''}`;
      const text = cut(String(content['body'] ?? content['parameter']));
      return { at: at(createdAt), what: `linear ${short(name)} ${kind} ${text}` };
    });
  return [...outbox, ...told];
}

function ofSession(scope: Scope, id: string): Line[] {
  const mine = scope.done.filter(({ session }) => session.id === id);
  const turns = scope.evidence.turns.filter(({ sessionId }) => sessionId === id);
  const subject = { ...scope, id, mine, turns };
  const name = `s${mine[0]?.plan.number ?? '?'}`;
  return [ofPeople, ofTurns, ofAttempts, ofWords]
    .flatMap((lines) => lines(subject))
    .filter((line) => line.at > 0)
    .map((line) => ({ ...line, what: `${name} ${line.what}` }));
}

/** The history of a session and of the others of its issue, with what struck meanwhile. */
export function historyOf(scope: Scope, id: string, blows: readonly Blow[]): string {
  const lines = together(scope, id).flatMap((one) => ofSession(scope, one));
  const begin = Math.min(...lines.map((line) => line.at));
  const end = Math.max(...lines.map((line) => line.at));
  const struck = blows
    .filter((blow) => blow.at >= begin - 1_000 && blow.at <= end + 1_000)
    .map((blow) => ({ at: blow.at, what: `**** ${blow.what}` }));
  const status = scope.scene.linear.world.sessions.find((one) => one.id === id)?.status;
  return [
    `session ${id}: ${status}`,
    ...[...lines, ...struck]
      .toSorted((a, b) => a.at - b.at)
      .map((line) => `${((line.at - begin) / 1_000).toFixed(3).padStart(9)} ${line.what}`),
  ].join('\n');
}
