/** Takes the next queued work unit that can start: attempt, unit name, nonce, leases and slots in one transaction. */
import { newNonce, uuidv7 } from '../domain/ids.ts';
import { unitName } from '../domain/names.ts';
import type { AttemptRow } from '../store/attempts.ts';
import { isGate, type Waiting } from '../store/queue.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import {
  type Blocker,
  dropReservation,
  findBlocker,
  hasStarved,
  passOn,
  takeResources,
} from './admission.ts';
import { approvalGate, commitApprovalResumeClaim, unclearApproval } from './approval-commits.ts';
import type { Context } from './context.ts';
import { memoryGate } from './gates.ts';
import { noteStart } from './provider-gate.ts';
import type { Transaction } from './writer.ts';

export interface Claim {
  readonly workUnit: WorkUnitRow;
  readonly attempt: AttemptRow;
}

export interface ClaimResult {
  readonly claim: Claim | null;
  /** Work units whose lease was not renewed in time: somebody has to look at them. */
  readonly suspects: readonly string[];
  /** True when this look ended before the queue did: there may be more that can start. */
  readonly more: boolean;
}

/** Every so many claims the oldest goes first, whatever its priority: nothing waits for ever. */
const OLDEST_EVERY = 8;
/** Looked at in one transaction at most; the rest is for the next. */
const LOOK_AT = 200;

/** Makes the attempt of a queued unit whose needs are free, and moves it to claimed. */
export function makeAttempt(
  context: Context,
  transaction: Transaction,
  queued: WorkUnitRow,
): Claim {
  const { store, entropy, executor, workspace, runtimeInstanceId } = context;
  const id = uuidv7(entropy);
  const attemptNumber = queued.attemptCount + 1;
  const { handle, runnerId, providerPresetId } = queued;
  const unit = unitName({ workspace, handle, counter: store.attempts.nextCounter(handle) });
  store.attempts.insert({
    id,
    workUnitId: queued.id,
    attemptNumber,
    runtimeInstanceId,
    runnerId,
    providerPresetId,
    unit,
    nonce: newNonce(entropy),
    executor: executor.kind,
    resumesAttemptId: queued.resume?.attemptId ?? null,
    hardTimeoutMs: queued.hardLeftMs,
    conversation: queued.conversation,
    at: transaction.at,
  });
  const workUnit = transaction.moveWorkUnit(queued, 'claim', {
    actor: 'scheduler',
    attemptId: id,
    data: { attemptNumber, unit },
    patch: {
      activeAttemptId: id,
      attemptCount: attemptNumber,
      errorCode: null,
      errorMessage: null,
      hardLeftMs: null,
    },
  });
  const attempt = transaction.attempt(id);
  transaction.append(workUnit.id, [
    { type: 'attempt.created', actor: 'scheduler', attemptId: id, data: { attemptNumber, unit } },
  ]);
  takeResources(context, transaction, attempt, store.resources.needsOf(workUnit.id));
  commitApprovalResumeClaim(context, transaction, workUnit, attempt);
  if (runnerId === 'pi' && providerPresetId !== null) {
    noteStart(context, transaction, providerPresetId, id);
  }
  dropReservation(context, workUnit.id);
  store.queue.clear(workUnit.id);
  return { workUnit, attempt };
}

/** @returns the owner of a lease that was not renewed in time, if that is what is in the way. */
function setAside(
  context: Context,
  transaction: Transaction,
  candidate: Waiting,
  { waitFor, expiredLease, heldBy }: Blocker,
): readonly string[] {
  context.store.queue.block(candidate.id, waitFor, transaction.at);
  // Slots are kept only for who waits for one.
  const keepsNothing = isGate(waitFor) || !waitFor.startsWith('slot ');
  if (keepsNothing && hasStarved(context, candidate.id)) dropReservation(context, candidate.id);
  // What is kept for another is of use only when that one is looked at.
  if (heldBy !== null && waitFor.startsWith('slot ')) context.store.queue.wake(heldBy, waitFor);
  if (expiredLease === null || heldBy === null) return [];
  // A live owner is never robbed, however late: it is looked at, and renews or ends.
  context.store.resources.suspectLease(expiredLease);
  return [heldBy];
}

/** Nothing behind it waits for a question that should have been settled before it was queued. */
function setAsideUnclear(context: Context, transaction: Transaction, { id }: Waiting): boolean {
  const open = unclearApproval(context, id);
  if (open === null) return false;
  context.log.error({ workUnitId: id, approvalId: open.id }, `cannot be claimed: ${open.why}`);
  context.store.queue.block(id, approvalGate(open.id), transaction.at);
  return true;
}

/**
 * Claims by priority, then age; every few claims by age alone. A unit that cannot start
 * is set aside under the resource it waits for, so the next look passes it by.
 */
export function createClaimer(context: Context): () => ClaimResult {
  let claims = 0;
  return () => {
    const suspects: string[] = [];
    let more = false;
    const claim = context.writer.commit((transaction): Claim | null => {
      const { queue, resources, channels } = context.store;
      if (channels.admission() !== 'open' || memoryGate(context)) return null;
      const byAge = claims % OLDEST_EVERY === OLDEST_EVERY - 1;
      for (let looked = 0; looked < LOOK_AT; looked++) {
        const candidate = byAge ? queue.oldest(transaction.at) : queue.best(transaction.at);
        if (!candidate) return null;
        const blocker = findBlocker(context, candidate.id, resources.needsOf(candidate.id));
        if (!blocker && setAsideUnclear(context, transaction, candidate)) {
          passOn(context, candidate.wokenBy);
          continue;
        }
        if (!blocker) {
          const made = makeAttempt(context, transaction, transaction.workUnit(candidate.id));
          passOn(context, candidate.wokenBy);
          return made;
        }
        suspects.push(...setAside(context, transaction, candidate, blocker));
        passOn(context, candidate.wokenBy);
      }
      more = true;
      return null;
    });
    if (claim) {
      claims += 1;
      context.fault('claimed');
    }
    return { claim, suspects, more: more || claim !== null };
  };
}
