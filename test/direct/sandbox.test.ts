/** The nest without systemd, tried from the inside. */
import { describe, expect, it, onTestFinished } from 'vitest';
import { Rig } from '../support/rig.ts';
import { sandboxTable } from '../support/sandbox.ts';

describe('on the direct executor', () => {
  sandboxTable('direct', () => Rig.create({ withoutSystemd: true }));

  it('the sandbox of a unit is refused: there are no units', async () => {
    const rig = await Rig.create({ withoutSystemd: true });
    onTestFinished(() => rig.end());
    await rig.startDaemon();
    // Every launch waits for the probe.
    await rig.runToEnd({ argv: ['true'] });
    await expect(rig.submit({ argv: ['true'], sandbox: 'unit' })).rejects.toMatchObject({
      code: 'sandbox_unavailable',
    });
  });
});
