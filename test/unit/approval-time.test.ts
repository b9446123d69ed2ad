/** Time around questions: what is left for the next attempt, and the clock that keeps them all. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { AttemptRow } from '../../src/store/attempts.ts';
import type { WorkUnitRow } from '../../src/store/work-units.ts';
import { type ApprovalClock, keepApprovalClock } from '../../src/supervisor/approval-clock.ts';
import { decide } from '../../src/supervisor/approval-decide.ts';
import type { Context } from '../../src/supervisor/context.ts';
import { DEFAULT_POLICIES } from '../../src/supervisor/policies.ts';
import { timeLeft, timeoutsOf, waitedUntil } from '../../src/supervisor/time-left.ts';
import { cleanUp, open } from '../store/rig.ts';
import { ask, say } from '../support/approvals.ts';
import { QueueRig } from '../support/core-queue.ts';

const MINUTE = 60_000;
const START = Date.parse('2026-01-02T03:00:00.000Z');
const at = (minutes: number): string => new Date(START + minutes * MINUTE).toISOString();

describe('what is left of the hard timeout', () => {
  const workUnit = { timeoutPolicy: { hardTimeoutMs: 60 * MINUTE } } as WorkUnitRow;
  const attempt = (known: Partial<AttemptRow>): AttemptRow =>
    ({
      hardTimeoutMs: null,
      startedAt: at(0),
      waitedMs: 0,
      waitingSince: null,
      lastEventAt: null,
      lastHeartbeatAt: null,
      ...known,
    }) as AttemptRow;

  it.each<[string, Partial<AttemptRow>, number, number]>([
    ['all of it where nothing began', { startedAt: null }, 90, 60],
    ['the rest after the last sign of life', { lastHeartbeatAt: at(20) }, 50, 40],
    ['by the later of both signs', { lastHeartbeatAt: at(20), lastEventAt: at(25) }, 50, 35],
    ['all of it without any sign', {}, 50, 60],
    ['without the waits before', { lastHeartbeatAt: at(30), waitedMs: 10 * MINUTE }, 50, 40],
    ['without the wait that lasts', { lastHeartbeatAt: at(30), waitingSince: at(5) }, 50, 55],
    [
      'nor with one that began after the last sign',
      { lastEventAt: at(5), waitingSince: at(6) },
      50,
      55,
    ],
    ['a minute at least', { lastHeartbeatAt: at(59.5) }, 60, 1],
    ['a minute also where more was used than there was', { lastHeartbeatAt: at(90) }, 90, 1],
    ['never more than there was, whatever the clock did', { lastHeartbeatAt: at(-30) }, -30, 60],
    [
      'nor where more was waited than passed',
      { lastHeartbeatAt: at(5), waitedMs: 600 * MINUTE },
      9,
      60,
    ],
    [
      'of what an earlier suspension left',
      { hardTimeoutMs: 30 * MINUTE, lastEventAt: at(10) },
      20,
      20,
    ],
    [
      'less than a minute where there never was one',
      { hardTimeoutMs: 5_000, lastEventAt: at(1) },
      2,
      5 / 60,
    ],
  ])('is %s', (_what, known, now, minutes) => {
    expect(timeLeft(workUnit, attempt(known), at(now))).toBe(minutes * MINUTE);
  });

  it('is taken by the next attempt in place of the whole', () => {
    expect(timeoutsOf(workUnit, { hardTimeoutMs: 5 * MINUTE }).hardTimeoutMs).toBe(5 * MINUTE);
    expect(timeoutsOf(workUnit, { hardTimeoutMs: null })).toBe(workUnit.timeoutPolicy);
  });

  it('does not count a wait backwards when the clock is set back', () => {
    expect(waitedUntil({ waitedMs: 7, waitingSince: at(5) }, at(3))).toBe(7);
  });
});

const SUSPEND_AFTER_MS = 30 * MINUTE;
/** Looked at again after this long at the latest. */
const LOOK_MS = 30_000;

