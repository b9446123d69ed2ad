/** Recovery at start: observe, plan, apply through the supervisor; ends in a stored report. */
import { timestamp } from '../domain/ids.ts';
import type { Context } from '../supervisor/context.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import type { RecoveryAction } from './plan.ts';
import { planRecovery } from './plan.ts';
import { sweep } from './sweep.ts';

export interface RecoveryReport {
  readonly at: string;
  readonly runtimeInstanceId: string;
  readonly reattached: readonly string[];
  readonly settled: readonly string[];
  readonly foreignUnits: readonly string[];
}

async function apply(
  context: Context,
  supervisor: Supervisor,
  action: RecoveryAction,
): Promise<void> {
  if (action.kind === 'release') return context.executor.release(action.unit);
  if (action.kind === 'report_foreign') {
    context.log.warn(
      { unit: action.unit },
      'a unit of this workspace belongs to no attempt; it is left alone',
    );
    return;
  }
  // One path for both: the watch reads the unit afresh before it believes anything.
  supervisor.attach(action.attempt);
}

const unitsOf = (actions: readonly RecoveryAction[], kind: RecoveryAction['kind']): string[] =>
  actions.flatMap((action) => {
    if (action.kind !== kind) return [];
    return ['attempt' in action ? action.attempt.unit : action.unit];
  });

/**
 * Takes up every attempt the last daemon left. Nothing new is started before this
 * returns. Repeatable: a second run finds the same and changes nothing.
 */
export async function recover(context: Context, supervisor: Supervisor): Promise<RecoveryReport> {
  const units = await context.executor.list();
  const { attempts } = context.store;
  const nonces = units.flatMap(({ nonce }) => (nonce === null ? [] : [nonce]));
  const endedNonces = new Set(nonces.filter((nonce) => attempts.hasEnded(nonce)));
  const actions = planRecovery({ attempts: attempts.listActive(), units, endedNonces });
  for (const action of actions) await apply(context, supervisor, action);
  const report: RecoveryReport = {
    at: timestamp(context.entropy),
    runtimeInstanceId: context.runtimeInstanceId,
    reattached: unitsOf(actions, 'reattach'),
    settled: unitsOf(actions, 'settle'),
    foreignUnits: unitsOf(actions, 'report_foreign'),
  };
  context.store.saveReport(context.runtimeInstanceId, report);
  context.log.info(report, 'recovery');
  await sweep(context);
  return report;
}
