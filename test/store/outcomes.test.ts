/** What conclude commits: every status × every outcome, replaced attempts, starts that ran nothing. */
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { Evidence } from '../../src/domain/evidence.ts';
import { START_BUDGET } from '../../src/domain/start-budget.ts';
import {
  TERMINAL_ATTEMPT_STATUSES,
  TERMINAL_STATUSES,
  type WorkUnitStatus,
} from '../../src/domain/work-unit.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { cancel } from '../../src/supervisor/end.ts';
import { explain } from '../../src/supervisor/explain.ts';
import { anyEvidence, end, evidence, lastWord } from '../property/evidence.ts';
import { QueueRig } from '../support/core-queue.ts';
import { cleanUp, open, refusal } from './rig.ts';

afterEach(cleanUp);

const LEASE = { leases: [{ type: 'task' as const, key: 't' }] };
const request = { actor: 'user', reason: null } as const;
const gathered = (known: Evidence) => ({
  evidence: known,
  record: null,
  unusable: null,
  disagreement: null,
  artifacts: [],
  loss: { session: null, cwd: { path: '/', exists: true } },
});
const NOTHING_RAN = evidence({ claim: 'revoked', opened: null });

type Live = Exclude<WorkUnitStatus, 'queued' | 'succeeded' | 'failed' | 'cancelled'>;

/** Brings a queued unit there, as the supervisor does; `intended` is whether its end was ordered. */
const TO: Readonly<Record<Live, (rig: QueueRig, id: string, intended: boolean) => void>> = {
  claimed: () => undefined,
  running: (rig, id) => rig.run(id),
  waiting_for_approval: (rig, id) => {
    rig.run(id);
    rig.context.writer.commit((transaction) => {
      transaction.moveAttempt(rig.active(id), 'approval_requested');
      transaction.moveWorkUnit(transaction.workUnit(id), 'approval_requested', { actor: 'runner' });
    });
  },
  cancelling: (rig, id, intended) => {
    rig.run(id);
    if (intended) rig.cancel(id);
    else
      rig.context.writer.commit((transaction) =>
        transaction.moveWorkUnit(transaction.workUnit(id), 'cancel', { actor: 'user' }),
      );
  },
  stale: (rig, id, intended) => {
    TO.cancelling(rig, id, intended);
    rig.context.writer.commit((transaction) =>
      transaction.moveWorkUnit(transaction.workUnit(id), 'cancel_timeout', { actor: 'system' }),
    );
  },
};
const LIVE = Object.keys(TO) as Live[];

/** A unit in that status with its active attempt. */
function inStatus(
  rig: QueueRig,
  status: Live,
  intended = true,
): { id: string; attempt: AttemptRow } {
  const id = rig.submit(LEASE);
  expect(rig.claimAll(), 'what went before left its lease').toEqual([id]);
  TO[status](rig, id, intended);
  expect(rig.store.workUnits.get(id)?.status).toBe(status);
  return { id, attempt: rig.active(id) };
}

function decided(verdict: ReturnType<typeof conclude>) {
  if (verdict === 'again') throw new Error('what a loss needs was given');
  return verdict;
}

describe('every status × every outcome', () => {
  it('is decided: never throws, and leaves no work with an attempt that is dead', () => {
    const rig = new QueueRig(open());
    fc.assert(
      fc.property(
        fc.constantFrom(...LIVE),
        fc.boolean(),
        anyEvidence,
        (status, intended, known) => {
          const { id, attempt } = inStatus(rig, status, intended);
          const verdict = decided(conclude(rig.context, attempt.id, gathered(known)));
          const after = rig.store.workUnits.get(id);
          expect(after?.activeAttemptId, `${status}, ${verdict?.outcome.kind}`).toBeNull();
          const dead = rig.store.attempts.get(attempt.id)?.status ?? 'created';
          expect(TERMINAL_ATTEMPT_STATUSES.has(dead)).toBe(true);
          const then = after?.status ?? 'stale';
          const over = TERMINAL_STATUSES.has(then);
          const again = then === 'queued' && verdict?.outcome.kind === 'never_started';
          // Waiting for an answer that is nowhere: a person has to look (row 222).
          const blocked = after?.errorCode === 'approval_resume_checkpoint_missing';
          expect(over || again || (then === 'stale' && blocked), then).toBe(true);
          expect(after?.endedAt === null).toBe(again || blocked);
          expect(after?.errorCode === null).toBe(again || then === 'succeeded');
          // Out of the way of the next case.
          if (again || blocked) rig.cancel(id);
        },
      ),
      { numRuns: 300 },
    );
  });

  it('a success that comes after the order to end is kept as a stale event; row 064, row 261', () => {
    const rig = new QueueRig(open());
    for (const status of ['cancelling', 'stale'] as const) {
      const { id, attempt } = inStatus(rig, status);
      const known = evidence({ lastWord: lastWord(), end: end('success exited 0') });
      conclude(rig.context, attempt.id, gathered(known));
      expect(rig.store.workUnits.get(id), status).toMatchObject({
        status: 'cancelled',
        errorCode: 'cancelled_by_request',
      });
      const stale = rig.store.events
        .page(id, 0, 100)
        .filter(({ type }) => type === 'diagnostic.stale_event');
      expect(stale).toMatchObject([{ data: { outcome: { kind: 'succeeded' } } }]);
    }
  });
});

