import { afterEach, describe, expect, it } from 'vitest';
import type { Intent } from '../../src/domain/evidence.ts';
import { end, lastWord, OPENED } from '../property/evidence.ts';
import {
  AT,
  cleanUp,
  insertAttempt,
  insertWorkUnit,
  open,
  raw,
  refusal,
  temporaryDirectory,
} from './rig.ts';

afterEach(cleanUp);

const unique = /SQLITE_CONSTRAINT_UNIQUE/;

describe('an attempt', () => {
  it('row 039: has a number that is unique in its work unit', () => {
    const store = open();
    const [one, other] = [insertWorkUnit(store), insertWorkUnit(store)];
    insertAttempt(store, one, { attemptNumber: 1 });
    insertAttempt(store, other, { attemptNumber: 1 });
    expect(refusal(() => insertAttempt(store, one, { attemptNumber: 1 })).message).toMatch(unique);
  });

  it('has a unit name and a nonce that no other attempt has, of whichever work', () => {
    const store = open();
    const [one, other] = [insertWorkUnit(store), insertWorkUnit(store)];
    insertAttempt(store, one, { unit: 'outlive-main-a-1.service', nonce: 'n' });
    const unit = { unit: 'outlive-main-a-1.service' };
    expect(refusal(() => insertAttempt(store, other, unit)).message).toMatch(unique);
    expect(refusal(() => insertAttempt(store, other, { nonce: 'n' })).message).toMatch(unique);
  });

  it('row 157: belongs to a work unit that is there', () => {
    const store = open();
    expect(refusal(() => insertAttempt(store, 'nobody')).message).toContain('FOREIGNKEY');
  });

  it('row 038: begins created, with nothing known of its run', () => {
    const store = open();
    const workUnitId = insertWorkUnit(store);
    const id = insertAttempt(store, workUnitId);
    expect(store.attempts.get(id)).toMatchObject({
      workUnitId,
      attemptNumber: 1,
      runtimeInstanceId: 'instance',
      runnerId: 'command',
      status: 'created',
      createdAt: AT,
      startedAt: null,
      endedAt: null,
      lastEventAt: null,
      lastHeartbeatAt: null,
      abortRequestedAt: null,
      errorCode: null,
      errorMessage: null,
      reattached: 0,
      spoolOffset: 0,
      saidDeadline: false,
      toldToStop: false,
    });
  });

  it('keeps everything that is learnt of it', () => {
    const store = open();
    const id = insertAttempt(store, insertWorkUnit(store));
    const intent: Intent = { kind: 'suspend', actor: 'system', reason: 'deploy' };
    const learnt = {
      invocationId: 'i',
      controlGroup: '/user.slice/x',
      bootId: 'b',
      manager: { pid: 7, startTicks: 9 },
      reattached: 2,
      spoolOffset: 2 ** 40,
      spoolLines: 12,
      opened: OPENED,
      saidDeadline: true,
      toldToStop: true,
      lastWord: lastWord({ text: 'fin \ud83d\ude00' }),
      intent,
      decidedByRule: 8,
      startedAt: AT,
      lastEventAt: AT,
      errorCode: 'killed',
    };
    store.write(() => store.attempts.patch(id, { ...learnt, evidence: end('signal killed KILL') }));
    expect(store.attempts.get(id)).toMatchObject(learnt);
  });

  it('is left alone by a patch that names nothing', () => {
    const store = open();
    const id = insertAttempt(store, insertWorkUnit(store));
    const before = store.attempts.get(id);
    store.write(() => store.attempts.patch(id, {}));
    expect(store.attempts.get(id)).toEqual(before);
  });

  it('counts as active until it has ended, and its nonce as ended from then on', () => {
    const store = open();
    const id = insertAttempt(store, insertWorkUnit(store), { nonce: 'n' });
    for (const status of ['started', 'waiting_for_approval', 'cancelling'] as const) {
      const row = store.attempts.get(id);
      if (!row) throw new Error('gone');
      store.write(() => store.attempts.move(row, status, {}));
      expect(store.attempts.listActive().map((active) => active.id)).toEqual([id]);
      expect(store.attempts.countActive()).toBe(1);
      expect(store.attempts.hasEnded('n')).toBe(false);
    }
    for (const status of ['succeeded', 'failed', 'cancelled', 'lost'] as const) {
      const row = store.attempts.get(id);
      if (!row) throw new Error('gone');
      store.write(() => store.attempts.move(row, status, {}));
      expect(store.attempts.listActive()).toEqual([]);
      expect(store.attempts.countActive()).toBe(0);
      expect(store.attempts.hasEnded('n')).toBe(true);
    }
    expect(store.attempts.hasEnded('unknown')).toBe(false);
  });
});

