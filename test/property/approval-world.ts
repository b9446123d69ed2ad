/** One work unit with questions in a real store, driven by hand, and what must hold of it. */
import { OutliveError } from '../../src/domain/errors.ts';
import { TERMINAL_ATTEMPT_STATUSES, TERMINAL_STATUSES } from '../../src/domain/work-unit.ts';
import { repairApprovals } from '../../src/recovery/approvals.ts';
import type { ApprovalRow } from '../../src/store/approvals.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import type { WorkUnitRow } from '../../src/store/work-units.ts';
import { decide, expireApprovals } from '../../src/supervisor/approval-decide.ts';
import { doubtStarts } from '../../src/supervisor/approval-ingest.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { suspend } from '../../src/supervisor/end.ts';
import { settleOrphan } from '../../src/supervisor/orphan.ts';
import { gathered } from '../store/approval-rig.ts';
import { ask, begin, finish, say } from '../support/approvals.ts';
import type { QueueRig } from '../support/core-queue.ts';
import { end, evidence, lastWord } from './evidence.ts';

export const ACTS = [
  'claim',
  'ask',
  'approve',
  'deny',
  'denyForGood',
  'begin',
  'finish',
  'speak',
  'drop',
  'lose',
  'suspend',
  'damage',
  'expire',
  'cancel',
  'succeed',
  'fail',
  'restart',
] as const;
export type Act = (typeof ACTS)[number];

const isOpenRow = ({ checkpoint }: Pick<ApprovalRow, 'checkpoint'>): boolean =>
  checkpoint === 'waiting' || checkpoint === 'resume_pending';

/** Every act is what a wrapper, a person, a clock or a daemon does. */
export class World {
  readonly rig: QueueRig;
  readonly id: string;
  #asked = 0;

  constructor(rig: QueueRig) {
    this.rig = rig;
    this.id = rig.submit({ runnerId: 'pi', prompt: 'go' });
  }

  /** Whatever is left is ended, so that the next world has the queue to itself. */
  leave(): void {
    if (!TERMINAL_STATUSES.has(this.workUnit.status)) this.rig.cancel(this.id);
    if (this.live) this.act('succeed', 0);
    if (this.live) throw new Error('something of it still lives');
  }

  get workUnit(): WorkUnitRow {
    const row = this.rig.store.workUnits.get(this.id);
    if (!row) throw new Error('the work unit is gone');
    return row;
  }

  get questions(): ApprovalRow[] {
    return this.rig.store.approvals.listOfWorkUnit(this.id);
  }

  get live(): AttemptRow | null {
    const { activeAttemptId } = this.workUnit;
    const attempt = activeAttemptId ? this.rig.store.attempts.get(activeAttemptId) : null;
    return attempt && !TERMINAL_ATTEMPT_STATUSES.has(attempt.status) ? attempt : null;
  }

  act(act: Act, pick: number): void {
    this.rig.entropy.advance(1);
    const { live } = this;
    if (act === 'claim') this.#claim();
    else if (act === 'approve' || act === 'deny' || act === 'denyForGood') this.#answer(act, pick);
    else if (act === 'expire') this.#expire();
    else if (act === 'cancel') this.#refusable(() => this.rig.cancel(this.id));
    else if (act === 'restart') this.#restart();
    else if (live) this.#wrapper(act, live, pick);
  }

