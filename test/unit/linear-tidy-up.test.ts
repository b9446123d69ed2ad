/** When work trees of issues that are over are looked at. */
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { keepTidy } from '../../src/linear/tidy-up.ts';
import { ManualTimers } from './systemd-manual-timers.ts';

type Parts = Parameters<typeof keepTidy>[0];

function scene() {
  const states: Record<string, string | null> = {};
  const open = new Set<string>();
  const asked: string[][] = [];
  let fails = false;
  const timers = new ManualTimers();
  const api = {
    issue: (id: string) => {
      if (fails) return Promise.reject(new Error('no answer'));
      const type = states[id];
      return Promise.resolve(type ? { id, state: { type } } : null);
    },
  } as unknown as Parts['api'];
  const worktrees: Parts['worktrees'] = {
    keys: () => Promise.resolve(Object.keys(states)),
    tidy: (keys) => {
      asked.push([...keys]);
      return Promise.resolve([]);
    },
  };
  const store = {
    linear: { openOfChannel: (key: string) => (open.has(key) ? [{}] : []) },
  } as unknown as Parts['store'];
  const end = keepTidy({ api, worktrees, store, timers, log: pino({ level: 'silent' }) });
  /** The next look, whenever it is due; over once the one after it is set. */
  const look = async (): Promise<number> => {
    const ms = await timers.pass(() => true);
    while (timers.pending === 0) await new Promise((resolve) => setImmediate(resolve));
    return ms;
  };
  return { states, open, asked, look, end, timers, fail: (yes: boolean) => (fails = yes) };
}

it('asks for the trees of issues that are completed or canceled, and of no other; X15', async () => {
  const { states, open, asked, look, end } = scene();
  Object.assign(states, {
    begun: 'started',
    done: 'completed',
    given: 'canceled',
    gone: null,
    busy: 'completed',
  });
  open.add('busy');
  expect(await look()).toBe(10 * 60_000);
  expect(asked).toEqual([['done', 'given']]);
  open.delete('busy');
  expect(await look()).toBe(6 * 3_600_000);
  expect(asked[1]).toEqual(['done', 'given', 'busy']);
  await end();
});

it('goes on after Linear could not be asked, and ends when it is told to', async () => {
  const { states, asked, look, end, timers, fail } = scene();
  states['done'] = 'completed';
  fail(true);
  await look();
  expect(asked).toEqual([]);
  fail(false);
  await look();
  expect(asked).toEqual([['done']]);
  await end();
  expect(timers.pending).toBe(0);
});