describe('the counter of a handle', () => {
  it('only grows, for each handle by itself', () => {
    const store = open();
    const next = (handle: string) => store.write(() => store.attempts.nextCounter(handle));
    expect([next('a'), next('a'), next('b'), next('a')]).toEqual([1, 2, 1, 3]);
  });

  it('goes on after the store was opened again', () => {
    const directory = temporaryDirectory();
    const first = open(directory);
    first.write(() => first.attempts.nextCounter('a'));
    first.close();
    const second = open(directory);
    expect(second.write(() => second.attempts.nextCounter('a'))).toBe(2);
  });
});

describe('row 159: a heartbeat', () => {
  it('renews its row: one for each attempt and source, however many came', () => {
    const directory = temporaryDirectory();
    const store = open(directory);
    const workUnitId = insertWorkUnit(store);
    const attemptId = insertAttempt(store, workUnitId);
    const beat = (id: string, ts: string, source = 'wrapper', detail: string | null = null) =>
      store.write(() =>
        store.attempts.heartbeat({
          id,
          workUnitId,
          attemptId,
          runtimeInstanceId: 'r',
          ts,
          source,
          detail,
        }),
      );
    beat('1', '2026-01-01T00:00:00.000Z');
    beat('2', '2026-01-01T00:00:10.000Z', 'wrapper', '{"currentTool":"bash"}');
    beat('3', '2026-01-01T00:00:05.000Z', 'daemon');
    const rows = raw(directory)
      .prepare('SELECT ts, source, detail_json FROM runtime_heartbeats ORDER BY source')
      .all();
    expect(rows).toEqual([
      { ts: '2026-01-01T00:00:05.000Z', source: 'daemon', detail_json: null },
      {
        ts: '2026-01-01T00:00:10.000Z',
        source: 'wrapper',
        detail_json: '{"currentTool":"bash"}',
      },
    ]);
  });

  it('of an attempt that is not there is refused', () => {
    const store = open();
    const workUnitId = insertWorkUnit(store);
    const row = {
      id: '1',
      workUnitId,
      attemptId: 'nobody',
      runtimeInstanceId: 'r',
      ts: AT,
      source: 'wrapper',
      detail: null,
    };
    expect(refusal(() => store.write(() => store.attempts.heartbeat(row))).message).toContain(
      'FOREIGNKEY',
    );
  });
});

describe('rows 005 and 001: the daemons of a workspace', () => {
  it('are each remembered, with the report of their recovery', () => {
    const directory = temporaryDirectory();
    const store = open(directory);
    store.recordInstance({ id: 'one', pid: 1, version: '0.1.0', startedAt: AT });
    store.recordInstance({ id: 'two', pid: 2, version: '0.1.0', startedAt: AT });
    store.saveReport('two', { settled: ['a'] });
    const rows = raw(directory)
      .prepare('SELECT id, pid, report_json FROM runtime_instances ORDER BY rowid')
      .all();
    expect(rows).toEqual([
      { id: 'one', pid: 1, report_json: null },
      { id: 'two', pid: 2, report_json: '{"settled":["a"]}' },
    ]);
  });
});
