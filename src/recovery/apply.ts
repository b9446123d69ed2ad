/** Recovery, the acting part: each action through the one writer, compared with what was seen. */
import { TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import { releaseResources } from '../supervisor/admission.ts';
import type { Context } from '../supervisor/context.ts';
import { settleOrphan } from '../supervisor/orphan.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import type { RecoveryAction } from './plan.ts';

/** What came of an action; a failing one stays in the next plan, so nothing is dropped. */
export interface Applied {
  readonly action: RecoveryAction;
  readonly error: string | null;
}

/** Tries of one action before it is reported as failed. */
const TRIES = 3;

function reportForeign(context: Context, unit: string, nonce: string | null): void {
  context.log.warn(
    { unit, nonce },
    'a unit of this workspace belongs to no attempt that is under way; it is left alone',
  );
}

function releaseHolder(context: Context, attemptId: string): void {
  context.writer.commit((transaction) => {
    const attempt = transaction.attempt(attemptId);
    if (!TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) return;
    releaseResources(context, transaction, attempt, 'lost');
  });
}

async function act(
  context: Context,
  supervisor: Pick<Supervisor, 'attach'>,
  action: RecoveryAction,
): Promise<void> {
  switch (action.kind) {
    case 'reattach':
    case 'settle':
      // One path for both: the watch reads the unit afresh before it believes anything.
      supervisor.attach(action.attempt);
      return;
    case 'release_unit':
      await context.executor.release(action.unit);
      return;
    case 'release_resources':
      releaseHolder(context, action.attemptId);
      return;
    case 'settle_work':
      settleOrphan(context, action.work);
      return;
    case 'report_foreign':
      reportForeign(context, action.unit, action.nonce);
  }
}

/** Carries the actions out in their order. One that fails is tried again, then told. */
export async function apply(
  context: Context,
  supervisor: Pick<Supervisor, 'attach'>,
  actions: readonly RecoveryAction[],
): Promise<readonly Applied[]> {
  const applied: Applied[] = [];
  for (const action of actions) {
    let error: string | null = null;
    for (let tried = 0; tried < TRIES; tried += 1) {
      try {
        await act(context, supervisor, action);
        error = null;
        break;
      } catch (thrown) {
        error = (thrown as Error).message;
      }
    }
    if (error !== null) context.log.error({ action: action.kind, error }, 'a recovery step failed');
    applied.push({ action, error });
  }
  return applied;
}