describe('an attempt that was replaced', () => {
  it.each([
    ['succeeded', evidence({ lastWord: lastWord(), end: end('success exited 0') })],
    ['failed', evidence({ end: end('exit-code exited 3') })],
    ['was killed', evidence({ end: end('signal killed KILL') })],
    ['never started', NOTHING_RAN],
  ])(
    'and %s after all is kept as a diagnostic and changes nothing; row 042, row 260',
    (_, known) => {
      const rig = new QueueRig(open());
      const id = rig.submit(LEASE);
      rig.claimAll();
      const old = rig.active(id);
      // As after a retry of stale work: another attempt is active, the old one is heard of late.
      rig.context.writer.commit((transaction) => {
        const seen = transaction.workUnit(id);
        rig.store.workUnits.move(seen, 'queued', { activeAttemptId: null }, transaction.at);
        rig.store.resources.releaseLeases(old.id, 'stale_released', transaction.at, 'lost');
      });
      rig.claimAll();
      rig.run(id);
      const before = rig.store.workUnits.get(id);
      const held = rig.store.resources.leasesHeld();
      expect(rig.active(id).id).not.toBe(old.id);
      conclude(rig.context, old.id, gathered(known));
      const { lastSeq: _before, ...unchanged } = before ?? { lastSeq: 0 };
      expect(rig.store.workUnits.get(id)).toMatchObject(unchanged);
      expect(rig.store.resources.leasesHeld()).toEqual(held);
      const stale = rig.store.events
        .page(id, 0, 100)
        .filter(({ type }) => type === 'diagnostic.stale_event');
      expect(stale).toMatchObject([{ attemptId: old.id, data: { outcome: {} } }]);
    },
  );
});

describe('the loser of a race', () => {
  it('is told of a conflict that names both states; row 062, T72 river#1302', () => {
    const rig = new QueueRig(open());
    const { id } = inStatus(rig, 'running');
    const seen = rig.store.workUnits.get(id);
    cancel(rig.context, id, request);
    const lost = refusal(() =>
      rig.context.writer.commit((transaction) => {
        if (!seen) throw new Error('it is gone');
        transaction.moveWorkUnit(seen, 'runner_succeeded', { actor: 'runner' });
      }),
    );
    expect(lost).toMatchObject({ code: 'state_conflict', status: 409 });
    expect(lost.message).toMatch(/is cancelling; "runner_succeeded" came too late/);
    expect(rig.store.workUnits.get(id)?.status).toBe('cancelling');
  });
});

describe('starts that ran nothing', () => {
  const claimed = (rig: QueueRig): string[] => rig.claimAll();
  const fail = (rig: QueueRig, id: string, known: Evidence = NOTHING_RAN): void => {
    conclude(rig.context, rig.active(id).id, gathered(known));
  };

  it.each(['claimed', 'running'] as const)(
    'in a row back off longer and longer and then fail the work, seen as %s or not',
    (status) => {
      const rig = new QueueRig(open());
      const id = rig.submit();
      const problem = { kind: 'refused', reason: 'Unit is masked.' } as const;
      for (let starts = 1; starts < START_BUDGET; starts++) {
        expect(claimed(rig), `start ${starts}`).toEqual([id]);
        if (status === 'running') rig.run(id);
        fail(rig, id, { ...NOTHING_RAN, startProblem: problem });
        expect(claimed(rig), 'while it backs off').toEqual([]);
        expect(explain(rig.context, rig.store.workUnits.get(id) ?? refuse()).summary).toContain(
          `: ${starts} of ${START_BUDGET} starts in a row ran nothing`,
        );
        rig.entropy.advance(60_000);
      }
      expect(claimed(rig)).toEqual([id]);
      fail(rig, id, { ...NOTHING_RAN, startProblem: problem });
      const after = rig.store.workUnits.get(id);
      expect(after).toMatchObject({ status: 'failed', errorCode: 'launch_failed' });
      expect(after?.errorMessage).toContain('Unit is masked.');
    },
  );

  it('are forgotten once one has run', () => {
    const rig = new QueueRig(open());
    const id = rig.submit();
    claimed(rig);
    fail(rig, id);
    rig.entropy.advance(60_000);
    claimed(rig);
    fail(rig, id, evidence({ end: end('exit-code exited 3') }));
    expect(rig.store.workUnits.get(id)).toMatchObject({ status: 'failed', neverStartedCount: 0 });
  });

  it('for a name that is taken neither count nor back off', () => {
    const rig = new QueueRig(open());
    const id = rig.submit();
    const startProblem = { kind: 'name_taken', reason: 'taken' } as const;
    for (let starts = 0; starts < 3 * START_BUDGET; starts++) {
      expect(claimed(rig)).toEqual([id]);
      fail(rig, id, { ...NOTHING_RAN, startProblem });
    }
    expect(rig.store.workUnits.get(id)).toMatchObject({ status: 'queued', neverStartedCount: 0 });
  });

  it('are cancelled at once while backing off; row 059', () => {
    const rig = new QueueRig(open());
    const id = rig.submit();
    claimed(rig);
    fail(rig, id);
    expect(cancel(rig.context, id, request)).toMatchObject({
      status: 'cancelled',
      errorCode: 'cancelled_by_request',
    });
    rig.entropy.advance(3_600_000);
    expect(claimed(rig)).toEqual([]);
  });

  it('leave an event that says how many, until when and why', () => {
    const rig = new QueueRig(open());
    const id = rig.submit();
    claimed(rig);
    fail(rig, id, { ...NOTHING_RAN, startProblem: { kind: 'unanswered', reason: 'no bus' } });
    const [told] = rig.store.events
      .page(id, 0, 100)
      .filter(({ type }) => type === 'diagnostic.start_backoff');
    expect(told?.data).toEqual({
      count: 1,
      limit: START_BUDGET,
      until: new Date(rig.entropy.now() + 1_000).toISOString(),
      reason: 'no bus',
    });
  });
});

function refuse(): never {
  throw new Error('there is no such work unit');
}
