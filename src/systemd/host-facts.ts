/** The machine and its user manager, as an attempt's stored identity is compared with them. */
import { readFile } from 'node:fs/promises';
import type { ManagerInstance } from '../domain/evidence.ts';
import type { HostFacts } from '../executor/port.ts';
import { startTicksOf } from '../executor/process-table.ts';
import type { Manager } from './manager.ts';

async function managerInstance(manager: Manager): Promise<ManagerInstance | null> {
  const pid = await manager.pid();
  const startTicks = startTicksOf(await readFile(`/proc/${pid}/stat`, 'utf8'));
  return startTicks === null ? null : { pid, startTicks };
}

/** Never rejects for the bus's sake: what cannot be asked is null. */
export async function hostFacts(manager: Manager): Promise<HostFacts> {
  const [bootId, instance, managerState] = await Promise.all([
    readFile('/proc/sys/kernel/random/boot_id', 'utf8'),
    managerInstance(manager).catch(() => null),
    manager.systemState().catch(() => null),
  ]);
  return { bootId: bootId.trim(), manager: instance, managerState };
}
