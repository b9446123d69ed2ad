/** The ledger over a real store: one line for each attempt that has ended, whatever became of it. */
import type Database from 'better-sqlite3';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { Evidence } from '../../src/domain/evidence.ts';
import { OWN_WORK } from '../../src/domain/ledger.ts';
import { type AttemptStatus, TERMINAL_ATTEMPT_STATUSES } from '../../src/domain/work-unit.ts';
import {
  type LedgerFilter,
  type LedgerLine,
  type LedgerPlace,
  ledgerStatements,
} from '../../src/store/ledger.ts';
import type { Store } from '../../src/store/store.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { retry } from '../../src/supervisor/retry.ts';
import { anyEvidence, end, evidence, lastWord } from '../property/evidence.ts';
import { QueueRig, type Wanted } from '../support/core-queue.ts';
import { cleanUp, open, planOf, raw, temporaryDirectory, WORKSPACE } from './rig.ts';

afterEach(cleanUp);

const WELL = evidence({ lastWord: lastWord(), end: end('success exited 0') });
const EXIT_3 = evidence({
  lastWord: lastWord({ verdict: 'error', code: 'exit_code', exitCode: 3 }),
  end: end('exit-code exited 1'),
});

const gathered = (known: Evidence) => ({
  evidence: known,
  record: null,
  unusable: null,
  disagreement: null,
  artifacts: [],
  loss: { session: null, cwd: { path: '/', exists: true } },
});

interface World {
  readonly rig: QueueRig;
  readonly store: Store;
  readonly db: Database.Database;
  readonly directory: string;
}

function world(): World {
  const directory = temporaryDirectory();
  const store = open(directory);
  return { rig: new QueueRig(store), store, db: raw(directory), directory };
}

/** What was said of it is in its row by the time it ends, as ingest leaves it. */
function endWith(rig: QueueRig, id: string, known: Evidence): string {
  const attempt = rig.active(id);
  if (known.lastWord) rig.store.attempts.patch(attempt.id, { lastWord: known.lastWord });
  conclude(rig.context, attempt.id, gathered(known));
  return attempt.id;
}

/** One that was submitted, ran and ended so. */
function ran(
  rig: QueueRig,
  wanted: Wanted = {},
  known: Evidence = WELL,
): { id: string; attempt: string } {
  const id = rig.submit(wanted);
  expect(rig.claimAll()).toEqual([id]);
  rig.run(id);
  rig.entropy.advance(1_000);
  return { id, attempt: endWith(rig, id, known) };
}

const lines = (store: Store, filter: Partial<LedgerFilter> = {}): LedgerLine[] =>
  store.ledger.page({ order: 'newest', limit: 1_000, all: false, ...filter });

/** All of them, `size` at a time, each page after the last line of the one before. */
function paged(store: Store, filter: Partial<LedgerFilter>, size: number): LedgerLine[] {
  const all: LedgerLine[] = [];
  let after: LedgerPlace | null = null;
  for (;;) {
    const page = lines(store, { ...filter, limit: size, after });
    all.push(...page);
    const last = page.at(-1);
    if (page.length < size || !last) return all;
    after = store.ledger.placeOf(last.attemptId);
  }
}

function outcomeOf(
  db: Database.Database,
  id: string,
  number: number,
  found: Record<string, string | null>,
) {
  db.prepare(`INSERT INTO outcomes (work_unit_id, attempt_number, state, code, verify_id, created_at)
    VALUES (?, ?, ?, ?, ?, '2026-01-02T03:04:05.678Z')`).run(
    id,
    number,
    found['state'],
    found['code'] ?? null,
    found['verifyId'] ?? null,
  );
}

const OWNERS = ['user', 'driver', 'linear_session', ...OWN_WORK];

