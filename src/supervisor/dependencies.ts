/** Work that waits for other work: what is named at submission, the gate, and who is told when it moves. */
import {
  type After,
  type DependencyGate,
  type DependencyState,
  dependencyGate,
  movesDependents,
  neededOf,
} from '../domain/dependencies.ts';
import { OutliveError } from '../domain/errors.ts';
import { workUnitCell } from '../domain/states.ts';
import type { DependencyRow, DependencyRows } from '../store/dependencies.ts';
import type { EventRow } from '../store/events.ts';
import { AFTER } from '../store/queue.ts';
import type { Store } from '../store/store.ts';

/** So many are named in a sentence. */
const NAMED = 3;

const refuse = (code: 'invalid_request' | 'not_found', index: number, message: string) =>
  new OutliveError(code, `${message}.`, {
    fields: [{ path: `/after/workUnits/${index}`, message }],
  });

/**
 * Ids of what is named: the live work unit of a handle, else the newest. What is named has to
 * be there already, so nothing can wait for itself, however far around.
 * @throws OutliveError `not_found`, `invalid_request`, naming the field.
 */
function resolve({ workUnits }: Store, after: After, ownHandle: string | undefined): string[] {
  const ids: string[] = [];
  for (const [index, name] of after.workUnits.entries()) {
    if (name === ownHandle) {
      const why = `"${name}" is its own handle, and nothing waits for itself; name an earlier one by its id`;
      throw refuse('invalid_request', index, why);
    }
    const found = workUnits.get(name) ?? workUnits.getByHandle(name);
    if (!found) throw refuse('not_found', index, `There is no work unit "${name}" to wait for`);
    if (ids.includes(found.id)) {
      throw refuse('invalid_request', index, `"${name}" is named twice (${found.id})`);
    }
    ids.push(found.id);
  }
  return ids;
}

/**
 * What a new work unit waits for, looked up before it is there.
 * @returns what stores that with it.
 * @throws OutliveError, see {@link resolve}.
 */
export function resolveAfter(
  store: Store,
  after: After | undefined,
  ownHandle: string | undefined,
): (workUnitId: string) => void {
  if (after === undefined) return () => undefined;
  const ids = resolve(store, after, ownHandle);
  return (id) => store.dependencies.insert(id, ids, neededOf(after));
}

function listed(words: readonly string[], last: 'and' | 'or'): string {
  const more = words.length - NAMED;
  const shown = more > 0 ? [...words.slice(0, NAMED), `${more} more`] : words;
  const end = shown.at(-1) ?? '';
  return shown.length > 1 ? `${shown.slice(0, -1).join(', ')} ${last} ${end}` : end;
}

/** How it ended, as the rest of a sentence. */
function endOf({ status, outcome }: DependencyRow): string {
  if (status === null) return 'is gone';
  if (status === 'succeeded') return `succeeded, but its outcome is ${outcome}`;
  return status === 'cancelled' ? 'was cancelled' : status;
}

const nowOf = ({ handle, status }: DependencyRow): string =>
  `${handle} (${status === 'succeeded' ? 'its outcome is pending' : status})`;

const mayRetry = ({ status }: DependencyRow): boolean =>
  status !== null && workUnitCell(status, 'retry').kind === 'move';

function stuckText(failed: readonly DependencyRow[], missing: number): string {
  const retries = failed.filter(mayRetry).map(({ handle }) => `outlive retry ${handle}`);
  const what = failed.map((row) => `${row.handle}, which ${endOf(row)}`);
  const some = failed.length > missing ? `${missing} of ` : '';
  const way = [...retries.slice(0, NAMED), 'cancel this one'];
  return `it waits for ${some}${listed(what, 'and')}: ${way.join(', or ')}`;
}

