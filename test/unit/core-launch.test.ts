/** A launch that does not get as far as systemd: what becomes of its work. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { OutliveError } from '../../src/domain/errors.ts';
import type { Executor } from '../../src/executor/port.ts';
import type { Context } from '../../src/supervisor/context.ts';
import { launch } from '../../src/supervisor/launch.ts';
import { watchAttempt } from '../../src/supervisor/watch.ts';
import { cleanUp, open, temporaryDirectory } from '../store/rig.ts';
import { QueueRig } from '../support/core-queue.ts';

afterEach(cleanUp);

const host = () => Promise.resolve({ bootId: 'boot', manager: null, managerState: 'running' });

/** Claims one work unit, launches it against `start`, and lets a watch end the attempt. */
async function launched(start: Executor['start'], spoil: (sessions: string) => void) {
  const read = () => Promise.resolve(null);
  const rig = new QueueRig(open(), {}, { start, read, host });
  const base = temporaryDirectory();
  const place = (name: string): string => path.join(base, name);
  const settings = {
    ...rig.context.settings,
    attemptsDirectory: place('attempts'),
    sessionsDirectory: place('sessions'),
    exitsDirectory: place('exits'),
    temporaryDirectory: place('tmp'),
    runtimeDirectory: place('runtime'),
  };
  mkdirSync(settings.exitsDirectory);
  spoil(settings.sessionsDirectory);
  const context: Context = { ...rig.context, settings };
  const id = rig.submit();
  const { claim } = rig.claimOnce();
  if (!claim) throw new Error('it was not claimed');
  await launch(context, claim);
  await watchAttempt(context, claim.attempt, {
    reattach: false,
    onAttached: () => undefined,
    onEnded: () => undefined,
  }).ended;
  const attempt = rig.store.attempts.get(claim.attempt.id);
  const workUnit = rig.store.workUnits.get(id);
  return { workUnit, attempt };
}

const nothing = (): void => undefined;

describe('a start of which nothing was sent', () => {
  it('because its files cannot be made goes back to the queue, with the reason and a later date', async () => {
    const sent = () => Promise.reject(new Error('it must not be asked'));
    const { workUnit, attempt } = await launched(sent, (sessions) => writeFileSync(sessions, ''));
    expect(workUnit).toMatchObject({ status: 'queued', neverStartedCount: 1 });
    expect(attempt).toMatchObject({ errorCode: 'never_started' });
    expect(attempt?.errorMessage).toContain('ENOTDIR');
  });

  it('because the drop-in cannot be written goes back to the queue', async () => {
    const refused = new OutliveError('state_dir_unwritable', 'The runtime directory is gone.');
    const { workUnit, attempt } = await launched(() => Promise.reject(refused), nothing);
    expect(workUnit).toMatchObject({ status: 'queued', neverStartedCount: 1 });
    expect(attempt?.errorMessage).toContain('The runtime directory is gone.');
  });

  it.each([
    ['path_unsupported', new OutliveError('path_unsupported', 'no'), 'launch_failed'],
    ['disk_full', new OutliveError('disk_full', 'no'), 'disk_full'],
    ['a mistake of our own', new TypeError('no'), 'launch_failed'],
  ])('because of %s fails at once', async (_, error, code) => {
    const { workUnit } = await launched(() => Promise.reject(error), nothing);
    expect(workUnit).toMatchObject({ status: 'failed', errorCode: code });
  });
});
