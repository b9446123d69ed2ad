/** Where `daemon` and `doctor` get systemd from: loaded when needed, every other command does without. */
import type { Context } from './context.ts';
import type { UnitHost } from './daemon-host.ts';

/** @throws OutliveError `no_user_manager`. */
export async function connectHost({ config }: Context): Promise<UnitHost> {
  const { DaemonUnits } = await import('../systemd/daemon-unit.ts');
  return DaemonUnits.connect(config.busAddress);
}