/** Why it waits, as a sentence. */
function gateText(gate: Exclude<DependencyGate<DependencyRow>, { kind: 'open' }>): string {
  if (gate.kind === 'stuck') return stuckText(gate.failed, gate.missing);
  const { pending, missing } = gate;
  const some = pending.length > missing ? `${missing} of ` : '';
  return `it waits for ${some}${listed(pending.map(nowOf), some === '' ? 'and' : 'or')}`;
}

/** Other work that is waited for. */
export interface Awaited {
  /** By its name in the queue. */
  readonly waitFor: string;
  /** A sentence for a person. */
  readonly reason: string;
  /** Id of the first that is missing. */
  readonly heldBy: string;
}

/** What a unit still waits for; null when its gate is open or there is none. Reads only. */
export function awaitedBy(store: Store, id: string): Awaited | null {
  const rows = store.dependencies.of(id);
  const gate = rows && dependencyGate(rows.on, rows.needed);
  if (gate === null || gate.kind === 'open') return null;
  const [first] = gate.kind === 'stuck' ? gate.failed : gate.pending;
  const heldBy = first?.id ?? id;
  return { waitFor: `${AFTER}${heldBy}`, reason: gateText(gate), heldBy };
}

/** What changed in a transaction: of each work unit, the types of its events that matter here. */
function changesIn(events: readonly EventRow[]): Map<string, string[]> {
  const changes = new Map<string, string[]>();
  for (const { workUnitId, type } of events) {
    if (movesDependents(type)) changes.set(workUnitId, [...(changes.get(workUnitId) ?? []), type]);
  }
  return changes;
}

/** As it was before those events: whatever ends had not ended; a failed one gains nothing by its outcome. */
function stateBefore(row: DependencyRow, types: readonly string[] | undefined): DependencyState {
  if (types === undefined) return row.state;
  const moved = types.some((type) => type !== 'outcome.settled');
  return moved || row.status === 'succeeded' ? 'pending' : row.state;
}

/** Said once for each time it becomes so, not for each thing that fails after that. */
function isNewlyStuck(
  id: string,
  { needed, on }: DependencyRows,
  changes: ReadonlyMap<string, readonly string[]>,
): boolean {
  if (changes.has(id)) return true; // It was not in the queue.
  const earlier = on.map((row) => ({ state: stateBefore(row, changes.get(row.id)) }));
  return dependencyGate(earlier, needed).kind !== 'stuck';
}

/** Of a transaction what is needed here; it is the writer that calls, so nothing of it is imported. */
interface Within {
  readonly store: Store;
  append(
    workUnitId: string,
    events: readonly {
      readonly type: 'diagnostic.dependency_failed';
      readonly actor: 'scheduler';
      readonly data: Readonly<Record<string, unknown>>;
    }[],
  ): void;
}

function look(
  { store, append }: Within,
  id: string,
  changes: ReadonlyMap<string, readonly string[]>,
): void {
  const rows = store.dependencies.of(id);
  if (rows === null) return;
  const gate = dependencyGate(rows.on, rows.needed);
  if (gate.kind === 'open') store.queue.openAfter(id);
  if (gate.kind !== 'stuck' || !isNewlyStuck(id, rows, changes)) return;
  const failed = gate.failed.map(({ id: workUnitId, handle, status, outcome }) => ({
    workUnitId,
    handle,
    status,
    outcome,
  }));
  const data = { message: gateText(gate), failed, missing: gate.missing };
  append(id, [{ type: 'diagnostic.dependency_failed', actor: 'scheduler', data }]);
}

/**
 * Looks again at queued work whose gate these events may have moved, in their transaction: a
 * daemon that dies cannot have told the one without the other.
 */
export function tendDependents(transaction: Within, events: readonly EventRow[]): void {
  const changes = changesIn(events);
  if (changes.size === 0) return;
  const { store } = transaction;
  const concerned = new Set(
    [...changes.keys()].flatMap((id) => [
      ...(store.workUnits.statusOf(id) === 'queued' ? [id] : []),
      ...store.dependencies.queuedDependents(id),
    ]),
  );
  for (const id of concerned) look(transaction, id, changes);
}