describe('one line for each attempt that has ended', () => {
  const steps = fc.array(
    fc.record({
      ownerType: fc.constantFrom(...OWNERS),
      runs: fc.boolean(),
      cancels: fc.boolean(),
      end: fc.option(anyEvidence, { nil: null, freq: 6 }),
      // Several may end in the same millisecond.
      later: fc.nat({ max: 2 }),
    }),
    { minLength: 1, maxLength: 24 },
  );

  it('and none for any other, over pages of any size, in both orders; X23', () => {
    fc.assert(
      fc.property(steps, fc.integer({ min: 1, max: 7 }), (plan, size) => {
        const { rig, store, db } = world();
        for (const step of plan) {
          rig.submit({ ownerType: step.ownerType });
          for (const id of rig.claimAll()) {
            if (step.runs) rig.run(id);
            if (step.cancels) rig.cancel(id);
            if (step.end) endWith(rig, id, step.end);
          }
          rig.entropy.advance(step.later);
        }
        const rows = db
          .prepare<[], { id: string; status: AttemptStatus; owner: string; at: string | null }>(
            `SELECT a.id, a.status, a.ended_at AS at, w.owner_type AS owner
             FROM work_unit_attempts AS a JOIN work_units AS w ON w.id = a.work_unit_id`,
          )
          .all()
          .filter(({ status }) => TERMINAL_ATTEMPT_STATUSES.has(status))
          .sort((a, b) => (`${a.at} ${a.id}` < `${b.at} ${b.id}` ? -1 : 1));
        const all = rows.map(({ id }) => id);
        const ids = (found: LedgerLine[]): string[] => found.map(({ attemptId }) => attemptId);
        expect(ids(paged(store, { order: 'oldest', all: true }, size))).toEqual(all);
        expect(ids(paged(store, { order: 'newest', all: true }, size))).toEqual(all.toReversed());
        const own: readonly string[] = OWN_WORK;
        expect(ids(paged(store, { order: 'oldest' }, size))).toEqual(
          rows.filter(({ owner }) => !own.includes(owner)).map(({ id }) => id),
        );
        expect(lines(store, { all: true }).map(({ result }) => result)).not.toContain('running');
      }),
      { numRuns: 40 },
    );
  });

  it('a retry has a line of its own, with the outcome of its own', async () => {
    const { rig, store, db } = world();
    const { id, attempt } = ran(rig, { handle: 'issue42' }, EXIT_3);
    outcomeOf(db, id, 1, { state: 'skipped', code: 'never_ran' });
    await retry(rig.context, id, 'user');
    rig.claimAll();
    rig.run(id);
    const second = endWith(rig, id, WELL);
    outcomeOf(db, id, 2, { state: 'satisfied', verifyId: 'v' });
    expect(lines(store)).toMatchObject([
      {
        attemptId: second,
        attemptNumber: 2,
        result: 'exit',
        rc: 0,
        outcome: 'satisfied',
        verify: 'ok',
      },
      {
        attemptId: attempt,
        attemptNumber: 1,
        result: 'exit',
        rc: 3,
        outcome: 'skipped(never_ran)',
      },
    ]);
  });
});

