/** From a claim to a started unit, or to the proof that nothing was started. */
import { OutliveError } from '../domain/errors.ts';
import type { StartProblem } from '../domain/evidence.ts';
import type { StartResult } from '../executor/port.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { prepareAttempt } from './attempt-directory.ts';
import type { Claim } from './claim.ts';
import type { Context } from './context.ts';
import { sandboxOf } from './sandbox.ts';
import { startRequest } from './start-request.ts';

const DISK_FULL: ReadonlySet<unknown> = new Set(['ENOSPC', 'EDQUOT', 'disk_full']);
const isDiskFull = (error: unknown): boolean =>
  DISK_FULL.has((error as NodeJS.ErrnoException).code);

/** Refusals that a later start may be spared. */
const PASSING: ReadonlySet<unknown> = new Set(['state_dir_unwritable', 'bus_unavailable']);

/** True when the same start may work a little later: the host goes down, the disk is away. */
function mayPass(error: unknown): boolean {
  if (error instanceof OutliveError) return PASSING.has(error.code);
  return typeof (error as NodeJS.ErrnoException).syscall === 'string';
}

/**
 * Nothing was sent. With the reason kept the watch takes the claim from the attempt and
 * puts its work back, to be started again after a while; what will not pass fails it now.
 */
function couldNotStart(context: Context, attempt: AttemptRow, error: unknown): void {
  if (isDiskFull(error) || !mayPass(error)) {
    failBeforeStart(context, attempt, error);
    return;
  }
  const { message } = error as Error;
  context.log.error({ err: error, unit: attempt.unit }, 'a start could not be prepared');
  const startProblem = { kind: 'refused', reason: message } as const;
  context.writer.commit(() => context.store.attempts.patch(attempt.id, { startProblem }));
}

function codeOf(error: unknown): 'disk_full' | 'sandbox_unavailable' | 'launch_failed' {
  if (isDiskFull(error)) return 'disk_full';
  const isSandbox = error instanceof OutliveError && error.code === 'sandbox_unavailable';
  return isSandbox ? 'sandbox_unavailable' : 'launch_failed';
}

/** Why nothing can be started, as a stored decision: the watch then ends the attempt by it. */
function failBeforeStart(context: Context, attempt: AttemptRow, error: unknown): void {
  const code = codeOf(error);
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

/** Kept with the attempt: should it turn out that nothing ran, this is why. */
function keepProblem(context: Context, attempt: AttemptRow, result: StartResult): void {
  const problem = problemOf(result);
  if (problem === null) return;
  context.log.warn({ unit: attempt.unit, ...problem }, 'a start was not seen to happen');
  context.writer.commit(() => context.store.attempts.patch(attempt.id, { startProblem: problem }));
}

function problemOf(result: StartResult): StartProblem | null {
  switch (result.kind) {
    case 'present':
      return result.problem === null ? null : { kind: 'refused', reason: result.problem };
    case 'foreign':
      return { kind: 'name_taken', reason: 'a unit that is not ours has the name' };
    case 'absent':
      return { kind: 'refused', reason: result.reason };
    case 'unknown':
      return { kind: 'unanswered', reason: result.reason };
  }
}

async function afterStart(context: Context, claim: Claim, result: StartResult): Promise<void> {
  const { attempt, workUnit } = claim;
  if (result.kind === 'foreign') reportForeign(context, workUnit, attempt);
  keepProblem(context, attempt, result);
  if (result.kind !== 'present' || result.problem !== null) return;
  if (result.facts.leavesExitRecord) return;
  failBeforeStart(
    context,
    attempt,
    new Error('the exit-record drop-in does not apply to the unit'),
  );
  await context.executor.stop(attempt.unit);
}

/**
 * Prepares and starts. Whatever comes of it, the attempt is then in the hands of a
 * watch, which reads the truth: present, foreign or gone. Credentials are left where they
 * are: a start that systemd holds back still needs them, and the watch removes them.
 */
export async function launch(context: Context, claim: Claim): Promise<void> {
  let result: StartResult;
  try {
    const sandbox = await sandboxOf(context, claim.workUnit);
    await prepareAttempt(context, claim.workUnit, claim.attempt, sandbox);
    const request = startRequest(context, claim.workUnit, claim.attempt, sandbox);
    context.fault('prepared');
    // Its end may have been decided meanwhile: then nothing is started at all.
    if (context.store.attempts.get(claim.attempt.id)?.intent) return;
    result = await context.executor.start(request);
  } catch (error) {
    couldNotStart(context, claim.attempt, error);
    return;
  }
  context.fault('start_answered');
  await afterStart(context, claim, result);
}
