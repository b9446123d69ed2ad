/** Which sandbox an attempt gets, and the refusal of one that cannot be had. */
import type { SandboxSpec } from '../domain/attempt-files.ts';
import { OutliveError } from '../domain/errors.ts';
import type { StartWorkUnit } from '../domain/request.ts';
import {
  chooseSandbox,
  demanded,
  type SandboxAbility,
  type SandboxMode,
  whyNot,
} from '../domain/sandbox.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';
import type { SandboxSettings } from './sandbox-settings.ts';

const ADVICE = 'See outlive doctor, or ask for less';

const refusal = (mode: SandboxMode, why: string): OutliveError =>
  new OutliveError(
    'sandbox_unavailable',
    `The sandbox "${mode}" cannot be had: ${why}. ${ADVICE}.`,
    {
      fields: [{ path: '/sandbox', message: why }],
      extra: { sandbox: mode },
    },
  );

/**
 * Refuses what is known not to be possible. While the probe still runs nothing is known; the
 * launch then decides.
 * @throws OutliveError `sandbox_unavailable`.
 */
export function requireSandbox({ settings }: Context, input: StartWorkUnit): void {
  const { sandbox } = settings;
  const ability = sandbox?.now();
  const mode = sandbox ? demanded(input.sandbox, sandbox.setting) : (input.sandbox ?? null);
  if (mode === null || mode === 'off') return;
  const why = ability ? whyNot(mode, ability) : null;
  if (why !== null) throw refusal(mode, why);
}

/**
 * The sandbox of an attempt that is to be launched.
 * @throws OutliveError `sandbox_unavailable`: the machine has changed since the submit.
 */
export async function sandboxOf(
  context: Context,
  workUnit: WorkUnitRow,
): Promise<SandboxSpec | null> {
  const { sandbox } = context.settings;
  return sandbox ? specOf(sandbox, workUnit, await sandbox.found) : null;
}

/** The same as far as it can be said now: for a dry run. While nothing is known yet, all can be had. */
export function sandboxNow(context: Context, workUnit: WorkUnitRow): SandboxSpec | null {
  const { sandbox } = context.settings;
  const unknown: SandboxAbility = { unit: true, nest: true, why: null };
  return sandbox ? specOf(sandbox, workUnit, sandbox.now() ?? unknown) : null;
}

function specOf(
  { setting, nest }: SandboxSettings,
  { request, runnerId }: WorkUnitRow,
  ability: SandboxAbility,
): SandboxSpec {
  const choice = chooseSandbox(request.sandbox, setting, runnerId, ability);
  if ('why' in choice) throw refusal(choice.mode, choice.why);
  return { ...choice, ...nest };
}
