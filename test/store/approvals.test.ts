/** Questions and checkpoints in a real store, as the daemon moves them. */
import { afterEach, describe, expect, it } from 'vitest';
import { decide, expireApprovals } from '../../src/supervisor/approval-decide.ts';
import { suspend } from '../../src/supervisor/end.ts';
import { settleOrphan } from '../../src/supervisor/orphan.ts';
import { end, evidence } from '../property/evidence.ts';
import { ask, begin, finish, say } from '../support/approvals.ts';
import { APPROVE, DENY, lose, PI, running, type Waiting } from './approval-rig.ts';
import { cleanUp, raw, refusal } from './rig.ts';

afterEach(cleanUp);

const unit = ({ rig, id }: Waiting) => rig.store.workUnits.get(id);
const approval = ({ rig }: Waiting, id: string) => rig.store.approvals.get(id);
const held = ({ rig, id }: Waiting) =>
  rig.store.resources.countSlots({ type: 'provider', key: 'acme' }) +
  rig.store.attempts.listByWorkUnit(id).filter(({ status }) => status === 'started').length;

describe('a question', () => {
  it('row 045: stops the clocks of its attempt and is stored once, however often it is read', () => {
    const waiting = running();
    const attempt = waiting.rig.active(waiting.id);
    const row = ask(waiting.rig.context, attempt);
    ask(waiting.rig.context, attempt);
    expect(waiting.rig.store.approvals.listOfWorkUnit(waiting.id)).toHaveLength(1);
    expect(unit(waiting)?.status).toBe('waiting_for_approval');
    expect(waiting.rig.active(waiting.id).status).toBe('waiting_for_approval');
    expect(row).toMatchObject({ status: 'pending', checkpoint: 'waiting', revision: 1 });
  });

  it('row 046: approved lets the attempt go on; the same answer again changes nothing', () => {
    const waiting = running();
    const { rig } = waiting;
    const row = ask(rig.context, rig.active(waiting.id));
    rig.entropy.advance(5_000);
    decide(rig.context, row.id, APPROVE);
    const after = approval(waiting, row.id);
    expect(decide(rig.context, row.id, APPROVE)).toEqual(after);
    expect(after).toMatchObject({ status: 'approved', checkpoint: 'waiting', revision: 2 });
    expect(unit(waiting)?.status).toBe('running');
    expect(rig.active(waiting.id)).toMatchObject({ status: 'started', waitedMs: 5_000 });
    expect(refusal(() => decide(rig.context, row.id, DENY)).code).toBe('approval_closed');
  });

  it('is one of two: the work waits until both are answered', () => {
    const waiting = running();
    const { rig } = waiting;
    const attempt = rig.active(waiting.id);
    const first = ask(rig.context, attempt, { toolCallId: 'a' });
    const second = ask(rig.context, attempt, { toolCallId: 'b' });
    decide(rig.context, first.id, APPROVE);
    expect(unit(waiting)?.status).toBe('waiting_for_approval');
    decide(rig.context, second.id, DENY);
    expect(unit(waiting)?.status).toBe('running');
  });

  it('row 230: expires, and its work fails once the process is gone', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    expect(expireApprovals(rig.context)).toEqual([]);
    rig.entropy.advance(3_600_001);
    expect(refusal(() => decide(rig.context, row.id, APPROVE)).code).toBe('approval_closed');
    expect(expireApprovals(rig.context)).toEqual([id]);
    expect(approval(waiting, row.id)?.status).toBe('expired');
    expect(unit(waiting)?.status).toBe('cancelling');
    lose(waiting, evidence({ end: end('success killed TERM') }));
    expect(unit(waiting)).toMatchObject({ status: 'failed', errorCode: 'approval_expired' });
  });

  it('row 230: expires while it is suspended: its work fails at once', () => {
    const waiting = running();
    const { rig, id } = waiting;
    ask(rig.context, rig.active(id));
    lose(waiting);
    rig.entropy.advance(3_600_001);
    expireApprovals(rig.context);
    expect(unit(waiting)).toMatchObject({ status: 'failed', errorCode: 'approval_expired' });
  });

  it('row 047: denied for good fails the work', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    decide(rig.context, row.id, { ...DENY, fail: true });
    expect(unit(waiting)).toMatchObject({
      status: 'failed',
      errorCode: 'approval_denied',
      errorMessage: 'not today',
    });
  });

  it('is dropped with work that is cancelled', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    rig.cancel(id);
    expect(unit(waiting)?.status).toBe('cancelled');
    expect(approval(waiting, row.id)).toMatchObject({ status: 'dropped', checkpoint: 'closed' });
  });
});

