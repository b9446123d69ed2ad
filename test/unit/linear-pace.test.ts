/** When issues of Linear are looked at again. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Pace, type Trouble } from '../../src/linear/pace.ts';

let now = 0;
let looks: string[] = [];
let troubles: Trouble[] = [];
let look: (key: string) => Promise<void> = () => Promise.resolve();
const pace = (): Pace =>
  new Pace({
    monotonic: () => now,
    look: (key) => {
      looks.push(key);
      return look(key);
    },
    onTrouble: (trouble) => troubles.push(trouble),
  });

beforeEach(() => {
  vi.useFakeTimers();
  [now, looks, troubles] = [0, [], []];
  look = () => Promise.resolve();
});
afterEach(() => {
  vi.useRealTimers();
});
const pass = async (ms: number): Promise<void> => {
  now += ms;
  await vi.advanceTimersByTimeAsync(ms);
};

describe('an issue', () => {
  it('is looked at by one look at a time, and once more for whoever asked meanwhile', async () => {
    const one = pace();
    let release = (): void => undefined;
    look = () => new Promise((resolve) => (release = () => resolve()));
    const first = one.lookAt(['a']);
    await pass(0);
    const second = one.lookAt(['a']);
    await pass(0);
    expect(looks).toEqual(['a']);
    release();
    await pass(0);
    expect(looks).toEqual(['a', 'a']);
    release();
    await Promise.all([first, second]);
    expect(looks).toEqual(['a', 'a']);
  });

  it('that is asked for right as a look ends is looked at again', async () => {
    const one = pace();
    const again = Promise.withResolvers<void>();
    look = async () => {
      // What follows in the microtasks after the look's own end.
      if (looks.length === 1) {
        void Promise.resolve()
          .then(() => undefined)
          .then(() => {
            again.resolve(one.lookAt(['a']));
          });
      }
    };
    await one.lookAt(['a']);
    await pass(0);
    await again.promise;
    expect(looks).toEqual(['a', 'a']);
  });

  it('that hangs holds no other up, nor an end', async () => {
    const one = pace();
    look = (key) => (key === 'a' ? new Promise(() => undefined) : Promise.resolve());
    void one.lookAt(['a', 'b']);
    await pass(0);
    expect(looks).toEqual(['a', 'b']);
  });
});

describe('a turn that cannot begin', () => {
  it('is tried later and later, whatever looks come between, and told of each time', async () => {
    const one = pace();
    let tries = 0;
    look = async (key) => {
      if (!one.mayBegin(key, 't')) return;
      tries += 1;
      throw new Error('not yet');
    };
    await one.lookAt(['a']);
    for (let hint = 0; hint < 20; hint++) await one.lookAt(['a']);
    expect(tries).toBe(1);
    await pass(2_000);
    expect(tries).toBe(2);
    await pass(2_000);
    expect(tries).toBe(2);
    await pass(2_000);
    expect(tries).toBe(3);
    expect(troubles.map(({ failures, turnId }) => [failures, turnId])).toEqual([
      [1, 't'],
      [2, 't'],
      [3, 't'],
    ]);
  });

  it('holds no other turn of the issue back', async () => {
    const one = pace();
    look = async (key) => {
      if (one.mayBegin(key, 't')) throw new Error('not yet');
      expect(one.mayBegin(key, 'other')).toBe(true);
    };
    await one.lookAt(['a']);
    await one.lookAt(['a']);
    expect(troubles).toHaveLength(1);
  });

  it('because it waits is tried when that is over, and not before', async () => {
    const one = pace();
    let isOver = false;
    const begun: boolean[] = [];
    look = async (key) => {
      begun.push(one.mayBegin(key, 't'));
    };
    one.park('a', 't', () => isOver);
    await one.lookAt(['a']);
    isOver = true;
    await one.lookAt(['a']);
    expect(begun).toEqual([false, true]);
  });
});
