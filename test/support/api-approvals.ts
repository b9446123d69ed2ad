/** Work with questions behind a real API, as a watch and a wrapper would have committed it. */
import type { ApprovalRow } from '../../src/store/approvals.ts';
import { makeAttempt } from '../../src/supervisor/claim.ts';
import { PI, start } from './api-http.ts';
import type { Rig } from './api-rig.ts';
import { ask, type Question } from './approvals.ts';

/** A Pi unit that runs. @returns its id. */
export async function runningPi(rig: Rig, handle: string): Promise<string> {
  const { id } = await start(rig.socket, { ...PI, handle, exclusive: false, argv: undefined });
  startAttempt(rig, id);
  return id;
}

/** Claims a queued unit, and it is seen to run. */
export function startAttempt(rig: Rig, id: string): void {
  rig.writer.commit((transaction) => {
    const { attempt } = makeAttempt(rig.inner, transaction, transaction.workUnit(id));
    transaction.moveAttempt(attempt, 'started', { startedAt: transaction.at });
    transaction.moveWorkUnit(transaction.workUnit(id), 'runner_started', { actor: 'system' });
  });
}

/** Its attempt asks. */
export function askOf(rig: Rig, id: string, question: Question = {}): ApprovalRow {
  const attemptId = rig.store.workUnits.get(id)?.activeAttemptId ?? '';
  return ask(rig.inner, { id: attemptId, workUnitId: id }, question);
}
