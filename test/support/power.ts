/** A power cut, as far as one workspace sees it. */
import { readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type Rig, systemctl } from './rig.ts';
import { killDirectAttempts } from './without-systemd.ts';

/** No process of any attempt is left, nor a record of its end. The daemon has to be gone before. */
export async function cutPower(rig: Rig, executor: string): Promise<void> {
  if (executor === 'direct') {
    await killDirectAttempts(rig.config.directories.direct);
  } else {
    const units = `outlive-${rig.workspace}-*`;
    await systemctl('kill', '-s', 'KILL', units);
    await rig.unitsAreDead();
    await systemctl('reset-failed', units).catch(() => undefined);
  }
  for (const record of readdirSync(rig.exitRecords())) {
    rmSync(path.join(rig.exitRecords(), record), { recursive: true });
  }
}
