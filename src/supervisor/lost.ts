/**
 * What becomes of a lost attempt: the evidence beyond the end itself, and the decision.
 * This is the only place in outlive that resumes anything.
 */
import { DRIVER_CENSUS } from '../domain/driver.ts';
import { timestamp } from '../domain/ids.ts';
import { OUTCOME_VERIFY } from '../domain/outcome.ts';
import type { LossCode } from '../domain/outcome-codes.ts';
import { describeOutcome } from '../domain/outcome-codes.ts';
import type { LossDecision, LostPolicy, ResumeNote, SpoolCall } from '../domain/resume.ts';
import { decideLoss, defaultLostPolicy, RESUME_LIMITS, sortCalls } from '../domain/resume.ts';
import type { SessionState } from '../domain/session-file.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { AttemptPaths } from './attempt-directory.ts';
import type { Context } from './context.ts';
import { isDirectory, sessionState } from './session-state.ts';
import type { Transaction } from './writer.ts';

/** What only the disk can tell, read after the last process of the attempt was gone. */
export interface LossEvidence {
  readonly session: SessionState | null;
  readonly cwd: { readonly path: string; readonly exists: boolean };
}

/** Reads conversation and work tree of an attempt that runs no more. */
export async function gatherLoss(
  workUnit: WorkUnitRow,
  paths: AttemptPaths,
): Promise<LossEvidence> {
  const session = workUnit.runnerId === 'pi' ? await sessionState(paths.sessionFile) : null;
  // Pi works in its session's directory, wherever it is started.
  const path = session?.kind === 'whole' ? session.cwd : workUnit.cwd;
  return { session, cwd: { path, exists: await isDirectory(path) } };
}

/**
 * Calls as all attempts of the work unit spooled them: an attempt that was resumed and
 * lost before it was told anything leaves the same calls open. Of calls without an end
 * only those of the lost attempt itself can be strays.
 */
function spooledCalls(
  context: Context,
  attempt: AttemptRow,
  session: SessionState | null,
): SpoolCall[] {
  const asked = new Set(
    session?.kind === 'whole' ? session.openCalls.map(({ toolCallId }) => toolCallId) : [],
  );
  const calls = new Map<string, SpoolCall & { attemptId: string | null }>();
  for (const { attemptId, type, data } of context.store.events.toolCalls(attempt.workUnitId)) {
    const { toolCallId, tool, isError, result } = data;
    const seen = calls.get(toolCallId);
    calls.set(toolCallId, {
      toolCallId,
      tool,
      arguments: type === 'tool.start' ? data.arguments : seen?.arguments,
      end: type === 'tool.end' ? { isError, result } : (seen?.end ?? null),
      attemptId,
    });
  }
  return [...calls.values()].filter(
    ({ toolCallId, end, attemptId }) =>
      asked.has(toolCallId) || (end === null && attemptId === attempt.id),
  );
}

/**
 * Whether the conversation has the prompt of this work: one that earlier work began has
 * prompts of its own, which are older than the first attempt.
 */
function hasPrompt(
  { store }: Context,
  { workUnitId, createdAt }: AttemptRow,
  session: SessionState | null,
): boolean {
  if (session?.kind !== 'whole') return false;
  const [first] = store.attempts.listByWorkUnit(workUnitId);
  return session.promptedAt === null || session.promptedAt >= (first?.createdAt ?? createdAt);
}

/** What the next attempt is told of this one. */
export function noteOf(
  context: Context,
  attempt: AttemptRow,
  cause: LossCode,
  { session }: LossEvidence,
): ResumeNote {
  const spooled = spooledCalls(context, attempt, session);
  return {
    attemptId: attempt.id,
    attemptNumber: attempt.attemptNumber,
    cause,
    lostAt: attempt.lastHeartbeatAt ?? attempt.lastEventAt ?? attempt.createdAt,
    ...sortCalls(session, spooled),
    conversation: hasPrompt(context, attempt, session),
  };
}

/** Pi writes its file with the first whole answer of the model, so before any call begins. */
function hadConversation({ store }: Context, { id, conversation }: WorkUnitRow): boolean {
  if (store.events.toolCalls(id).length > 0) return true;
  return conversation !== null && store.workUnits.hasSpoken(conversation);
}

