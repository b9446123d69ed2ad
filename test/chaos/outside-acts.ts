/** What a round asks for that only root can do. */
import { POWER_FAULTS } from './faults/outside.ts';
import type { Host } from './host.ts';

const MANAGER = 'user@1000.service';

const ACTS: Readonly<Record<string, (host: Host) => Promise<void>>> = {
  'power-cut': async (host) => {
    await host.crash();
    await host.up();
  },
  'power-reboot': (host) => host.reboot(),
  'manager-restart': (host) => host.root('systemctl', 'restart', MANAGER),
  'manager-kill': async (host) => {
    await host.root('systemctl', 'kill', '--signal=KILL', '--kill-who=main', MANAGER);
    // Waits until what is left of it is gone, too.
    await host.root('systemctl', 'restart', MANAGER);
  },
};

export const endsHost = (act: string): boolean => (POWER_FAULTS as readonly string[]).includes(act);

export async function doOutside(host: Host, act: string): Promise<void> {
  const perform = ACTS[act];
  if (!perform) throw new Error(`nobody knows how to do ${act}`);
  await perform(host);
}
