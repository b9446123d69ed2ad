/** An installed daemon is there after a boot, before anybody asks for it. */
import { describe, expect, it } from 'vitest';
import { hostName, needsRoot, ok, root } from './support.ts';

/** What of ours is up or coming up by itself. */
const wanted =
  'systemctl --user list-units --plain --no-legend --state=active,activating "outlived@*"';

describe.skipIf(!root)(`an installed daemon${needsRoot}`, () => {
  const units = 'outlived@main.service outlived-api@main.socket outlived-http@main.socket';

  it('starts with the host, after an orderly reboot and after a power cut', async () => {
    const name = hostName();
    const shell = (script: string) => ok('exec', name, '--', 'sh', '-ec', script);
    /** Waits for the start that is under way, as nobody connects. */
    const settled = () =>
      shell(`systemctl --user start ${units}; systemctl --user is-active ${units}`);
    await ok('up', name);
    await shell('ops/scripts/install --no-linger');
    await ok('reboot', name);
    expect(await shell(wanted)).toContain('outlived@main.service');
    expect(await settled()).toBe('active\nactive\nactive\n');
    await ok('crash', name);
    await ok('up', name);
    expect(await shell(wanted)).toContain('outlived@main.service');
    expect(await settled()).toBe('active\nactive\nactive\n');
    await ok('down', name);
  });
});
