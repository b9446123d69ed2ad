/** What an executor is asked to start. */
import type { SandboxSpec } from '../domain/attempt-files.ts';
import { DRIVER_CENSUS } from '../domain/driver.ts';
import { DRIVER_OWNER } from '../domain/ledger.ts';
import { OUTCOME_VERIFY } from '../domain/outcome.ts';
import type { StartRequest } from '../executor/port.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { attemptPaths } from './attempt-directory.ts';
import type { Context } from './context.ts';
import { timeoutsOf } from './time-left.ts';

type StartedAttempt = Pick<
  AttemptRow,
  'id' | 'workUnitId' | 'attemptNumber' | 'unit' | 'nonce' | 'hardTimeoutMs' | 'conversation'
>;

/** Work that a driver makes. */
const OF_DRIVERS: ReadonlySet<string> = new Set([DRIVER_OWNER, DRIVER_CENSUS]);

/** True for the work of drivers, and for what verifies it. */
function isOfDriver({ store }: Context, { id, ownerType }: WorkUnitRow): boolean {
  if (ownerType !== OUTCOME_VERIFY) return OF_DRIVERS.has(ownerType);
  const judged = store.outcomes.byVerify(id);
  const workUnit = judged && store.workUnits.get(judged.workUnitId);
  return workUnit ? OF_DRIVERS.has(workUnit.ownerType) : false;
}

/** The request that starts an attempt; also what a dry run shows. */
export function startRequest(
  context: Context,
  workUnit: WorkUnitRow,
  attempt: StartedAttempt,
  sandbox: SandboxSpec | null,
): StartRequest {
  const { settings } = context;
  const paths = attemptPaths(settings, attempt);
  const isPi = workUnit.runnerId === 'pi';
  return {
    unit: attempt.unit,
    nonce: attempt.nonce,
    attemptId: attempt.id,
    description: `outlive ${context.workspace}: ${workUnit.handle}, attempt ${attempt.attemptNumber} (${workUnit.runnerId})`,
    argv: [settings.node, settings.wrapper, paths.directory],
    attemptDirectory: paths.directory,
    // The wrapper's own environment: small. What the runner gets is in launch.json.
    environment: {
      PATH: settings.runnerEnvironment['PATH'] ?? '/usr/local/bin:/usr/bin:/bin',
      HOME: settings.home,
      LANG: settings.runnerEnvironment['LANG'] ?? 'C.UTF-8',
      // What ops/scripts/halt --drivers knows it by, without a daemon.
      ...(isOfDriver(context, workUnit) ? { OUTLIVE_OWNER: 'driver' } : {}),
    },
    credentials: isPi
      ? Object.keys(settings.keys).map((name) => ({ name, path: `${paths.credentials}/${name}` }))
      : [],
    hardTimeoutMs: timeoutsOf(workUnit, attempt).hardTimeoutMs,
    cancelGraceMs: workUnit.timeoutPolicy.cancelGraceMs,
    ...(settings.sandbox && sandbox && sandbox.mode !== 'off'
      ? { sandbox: settings.sandbox.unit }
      : {}),
  };
}
