/** When drivers tick, and which there are after a start. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DriverRig } from '../support/driver-rig.ts';
import { cleanUp, open, refusal, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

let rig: DriverRig;
beforeEach(() => {
  const directory = temporaryDirectory();
  rig = new DriverRig(open(directory), directory);
});

describe('the clock', () => {
  const due = (): number => Date.parse(rig.row('issues').nextAt ?? '') - rig.queue.entropy.now();

  it('ticks at once, then by `every`, with one timer to the earliest', () => {
    rig.put('issues', { every: 60_000, jitter: 0 });
    rig.put('later', { every: 600_000, jitter: 0 });
    expect(rig.timers.ms).toBe(0);
    rig.timers.fire();
    expect(rig.row('issues').tick).toBe(1);
    rig.queue.claimAll();
    rig.end(rig.row('later').censusId ?? '', []);
    rig.end(rig.row('issues').censusId ?? '', []);
    expect(rig.timers.ms).toBe(due());
    expect(due()).toBeLessThanOrEqual(60_000);
  });

  it('makes up for a night that was missed with one tick', () => {
    rig.put('issues', { every: 60_000, jitter: 0 });
    rig.timers.fire();
    rig.queue.claimAll();
    rig.end(rig.row('issues').censusId ?? '', []);
    rig.drivers.close();
    rig.queue.entropy.advance(8 * 3_600_000);
    rig.restart();
    expect(rig.timers.ms).toBe(0);
    rig.timers.fire();
    rig.queue.claimAll();
    rig.end(rig.row('issues').censusId ?? '', []);
    expect(rig.row('issues').tick).toBe(2);
    expect(due()).toBeGreaterThan(59_000);
  });

  it('waits longer after each failure, and not after a success', () => {
    rig.put('issues', { every: 60_000, jitter: 0 });
    const fail = (): number => {
      rig.queue.claimAll();
      rig.end(rig.row('issues').censusId ?? rig.begin('issues'), [], 'failed');
      return Math.round(due() / 60_000);
    };
    rig.timers.fire();
    expect([fail(), fail(), fail()]).toEqual([2, 4, 8]);
    rig.tick('issues', []);
    expect(Math.round(due() / 60_000)).toBe(1);
  });

  it('stands while the workspace is paused or the daemon ends, and for a paused driver', () => {
    rig.put('issues', { every: 60_000 });
    const admit = (admission: 'open' | 'paused'): void => {
      rig.queue.context.writer.commit(({ at }) => rig.store.channels.setAdmission(admission, at));
      rig.drivers.wake();
    };
    admit('paused');
    expect(rig.timers.set).toEqual([]);
    expect(refusal(() => rig.drivers.tick('issues')).message).toContain('paused');
    admit('open');
    expect(rig.timers.set).toHaveLength(1);
    rig.drivers.pause('issues');
    expect(rig.timers.set).toEqual([]);
    rig.drivers.resume('issues');
    rig.drivers.close();
    expect(rig.timers.set).toEqual([]);
  });
});

describe('drivers of config.json', () => {
  it('are those of the file after each start; one of the command line is refused loudly', () => {
    const spec = rig.put('mine').spec;
    rig.drivers.sync({ a: spec, b: spec, mine: spec });
    expect(rig.drivers.list().map(({ name, source }) => `${name} ${source}`)).toEqual([
      'a file',
      'b file',
      'mine cli',
    ]);
    expect(rig.drivers.problems()).toEqual([expect.stringMatching(/^driver_refused: mine /)]);
    rig.drivers.pause('a');
    expect(refusal(() => rig.drivers.remove('a')).code).toBe('state_conflict');
    rig.drivers.sync({ a: { ...spec, priority: 5 } });
    expect(rig.drivers.list().map(({ name }) => name)).toEqual(['a', 'mine']);
    expect(rig.row('a')).toMatchObject({ state: 'paused', revision: 2, spec: { priority: 5 } });
    expect(rig.drivers.problems()).toEqual([]);
  });
});

describe('a driver that another outlive stored', () => {
  it('keeps nobody from starting, says so, and can be removed or replaced', () => {
    rig.put('good', { every: 60_000 });
    const { spec } = rig.put('odd', { every: 60_000 });
    const odd = { ...spec, field: 'of a later time' };
    rig.store.write(() =>
      rig.store.drivers.put({
        name: 'odd',
        source: 'cli',
        spec: odd,
        nextAt: spec.every ? '2020' : null,
        at: '2020',
      }),
    );
    rig.restart();
    expect(rig.drivers.list().map(({ name }) => name)).toEqual(['good']);
    expect(rig.timers.ms, 'it sets no timer').toBe(0);
    rig.timers.fire();
    expect(rig.timers.set).toEqual([]);
    expect(rig.drivers.problems()).toEqual([expect.stringMatching(/^driver_unreadable: odd: /)]);
    expect(refusal(() => rig.drivers.tick('odd')).code).toBe('state_conflict');
    rig.drivers.remove('odd');
    expect(rig.drivers.problems()).toEqual([]);
  });
});
