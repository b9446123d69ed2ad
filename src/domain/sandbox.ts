/**
 * How far the commands of a run are kept from everything else: what may be asked for, what a
 * machine can give, and which of it an attempt gets. Pure, without a schema library: the
 * wrapper pays for each import.
 */
import type { RunnerId } from './work-unit.ts';

/**
 * From nothing to all there is. `unit`: systemd hides places from the whole unit. `nest`: the
 * same, and commands run in namespaces of their own, where there is nothing else to be seen.
 */
export const SANDBOX_MODES = ['off', 'unit', 'nest'] as const;
export type SandboxMode = (typeof SANDBOX_MODES)[number];

/** What may be configured; `auto` is as much as can be had for what a model runs. */
export const SANDBOX_SETTINGS = ['auto', ...SANDBOX_MODES] as const;
export type SandboxSetting = (typeof SANDBOX_SETTINGS)[number];

/** What a probe, run as an attempt would be, found possible. */
export interface SandboxAbility {
  readonly unit: boolean;
  readonly nest: boolean;
  /** Why not all of it; null when it is. */
  readonly why: string | null;
}

/** What an attempt gets. */
export interface SandboxChoice {
  readonly mode: SandboxMode;
  /** Asked for by name: less than it fails the attempt. */
  readonly demanded: boolean;
  /** Why there is less than a nest though as much as possible was wanted; null when not. */
  readonly weaker: string | null;
}

/** What cannot be given. */
export interface SandboxRefusal {
  readonly mode: SandboxMode;
  readonly why: string;
}

/**
 * What somebody has asked for by name; null where it is `auto`. The work unit's own word
 * comes before the setting.
 */
export const demanded = (
  asked: SandboxMode | undefined,
  setting: SandboxSetting,
): SandboxMode | null => asked ?? (setting === 'auto' ? null : setting);

/** Why a mode cannot be had; null when it can. */
export function whyNot(mode: SandboxMode, { unit, nest, why }: SandboxAbility): string | null {
  if (mode === 'off' || (mode === 'nest' ? nest : unit)) return null;
  return why ?? 'this executor has no such sandbox';
}

/**
 * What an attempt gets. `auto` tells what a model wrote from what a person typed: a command is
 * run as it was given, and has to ask for a sandbox.
 */
export function chooseSandbox(
  asked: SandboxMode | undefined,
  setting: SandboxSetting,
  runner: RunnerId,
  ability: SandboxAbility,
): SandboxChoice | SandboxRefusal {
  const mode = demanded(asked, setting);
  if (mode !== null) {
    const why = whyNot(mode, ability);
    return why === null ? { mode, demanded: true, weaker: null } : { mode, why };
  }
  if (runner === 'command') return { mode: 'off', demanded: false, weaker: null };
  const best = ability.nest ? 'nest' : ability.unit ? 'unit' : 'off';
  const weaker = best === 'nest' ? null : (ability.why ?? 'no nest can be had here');
  return { mode: best, demanded: false, weaker };
}
