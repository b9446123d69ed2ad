/** Channels and the settings of the whole workspace. */
import { afterEach, describe, expect, it } from 'vitest';
import { ADMISSIONS } from '../../src/domain/resources.ts';
import { QueueRig } from '../support/core-queue.ts';
import { AT, cleanUp, open, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

const LATER = '2026-02-02T03:04:05.678Z';
const POLICY = { status: 'active', maxConcurrentRuns: 2, onNewerSubject: 'queue' } as const;

describe('channels', () => {
  it('are kept by id with their policy; a second put changes the policy and keeps the birth', () => {
    const { channels } = open();
    expect(channels.get('lane')).toBeNull();
    channels.put('lane', POLICY, AT);
    channels.put('lane', { ...POLICY, status: 'paused', maxConcurrentRuns: 5 }, LATER);
    expect(channels.get('lane')).toEqual({
      id: 'lane',
      status: 'paused',
      maxConcurrentRuns: 5,
      onNewerSubject: 'queue',
      createdAt: AT,
      updatedAt: LATER,
    });
  });

  it('are listed by id', () => {
    const { channels } = open();
    for (const id of ['b', 'a', 'c']) channels.put(id, POLICY, AT);
    expect(channels.list().map(({ id }) => id)).toEqual(['a', 'b', 'c']);
  });
});

describe('admission', () => {
  it('is open at first, and what it was set to after a restart', () => {
    const directory = temporaryDirectory();
    const store = open(directory);
    expect(store.channels.admission()).toBe('open');
    store.channels.setAdmission('draining', AT);
    store.close();
    expect(open(directory).channels.admission()).toBe('draining');
  });

  it.each(ADMISSIONS.filter((admission) => admission !== 'open'))(
    '%s takes no queued work, and open takes all of it again, in order',
    (admission) => {
      const rig = new QueueRig(open());
      rig.store.channels.setAdmission(admission, AT);
      const ids = [rig.submit(), rig.submit()];
      expect(rig.claimAll()).toEqual([]);
      expect(() => rig.submit({ queueOnConflict: false })).toThrow(`the workspace is ${admission}`);
      rig.store.channels.setAdmission('open', AT);
      expect(rig.claimAll()).toEqual(ids);
    },
  );
});

describe('newer work on the same external subject; row 077', () => {
  const externalSubject = 'github:acme/app#42';

  it('queue: it waits for the older one', () => {
    const rig = new QueueRig(open());
    const [older, newer] = [rig.submit({ externalSubject }), rig.submit({ externalSubject })];
    expect(rig.claimAll()).toEqual([older]);
    rig.end(older);
    expect(rig.claimAll()).toEqual([newer]);
  });

  it('block: it is refused, and says by whom', () => {
    const rig = new QueueRig(open());
    rig.submit({ externalSubject, handle: 'older' });
    expect(() => rig.submit({ externalSubject, onNewerSubject: 'block' })).toThrow(/^older/);
    expect(rig.queued()).toHaveLength(1);
  });

  it('supersede: queued older work is cancelled at once, running work is told to end', () => {
    const rig = new QueueRig(open());
    const running = rig.submit({ externalSubject });
    rig.claimAll();
    const queued = rig.submit({ externalSubject });
    const { superseded, workUnit } = rig.submitFully({
      externalSubject,
      onNewerSubject: 'supersede',
    });
    const status = (id: string): unknown => rig.store.workUnits.get(id)?.status;
    expect([status(running), status(queued), workUnit.status]).toEqual([
      'cancelling',
      'cancelled',
      'queued',
    ]);
    expect(superseded).toEqual([rig.active(running).id]);
    expect(rig.intent(rig.active(running).id)).toMatchObject({
      kind: 'cancel',
      actor: 'scheduler',
    });
    expect(rig.claimAll(), 'until the old one has ended').toEqual([]);
  });

  it('the channel says which, unless the request does', () => {
    const rig = new QueueRig(open());
    rig.store.channels.put('lane', { ...POLICY, onNewerSubject: 'block' }, AT);
    const request = { externalSubject, channelId: 'lane' };
    rig.submit(request);
    expect(() => rig.submit(request)).toThrow(/already works on/);
    rig.submit({ ...request, onNewerSubject: 'queue' });
    expect(rig.queued()).toHaveLength(2);
  });
});
