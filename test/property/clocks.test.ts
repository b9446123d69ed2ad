/** The judge of silence: total, and it never condemns what cannot speak. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ClockView, judgeSilence } from '../../src/domain/clocks.ts';

const time = fc.integer({ min: 0, max: 10_000_000 });
const limit = fc.integer({ min: 1_000, max: 3_600_000 });
const view: fc.Arbitrary<ClockView> = fc.record({
  now: time,
  policy: fc.record({ heartbeatTimeoutMs: limit, idleTimeoutMs: limit, toolTimeoutMs: limit }),
  heardAt: fc.option(time),
  deaf: fc.boolean(),
  spoolGrewAt: time,
  progressAt: time,
  toolSince: fc.option(time),
  frozen: fc.boolean(),
  waiting: fc.boolean(),
  ingestCurrent: fc.boolean(),
});

/** Heard, thawed, not waiting, read to the end: nothing but the times decides. */
const judged = view.map((known) => ({
  ...known,
  heardAt: known.heardAt ?? 0,
  frozen: false,
  waiting: false,
  ingestCurrent: true,
}));

const code = (known: ClockView): string | null => {
  const verdict = judgeSilence(known);
  return verdict.kind === 'expired' ? verdict.code : null;
};

describe('judgeSilence', () => {
  it('answers every view: a wait of a positive bounded time, or an expiry that was over its limit', () => {
    fc.assert(
      fc.property(view, (known) => {
        const verdict = judgeSilence(known);
        if (verdict.kind === 'wait') {
          expect(verdict.ms).toBeGreaterThan(0);
          expect(verdict.ms).toBeLessThanOrEqual(30_000);
          return;
        }
        const limits = {
          heartbeat_timeout: known.policy.heartbeatTimeoutMs,
          idle_timeout: known.policy.idleTimeoutMs,
          tool_timeout: known.policy.toolTimeoutMs,
        };
        expect(verdict.silentMs).toBeGreaterThanOrEqual(limits[verdict.code]);
      }),
    );
  });

  it.each([
    ['frozen', { frozen: true }],
    ['waiting for a person', { waiting: true }],
    ['never heard', { heardAt: null, deaf: false }],
    ['not read to the end', { ingestCurrent: false }],
  ] as const)('never expires while it is %s', (_, excuse) => {
    fc.assert(
      fc.property(view, (known) => {
        expect(judgeSilence({ ...known, ...excuse }).kind).toBe('wait');
      }),
    );
  });

  it('heartbeat_timeout needs the silence of both witnesses, socket and spool; T34 #4793', () => {
    fc.assert(
      fc.property(judged, (known) => {
        if (code(known) !== 'heartbeat_timeout') return;
        expect(known.now - known.heardAt).toBeGreaterThanOrEqual(known.policy.heartbeatTimeoutMs);
        expect(known.now - known.spoolGrewAt).toBeGreaterThanOrEqual(
          known.policy.heartbeatTimeoutMs,
        );
      }),
    );
  });

  it('with a tool in flight idle stands and the tool has its own budget; without one there is none; T33', () => {
    fc.assert(
      fc.property(judged, (known) => {
        const alive = { ...known, heardAt: known.now, now: known.now };
        const expected =
          known.toolSince === null
            ? known.now - known.progressAt >= known.policy.idleTimeoutMs
              ? 'idle_timeout'
              : null
            : known.now - known.toolSince >= known.policy.toolTimeoutMs
              ? 'tool_timeout'
              : null;
        expect(code(alive)).toBe(expected);
      }),
    );
  });

  it('a heartbeat saves nobody from idle_timeout; T32 PR#5712', () => {
    fc.assert(
      fc.property(judged, time, (known, later) => {
        if (code(known) !== 'idle_timeout') return;
        expect(code({ ...known, heardAt: Math.max(known.heardAt, later) })).toBe('idle_timeout');
      }),
    );
  });

  it('expires exactly when it said: not a moment before the wait is over, if nothing is heard', () => {
    fc.assert(
      fc.property(judged, (known) => {
        const verdict = judgeSilence(known);
        if (verdict.kind === 'expired' || verdict.ms >= 30_000) return;
        expect(judgeSilence({ ...known, now: known.now + verdict.ms - 1 }).kind).toBe('wait');
        expect(judgeSilence({ ...known, now: known.now + verdict.ms }).kind).toBe('expired');
      }),
    );
  });

  it('once expired, more silence never takes it back', () => {
    fc.assert(
      fc.property(judged, fc.nat({ max: 1_000_000 }), (known, more) => {
        if (judgeSilence(known).kind === 'wait') return;
        expect(judgeSilence({ ...known, now: known.now + more }).kind).toBe('expired');
      }),
    );
  });
});
