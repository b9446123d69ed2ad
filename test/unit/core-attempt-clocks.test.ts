/** The clocks of one attempt, on fake timers: nothing is believed before it was made sure of. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type SilenceCode, toolAgeMs } from '../../src/domain/clocks.ts';
import { defaultTimeouts } from '../../src/domain/work-unit.ts';
import { AttemptClocks } from '../../src/supervisor/attempt-clocks.ts';
import type { EventFields } from '../../src/supervisor/writer.ts';

const POLICY = {
  ...defaultTimeouts('task_run'),
  heartbeatTimeoutMs: 10_000,
  idleTimeoutMs: 20_000,
  toolTimeoutMs: 60_000,
};

interface Clocked {
  readonly clocks: AttemptClocks;
  readonly makeSure: ReturnType<typeof vi.fn<() => Promise<void>>>;
  readonly expired: SilenceCode[];
  readonly problems: unknown[];
}

let started: AttemptClocks[] = [];
beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  for (const clocks of started) clocks.stop();
  started = [];
  vi.useRealTimers();
});

function clocked(onExpired?: (code: SilenceCode) => void, reachable = true): Clocked {
  const makeSure = vi.fn<() => Promise<void>>(() => Promise.resolve());
  const expired: SilenceCode[] = [];
  const problems: unknown[] = [];
  const clocks = new AttemptClocks({
    policy: POLICY,
    now: () => performance.now(),
    makeSure,
    reachable: () => reachable,
    onExpired: (code) => {
      onExpired?.(code);
      expired.push(code);
    },
    onProblem: (error) => problems.push(error),
  });
  started.push(clocks);
  clocks.start();
  return { clocks, makeSure, expired, problems };
}

const event = (type: EventFields['type'], toolCallId?: string): EventFields => ({
  type,
  actor: 'runner',
  data: toolCallId === undefined ? {} : { toolCallId },
});

/** Heartbeats every five seconds for `ms`. */
async function beating(clocks: AttemptClocks, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 5_000) {
    clocks.heard();
    await vi.advanceTimersByTimeAsync(5_000);
  }
}

