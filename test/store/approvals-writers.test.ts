/** Who writes checkpoints: claim, suspension and end alone, each whole, each told once. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import type { Store } from '../../src/store/store.ts';
import { commitApprovalResumeClaim } from '../../src/supervisor/approval-commits.ts';
import { decide } from '../../src/supervisor/approval-decide.ts';
import { createClaimer } from '../../src/supervisor/claim.ts';
import type { Context } from '../../src/supervisor/context.ts';
import { cancel } from '../../src/supervisor/end.ts';
import { waitingOf } from '../../src/supervisor/explain.ts';
import { createWriter } from '../../src/supervisor/writer.ts';
import { ask, begin, finish } from '../support/approvals.ts';
import { dump } from '../support/dump.ts';
import { APPROVE, lose, PI, running, type Waiting } from './approval-rig.ts';
import { cleanUp, raw, refusal } from './rig.ts';

afterEach(cleanUp);

/** Suspended work whose question was approved: queued, nothing bound. */
function approved(): Waiting & { readonly approvalId: string } {
  const waiting = running();
  const { id } = ask(waiting.rig.context, waiting.rig.active(waiting.id));
  lose(waiting);
  decide(waiting.rig.context, id, APPROVE);
  return { ...waiting, approvalId: id };
}

/** The same, and its replacement runs. */
function replaced(): Waiting & { readonly approvalId: string } {
  const waiting = approved();
  waiting.rig.claimAll();
  waiting.rig.run(waiting.id);
  return waiting;
}

/** A context whose store fails at its `n`-th statement. */
function failingAt(context: Context, n: number): Context {
  let count = 0;
  const guard = <Group extends object>(group: Group): Group =>
    new Proxy(group, {
      get: (object, name) => {
        const value = Reflect.get(object, name) as unknown;
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          count += 1;
          if (count === n) throw new Error('injected');
          return Reflect.apply(value, object, args) as unknown;
        };
      },
    });
  const { workUnits, attempts, approvals, events, resources, queue } = context.store;
  const groups = { workUnits, attempts, approvals, events, resources, queue };
  const guarded = Object.entries(groups).map(([name, group]) => [name, guard(group)]);
  const store = { ...context.store, ...Object.fromEntries(guarded) } as Store;
  return { ...context, store, writer: createWriter(store, context.hub, context.entropy) };
}