describe('a suspension', () => {
  it('row 321, row 220: keeps question and work, loses the attempt, gives slot and lease back, in one transaction', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const { id: attemptId } = rig.active(id);
    const row = ask(rig.context, rig.active(id));
    expect(held(waiting)).toBe(1);
    suspend(rig.context, attemptId, 'approval_wait');
    const before = rig.store.events.page(id, 0, 1_000).length;
    lose(waiting);
    expect(unit(waiting)).toMatchObject({
      status: 'waiting_for_approval',
      activeAttemptId: null,
      errorCode: null,
    });
    expect(rig.store.attempts.get(attemptId)).toMatchObject({
      status: 'lost',
      errorCode: 'suspended',
    });
    expect(held(waiting)).toBe(0);
    expect(approval(waiting, row.id)).toMatchObject({ status: 'pending', checkpoint: 'waiting' });
    expect(rig.claimAll(), 'nothing starts before the answer').toEqual([]);
    // Row 249: it tells of itself in the same transaction.
    const told = rig.store.events.page(id, 0, 1_000).slice(before);
    expect(told.filter(({ type }) => type === 'approval.changed')).toHaveLength(1);
  });

  it('row 231, row 232, row 234: an answer makes one replacement, with slot and lease, bound to the question', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    decide(rig.context, row.id, APPROVE);
    expect(unit(waiting)?.status).toBe('queued');
    expect(held(waiting)).toBe(0);
    expect(rig.claimAll()).toEqual([id]);
    expect(rig.claimAll()).toEqual([]);
    expect(approval(waiting, row.id)).toMatchObject({
      checkpoint: 'resume_pending',
      boundAttemptId: rig.active(id).id,
    });
    expect(held(waiting), 'row 334: taken before the call can begin').toBe(1);
  });

  it('row 245: without capacity there is no replacement, and the answer waits', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    const other = rig.submit({ ...PI, priority: 5 });
    expect(rig.claimAll()).toEqual([other]);
    decide(rig.context, row.id, APPROVE);
    expect(rig.claimAll()).toEqual([]);
    expect(approval(waiting, row.id)).toMatchObject({ status: 'approved', checkpoint: 'waiting' });
    rig.end(other);
    expect(rig.claimAll()).toEqual([id]);
  });

  it('row 235, row 240: a replacement lost before the call gives way to one newer attempt', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    decide(rig.context, row.id, APPROVE);
    rig.claimAll();
    rig.run(id);
    const second = rig.active(id).id;
    lose(waiting);
    expect(unit(waiting)?.status).toBe('queued');
    expect(held(waiting)).toBe(0);
    expect(approval(waiting, row.id)).toMatchObject({ checkpoint: 'resume_pending' });
    rig.entropy.advance(10_000); // The second loss is gone on from a little later.
    rig.claimAll();
    const third = rig.active(id).id;
    expect(third).not.toBe(second);
    expect(approval(waiting, row.id)).toMatchObject({ boundAttemptId: third });
  });

  it('row 236, row 336: a call that ended is finished by its evidence and granted to nobody', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    decide(rig.context, row.id, APPROVE);
    rig.claimAll();
    rig.run(id);
    begin(rig.context, rig.active(id), row);
    finish(rig.context, rig.active(id), row);
    expect(approval(waiting, row.id)).toMatchObject({ checkpoint: 'resumed' });
    lose(waiting);
    expect(unit(waiting)?.status, 'the conversation goes on').toBe('queued');
    rig.entropy.advance(10_000);
    rig.claimAll();
    expect(rig.store.approvals.boundTo(rig.active(id).id)).toEqual([]);
  });

  it('row 237, row 258, row 336: a call that began and has no end fails the work, and nobody runs it again', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    decide(rig.context, row.id, APPROVE);
    rig.claimAll();
    rig.run(id);
    begin(rig.context, rig.active(id), row);
    lose(waiting);
    expect(unit(waiting)).toMatchObject({
      status: 'failed',
      errorCode: 'approval_resume_effect_unknown',
    });
    expect(approval(waiting, row.id)).toMatchObject({
      checkpoint: 'resume_failed',
      failureCode: 'effect_unknown',
    });
    expect(rig.claimAll()).toEqual([]);
    expect(held(waiting)).toBe(0);
  });

  it('row 237: the same where the attempt that asked began it', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    decide(rig.context, row.id, APPROVE);
    begin(rig.context, rig.active(id), row);
    lose(waiting);
    expect(unit(waiting)?.errorCode).toBe('approval_resume_effect_unknown');
  });

  it('two calls, the first over and the second waiting: no false unknown for the first', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const attempt = rig.active(id);
    const first = ask(rig.context, attempt, { toolCallId: 'a' });
    const second = ask(rig.context, attempt, { toolCallId: 'b', fingerprint: 'e'.repeat(64) });
    decide(rig.context, first.id, APPROVE);
    begin(rig.context, attempt, first);
    finish(rig.context, attempt, first);
    lose(waiting);
    expect(unit(waiting)).toMatchObject({ status: 'waiting_for_approval', errorCode: null });
    expect(approval(waiting, first.id)?.checkpoint).toBe('closed');
    expect(approval(waiting, second.id)).toMatchObject({
      status: 'pending',
      checkpoint: 'waiting',
    });
  });

  it('row 238: of work that has ended nothing is resumed', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    rig.cancel(id);
    expect(refusal(() => decide(rig.context, row.id, APPROVE)).code).toBe('approval_closed');
    expect(rig.claimAll()).toEqual([]);
  });

  it('row 222: waiting with no question blocks, and is neither cancelled nor guessed at', () => {
    const waiting = running();
    const { rig, id } = waiting;
    rig.context.writer.commit((transaction) => {
      transaction.moveAttempt(rig.active(id), 'approval_requested');
      transaction.moveWorkUnit(transaction.workUnit(id), 'approval_requested', { actor: 'runner' });
    });
    lose(waiting);
    expect(unit(waiting)).toMatchObject({
      status: 'stale',
      errorCode: 'approval_resume_checkpoint_missing',
    });
  });

  it('row 248: work that waits although everything is answered is queued by the next look', () => {
    const waiting = running();
    const { rig, id, directory } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    raw(directory).prepare(`UPDATE approvals SET status = 'approved'`).run();
    const seen = unit(waiting);
    if (seen) settleOrphan(rig.context, seen);
    if (seen) settleOrphan(rig.context, seen);
    expect(unit(waiting)?.status).toBe('queued');
    expect(approval(waiting, row.id)?.checkpoint).toBe('waiting');
  });

  it('row 243: a lineage that does not hold is quarantined and moves nothing else', () => {
    const waiting = running();
    const { rig, id, directory } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    decide(rig.context, row.id, APPROVE);
    raw(directory).prepare(`UPDATE approvals SET bound_attempt_id = 'nobody'`).run();
    rig.claimAll();
    expect(approval(waiting, row.id)).toMatchObject({
      checkpoint: 'resume_failed',
      failureCode: 'lineage_broken',
    });
    expect(unit(waiting)?.status).toBe('claimed');
    expect(rig.store.approvals.boundTo(rig.active(id).id)).toEqual([]);
  });

  it('a denial is told to the replacement, once', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    decide(rig.context, row.id, DENY);
    rig.claimAll();
    rig.run(id);
    expect(approval(waiting, row.id)?.checkpoint).toBe('resume_pending');
    say(rig.context, rig.active(id), 'agent.message', { message: 1, block: 0, delta: 'well' });
    expect(approval(waiting, row.id)?.checkpoint).toBe('resumed');
  });

  it('the next attempt gets the time that was left, without the waiting', () => {
    const waiting = running();
    const { rig, id, directory } = waiting;
    const hard = unit(waiting)?.timeoutPolicy.hardTimeoutMs ?? 0;
    const at = () => new Date(rig.entropy.now()).toISOString();
    rig.store.attempts.patch(rig.active(id).id, { startedAt: at() });
    rig.entropy.advance(600_000);
    ask(rig.context, rig.active(id));
    rig.entropy.advance(900_000);
    rig.store.attempts.patch(rig.active(id).id, { lastHeartbeatAt: at() });
    lose(waiting);
    raw(directory).prepare(`UPDATE approvals SET status = 'denied'`).run();
    expect(unit(waiting)?.hardLeftMs).toBe(hard - 600_000);
  });
});