interface Clocked {
  readonly rig: QueueRig;
  readonly id: string;
  readonly attempt: AttemptRow;
  readonly ending: string[];
  /** Lets both clocks go on, a second at a time. */
  pass(ms: number): Promise<void>;
  keep(context?: Context): ApprovalClock;
}

const clocks: ApprovalClock[] = [];
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(async () => {
  for (const clock of clocks.splice(0)) await clock.close();
  vi.useRealTimers();
  await cleanUp();
});

/** Running Pi work that asks nothing yet. */
function clocked(timeoutPolicy: { hardTimeoutMs?: number; cancelGraceMs?: number } = {}): Clocked {
  const approvals = { ...DEFAULT_POLICIES.approvals, suspendAfterMs: SUSPEND_AFTER_MS };
  const rig = new QueueRig(open(), {}, {}, { approvals });
  const hardTimeoutMs = timeoutPolicy.hardTimeoutMs ?? 100 * 60 * MINUTE;
  const id = rig.submit({
    runnerId: 'pi',
    prompt: 'go',
    timeoutPolicy: { ...timeoutPolicy, hardTimeoutMs },
  });
  rig.claimAll();
  rig.run(id);
  const startedAt = new Date(rig.entropy.now()).toISOString();
  rig.store.attempts.patch(rig.active(id).id, { startedAt });
  const ending: string[] = [];
  return {
    rig,
    id,
    attempt: rig.active(id),
    ending,
    keep: (context = rig.context) => {
      const clock = keepApprovalClock(context, (workUnitId) => ending.push(workUnitId));
      clocks.push(clock);
      return clock;
    },
    pass: async (ms) => {
      for (let passed = 0; passed < ms; passed += 1_000) {
        rig.entropy.advance(1_000);
        await vi.advanceTimersByTimeAsync(1_000);
      }
    },
  };
}

const intent = ({ rig, attempt }: Clocked) => rig.intent(attempt.id);

