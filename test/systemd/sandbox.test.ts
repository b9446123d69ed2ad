/** The nest in units of a real user manager, tried from the inside. */
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { namespaces, needsNamespaces } from '../support/namespaces.ts';
import { Rig, systemctl } from '../support/rig.ts';
import { sandboxTable } from '../support/sandbox.ts';

describe('on the systemd executor', () => {
  sandboxTable('systemd', () => Rig.create());

  it('a unit without a nest hides what is outlive’s and the manager, and leaves its exit record; T09 systemd#26925, T10 systemd#37135', async () => {
    const rig = await Rig.create();
    onTestFinished(() => rig.end());
    await rig.startDaemon();
    const { store, exits, token, apiSocket, userRuntime, decisions } = rig.config.directories;
    const hidden = [store, exits, token, path.dirname(apiSocket), `${userRuntime}/systemd`];
    const script = [
      ...hidden.map((each) => `ls ${each} && echo seen ${each}`),
      `echo x > ${decisions}/forged && echo written`,
      'for group in /sys/fs/cgroup /sys/fs/cgroup/unified; do echo $$ > $group/cgroup.procs && echo moved; done',
      `XDG_RUNTIME_DIR=${userRuntime} systemd-run --user true && echo started`,
      `DBUS_SESSION_BUS_ADDRESS=${rig.config.busAddress} systemctl --user status && echo asked`,
      'echo end',
    ].join('\n');
    const { workUnit, events } = await rig.runToEnd({
      argv: ['sh', '-c', script],
      sandbox: 'unit',
    });
    const said = events
      .filter(({ type }) => type === 'stdout_delta')
      .map(({ data }) => data['text']);
    expect(said.join('')).toBe('end\n');
    const [attempt] = workUnit.attempts;
    expect(attempt).toMatchObject({
      status: 'succeeded',
      exit: { serviceResult: 'success', exitCode: 'exited', exitStatus: '0' },
    });
  });

  it.skipIf(!namespaces)(
    `a Pi run gets a nest by itself, a command does not${needsNamespaces}`,
    async () => {
      const rig = await Rig.create();
      onTestFinished(() => rig.end());
      await rig.startDaemon();
      const command = await rig.submit({ argv: ['sh', '-c', 'echo up; sleep 300'] });
      await rig.waitForEvent(command.id, ({ type }) => type === 'stdout_delta', 'the command');
      const pi = await rig.submit({
        prompt: 'Do as the script says.\n#script\nbash echo up; sleep 300\n#end',
      });
      await rig.waitForEvent(pi.id, ({ type }) => type === 'tool.start', 'the tool');
      const shown = async (id: string): Promise<string> => {
        const unit = (await rig.client.getWorkUnit(id)).attempts[0]?.unit ?? '';
        return await systemctl('show', '--property=PrivateUsers,RestrictNamespaces', unit);
      };
      expect(await shown(command.id)).toBe('PrivateUsers=no\nRestrictNamespaces=no');
      expect(await shown(pi.id)).toBe('PrivateUsers=yes\nRestrictNamespaces=no');
      for (const { id } of [command, pi]) await rig.client.cancelWorkUnit(id);
      const { events } = await rig.outcome(pi.id);
      const weaker = events.filter(({ data }) => data['kind'] === 'sandbox_weaker');
      expect(weaker).toEqual([]);
    },
  );
});
