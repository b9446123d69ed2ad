/** The commits of checkpoints: what they refuse, and that each is whole or not there. */
import { afterEach, describe, expect, it } from 'vitest';
import type { Store } from '../../src/store/store.ts';
import { commitApprovalResumeSuspension } from '../../src/supervisor/approval-commits.ts';
import { decide } from '../../src/supervisor/approval-decide.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { createWriter } from '../../src/supervisor/writer.ts';
import { ask } from '../support/approvals.ts';
import { dump } from '../support/dump.ts';
import { APPROVE, GONE, gathered, lose, running, type Waiting } from './approval-rig.ts';
import { cleanUp, raw, refusal } from './rig.ts';

afterEach(cleanUp);

/** A store whose `n`-th statement fails; the count goes on over all groups. */
function failingAt(store: Store, n: number): { store: Store; used: () => number } {
  let count = 0;
  const group = <Group extends object>(target: Group): Group =>
    new Proxy(target, {
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
  const groups = ['workUnits', 'attempts', 'approvals', 'events', 'resources', 'queue'] as const;
  const wrapped = { ...store };
  for (const name of groups) Object.assign(wrapped, { [name]: group(store[name]) });
  return { store: wrapped, used: () => count };
}

/** What `work` threw, null when it did not. */
function thrown(work: () => unknown): string | null {
  try {
    work();
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

/** What a suspension at the first and at the second wait finds. */
const SITUATIONS: readonly (readonly [string, () => Waiting])[] = [
  [
    'the first wait',
    () => {
      const waiting = running();
      ask(waiting.rig.context, waiting.rig.active(waiting.id));
      return waiting;
    },
  ],
  [
    'a replacement before the call',
    () => {
      const waiting = running();
      const row = ask(waiting.rig.context, waiting.rig.active(waiting.id));
      lose(waiting);
      decide(waiting.rig.context, row.id, APPROVE);
      waiting.rig.claimAll();
      waiting.rig.run(waiting.id);
      return waiting;
    },
  ],
];

describe.each(SITUATIONS)(
  'row 322, row 244: %s, with a failure at every statement',
  (_name, make) => {
    it('rolls back to exactly what was before', () => {
      const waiting = make();
      const { rig, id, directory } = waiting;
      const attempt = rig.active(id);
      const db = raw(directory);
      const before = dump(db);
      const failures: (string | null)[] = [];
      do {
        const { store } = failingAt(rig.store, failures.length + 1);
        const writer = createWriter(store, rig.context.hub, rig.entropy);
        const context = { ...rig.context, store, writer };
        failures.push(thrown(() => conclude(context, attempt.id, gathered(GONE))));
        const isUnchanged = JSON.stringify(dump(db)) === JSON.stringify(before);
        // Every failed try left nothing behind; the one that did not fail did.
        expect(isUnchanged, `statement ${failures.length}`).toBe(failures.at(-1) !== null);
      } while (failures.at(-1) !== null);
      expect(new Set(failures)).toEqual(new Set(['injected', null]));
      expect(failures.length, 'a suspension has many statements').toBeGreaterThan(15);
    });
  },
);

describe('row 323, row 242: combinations that must not be', () => {
  it.each<[string, string]>([
    ['a pending question beside work that runs', `UPDATE work_units SET status = 'running'`],
    [
      'a bound answer beside work that waits',
      `UPDATE approvals SET status = 'approved', checkpoint = 'resume_pending'`,
    ],
    ['an answer beside work that waits', `UPDATE approvals SET status = 'approved'`],
    ['a pending question that is bound', `UPDATE approvals SET checkpoint = 'resume_pending'`],
    ['a closed question', `UPDATE approvals SET checkpoint = 'closed'`],
    ['another attempt', `UPDATE work_units SET active_attempt_id = NULL`],
    ['a later revision', `UPDATE approvals SET revision = revision + 1`],
    ['an attempt that lives', 'SELECT 1'],
  ])('%s is refused before the first write', (name, damage) => {
    const waiting = running();
    const { rig, id, directory } = waiting;
    const attempt = rig.active(id);
    const row = ask(rig.context, attempt);
    const db = raw(directory);
    if (name !== 'an attempt that lives') {
      db.prepare(`UPDATE work_unit_attempts SET status = 'lost'`).run();
    }
    if (damage.startsWith('UPDATE')) db.prepare(damage).run();
    const seen = rig.store.workUnits.get(id);
    const rows = rig.store.approvals.listOfWorkUnit(id);
    const shown = name === 'a later revision' ? [row] : rows;
    if (!seen) throw new Error('no work unit');
    const before = dump(db);
    const refused = refusal(() =>
      rig.context.writer.commit((transaction) =>
        commitApprovalResumeSuspension(rig.context, transaction, {
          workUnit: seen,
          attempt,
          rows: shown,
          patch: {},
          data: {},
        }),
      ),
    );
    expect(refused.code).toBe('checkpoint_conflict');
    expect(dump(db)).toEqual(before);
  });
});