  #claim(): void {
    this.rig.entropy.advance(400_000);
    if (this.rig.claimAll().length > 0) this.rig.run(this.id);
  }

  /** A person may always be too late; everything else that fails is a fault. */
  #refusable(work: () => unknown): void {
    try {
      work();
    } catch (error) {
      const code = error instanceof OutliveError ? error.code : null;
      if (code !== 'approval_closed' && code !== 'state_conflict') throw error;
    }
  }

  #answer(act: 'approve' | 'deny' | 'denyForGood', pick: number): void {
    const row = this.questions.at(pick % Math.max(1, this.questions.length));
    if (!row) return;
    const decision = act === 'approve' ? 'approved' : 'denied';
    const fail = act === 'denyForGood';
    const request = { decision, fail, reason: null, actor: 'user' } as const;
    this.#refusable(() => decide(this.rig.context, row.id, request));
  }

  #expire(): void {
    this.rig.entropy.advance(3_600_001);
    expireApprovals(this.rig.context);
  }

  /** What a daemon does at its start and every minute. */
  #restart(): void {
    repairApprovals(this.rig.context);
    const { status, activeAttemptId } = this.workUnit;
    const waits = this.questions.some((row) => row.status === 'pending');
    if (status === 'waiting_for_approval' && activeAttemptId === null && !waits) {
      settleOrphan(this.rig.context, this.workUnit);
    }
  }

  #wrapper(act: Act, live: AttemptRow, pick: number): void {
    const { context, store } = this.rig;
    const mine = this.questions.filter(
      ({ attemptId, boundAttemptId }) => attemptId === live.id || boundAttemptId === live.id,
    );
    const may = mine.filter((row) => row.status === 'approved' && isOpenRow(row));
    const unbegun = may.filter((row) => row.startAttemptId === null);
    const begun = this.questions.filter((row) => row.startAttemptId === live.id && !row.ended);
    const of = (some: readonly ApprovalRow[]) => some.at(pick % Math.max(1, some.length));
    if (act === 'ask') ask(context, live, { toolCallId: `call_${++this.#asked}` });
    else if (act === 'begin') for (const row of unbegun.slice(0, 1)) begin(context, live, row);
    else if (act === 'finish') for (const row of begun.slice(0, 1)) finish(context, live, row);
    else if (act === 'speak') say(context, live, 'agent.message', { message: 1, delta: 'x' });
    else if (act === 'drop') {
      const { toolCallId } = of(mine) ?? {};
      if (toolCallId === undefined) return;
      say(context, live, 'approval.resolved', { toolCallId, resolution: 'dropped' });
    } else if (act === 'suspend') suspend(context, live.id, 'approval_wait');
    else if (act === 'damage') {
      const cut = pick % 2 === 0;
      context.writer.commit((transaction) => {
        if (cut) store.attempts.patch(live.id, { spoolCut: true });
        doubtStarts(context, transaction, live);
      });
    } else this.#end(act, live);
  }

  #end(act: Act, live: AttemptRow): void {
    const isOver = act !== 'lose';
    const known = isOver
      ? {
          end: end(act === 'fail' ? 'exit-code exited 1' : 'success exited 0'),
          lastWord: lastWord(act === 'fail' ? { verdict: 'error', code: 'agent_error' } : {}),
        }
      : { hostChanged: true };
    const { intent, status } = live;
    const evident = evidence({ ...known, intent, approvalOpen: status === 'waiting_for_approval' });
    conclude(this.rig.context, live.id, gathered(evident));
  }

  /** What does not hold, though it must between any two acts. */
  violations(): string[] {
    const { workUnit, questions, live } = this;
    const { status } = workUnit;
    const opened = questions.filter(isOpenRow);
    const pending = questions.filter((row) => row.status === 'pending');
    const rules: Readonly<Record<string, boolean>> = {
      'work waits for an answer that somebody owes':
        status !== 'waiting_for_approval' || pending.length > 0,
      // One that is being stopped may still ask: its end decides.
      'work that runs owes no answer':
        status !== 'running' || live?.status === 'cancelling' || pending.length === 0,
      'queued work owes no answer': status !== 'queued' || pending.length === 0,
      'ended work has nothing open': !TERMINAL_STATUSES.has(status) || opened.length === 0,
      'one attempt lives at most': this.#living().length <= 1,
      ...this.#boundRules(opened, live),
      ...this.#rowRules(questions),
    };
    const rows = opened.map((row) => `${row.status}/${row.checkpoint}`).join(' ');
    return Object.entries(rules).flatMap(([rule, holds]) =>
      holds ? [] : [`${rule}: ${status}, ${rows}`],
    );
  }

  #living(): AttemptRow[] {
    return this.rig.store.attempts
      .listByWorkUnit(this.id)
      .filter(({ status }) => !TERMINAL_ATTEMPT_STATUSES.has(status));
  }

  #boundRules(opened: readonly ApprovalRow[], live: AttemptRow | null) {
    const bound = opened.filter(({ checkpoint }) => checkpoint === 'resume_pending');
    const holders = new Set(bound.map(({ boundAttemptId }) => boundAttemptId));
    const [holder = null] = holders;
    const owner = holder === null ? null : this.rig.store.attempts.get(holder);
    return {
      'all answers are bound to one attempt': holders.size <= 1,
      'what is bound is answered': bound.every(({ status }) => status !== 'pending'),
      'it is bound to an attempt of its work': bound.length === 0 || owner?.workUnitId === this.id,
      'it is bound to the attempt that lives': !live || holder === null || holder === live.id,
    };
  }

  #rowRules(rows: readonly ApprovalRow[]) {
    const isDecided = ({ status }: ApprovalRow): boolean =>
      status === 'approved' || status === 'denied';
    return {
      'who decided says when': rows.every((row) => isDecided(row) === (row.decidedAt !== null)),
      'what failed says why': rows.every(
        ({ checkpoint, failureCode }) =>
          (checkpoint === 'resume_failed') === (failureCode !== null),
      ),
      'only what was approved began': rows.every(
        ({ status, startAttemptId }) => startAttemptId === null || status === 'approved',
      ),
    };
  }

  /** Ids of questions of which a change was not told, or told twice: revisions count from 2. */
  untold(): string[] {
    const told = new Map<string, number[]>();
    for (const { type, data } of this.rig.store.events.page(this.id, 0, 10_000)) {
      if (type !== 'approval.changed') continue;
      const id = String(data['approvalId']);
      told.set(id, [...(told.get(id) ?? []), Number(data['revision'])]);
    }
    return this.questions.flatMap(({ id, revision }) => {
      const expected = Array.from({ length: revision - 1 }, (_, index) => index + 2);
      return (told.get(id) ?? []).join() === expected.join() ? [] : [id];
    });
  }
}
