/** Commits that an attempt was seen to run, or that it will not stop. */
import type { ManagerInstance } from '../domain/evidence.ts';
import type { HostFacts, UnitFacts } from '../executor/port.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { Context } from './context.ts';
import type { Transaction } from './writer.ts';

/** What ties an attempt to one run of one unit on one boot. */
interface Identity {
  readonly invocationId: string | null;
  readonly controlGroup: string | null;
  readonly bootId: string | null;
  readonly manager: ManagerInstance | null;
}

function markStarted(transaction: Transaction, attempt: AttemptRow, identity: Identity): void {
  transaction.moveAttempt(attempt, 'started', { ...identity, startedAt: transaction.at });
  const workUnit = transaction.workUnit(attempt.workUnitId);
  transaction.moveWorkUnit(workUnit, 'runner_started', {
    actor: 'system',
    attemptId: attempt.id,
    data: { unit: attempt.unit, invocationId: identity.invocationId },
    patch: workUnit.startedAt ? {} : { startedAt: transaction.at },
  });
}

function tellReattached(
  context: Context,
  transaction: Transaction,
  attempt: AttemptRow,
  facts: UnitFacts,
): void {
  const { runtimeInstanceId } = context;
  context.store.attempts.patch(attempt.id, { reattached: attempt.reattached + 1 });
  transaction.append(attempt.workUnitId, [
    {
      type: 'attempt.reattached',
      actor: 'system',
      attemptId: attempt.id,
      data: { unit: attempt.unit, invocationId: facts.invocationId, runtimeInstanceId },
    },
  ]);
}

/** A fresh read showed the unit alive: store who it is; a new daemon also tells that it took it up. */
export function recordStart(
  context: Context,
  seen: AttemptRow,
  facts: UnitFacts,
  host: HostFacts,
  reattach: boolean,
): void {
  context.writer.commit((transaction) => {
    const attempt = transaction.attempt(seen.id);
    const { invocationId, controlGroup } = facts;
    if (attempt.status === 'created') {
      markStarted(transaction, attempt, {
        invocationId,
        controlGroup,
        bootId: host.bootId,
        manager: host.manager,
      });
    } else if (attempt.invocationId === null || attempt.controlGroup === null) {
      // Its end was decided before anybody saw it run; who it is matters all the same.
      context.store.attempts.patch(attempt.id, {
        invocationId,
        controlGroup,
        bootId: host.bootId,
        manager: host.manager,
      });
    }
    if (reattach) tellReattached(context, transaction, attempt, facts);
  });
  context.fault('started');
}

/**
 * A fresh read showed its start under way: who it is matters already, for whatever there is
 * of it has to be proved gone later. That it runs is not known yet.
 */
export function recordIdentity(
  context: Context,
  seen: AttemptRow,
  { invocationId, controlGroup }: UnitFacts,
  { bootId, manager }: HostFacts,
): void {
  if (invocationId === null) return;
  if (seen.invocationId === invocationId && seen.controlGroup === controlGroup) return;
  context.writer.commit(() =>
    context.store.attempts.patch(seen.id, { invocationId, controlGroup, bootId, manager }),
  );
}

/** Kept with the attempt: why nothing ran. */
export function recordHeldBack(context: Context, { id }: AttemptRow, heldMs: number): void {
  const reason = `systemd held its start back for ${Math.round(heldMs / 1000)} s`;
  context.writer.commit(() =>
    context.store.attempts.patch(id, { startProblem: { kind: 'refused', reason } }),
  );
}

/** It ran and ended before anybody looked: the spool says that and who it was. */
export function recordLateStart(
  context: Context,
  attemptId: string,
  facts: UnitFacts | null,
): void {
  context.writer.commit((transaction) => {
    const attempt = transaction.attempt(attemptId);
    if (attempt.status !== 'created' || !attempt.opened) return;
    markStarted(transaction, attempt, {
      invocationId: facts?.invocationId ?? attempt.opened.invocationId,
      controlGroup: null,
      bootId: attempt.opened.bootId,
      manager: null,
    });
  });
}

/** The grace, systemd's SIGKILL and two seconds more are over, and something still lives. */
export function markStale(context: Context, seen: AttemptRow): void {
  context.log.error({ unit: seen.unit }, 'a stopped attempt is still alive');
  context.writer.commit((transaction) => {
    const workUnit = transaction.workUnit(seen.workUnitId);
    if (workUnit.status !== 'cancelling') return;
    transaction.moveWorkUnit(workUnit, 'cancel_timeout', {
      actor: 'system',
      attemptId: seen.id,
      data: { unit: seen.unit },
    });
  });
}