describe('a line', () => {
  it('tells whose work it was, where it ran and how it ended', () => {
    const { rig, store, db } = world();
    const wanted = { ownerType: 'driver', ownerId: 'nightly', externalSubject: 'issue:42' };
    const leftovers = [{ pid: 7, name: 'sleep' }];
    const known = evidence({
      lastWord: lastWord({ costUsd: 0.25, leftovers }),
      end: end('success exited 0'),
    });
    const { id, attempt } = ran(rig, { ...wanted, handle: 'issue42' }, known);
    outcomeOf(db, id, 1, { state: 'blocked', code: 'delegated_outcome_missing' });
    const row = store.attempts.get(attempt);
    expect(lines(store)).toEqual([
      {
        handle: 'issue42',
        workUnitId: id,
        attemptId: attempt,
        attemptNumber: 1,
        driver: 'nightly',
        subject: 'issue:42',
        unit: row?.unit,
        invocationId: null,
        executor: 'systemd',
        startedAt: null,
        endedAt: row?.endedAt,
        result: 'phantom',
        rc: 0,
        outcome: 'blocked(delegated_outcome_missing)',
        verify: 'not_run',
        reattached: false,
        costUsd: 0.25,
        leftovers: 1,
        createdByActor: 'user',
      },
    ]);
  });

  it('tells what was spent also where there was no last word, and null where no cost is known', () => {
    const { rig, store } = world();
    const killed = evidence({ end: end('signal killed KILL') });
    const { id, attempt } = ran(rig, {}, killed);
    expect(lines(store)).toMatchObject([
      { result: 'signal', rc: 137, costUsd: null, leftovers: null },
    ]);
    store.write(() =>
      store.spend.add(
        { workUnitId: id, attemptId: attempt, channelId: null, day: '2026-01-02' },
        { microUsd: 1_500_000, tokens: 3, unpricedTokens: 0 },
      ),
    );
    expect(lines(store)).toMatchObject([{ costUsd: 1.5 }]);
  });

  it('says that its attempt was taken up again; row 145', () => {
    const { rig, store } = world();
    const { attempt } = ran(rig);
    ran(rig);
    store.write(() => store.attempts.patch(attempt, { reattached: 2 }));
    expect(lines(store).map(({ reattached }) => reattached)).toEqual([false, true]);
  });
});

describe('a filter', () => {
  it('asks for a driver, a handle, a moment; what outlive runs for itself has to be asked for', () => {
    const { rig, store } = world();
    const of = (filter: Partial<LedgerFilter>): string[] =>
      lines(store, filter).map(({ handle }) => handle);
    ran(rig, { handle: 'a' });
    ran(rig, { handle: 'b', ownerType: 'driver', ownerId: 'nightly' });
    ran(rig, { handle: 'c', ownerType: 'driver', ownerId: 'weekly' });
    ran(rig, { handle: 'd', ownerType: 'driver_census', ownerId: 'nightly' });
    ran(rig, { handle: 'nightly', ownerId: 'nightly' });
    expect(of({})).toEqual(['nightly', 'c', 'b', 'a']);
    expect(of({ all: true })).toEqual(['nightly', 'd', 'c', 'b', 'a']);
    expect(of({ driver: 'nightly' })).toEqual(['b']);
    expect(of({ handle: 'c', order: 'oldest' })).toEqual(['c']);
    expect(of({ handle: 'c', driver: 'nightly' })).toEqual([]);
    const since = lines(store, { handle: 'c' })[0]?.endedAt ?? '';
    expect(of({ since })).toEqual(['nightly', 'c']);
    expect(of({ since, driver: 'nightly' })).toEqual([]);
  });

  it('never makes SQLite read or sort every attempt', () => {
    const { rig, store, directory } = world();
    const { attempt } = ran(rig);
    const after = store.ledger.placeOf(attempt);
    const since = after?.endedAt ?? null;
    const plan = (filter: Partial<LedgerFilter>): string =>
      planOf(directory, (db) => {
        const statements = ledgerStatements(db, WORKSPACE);
        statements.page({ order: 'newest', limit: 100, all: false, ...filter });
      });
    for (const filter of [{}, { after }, { since }, { order: 'oldest', after, since } as const]) {
      const chosen = plan(filter).split('SCAN chosen')[0] ?? '';
      expect(chosen, JSON.stringify(filter)).toContain('SEARCH a USING INDEX idx_attempt_ended (');
      expect(chosen, JSON.stringify(filter)).not.toMatch(/TEMP B-TREE|SCAN a|SCAN w/);
    }
    expect(plan({ driver: 'x' })).toContain('SEARCH w USING INDEX idx_work_unit_driver (');
    expect(plan({ handle: 'x', after })).toContain('SEARCH w USING INDEX idx_work_unit_handle (');
  });
});
