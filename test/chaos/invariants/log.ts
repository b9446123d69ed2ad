/** What the event log must hold by itself. */
import {
  type EventType,
  SPOOL_EVENT_TYPES,
  TERMINAL_EVENT_TYPES,
} from '../../../src/domain/events.ts';
import type { EventRow, History, SpoolLine } from '../history.ts';
import { dataOf, eventsOf, isRetry, spoolWasDamaged, storeWasReplaced } from './expected.ts';

/** seq is 1, 2, 3, … in the order of the workspace, and the row knows the last. */
export function sequenceIsWhole(history: History): string[] {
  return history.workUnits.flatMap((row) => {
    const events = eventsOf(history, row);
    const at = events.findIndex(({ seq }, index) => seq !== index + 1);
    const problems = at === -1 ? [] : [`${row.handle}: seq ${events[at]?.seq} stands at ${at + 1}`];
    const last = events.at(-1)?.seq ?? 0;
    if (last !== row.last_seq) problems.push(`${row.handle}: last_seq ${row.last_seq}, is ${last}`);
    return problems;
  });
}

const isTerminal = ({ type }: EventRow): boolean => TERMINAL_EVENT_TYPES.has(type as EventType);

const mayFollowAnEnd = ({ type }: EventRow): boolean =>
  type === 'outcome.settled' || type.startsWith('diagnostic.');

/** After the end only a retry, what was found of its outcome, or a late word kept as a diagnostic; and the row says the same end. */
export function terminalIsFinal(history: History): string[] {
  return history.workUnits.flatMap((row) => {
    const problems: string[] = [];
    let ended: EventRow | null = null;
    for (const event of eventsOf(history, row)) {
      if (ended && isRetry(event) && ended.type === 'work_unit.failed') ended = null;
      else if (ended && !mayFollowAnEnd(event)) {
        problems.push(`${row.handle}: ${event.type} (seq ${event.seq}) after ${ended.type}`);
      }
      if (isTerminal(event)) ended = event;
    }
    const said = ended?.type.slice('work_unit.'.length);
    if (said !== undefined && said !== row.status) {
      problems.push(`${row.handle} is ${row.status}, and its last event says ${said}`);
    }
    return problems;
  });
}

interface Change {
  readonly resource: string;
  readonly attempt: string | null;
  readonly by: 1 | -1;
  readonly position: number;
}

function changes(events: readonly EventRow[], family: 'lease' | 'semaphore'): Change[] {
  return events.flatMap((event) => {
    if (event.type !== `${family}.acquired` && event.type !== `${family}.released`) return [];
    const { resourceType, resourceKey } = dataOf(event);
    return [
      {
        resource: `${String(resourceType)} ${String(resourceKey)}`,
        attempt: event.attempt_id,
        by: event.type.endsWith('.acquired') ? (1 as const) : (-1 as const),
        position: event.position,
      },
    ];
  });
}

function replay(
  history: History,
  family: 'lease' | 'semaphore',
  limitOf: (resource: string) => number,
): string[] {
  const held = new Map<string, number>();
  const problems: string[] = [];
  for (const { resource, attempt, by, position } of changes(history.events, family)) {
    const now = (held.get(resource) ?? 0) + by;
    held.set(resource, now);
    if (now < 0) problems.push(`${resource}: given back once too often at ${position}`);
    if (now > limitOf(resource)) {
      problems.push(`${resource}: held ${now} times at ${position}, by ${attempt} too`);
    }
  }
  // When all work has ended nobody holds anything any more.
  if (history.restless.length > 0) return problems;
  const left = [...held].filter(([, count]) => count > 0);
  return [
    ...problems,
    ...left.map(([resource, count]) => `${resource}: ${count} never given back`),
  ];
}

/** At no moment of the log were more slots taken than there are. */
export function slotsWithinLimits(history: History): string[] {
  return replay(history, 'semaphore', (resource) => history.limits[resource] ?? Infinity);
}

/** At no moment of the log was a lease held twice. */
export function leasesExclusive(history: History): string[] {
  return replay(history, 'lease', () => 1);
}

const SPOOLED: ReadonlySet<string> = new Set(SPOOL_EVENT_TYPES);

const sameLine = (line: SpoolLine, event: EventRow): boolean =>
  line.type === event.type &&
  line.ts === event.ts &&
  JSON.stringify(line.data) === JSON.stringify(JSON.parse(event.data_json));

/** Each spool line is one event, in the same order. */
export function spoolsOnceInStore(history: History): string[] {
  if (storeWasReplaced(history)) return [];
  return history.attempts.flatMap(({ id, unit }) => {
    if (spoolWasDamaged(history, id)) return [];
    const lines = history.spools[id] ?? [];
    const events = history.events.filter(
      ({ attempt_id, actor, type }) => attempt_id === id && actor === 'runner' && SPOOLED.has(type),
    );
    const rising = lines.findIndex(({ n }, index) => n !== index + 1);
    if (rising !== -1) return [`${unit}: spool line ${rising + 1} is numbered ${lines[rising]?.n}`];
    if (lines.length !== events.length) {
      return [`${unit}: ${lines.length} spool lines, ${events.length} events of them`];
    }
    const differs = lines.findIndex((line, index) => {
      const event = events[index];
      return event === undefined || !sameLine(line, event);
    });
    return differs === -1 ? [] : [`${unit}: event ${differs + 1} is not what its spool line says`];
  });
}
