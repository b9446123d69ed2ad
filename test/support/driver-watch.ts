/** Waits for what becomes of a driver. */
import type { DriverDetail } from '../../src/api/schemas-drivers.ts';
import { type Rig, within } from './rig.ts';

/** Follows the workspace until the driver is as wanted; looked at after each event. */
export async function untilDriverIs(
  rig: Rig,
  name: string,
  what: string,
  passes: (driver: DriverDetail) => boolean,
): Promise<DriverDetail> {
  const stop = new AbortController();
  let found: DriverDetail | null = null;
  const look = async (): Promise<void> => {
    const driver = await rig.client.driver(name);
    if (!passes(driver)) return;
    found = driver;
    stop.abort();
  };
  const watching = rig.client.watchWorkspace({
    onSnapshot: look,
    onEvent: look,
    signal: stop.signal,
  });
  await within(what, watching).finally(() => stop.abort());
  if (!found) throw new Error(`the watch ended without ${what}`);
  return found;
}
