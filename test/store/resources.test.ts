/** Needs, leases and slots as rows: taken, renewed, suspected, given back with a reason. */
import { symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { LEASE_TYPES } from '../../src/domain/resources.ts';
import { LEASE_TTL_MS, releaseResources } from '../../src/supervisor/admission.ts';
import { QueueRig } from '../support/core-queue.ts';
import { cleanUp, open, refusal, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

const PATH_LEASE = { leases: [{ type: 'bound_path' as const, key: '/repo' }] };

/** A rig with one work unit that runs and holds the path /repo and a runner slot. */
function running(): { rig: QueueRig; id: string } {
  const rig = new QueueRig(open(), { runner: { command: 5 } });
  const id = rig.submit(PATH_LEASE);
  expect(rig.claimAll()).toEqual([id]);
  return { rig, id };
}
const at = (rig: QueueRig, ms = 0): string => new Date(rig.entropy.now() + ms).toISOString();

describe('needs', () => {
  it('are stored at submit, each once, and survive the claim; row 067', () => {
    const rig = new QueueRig(open());
    const lease = { type: 'task' as const, key: 't' };
    const id = rig.submit({ taskId: 't', channelId: 'c', leases: [lease, lease] });
    const needs = [
      { form: 'lease', type: 'task', key: 't' },
      { form: 'slot', type: 'channel_parallel', key: 'c' },
      { form: 'slot', type: 'runner', key: 'command' },
    ];
    expect(rig.store.resources.needsOf(id)).toEqual(needs);
    rig.claimAll();
    expect(rig.store.resources.needsOf(id)).toEqual(needs);
  });

  it('Pi runs hold their work tree and a slot of their provider, commands neither; row 090', () => {
    const rig = new QueueRig(open());
    const cwd = temporaryDirectory();
    const id = rig.submit({ runnerId: 'pi', prompt: 'go', model: 'anthropic/large', cwd });
    expect(rig.store.resources.needsOf(id)).toEqual([
      { form: 'lease', type: 'bound_path', key: cwd },
      { form: 'slot', type: 'provider', key: 'anthropic' },
      { form: 'slot', type: 'runner', key: 'pi' },
    ]);
    expect(rig.store.resources.needsOf(rig.submit({ cwd }))).toEqual([
      { form: 'slot', type: 'runner', key: 'command' },
    ]);
  });

  it('a path is named the same by every link that leads to it, also below what exists', () => {
    const rig = new QueueRig(open());
    const directory = temporaryDirectory();
    const link = path.join(directory, 'link');
    symlinkSync(directory, link);
    const keyOf = (key: string): unknown =>
      rig.store.resources.needsOf(rig.submit({ leases: [{ type: 'bound_path', key }] }))[0]?.key;
    expect(keyOf(link)).toBe(directory);
    expect(keyOf(`${link}/not/yet/../there`)).toBe(`${directory}/not/there`);
    expect(keyOf(`${directory}/`)).toBe(directory);
  });
});

describe('leases', () => {
  it('are owned by work unit and attempt, with an expiry and a renewal; row 083, row 084', () => {
    const { rig, id } = running();
    const { id: attemptId, createdAt } = rig.active(id);
    expect(rig.store.resources.leasesHeld()).toMatchObject([
      {
        type: 'bound_path',
        key: '/repo',
        workUnitId: id,
        attemptId,
        status: 'active',
        acquiredAt: createdAt,
        lastRenewedAt: createdAt,
        expiresAt: new Date(Date.parse(createdAt) + LEASE_TTL_MS).toISOString(),
        releasedAt: null,
        releaseReason: null,
      },
    ]);
  });

  it.each(LEASE_TYPES.filter((type) => type !== 'bound_path'))(
    'of type %s exclude the same name and no other; row 082',
    (type) => {
      const rig = new QueueRig(open());
      const first = rig.submit({ leases: [{ type, key: 'x' }] });
      const same = rig.submit({ leases: [{ type, key: 'x' }] });
      const other = rig.submit({ leases: [{ type, key: 'y' }] });
      expect(rig.claimAll()).toEqual([first, other]);
      rig.end(first);
      expect(rig.claimAll()).toEqual([same]);
    },
  );

  it('of a path exclude what lies in it and what it lies in; a name that only begins alike is free', () => {
    const rig = new QueueRig(open());
    const lease = (key: string): string => rig.submit({ leases: [{ type: 'bound_path', key }] });
    const held = lease('/repo/sub');
    const [outer, inner, beside] = [lease('/repo'), lease('/repo/sub/deep'), lease('/repo/sub2')];
    expect(rig.claimAll()).toEqual([held, beside]);
    rig.end(held);
    expect(rig.claimAll()).toEqual([inner]);
    rig.end(inner);
    rig.end(beside);
    expect(rig.claimAll()).toEqual([outer]);
  });

  it('that are renewed expire later; only those of that attempt; row 085', () => {
    const { rig, id } = running();
    const other = rig.submit({ leases: [{ type: 'task', key: 't' }] });
    rig.claimAll();
    const { resources } = rig.store;
    resources.renewLeases(rig.active(id).id, at(rig, 1_000), at(rig, 9_000));
    const renewed = resources.leasesHeld().map((lease) => [lease.workUnitId, lease.lastRenewedAt]);
    expect(renewed).toContainEqual([id, at(rig, 1_000)]);
    expect(renewed).not.toContainEqual([other, at(rig, 1_000)]);
  });

  it('that were not renewed in time are suspect and stay held: a live owner is never robbed; row 086, row 087, row 262, T77 oban#1141', () => {
    const { rig, id } = running();
    rig.entropy.advance(LEASE_TTL_MS + 1);
    const second = rig.submit(PATH_LEASE);
    const { claim, suspects } = rig.claimOnce();
    expect([claim, suspects]).toEqual([null, [id]]);
    expect(rig.store.resources.leasesHeld()).toMatchObject([{ workUnitId: id, status: 'suspect' }]);
    rig.entropy.advance(10 * LEASE_TTL_MS);
    rig.store.write(() => rig.store.queue.wakeAll());
    expect(rig.claimAll(), 'however long it takes').toEqual([]);
    rig.end(id);
    expect(rig.claimAll()).toEqual([second]);
  });

  it('that are suspect are trusted again once renewed; row 087', () => {
    const { rig, id } = running();
    const { resources } = rig.store;
    const [lease] = resources.leasesHeld();
    resources.suspectLease(lease?.id ?? '');
    resources.renewLeases(rig.active(id).id, at(rig), at(rig, LEASE_TTL_MS));
    expect(resources.leasesHeld()).toMatchObject([{ status: 'active' }]);
  });

  it('are given back once, with the reason, and never renewed afterwards; row 089', () => {
    const { rig, id } = running();
    const { id: attemptId } = rig.active(id);
    rig.end(id, 'failed');
    const { resources } = rig.store;
    resources.renewLeases(attemptId, at(rig), at(rig, LEASE_TTL_MS));
    resources.renewSlots(attemptId, at(rig));
    expect([resources.leasesHeld(), resources.slotsHeld()]).toEqual([[], []]);
    expect(resources.releaseLeases(attemptId, 'released', at(rig), 'again')).toEqual([]);
    const told = rig.store.events
      .page(id, 0, 100)
      .filter(({ type }) => /released$/.test(type))
      .map(({ type, data }) => [type, data['resourceKey'], data['reason']]);
    expect(told).toEqual([
      ['lease.released', '/repo', 'failed'],
      ['semaphore.released', 'command', 'failed'],
    ]);
  });

  it('of a lost attempt end as stale_released, and so do its slots; row 088, row 093', () => {
    const { rig, id } = running();
    const attempt = rig.active(id);
    const { store } = rig.context;
    const released = { leases: [] as string[], slots: [] as string[] };
    const spied = {
      ...rig.context,
      store: {
        ...store,
        resources: {
          ...store.resources,
          releaseLeases: (...given: Parameters<typeof store.resources.releaseLeases>) => {
            const rows = store.resources.releaseLeases(...given);
            released.leases.push(...rows.map(({ status }) => status));
            return rows;
          },
          releaseSlots: (...given: Parameters<typeof store.resources.releaseSlots>) => {
            const rows = store.resources.releaseSlots(...given);
            released.slots.push(...rows.map(({ status }) => status));
            return rows;
          },
        },
      },
    };
    rig.context.writer.commit((transaction) =>
      releaseResources(spied, transaction, attempt, 'lost'),
    );
    expect(released).toEqual({ leases: ['stale_released'], slots: ['stale_released'] });
  });

  it('are held by one owner at most, whatever a caller forgets to ask', () => {
    const { rig, id } = running();
    const { resources } = rig.store;
    const holder = { id: 'x', workUnitId: id, attemptId: rig.active(id).id, at: at(rig) };
    const twice = (): void =>
      rig.store.write(() =>
        resources.takeLease({ form: 'lease', type: 'bound_path', key: '/repo' }, holder, at(rig)),
      );
    expect(refusal(twice).message).toContain('UNIQUE');
  });
});

describe('slots', () => {
  it('are counted while held and free afterwards; row 094', () => {
    const { rig, id } = running();
    const { resources } = rig.store;
    const slot = { type: 'runner', key: 'command' } as const;
    expect(resources.countSlots(slot)).toBe(1);
    expect(resources.countSlots({ type: 'runner', key: 'pi' })).toBe(0);
    rig.end(id);
    expect(resources.countSlots(slot)).toBe(0);
  });

  it('survive the daemon: another connection finds them held by the same attempt; row 093', () => {
    const directory = temporaryDirectory();
    const rig = new QueueRig(open(directory));
    const id = rig.submit();
    rig.claimAll();
    const held = rig.store.resources.slotsHeld();
    rig.store.close();
    const again = open(directory);
    expect(again.resources.slotsHeld()).toEqual(held);
    expect(held).toMatchObject([{ type: 'runner', key: 'command', workUnitId: id }]);
  });
});
