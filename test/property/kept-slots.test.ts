/** A unit that needs two scarce slots at once, under work that needs one of them and never ends. */
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { slotKeptFor } from '../../src/supervisor/kept-slots.ts';
import { cleanUp, open } from '../store/rig.ts';
import { QueueRig, STARVING_MS } from '../support/core-queue.ts';

afterEach(cleanUp);

/** Runs of `q` need a slot of the runner only, commands of `p` one of the provider only. */
const ofRunner = { runnerId: 'pi', prompt: 'x', providerPresetId: 'q', exclusive: false } as const;
const ofProvider = { providerPresetId: 'p' } as const;
const ofBoth = { runnerId: 'pi', prompt: 'x', providerPresetId: 'p', exclusive: false } as const;
const RUNNER = { form: 'slot', type: 'runner', key: 'pi' } as const;
const PROVIDER = { form: 'slot', type: 'provider', key: 'p' } as const;

const PRESSING = { priority: 10 };

function busy(runner: number, provider: number): QueueRig {
  const rig = new QueueRig(open(), { runner: { pi: runner }, provider: { p: provider } });
  for (let made = 0; made < runner + 2; made++) rig.submit({ ...ofRunner, ...PRESSING });
  for (let made = 0; made < provider + 2; made++) rig.submit({ ...ofProvider, ...PRESSING });
  rig.claimAll();
  return rig;
}

/** One of this load ends, another one like it has come meanwhile. */
function turnOver(rig: QueueRig, which: 'runner' | 'provider'): string[] {
  const [preset, load] = which === 'runner' ? ['q', ofRunner] : ['p', ofProvider];
  const running = rig.store.workUnits
    .listActive()
    .filter(({ providerPresetId }) => providerPresetId === preset);
  rig.submit({ ...load, ...PRESSING });
  const [oldest] = running;
  if (oldest) rig.end(oldest.id);
  return rig.claimAll();
}

describe('a unit that needs two scarce slots', () => {
  it('starts under a load of single ones that never ends, however they take turns', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 3 }),
        fc.array(fc.constantFrom('runner' as const, 'provider' as const), {
          minLength: 8,
          maxLength: 30,
        }),
        (runner, provider, turns) => {
          const rig = busy(runner, provider);
          const id = rig.submit(ofBoth);
          rig.claimAll();
          rig.entropy.advance(STARVING_MS + 1);
          // Both loads turn over in the end, whatever the dice say.
          const all = [...turns, 'runner', 'provider', 'runner', 'provider'] as const;
          const started = all.some((which) => turnOver(rig, which).includes(id));
          expect(started, `starved through ${all.join(' ')}`).toBe(true);
        },
      ),
      { numRuns: 20 },
    );
  });

  it('leaves nobody aside for good: when the load ends, everything runs', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom('runner' as const, 'provider' as const), { maxLength: 12 }),
        fc.boolean(),
        (turns, isCancelled) => {
          const rig = busy(2, 2);
          const [id, second] = [rig.submit(ofBoth), rig.submit(ofBoth)];
          rig.claimAll();
          rig.entropy.advance(STARVING_MS + 1);
          for (const which of turns) turnOver(rig, which);
          if (isCancelled && rig.queued().includes(id)) rig.cancel(id);
          for (let round = 0; round < 200 && rig.queued().length > 0; round++) {
            const [oldest] = rig.store.workUnits.listActive();
            if (oldest) rig.end(oldest.id);
            rig.claimAll();
          }
          expect(rig.queued()).toEqual([]);
          expect(rig.store.workUnits.get(second)?.attemptCount).toBe(1);
        },
      ),
      { numRuns: 15 },
    );
  });

  it('has one slot of each kept, and only while the other one is scarce', () => {
    const rig = busy(2, 2);
    const id = rig.submit(ofBoth);
    rig.claimAll();
    expect(slotKeptFor(rig.context, RUNNER), 'it has not waited long').toBeNull();
    rig.entropy.advance(STARVING_MS + 1);
    expect([RUNNER, PROVIDER].map((need) => slotKeptFor(rig.context, need))).toEqual([id, id]);
    rig.setLimit('provider', 'p', 20);
    expect(slotKeptFor(rig.context, RUNNER), 'the provider has room').toBeNull();
  });

  it('is told as the reason to who waits meanwhile', () => {
    const rig = busy(1, 1);
    const handle = rig.store.workUnits.get(rig.submit(ofBoth))?.handle ?? '';
    rig.claimAll();
    rig.entropy.advance(STARVING_MS + 1);
    turnOver(rig, 'runner');
    expect(() => rig.submit({ ...ofRunner, queueOnConflict: false })).toThrow(
      `the last slot of runner pi is kept free for ${handle}`,
    );
  });

  it('with one scarce slot only has nothing kept: priority counts, however long it waits', () => {
    const rig = busy(1, 1);
    rig.setLimit('provider', 'p', 20);
    const patient = rig.submit(ofBoth);
    rig.claimAll();
    rig.entropy.advance(STARVING_MS + 1);
    const claimed = turnOver(rig, 'runner');
    expect(claimed).not.toContain(patient);
    expect(claimed).toHaveLength(1);
  });
});
