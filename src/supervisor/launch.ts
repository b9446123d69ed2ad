/** From a claim to a started unit, or to the proof that nothing was started. */
import type { StartRequest, StartResult } from '../executor/port.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { AttemptPaths } from './attempt-directory.ts';
import { prepareAttempt, removeCredentials } from './attempt-directory.ts';
import type { Claim } from './claim.ts';
import type { Context } from './context.ts';
import { startRequest } from './start-request.ts';

/** Why nothing can be started, as a stored decision: the watch then ends the attempt by it. */
function failBeforeStart(context: Context, attempt: AttemptRow, error: unknown): void {
  const code = (error as NodeJS.ErrnoException).code === 'ENOSPC' ? 'disk_full' : 'launch_failed';
  const reason = (error as Error).message;
  context.log.error({ err: error, unit: attempt.unit }, 'an attempt cannot be started');
  context.writer.commit((transaction) => {
    if (transaction.attempt(attempt.id).intent) return;
    context.store.attempts.patch(attempt.id, {
      intent: { kind: 'fail', actor: 'system', code, reason },
    });
  });
}

function reportForeign(context: Context, workUnit: WorkUnitRow, attempt: AttemptRow): void {
  context.log.error({ unit: attempt.unit }, 'the unit name is taken by a unit that is not ours');
  context.writer.commit((transaction) => {
    transaction.append(workUnit.id, [
      {
        type: 'diagnostic.foreign_unit',
        actor: 'system',
        attemptId: attempt.id,
        data: { unit: attempt.unit },
      },
    ]);
  });
}

async function afterStart(context: Context, claim: Claim, result: StartResult): Promise<void> {
  const { attempt, workUnit } = claim;
  if (result.kind === 'foreign') reportForeign(context, workUnit, attempt);
  if (result.kind === 'absent' || result.kind === 'unknown') {
    context.log.warn({ unit: attempt.unit, result }, 'a start was not seen to happen');
  }
  if (result.kind !== 'present' || result.facts.leavesExitRecord) return;
  failBeforeStart(
    context,
    attempt,
    new Error('the exit-record drop-in does not apply to the unit'),
  );
  await context.executor.stop(attempt.unit);
}

/**
 * Prepares and starts. Whatever comes of it, the attempt is then in the hands of a
 * watch, which reads the truth: present, foreign or gone.
 */
export async function launch(context: Context, claim: Claim): Promise<void> {
  let paths: AttemptPaths;
  let request: StartRequest;
  try {
    paths = await prepareAttempt(context, claim.workUnit, claim.attempt);
    request = startRequest(context, claim.workUnit, claim.attempt);
    context.fault('prepared');
  } catch (error) {
    failBeforeStart(context, claim.attempt, error);
    return;
  }
  try {
    // Its end may have been decided meanwhile: then nothing is started at all.
    if (context.store.attempts.get(claim.attempt.id)?.intent) return;
    const result = await context.executor.start(request);
    context.fault('start_answered');
    await afterStart(context, claim, result);
  } catch (error) {
    failBeforeStart(context, claim.attempt, error);
  } finally {
    await removeCredentials(paths);
  }
}
