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

function ofSession({ scene, evidence, done }: Scope, id: string): Line[] {
  const mine = done.filter(({ session }) => session.id === id);
  const name = `s${mine[0]?.plan.number ?? '?'}`;
  const wordOf = (activityId: string | null): string =>
    mine.find((one) => one.activityId === activityId)?.deed.word ?? '?';
  const turns = evidence.turns.filter(({ sessionId }) => sessionId === id);
  const work = new Set(turns.map(({ workUnitId }) => workUnitId));
  const units = evidence.work.filter((one) => work.has(one.id));
  const of = (workUnitId: string): string =>
    short(turns.find((turn) => turn.workUnitId === workUnitId)?.id ?? null);
  const lines: Line[] = [
    ...mine.map((one) => ({
      at: one.at,
      what: `person ${one.deed.kind} ${one.deed.word} ${JSON.stringify(one.deed.sending)}`,
    })),
    ...evidence.ledger
      .filter(({ sessionId }) => sessionId === id)
      .flatMap((row) => [
        {
          at: at(row.receivedAt),
          what: `ledger received ${wordOf(row.activityId)} by ${row.source}`,
        },
        {
          at: at(row.processedAt),
          what: `ledger ${row.state} ${wordOf(row.activityId)} ${row.detail ?? ''} repeats ${row.repeats}`,
        },
      ]),
    ...turns.flatMap((turn) => [
      {
        at: at(turn.createdAt),
        what: `turn ${short(turn.id)} made: ${turn.kind} ${turn.sourceKey}`,
      },
      { at: at(turn.startedAt), what: `turn ${short(turn.id)} started` },
      {
        at: at(turn.endedAt ?? turn.createdAt),
        what: `turn ${short(turn.id)} ${turn.state}, interrupted by ${short(turn.interruptedBy)}`,
      },
    ]),
    ...evidence.attempts
      .filter(({ workUnitId }) => work.has(workUnitId))
      .flatMap((one) => [
        { at: at(one.createdAt), what: `attempt ${one.unit} claimed for ${of(one.workUnitId)}` },
        { at: at(one.startedAt), what: `attempt ${one.unit} started` },
        {
          at: at(one.endedAt),
          what: `attempt ${one.unit} ${one.status} ${one.errorCode ?? ''} (work ${
            units.find((unit) => unit.id === one.workUnitId)?.status
          })`,
        },
      ]),
    ...evidence.outbox
      .filter(({ sessionId }) => sessionId === id)
      .map((row) => ({
        at: at(row.createdAt),
        what: `outbox ${short(row.id)} turn ${short(row.turnId)} ${row.state} tries ${row.tries}${
          row.terminal ? ' LAST' : ''
        } ${cut(row.body)}`,
      })),
    ...scene.linear.world.activities
      .filter(({ sessionId }) => sessionId === id)
      .map((one) => ({
        at: at(one.createdAt),
        what: `linear ${short(one.id)} ${one.content.type}${one.ephemeral ? ' (passing)' : ''} ${cut(
          String(one.content['body'] ?? one.content['parameter']),
        )}`,
      })),
  ];
  return lines
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
