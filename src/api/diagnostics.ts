/** The workspace as a person looks at it: what runs, what is stuck, who holds what. */
import { START_BUDGET } from '../domain/start-budget.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { ListedWorkUnit } from '../store/work-units.ts';
import { possible } from '../supervisor/explain.ts';
import type { ApiContext } from './context.ts';
import type {
  ActiveView,
  LeaseView,
  SemaphoreView,
  StuckView,
  SupervisorView,
} from './schemas-runtime.ts';

const BLOCKERS_SHOWN = 100;
const TAKEOVERS_SHOWN = 10;

/** Milliseconds since a stored time; a clock that was set back makes no negative ages. */
const ageOf = (now: number, time: string): number => Math.max(0, now - Date.parse(time));
const ageOrNull = (now: number, time: string | null): number | null =>
  time === null ? null : ageOf(now, time);

function handles(context: ApiContext): (workUnitId: string) => string {
  const known = new Map<string, string>();
  return (id) => {
    const handle = known.get(id) ?? context.store.workUnits.get(id)?.handle ?? id;
    known.set(id, handle);
    return handle;
  };
}

/** Names of what each attempt holds. */
function holdings(rows: readonly { attemptId: string; type: string; key: string }[]) {
  const byAttempt = Map.groupBy(rows, ({ attemptId }) => attemptId);
  return (attemptId: string | null): string[] =>
    (attemptId === null ? [] : (byAttempt.get(attemptId) ?? [])).map(
      ({ type, key }) => `${type} ${key}`,
    );
}

interface Active {
  readonly workUnit: ListedWorkUnit;
  readonly attempt: AttemptRow | null;
  readonly view: ActiveView;
}

function activeWork(context: ApiContext): readonly Active[] {
  const { store, supervisor } = context;
  const now = supervisor.now();
  const leases = holdings(store.resources.leasesHeld());
  const slots = holdings(store.resources.slotsHeld());
  return store.workUnits.listActive().map((workUnit) => {
    const { activeAttemptId } = workUnit;
    const attempt = activeAttemptId === null ? null : store.attempts.get(activeAttemptId);
    const view: ActiveView = {
      workUnitId: workUnit.id,
      handle: workUnit.handle,
      kind: workUnit.kind,
      status: workUnit.status,
      ownerType: workUnit.ownerType,
      ownerId: workUnit.ownerId,
      createdByActor: workUnit.createdByActor,
      createdByClientId: workUnit.createdByClientId,
      channelId: workUnit.channelId,
      runnerId: workUnit.runnerId,
      providerPresetId: workUnit.providerPresetId,
      attemptId: attempt?.id ?? null,
      attemptNumber: attempt?.attemptNumber ?? null,
      unit: attempt?.unit ?? null,
      runtimeInstanceId: attempt?.runtimeInstanceId ?? null,
      startedAt: workUnit.startedAt,
      ageMs: ageOf(now, workUnit.createdAt),
      lastEventAgeMs: ageOrNull(now, workUnit.lastEventAt),
      lastHeartbeatAgeMs: ageOrNull(now, workUnit.lastHeartbeatAt),
      idleTimeoutMs: workUnit.timeoutPolicy.idleTimeoutMs,
      leases: leases(activeAttemptId),
      slots: slots(activeAttemptId),
      ...possible(workUnit.status),
      canReconcile: attempt !== null,
      live: activeAttemptId === null ? null : supervisor.live(activeAttemptId),
    };
    return { workUnit, attempt, view };
  });
}

/** Everything that is neither queued nor ended, oldest first. */
export function activeViews(context: ApiContext): ActiveView[] {
  return activeWork(context).map(({ view }) => view);
}