describe('the clock of questions', () => {
  it('suspends an attempt that has waited for long enough, once', async () => {
    const known = clocked();
    ask(known.rig.context, known.attempt, { expiresAt: at(100_000) });
    known.keep();
    await known.pass(SUSPEND_AFTER_MS - 1_000);
    expect(intent(known)).toBeNull();
    await known.pass(2_000);
    expect(intent(known)).toMatchObject({ kind: 'suspend', reason: 'approval_wait' });
    await known.pass(5 * MINUTE);
    expect(known.ending).toEqual([known.id]);
  });

  it('suspends before the deadline, with room for the grace and half a minute', async () => {
    const known = clocked({ hardTimeoutMs: 10 * MINUTE, cancelGraceMs: MINUTE });
    ask(known.rig.context, known.attempt);
    known.keep();
    await known.pass(8.5 * MINUTE - 2_000);
    expect(intent(known)).toBeNull();
    await known.pass(3_000);
    expect(intent(known)).toMatchObject({ kind: 'suspend' });
  });

  it('does not cut off another call of the same attempt, and looks again soon', async () => {
    const known = clocked();
    const { rig, attempt } = known;
    ask(rig.context, attempt, { expiresAt: at(100_000) });
    say(rig.context, attempt, 'tool.start', { toolCallId: 'other', tool: 'bash', arguments: {} });
    known.keep();
    await known.pass(SUSPEND_AFTER_MS + 10 * MINUTE);
    expect(intent(known)).toBeNull();
    say(rig.context, attempt, 'tool.end', { toolCallId: 'other', tool: 'bash', isError: false });
    await known.pass(6_000);
    expect(intent(known)).toMatchObject({ kind: 'suspend' });
  });

  it('suspends at the deadline even then: systemd would cut both off', async () => {
    const known = clocked({ hardTimeoutMs: 5 * MINUTE, cancelGraceMs: 0 });
    ask(known.rig.context, known.attempt);
    const call = { toolCallId: 'other', tool: 'bash', arguments: {} };
    say(known.rig.context, known.attempt, 'tool.start', call);
    known.keep();
    await known.pass(4.5 * MINUTE + 1_000);
    expect(intent(known)).toMatchObject({ kind: 'suspend' });
  });

  it('lets an attempt go on that was answered in time', async () => {
    const known = clocked();
    const { id } = ask(known.rig.context, known.attempt, { expiresAt: at(100_000) });
    known.keep();
    await known.pass(SUSPEND_AFTER_MS - 5_000);
    const request = { decision: 'approved', reason: null, fail: false, actor: 'user' } as const;
    decide(known.rig.context, id, request);
    await known.pass(10 * MINUTE);
    expect(intent(known)).toBeNull();
    expect(known.ending).toEqual([]);
  });

  it('leaves alone what is being ended for another reason', async () => {
    const known = clocked();
    ask(known.rig.context, known.attempt, { expiresAt: at(100_000) });
    known.rig.cancel(known.id);
    known.keep();
    await known.pass(SUSPEND_AFTER_MS + MINUTE);
    expect(intent(known)).toMatchObject({ kind: 'cancel' });
  });

  it('row 230: expires a question when its time is over, and tells whoever follows the attempt', async () => {
    const known = clocked();
    const clock = known.keep();
    await known.pass(1_000);
    const expiresAt = new Date(known.rig.entropy.now() + 10_000).toISOString();
    const row = ask(known.rig.context, known.attempt, { expiresAt });
    clock.wake(); // As the event of the question does; else it would be met at the next look.
    await known.pass(9_000);
    expect(known.rig.store.approvals.get(row.id)?.status).toBe('pending');
    await known.pass(2_000);
    expect(known.rig.store.approvals.get(row.id)?.status).toBe('expired');
    expect(known.ending).toEqual([known.id]);
    expect(intent(known)).toMatchObject({ kind: 'fail', code: 'approval_expired' });
  });

  it('finds what it was not told of within half a minute, also when the wall clock is set', async () => {
    const known = clocked();
    known.keep();
    await known.pass(1_000);
    const row = ask(known.rig.context, known.attempt);
    known.rig.entropy.advance(2 * 60 * MINUTE); // The wall clock alone.
    await known.pass(LOOK_MS + 1_000);
    expect(known.rig.store.approvals.get(row.id)?.status).toBe('expired');
  });

  it('tries again when the store cannot be read', async () => {
    const known = clocked();
    const { store } = known.rig;
    const row = ask(known.rig.context, known.attempt);
    let refusals = 0;
    const expired = (now: string) => {
      if (refusals++ < 3) throw new Error('disk I/O error');
      return store.approvals.expired(now);
    };
    const approvals = { ...store.approvals, expired };
    known.keep({ ...known.rig.context, store: { ...store, approvals } });
    known.rig.entropy.advance(2 * 60 * MINUTE);
    await known.pass(14_000);
    expect(store.approvals.get(row.id)?.status, 'three looks failed').toBe('pending');
    await known.pass(2_000);
    expect(store.approvals.get(row.id)?.status).toBe('expired');
  });

  it.each(['asleep', 'failing'])(
    'closes at once while it is %s, and leaves nothing behind',
    async (how) => {
      const known = clocked();
      const { context } = known.rig;
      const nextExpiry = (): never => {
        throw new Error('disk I/O error');
      };
      const approvals = {
        ...context.store.approvals,
        ...(how === 'failing' ? { nextExpiry } : {}),
      };
      const clock = known.keep({ ...context, store: { ...context.store, approvals } });
      await vi.advanceTimersByTimeAsync(1);
      expect(vi.getTimerCount()).toBe(1);
      await clock.close();
      expect(vi.getTimerCount()).toBe(0);
    },
  );
});
