/** The work unit that verifies: how it is asked for, what it is told, what it said. */
import { OUTCOME_VERIFY, type OutcomeContract } from '../domain/outcome.ts';
import type { VerifyEnd } from '../domain/outcome-verdict.ts';
import { type StartWorkUnit, startWorkUnitSchema } from '../domain/request.ts';
import type { OutcomeKey } from '../store/outcomes.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { capturedTail } from './artifacts.ts';
import type { Context } from './context.ts';

/** Of each stream, in the message of a refusal. */
const TAIL_BYTES = 1_500;

export const verifyKey = ({ workUnitId, attemptNumber }: OutcomeKey): string =>
  `outcome-verify ${workUnitId} ${attemptNumber}`;

/** The request; in the same tree and with the same variables, held as the judged one held it, and before all that waits. */
export function verifyRequest(
  { id, cwd, runnerId, request }: WorkUnitRow,
  { argv, timeoutMs }: NonNullable<OutcomeContract['verify']>,
): StartWorkUnit {
  return startWorkUnitSchema.parse({
    runnerId: 'command',
    ownerType: OUTCOME_VERIFY,
    ownerId: id,
    argv,
    cwd,
    exclusive: request.exclusive ?? runnerId === 'pi',
    priority: 1000,
    // It judges and changes nothing: after a reboot it is asked again, as often as work may be lost.
    onLost: 'resume',
    // Tests may be silent for as long as they may run.
    timeoutPolicy: { hardTimeoutMs: timeoutMs, idleTimeoutMs: timeoutMs },
    ...(request.sandbox === undefined ? {} : { sandbox: request.sandbox }),
    ...(request.environment === undefined ? {} : { environment: request.environment }),
    ...(request.environmentFiles === undefined
      ? {}
      : { environmentFiles: request.environmentFiles }),
  });
}

/** Variables that tell a verification what it is about; none for other work. */
export function verifyEnvironment(
  { store }: Context,
  workUnitId: string,
): Readonly<Record<string, string>> {
  const judged = store.outcomes.byVerify(workUnitId);
  const workUnit = judged && store.workUnits.get(judged.workUnitId);
  if (!workUnit) return {};
  return {
    OUTLIVE_HANDLE: workUnit.handle,
    OUTLIVE_SUBJECT: workUnit.externalSubject ?? '',
    OUTLIVE_ATTEMPT: judged.attemptId ?? '',
  };
}

/** How an ended verification ended, with the tail of what it printed. */
export function verifyEnd({ store, settings }: Context, verify: WorkUnitRow): VerifyEnd {
  const attempt = store.attempts.listByWorkUnit(verify.id).at(-1);
  const tail = (kind: 'stdout' | 'stderr'): string =>
    attempt ? capturedTail(settings, attempt, kind, TAIL_BYTES).text.trim() : '';
  const { handle, errorCode, errorMessage } = verify;
  return {
    handle,
    status: verify.status as VerifyEnd['status'],
    errorCode,
    errorMessage,
    exitCode: attempt?.lastWord?.exitCode ?? null,
    output: ['stdout', 'stderr']
      .map((kind) => tail(kind as 'stdout' | 'stderr'))
      .filter((text) => text !== '')
      .join('\n'),
  };
}