/** Why it looks stuck, null when it does not. */
function stuckReason(
  { workUnit, attempt, view }: Active,
  now: number,
): Pick<StuckView, 'why' | 'reason'> | null {
  const { idleTimeoutMs, cancelGraceMs } = workUnit.timeoutPolicy;
  if (workUnit.status === 'stale') {
    return { why: 'stale', reason: 'nobody can say whether it still runs: reconcile or retry it' };
  }
  if (workUnit.status === 'cancelling') {
    const asked = ageOf(now, attempt?.abortRequestedAt ?? workUnit.updatedAt);
    if (asked <= cancelGraceMs) return null;
    const reason = `told to end ${asked} ms ago, with a grace of ${cancelGraceMs} ms`;
    return { why: 'cancel_overdue', reason };
  }
  if (workUnit.status === 'waiting_for_approval') return null; // A person may take their time.
  const silent = view.lastEventAgeMs ?? ageOf(now, workUnit.startedAt ?? workUnit.updatedAt);
  if (silent <= idleTimeoutMs / 2) return null;
  const reason = `no event for ${silent} ms, with an idle timeout of ${idleTimeoutMs} ms`;
  return { why: 'silent', reason };
}

/** Active work that a person should look at. */
export function stuckViews(context: ApiContext): StuckView[] {
  const now = context.supervisor.now();
  return activeWork(context).flatMap((active) => {
    const reason = stuckReason(active, now);
    return reason ? [{ ...active.view, ...reason }] : [];
  });
}

export function leaseViews(context: ApiContext): LeaseView[] {
  const now = context.supervisor.now();
  const handleOf = handles(context);
  return context.store.resources.leasesHeld().map((lease) => ({
    id: lease.id,
    resourceType: lease.type,
    resourceKey: lease.key,
    status: lease.status,
    workUnitId: lease.workUnitId,
    handle: handleOf(lease.workUnitId),
    attemptId: lease.attemptId,
    acquiredAt: lease.acquiredAt,
    lastRenewedAt: lease.lastRenewedAt,
    expiresAt: lease.expiresAt,
    heldMs: ageOf(now, lease.acquiredAt),
    expired: Date.parse(lease.expiresAt) <= now,
  }));
}

/** Slots that are limited or taken, with who holds them. */
export function semaphoreViews(context: ApiContext): SemaphoreView[] {
  const { supervisor, store } = context;
  const handleOf = handles(context);
  const found = new Map<string, SemaphoreView>();
  for (const { type, key, limit } of supervisor.slotLimits()) {
    const view = { resourceType: type, resourceKey: key, limit, used: 0, holders: [] };
    found.set(`${type} ${key}`, view);
  }
  for (const slot of store.resources.slotsHeld()) {
    const { type, key, id, workUnitId, attemptId, acquiredAt, lastRenewedAt } = slot;
    const known = found.get(`${type} ${key}`) ?? {
      resourceType: type,
      resourceKey: key,
      limit: supervisor.slotLimit(type, key),
      used: 0,
      holders: [],
    };
    const handle = handleOf(workUnitId);
    known.holders.push({ id, workUnitId, handle, attemptId, acquiredAt, lastRenewedAt });
    found.set(`${type} ${key}`, { ...known, used: known.used + 1 });
  }
  return [...found.values()];
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export function supervisorView(context: ApiContext): SupervisorView {
  const { store, supervisor } = context;
  const now = supervisor.now();
  const { diagnostics, queue } = store;
  // The position first: whoever follows from it sees everything that comes after the figures.
  const position = store.events.window().last;
  const recovery = diagnostics.lastReport();
  return {
    runtime: context.runtime(),
    position,
    admission: store.channels.admission(),
    counts: diagnostics.countsByStatus(),
    queue: { ...queue.counts(), nextDueAt: queue.nextDue(new Date(now).toISOString()) },
    watching: supervisor.watching,
    blockers: diagnostics
      .blocked(BLOCKERS_SHOWN)
      .map((group) => ({ ...group, waitedMs: ageOf(now, group.since) })),
    backingOff: diagnostics
      .backingOff(new Date(now).toISOString(), BLOCKERS_SHOWN)
      .map((group) => ({ ...group, limit: START_BUDGET })),
    recovery: isRecord(recovery) ? recovery : null,
    takeovers: [...store.takeovers(TAKEOVERS_SHOWN)],
  };
}