/** What `work` threw; null when it did not. */
function thrown(work: () => unknown): string | null {
  try {
    work();
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

describe('row 231: with a failure at every statement', () => {
  it.each<[string, () => Waiting, (context: Context, waiting: Waiting) => unknown]>([
    ['the claim of a replacement', approved, (context) => createClaimer(context)()],
    [
      'the end of suspended work',
      () => {
        const waiting = running();
        ask(waiting.rig.context, waiting.rig.active(waiting.id));
        lose(waiting);
        return waiting;
      },
      (context, { id }) => cancel(context, id, { actor: 'user', reason: null }),
    ],
  ])('%s leaves everything as it was, or is whole', (_name, make, act) => {
    const waiting = make();
    const db = raw(waiting.directory);
    const before = JSON.stringify(dump(db));
    const failures: (string | null)[] = [];
    do {
      const context = failingAt(waiting.rig.context, failures.length + 1);
      failures.push(thrown(() => act(context, waiting)));
      const isUnchanged = JSON.stringify(dump(db)) === before;
      expect(isUnchanged, `statement ${failures.length}`).toBe(failures.at(-1) !== null);
    } while (failures.at(-1) !== null);
    expect(new Set(failures)).toEqual(new Set(['injected', null]));
    expect(failures.length, 'it has many statements').toBeGreaterThan(8);
  });
});

describe('row 241: a claim', () => {
  const claim = ({ rig, id }: Waiting, attemptId: string) =>
    refusal(() =>
      rig.context.writer.commit((transaction) =>
        commitApprovalResumeClaim(rig.context, transaction, transaction.workUnit(id), {
          id: attemptId,
          workUnitId: id,
        }),
      ),
    );

  it.each<[string, () => Waiting]>([
    [
      'of what nobody decided',
      () => {
        const waiting = running();
        ask(waiting.rig.context, waiting.rig.active(waiting.id));
        return waiting;
      },
    ],
    [
      'while the attempt that asked may still act',
      () => {
        const waiting = running();
        const { id } = ask(waiting.rig.context, waiting.rig.active(waiting.id));
        decide(waiting.rig.context, id, APPROVE);
        return waiting;
      },
    ],
    ['while a replacement that is bound may still act', () => replaced()],
    [
      'of a call that was begun',
      () => {
        const waiting = replaced();
        const [row] = waiting.rig.store.approvals.open(waiting.id);
        if (row) begin(waiting.rig.context, waiting.rig.active(waiting.id), row);
        return waiting;
      },
    ],
  ])('%s is a typed conflict, and changes nothing', (_what, make) => {
    const waiting = make();
    const db = raw(waiting.directory);
    const before = dump(db);
    const refused = claim(waiting, waiting.rig.active(waiting.id).id);
    expect(refused.code).toBe('checkpoint_conflict');
    expect(refused.extra).toHaveProperty('approvalId');
    expect(dump(db)).toEqual(before);
  });

  it('by an attempt that is not the active one is a conflict, too', () => {
    const waiting = replaced();
    expect(claim(waiting, 'another attempt').code).toBe('checkpoint_conflict');
  });

  it('and all other changes go through one function, which compares the revision', () => {
    const source = fileURLToPath(new URL('../../src', import.meta.url));
    const files = readdirSync(source, { recursive: true }).map(String);
    const writers = files.filter(
      (file) =>
        file.endsWith('.ts') &&
        /approvals\.move\(|UPDATE approvals/.test(readFileSync(path.join(source, file), 'utf8')),
    );
    const mayBe = /^(store\/approvals|supervisor\/approval-(commits|ledger))\.ts$/;
    expect(writers.filter((file) => !mayBe.test(file))).toEqual([]);
    expect(writers, 'the statement and its one caller').toHaveLength(2);
  });

  it('by whoever saw an earlier revision changes nothing', () => {
    const waiting = approved();
    const [seen] = waiting.rig.store.approvals.open(waiting.id);
    waiting.rig.claimAll();
    const { approvals } = waiting.rig.store;
    const stale = { id: waiting.approvalId, revision: seen?.revision ?? 0 };
    expect(approvals.move(stale, { checkpoint: 'closed' }, '')).toBe(false);
    expect(approvals.get(waiting.approvalId)?.checkpoint).toBe('resume_pending');
  });
});

describe('row 249: what becomes of a question', () => {
  const causes = ({ rig, id }: Waiting): unknown[] =>
    rig.store.events
      .page(id, 0, 1_000)
      .flatMap(({ type, data }) => (type === 'approval.changed' ? [data['cause']] : []));
  const WAY = ['suspended:approval_wait', 'decided', 'resume_claim'];

  it('is told once for the suspension, the answer, the claim, the start and the end', () => {
    const waiting = replaced();
    const { rig, id, approvalId } = waiting;
    const row = rig.store.approvals.get(approvalId);
    if (!row) throw new Error('no question');
    begin(rig.context, rig.active(id), row);
    finish(rig.context, rig.active(id), row);
    expect(causes(waiting)).toEqual([...WAY, 'call_begun', 'call_ended']);
  });

  it('is told once for a second suspension and the claim after it', () => {
    const waiting = replaced();
    lose(waiting);
    waiting.rig.entropy.advance(10_000);
    waiting.rig.claimAll();
    expect(causes(waiting)).toEqual([...WAY, 'suspended:resume_pre_dispatch', 'resume_claim']);
  });

  it('is told once for a block', () => {
    const waiting = replaced();
    const { rig, id, approvalId } = waiting;
    const row = rig.store.approvals.get(approvalId);
    if (row) begin(rig.context, rig.active(id), row);
    lose(waiting);
    expect(causes(waiting)).toEqual([...WAY, 'call_begun', 'effect_unknown']);
  });
});

describe('row 245: an answer without capacity', () => {
  it('makes no attempt, holds nothing, and says what it waits for', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const asked = ask(rig.context, rig.active(id));
    lose(waiting);
    const other = rig.submit({ ...PI, priority: 5, exclusive: false });
    expect(rig.claimAll()).toEqual([other]);
    decide(rig.context, asked.id, APPROVE);
    rig.claimAll();
    const workUnit = rig.store.workUnits.get(id);
    if (!workUnit) throw new Error('no work unit');
    expect(workUnit).toMatchObject({ status: 'queued', attemptCount: 1, activeAttemptId: null });
    expect(waitingOf(rig.context, workUnit)).toMatchObject({
      why: 'blocked',
      resource: 'slot provider acme',
    });
    expect(rig.store.approvals.get(asked.id)).toMatchObject({ boundAttemptId: null });
  });
});

describe('row 239: a call of another fingerprint', () => {
  it('does not spend the approval', () => {
    const waiting = replaced();
    const { rig, id, approvalId } = waiting;
    const row = rig.store.approvals.get(approvalId);
    if (!row) throw new Error('no question');
    begin(rig.context, rig.active(id), { ...row, fingerprint: 'e'.repeat(64) });
    expect(rig.store.approvals.get(approvalId)).toEqual(row);
  });
});
