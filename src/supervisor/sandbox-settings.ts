/** What the supervisor is told of sandboxes: what is configured, what they cover, what can be had. */
import type { SandboxSpec } from '../domain/attempt-files.ts';
import type { SandboxAbility, SandboxSetting } from '../domain/sandbox.ts';
import type { UnitSandbox } from '../executor/port.ts';

export interface SandboxSettings {
  readonly setting: SandboxSetting;
  /** What a unit hides. */
  readonly unit: UnitSandbox;
  /** What a nest covers. */
  readonly nest: Pick<SandboxSpec, 'hidden' | 'veiled' | 'readOnly'>;
  /** What the probe found; null while it runs. */
  readonly now: () => SandboxAbility | null;
  /** The same, awaited; never rejects. */
  readonly found: Promise<SandboxAbility>;
}