describe('silence', () => {
  it('of a wrapper that has just been taken up expires nothing before it had time to greet, T37 PR#1789', async () => {
    const { expired, makeSure } = clocked();
    await vi.advanceTimersByTimeAsync(29_999);
    expect(makeSure).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(POLICY.heartbeatTimeoutMs);
    expect(makeSure, 'asked once, then its silence counts').toHaveBeenCalledTimes(1);
    expect(expired).toEqual([]);
  });

  it('of a wrapper that never greets, though its socket is open, ends as heartbeat_timeout', async () => {
    const { expired } = clocked();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(expired).toEqual(['heartbeat_timeout']);
  });

  it('without any socket counts by the spool alone', async () => {
    const { clocks, expired } = clocked(undefined, false);
    for (let passed = 0; passed < 300_000; passed += 15_000) {
      clocks.spoolGrew([event('progress')]);
      await vi.advanceTimersByTimeAsync(15_000);
    }
    expect(expired).toEqual([]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(expired).toEqual(['idle_timeout']);
  });

  it('of a frozen unit that never greeted does not count before it thaws', async () => {
    const { clocks, expired, makeSure } = clocked();
    makeSure.mockImplementation(() => Promise.resolve(clocks.setFrozen(true)));
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(expired).toEqual([]);
  });

  it('expires once as heartbeat_timeout, after it was made sure of', async () => {
    const { clocks, expired, makeSure } = clocked();
    makeSure.mockImplementation(() => {
      expect(expired, 'before it was made sure of').toEqual([]);
      return Promise.resolve();
    });
    clocks.heard();
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(makeSure).toHaveBeenCalledTimes(1);
    expect(expired).toEqual(['heartbeat_timeout']);
  });

  it('a heartbeat that comes while it is made sure of saves it', async () => {
    const { clocks, expired, makeSure } = clocked();
    makeSure.mockImplementationOnce(() => Promise.resolve(clocks.heard()));
    clocks.heard();
    await vi.advanceTimersByTimeAsync(19_000);
    expect(makeSure).toHaveBeenCalledTimes(1);
    expect(expired).toEqual([]);
  });

  it('a spool that grew saves it too: a broken socket alone is no proof, T34 #4793', async () => {
    const { clocks, expired, makeSure } = clocked();
    makeSure.mockImplementation(() => Promise.resolve(clocks.spoolGrew([event('progress')])));
    clocks.heard();
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(makeSure.mock.calls.length).toBeGreaterThan(10);
    expect(expired).toEqual([]);
  });

  it('expires nothing while making sure fails, tells each time, and expires once it works', async () => {
    const { clocks, expired, problems, makeSure } = clocked();
    makeSure.mockRejectedValue(new Error('the spool cannot be read'));
    clocks.heard();
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(expired).toEqual([]);
    expect(problems.length).toBeGreaterThan(10);
    makeSure.mockResolvedValue(undefined);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(expired).toEqual(['heartbeat_timeout']);
  });

  it('that cannot be told (a full disk) is told again later, not forgotten; T35 #3638', async () => {
    let full = true;
    const { clocks, expired, problems } = clocked(() => {
      if (full) throw new Error('the store cannot be written');
    });
    clocks.heard();
    await vi.advanceTimersByTimeAsync(30_000);
    expect(expired).toEqual([]);
    expect(problems).not.toEqual([]);
    full = false;
    await vi.advanceTimersByTimeAsync(30_000);
    expect(expired).toEqual(['heartbeat_timeout']);
  });

  it('is made sure of one at a time, however often something is heard meanwhile', async () => {
    const { clocks, makeSure } = clocked();
    let asking = 0;
    let most = 0;
    makeSure.mockImplementation(async () => {
      most = Math.max(most, ++asking);
      await new Promise((resolve) => setTimeout(resolve, 5_000));
      asking -= 1;
    });
    for (let beat = 0; beat < 100; beat++) {
      clocks.heard();
      await vi.advanceTimersByTimeAsync(500);
    }
    expect(makeSure).toHaveBeenCalled();
    expect(most).toBe(1);
  });

  it('of a stopped clock is nobody’s business', async () => {
    const { clocks, expired, makeSure } = clocked();
    clocks.heard();
    clocks.stop();
    await vi.advanceTimersByTimeAsync(3_600_000);
    clocks.heard();
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect([expired, makeSure.mock.calls]).toEqual([[], []]);
  });

  it('stopped while it is made sure of expires nothing', async () => {
    const { clocks, expired, makeSure } = clocked();
    makeSure.mockImplementationOnce(() => Promise.resolve(clocks.stop()));
    clocks.heard();
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(expired).toEqual([]);
  });
});

describe('progress', () => {
  it('heartbeats alone end in idle_timeout, T32 PR#5712', async () => {
    const { clocks, expired } = clocked();
    await beating(clocks, 25_000);
    expect(expired).toEqual(['idle_timeout']);
  });

  it('lines that are no progress end in idle_timeout as well; row 102', async () => {
    const { clocks, expired } = clocked();
    for (let passed = 0; passed < 30_000; passed += 5_000) {
      clocks.heard();
      clocks.spoolGrew([event('attempt.told_to_stop')]);
      await vi.advanceTimersByTimeAsync(5_000);
    }
    expect(expired).toEqual(['idle_timeout']);
  });

  it.each(['stdout_delta', 'stderr_delta', 'agent.message', 'tool.update', 'progress'] as const)(
    '%s is progress',
    async (type) => {
      const { clocks, expired } = clocked();
      for (let passed = 0; passed < 200_000; passed += 5_000) {
        clocks.heard();
        clocks.spoolGrew([event(type)]);
        await vi.advanceTimersByTimeAsync(5_000);
      }
      expect(expired).toEqual([]);
    },
  );
});

describe('a tool in flight', () => {
  it('stops the idle clock and is ended by its own budget, T33 PR#3800', async () => {
    const { clocks, expired } = clocked();
    clocks.spoolGrew([event('tool.start', 'one')]);
    await beating(clocks, 55_000);
    expect(expired, 'within the tool budget').toEqual([]);
    await beating(clocks, 10_000);
    expect(expired).toEqual(['tool_timeout']);
  });

  it('that ends starts the idle clock anew', async () => {
    const { clocks, expired } = clocked();
    clocks.spoolGrew([event('tool.start', 'one')]);
    await beating(clocks, 50_000);
    clocks.spoolGrew([event('tool.end', 'one')]);
    await beating(clocks, 15_000);
    expect(expired).toEqual([]);
    await beating(clocks, 10_000);
    expect(expired).toEqual(['idle_timeout']);
  });

  it('is measured by the oldest that has not ended', async () => {
    const { clocks, expired } = clocked();
    clocks.spoolGrew([event('tool.start', 'hangs')]);
    for (let passed = 0; passed < 65_000; passed += 5_000) {
      clocks.spoolGrew([
        event('tool.start', `short ${passed}`),
        event('tool.end', `short ${passed}`),
      ]);
      await beating(clocks, 5_000);
    }
    expect(expired).toEqual(['tool_timeout']);
  });

  it('under way before this daemon keeps the time it has used', async () => {
    const { clocks, expired } = clocked();
    clocks.resumeTool('one', 50_000);
    await beating(clocks, 5_000);
    expect(expired).toEqual([]);
    await beating(clocks, 10_000);
    expect(expired).toEqual(['tool_timeout']);
  });
});

describe.each(['setFrozen', 'setWaiting'] as const)('%s', (stand) => {
  it('stops every clock', async () => {
    const { clocks, expired, makeSure } = clocked();
    clocks.heard();
    clocks.spoolGrew([event('tool.start', 'one')]);
    clocks[stand](true);
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect([expired, makeSure.mock.calls]).toEqual([[], []]);
  });

  it('starts all anew when it is over: each silence has its whole limit again', async () => {
    const { clocks, expired } = clocked();
    clocks.heard();
    await vi.advanceTimersByTimeAsync(9_000);
    clocks[stand](true);
    await vi.advanceTimersByTimeAsync(3_600_000);
    clocks[stand](false);
    await vi.advanceTimersByTimeAsync(9_000);
    expect(expired).toEqual([]);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(expired).toEqual(['heartbeat_timeout']);
  });
});

describe('the age of a tool call that began before this daemon', () => {
  const MINUTE = 60_000;
  it.each([
    ['is by the wall clock', { wallMs: MINUTE, openedAt: 100, uptimeSeconds: 400 }, MINUTE],
    [
      'is at most that of its wrapper: a clock set ahead ends nothing',
      { wallMs: 60 * MINUTE, openedAt: 100, uptimeSeconds: 105 },
      5_000,
    ],
    [
      'is none where the clock was set back',
      { wallMs: -MINUTE, openedAt: 100, uptimeSeconds: 400 },
      0,
    ],
    [
      'is by the wall clock where the wrapper said no uptime',
      { wallMs: MINUTE, openedAt: null, uptimeSeconds: 5 },
      MINUTE,
    ],
  ])('%s', (_, view, expected) => {
    expect(toolAgeMs(view)).toBe(expected);
  });
});
