/** The daemon's orderly end on real systemd: attempts run on, or are suspended and gone on with. */
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { appears, Rig, script, within } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

const effects = (): string => readFileSync(path.join(rig.tree, 'effects'), 'utf8');
const begun = (): Promise<void> => appears(path.join(rig.tree, 'begun'));
const suspendAfter = (graceMs: number) => ({
  env: { OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: String(graceMs) },
});

async function stop(daemon: Awaited<ReturnType<Rig['startDaemon']>>): Promise<void> {
  daemon.kill('SIGTERM');
  expect(await within('the end of the daemon', daemon.exited), daemon.output()).toBe(0);
}

describe('OUTLIVE_SHUTDOWN=suspend', () => {
  it('suspends a Pi run after the grace; the next daemon goes on in the same conversation; row 206, row 270', async () => {
    const daemon = await rig.startDaemon(suspendAfter(0));
    const { id } = await rig.submit({
      prompt: script('bash echo once >> effects; touch begun; sleep 600', 'say Done'),
    });
    await begun();
    await stop(daemon);
    await rig.unitsAreDead();
    expect(daemon.output()).toContain('the grace is over; attempts are suspended');

    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect(workUnit.status).toBe('succeeded');
    expect(workUnit.attempts.map(({ errorCode }) => errorCode)).toEqual(['suspended', null]);
    expect(effects()).toBe('once\n');
  });

  it('waits within the grace for what is about to end', async () => {
    const daemon = await rig.startDaemon(suspendAfter(60_000));
    const { id } = await rig.submit({
      argv: [
        'sh',
        '-c',
        'touch begun; while [ ! -e go ]; do sleep 0.05; done; echo once >> effects',
      ],
    });
    await begun();
    daemon.kill('SIGTERM');
    await within(
      'the daemon to say that it waits',
      (async () => {
        while (!daemon.output().includes('waits for attempts')) await rig.client.runtime();
      })(),
    );
    await expect(rig.submit({ argv: ['true'] })).rejects.toMatchObject({ code: 'shutting_down' });
    await appears(await touch('go'));
    expect(await within('the end of the daemon', daemon.exited)).toBe(0);
    await rig.startDaemon();
    expect((await rig.outcome(id)).workUnit.status).toBe('succeeded');
  });

  it('ends at once when nothing runs, whatever the grace; row 208', async () => {
    const daemon = await rig.startDaemon(suspendAfter(999_999_999));
    await stop(daemon);
  });

  it('killed after it stored the suspension: the next daemon carries it out, once', async () => {
    const daemon = await rig.startDaemon({ ...suspendAfter(0), fault: 'suspended' });
    const { id } = await rig.submit({
      prompt: script('bash echo once >> effects; touch begun; sleep 600', 'say Done'),
    });
    await begun();
    daemon.kill('SIGTERM');
    expect(await daemon.exited).toBe('SIGKILL');
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect(workUnit.attempts.map(({ errorCode }) => errorCode)).toEqual(['suspended', null]);
    expect(effects()).toBe('once\n');
  });
});

describe('OUTLIVE_SHUTDOWN=detach', () => {
  it('lets a run go on and takes it up again; row 214', async () => {
    const daemon = await rig.startDaemon();
    const { id } = await rig.submit({
      argv: [
        'sh',
        '-c',
        'echo once >> effects; touch begun; while [ ! -e go ]; do sleep 0.05; done',
      ],
    });
    await begun();
    await stop(daemon);
    await rig.startDaemon();
    await touch('go');
    const { workUnit } = await rig.outcome(id);
    expect(workUnit.attempts.map(({ status, reattached }) => [status, reattached])).toEqual([
      ['succeeded', 1],
    ]);
  });
});

async function touch(name: string): Promise<string> {
  const file = path.join(rig.tree, name);
  await writeFile(file, '');
  return file;
}
