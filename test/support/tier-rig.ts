/** A rig for the executor of the tier that runs: files in test/executors are part of both tiers. */
import { Rig } from './rig.ts';

/** Which executor this tier is about; set in vitest.config.ts. */
export const EXECUTOR: string = process.env['OUTLIVE_TEST_EXECUTOR'] ?? '';

/** @throws Error outside of the two tiers. */
export function tierRig(): Promise<Rig> {
  if (EXECUTOR !== 'direct' && EXECUTOR !== 'systemd') {
    throw new Error('OUTLIVE_TEST_EXECUTOR is not set: run the project direct or systemd');
  }
  return Rig.create({ withoutSystemd: EXECUTOR === 'direct' });
}