/** It only looks: it verifies what other work left, or finds work for a driver. */
const onlyLooks = ({ ownerType }: Pick<WorkUnitRow, 'ownerType'>): boolean =>
  ownerType === OUTCOME_VERIFY || ownerType === DRIVER_CENSUS;

interface LossCase {
  /** The work unit's own when absent. */
  readonly policy?: LostPolicy;
  readonly cause: LossCode;
  readonly evidence: LossEvidence;
}

/** Whether a lost attempt is gone on from, by what is known of it; decides, writes nothing. */
export function lossDecision(
  context: Context,
  workUnit: WorkUnitRow,
  attempt: AttemptRow,
  { policy, cause, evidence }: LossCase,
): LossDecision {
  const now = context.entropy.now();
  const lastSign = Math.max(
    ...[attempt.lastHeartbeatAt, attempt.lastEventAt, attempt.startedAt, attempt.createdAt].map(
      (at) => (at === null ? 0 : Date.parse(at)),
    ),
  );
  const since = timestamp({ now: () => now - RESUME_LIMITS.windowMs });
  return decideLoss(
    {
      policy: policy ?? workUnit.request.onLost ?? defaultLostPolicy(workUnit.runnerId),
      cause,
      // It may be asked again, however long ago it was lost.
      ageMs: onlyLooks(workUnit) ? 0 : Math.max(0, now - lastSign),
      // This one is committed already, in the same transaction.
      recentLosses: context.store.attempts.countLosses(workUnit.id, since),
      hadConversation: hadConversation(context, workUnit),
      ...evidence,
    },
    RESUME_LIMITS,
  );
}

/** The dedupe key of a loss: whoever finds it there does nothing. */
export const resumeKey = (attemptId: string): string => `restart-resume:${attemptId}`;

/**
 * Commits what becomes of a work unit whose attempt was just committed as lost (it is
 * `stale` now): queued again, failed, or left for a person. Once per attempt.
 */
export function settleLoss(
  context: Context,
  transaction: Transaction,
  workUnit: WorkUnitRow,
  attempt: AttemptRow,
  cause: LossCode,
  evidence: LossEvidence,
): void {
  const { diagnostics, queue } = context.store;
  if (workUnit.status !== 'stale' || diagnostics.command(resumeKey(attempt.id))) return;
  const wanted = lossDecision(context, workUnit, attempt, { cause, evidence });
  // Somebody waits for its answer: none is one, too.
  const isGivenUp = wanted.kind === 'block' && onlyLooks(workUnit);
  const decision: LossDecision = isGivenUp ? { kind: 'fail' } : wanted;
  const note = noteOf(context, attempt, cause, evidence);
  const common = { actor: 'system', attemptId: attempt.id } as const;
  if (decision.kind === 'fail') {
    const code = 'runtime_interrupted_no_checkpoint';
    const message = `${describeOutcome(code)} (${cause})`;
    transaction.moveWorkUnit(workUnit, 'reconcile_failed', {
      ...common,
      data: { errorCode: code, errorMessage: message, cause },
      patch: {
        errorCode: code,
        errorMessage: message,
        endedAt: transaction.at,
        activeAttemptId: null,
        resume: note,
      },
    });
    return;
  }
  if (decision.kind === 'block') {
    const { code, message } = decision;
    context.store.workUnits.patch(
      workUnit.id,
      { activeAttemptId: null, errorCode: code, errorMessage: message, resume: note },
      transaction.at,
    );
    transaction.append(workUnit.id, [
      {
        type: 'work_unit.progress',
        ...common,
        data: { kind: 'resume_blocked', code, message },
      },
    ]);
    return;
  }
  diagnostics.recordCommand(
    resumeKey(attempt.id),
    { command: 'resume', workUnitId: workUnit.id },
    transaction.at,
  );
  transaction.moveWorkUnit(workUnit, 'resume', {
    ...common,
    data: { reason: 'resume', cause, after: attempt.id, delayMs: decision.delayMs },
    patch: { activeAttemptId: null, errorCode: null, errorMessage: null, resume: note },
  });
  if (decision.delayMs > 0) {
    const due = context.entropy.now() + decision.delayMs;
    queue.delay(workUnit.id, timestamp({ now: () => due }));
  }
}
