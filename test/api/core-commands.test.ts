/** Retry, reconcile, cancel with keys, explain and dry runs over real HTTP. */
import { afterEach, describe, expect, it } from 'vitest';
import type { DryRun, Explanation } from '../../src/api/schemas-explain.ts';
import { dryRunSchema, explanationSchema } from '../../src/api/schemas-explain.ts';
import { type ReconcileView, reconcileReportSchema } from '../../src/api/schemas-runtime.ts';
import { makeAttempt } from '../../src/supervisor/claim.ts';
import { type Answer, COMMAND, json, PI, refused, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

afterEach(cleanUp);

const post = (rig: Rig, path: string, key?: string, body?: object): Promise<Answer> =>
  send(rig.socket, {
    method: 'POST',
    path,
    ...(body === undefined ? {} : { body }),
    headers: key === undefined ? {} : { 'idempotency-key': key },
  });

/** Claims, runs and fails a work unit, as a watch would commit it. */
function fail(rig: Rig, id: string): void {
  const { writer, inner, store } = rig;
  writer.commit((transaction) => {
    const { attempt } = makeAttempt(inner, transaction, transaction.workUnit(id));
    transaction.moveAttempt(attempt, 'failed', {
      endedAt: transaction.at,
      errorCode: 'exit_code',
      errorMessage: 'status 3',
      decidedByRule: 12,
      evidence: { end: { witness: 'unit', how: 'exited', status: 3 }, haltMarker: false },
    });
    transaction.moveWorkUnit(transaction.workUnit(id), 'runner_failed', {
      actor: 'runner',
      patch: {
        endedAt: transaction.at,
        errorCode: 'exit_code',
        errorMessage: 'status 3',
        activeAttemptId: null,
      },
    });
    store.resources.releaseLeases(attempt.id, 'released', transaction.at, 'ended');
    store.resources.releaseSlots(attempt.id, 'released', transaction.at, 'ended');
  });
}

const types = (rig: Rig, id: string): string[] =>
  rig.store.events.page(id, 0, 1000).map(({ type }) => type);

describe('retry', () => {
  it('queues failed work again; the same key once, without a key only if it failed again', async () => {
    const rig = await bootApi();
    const { id, handle } = await start(rig.socket);
    fail(rig, id);
    const first = await post(rig, `/work-units/${handle}/retry`, 'k1');
    expect(first.status, first.text).toBe(200);
    expect(json(first)).toMatchObject({ id, status: 'queued', errorCode: null, endedAt: null });
    const before = rig.counts();
    expect(json(await post(rig, `/work-units/${id}/retry`, 'k1')).status).toBe('queued');
    expect(rig.counts()).toEqual(before);
    expect(refused(await post(rig, `/work-units/${id}/retry`))).toMatchObject({
      status: 409,
      code: 'state_conflict',
    });
    fail(rig, id);
    // Still the first command: it has had its effect, and the work has failed since.
    expect(json(await post(rig, `/work-units/${id}/retry`, 'k1')).status).toBe('failed');
    expect(json(await post(rig, `/work-units/${id}/retry`, 'k2')).status).toBe('queued');
  });

  it('a refused command does not use its key up', async () => {
    const rig = await bootApi();
    const { id } = await start(rig.socket);
    expect((await post(rig, `/work-units/${id}/retry`, 'k')).status).toBe(409);
    fail(rig, id);
    expect(json(await post(rig, `/work-units/${id}/retry`, 'k')).status).toBe('queued');
  });

  it('proves a stale one gone before; a bus that cannot be asked proves nothing', async () => {
    const rig = await bootApi();
    const { id } = await start(rig.socket);
    rig.writer.commit((transaction) => {
      makeAttempt(rig.inner, transaction, transaction.workUnit(id));
      transaction.moveWorkUnit(transaction.workUnit(id), 'runner_lost', { actor: 'system' });
    });
    expect((await post(rig, `/work-units/${id}/retry`)).status).toBe(500); // executorOfNobody
    expect(rig.store.workUnits.get(id)?.status).toBe('stale');
  });

  it.each(['/work-units/nobody/retry', '/work-units/nobody/reconcile', '/attempts/nobody'])(
    '%s is not found',
    async (path) => {
      const rig = await bootApi();
      const method = path.startsWith('/attempts') ? 'GET' : 'POST';
      const answer = refused(await send(rig.socket, { method, path }));
      expect(answer).toMatchObject({ status: 404, code: 'not_found' });
    },
  );
});

describe('cancel with a key', () => {
  it('has one effect, and the key is of this command on this work unit', async () => {
    const rig = await bootApi();
    const one = await start(rig.socket);
    const other = await start(rig.socket);
    const path = `/work-units/${one.id}/cancel`;
    expect(json(await post(rig, path, 'k', { reason: 'no' })).status).toBe('cancelled');
    const events = types(rig, one.id);
    expect(json(await post(rig, path, 'k', { reason: 'no' })).status).toBe('cancelled');
    expect(types(rig, one.id)).toEqual(events);
    for (const another of [`/work-units/${other.id}/cancel`, `/work-units/${one.id}/retry`]) {
      const answer = refused(await post(rig, another, 'k'));
      expect(answer).toMatchObject({ status: 409, code: 'idempotency_mismatch' });
    }
    expect(rig.store.workUnits.get(other.id)?.status).toBe('queued');
  });

  it('20 at once with one key have one effect', async () => {
    const rig = await bootApi();
    const { id } = await start(rig.socket);
    fail(rig, id);
    const path = `/work-units/${id}/retry`;
    const answers = await Promise.all(Array.from({ length: 20 }, () => post(rig, path, 'same')));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(types(rig, id).filter((type) => type === 'work_unit.queued')).toHaveLength(2);
  });
});

describe('reconcile', () => {
  it('of work that nothing runs of says so', async () => {
    const rig = await bootApi();
    const { id, handle } = await start(rig.socket);
    const one = json<ReconcileView>(await post(rig, `/work-units/${handle}/reconcile`));
    expect(reconcileReportSchema.parse(one).items).toEqual([
      {
        workUnitId: id,
        handle,
        unit: null,
        before: 'queued',
        after: 'queued',
        action: 'nothing_runs',
      },
    ]);
    const all = json<ReconcileView>(await post(rig, '/runtime/reconcile'));
    expect(all).toMatchObject({ items: [], nextCursor: null });
  });
});

describe('explain', () => {
  const explain = async (rig: Rig, id: string): Promise<Explanation> =>
    explanationSchema.parse(json(await send(rig.socket, { path: `/work-units/${id}/explain` })));

  it('names what blocks it, who holds that and since when', async () => {
    const rig = await bootApi();
    const holder = await start(rig.socket, { handle: 'holder', exclusive: true, cwd: '/tmp' });
    const waiter = await start(rig.socket, { handle: 'waiter', exclusive: true, cwd: '/tmp' });
    expect(await explain(rig, waiter.id)).toMatchObject({
      summary: 'It is queued: 1 queued before it.',
      waiting: { why: 'in_line' },
      canCancel: true,
      canRetry: false,
    });
    rig.writer.commit((transaction) => {
      makeAttempt(rig.inner, transaction, transaction.workUnit(holder.id));
    });
    const since = '2026-01-02T03:04:05.678Z';
    rig.store.queue.block(waiter.id, 'lease bound_path /tmp', since);
    expect((await explain(rig, waiter.id)).waiting).toEqual({
      why: 'blocked',
      reason: 'bound_path /tmp is held by holder',
      since,
      resource: 'lease bound_path /tmp',
      heldBy: 'holder',
      nextStartAt: null,
    });
  });

  it('says when the workspace is paused and when delayed work may start', async () => {
    const rig = await bootApi();
    const { id } = await start(rig.socket);
    const later = new Date(Date.now() + 60_000).toISOString();
    rig.store.queue.delay(id, later);
    expect((await explain(rig, id)).waiting).toMatchObject({ why: 'delayed', nextStartAt: later });
    await post(rig, '/runtime/pause');
    const { waiting, summary } = await explain(rig, id);
    expect(waiting).toMatchObject({ why: 'admission' });
    expect(summary).toContain('the workspace is paused');
  });

  it('names the rule that decided each attempt, with its evidence', async () => {
    const rig = await bootApi();
    const { id } = await start(rig.socket);
    fail(rig, id);
    const explanation = await explain(rig, id);
    expect(explanation).toMatchObject({ status: 'failed', waiting: null, canRetry: true });
    expect(explanation.summary).toContain('rule 12: an exit status other than 0');
    expect(explanation.attempts).toMatchObject([
      {
        attemptNumber: 1,
        errorCode: 'exit_code',
        rule: { number: 12, when: 'an exit status other than 0' },
        evidence: [
          { name: 'end.witness', value: 'unit' },
          { name: 'end.how', value: 'exited' },
          { name: 'end.status', value: '3' },
        ],
      },
    ]);
  });
});

describe('a dry run', () => {
  const dry = (rig: Rig, body: object): Promise<Answer> =>
    post(rig, '/work-units?dryRun=true', undefined, body);

  it('answers the properties of the unit and stores nothing', async () => {
    const rig = await bootApi();
    const before = rig.counts();
    const timeoutPolicy = { hardTimeoutMs: 90_000, cancelGraceMs: 1_000 };
    const answer = await dry(rig, { ...PI, handle: 'issue42', timeoutPolicy });
    expect(answer.status, answer.text).toBe(200);
    const view: DryRun = dryRunSchema.parse(json(answer));
    expect(view).toMatchObject({
      created: true,
      waiting: null,
      supersedes: [],
      workUnit: { handle: 'issue42', status: 'queued' },
      unit: { name: 'outlive-main-issue42-1.service' },
    });
    const properties = new Map(view.unit.properties.map(({ name, value }) => [name, value]));
    expect(properties.get('RuntimeMaxUSec')).toBe('90000000');
    expect(properties.get('TimeoutStopUSec')).toBe('6000000');
    expect(properties.get('Description')).toBe('outlive main: issue42, attempt 1 (pi)');
    expect(answer.text).not.toContain('the-secret-itself');
    expect(rig.counts()).toEqual(before);
    // The counter of unit names was not used up either.
    expect(json<DryRun>(await dry(rig, { ...PI, handle: 'issue42' })).unit.name).toMatch(/-1\./);
  });

  it('refuses what a submit refuses', async () => {
    const rig = await bootApi();
    await start(rig.socket, { handle: 'taken', idempotencyKey: 'k' });
    const before = rig.counts();
    const refusals = [
      [{ ...COMMAND, handle: 'taken' }, 'handle_taken'],
      [{ ...COMMAND, idempotencyKey: 'k' }, 'idempotency_mismatch'],
      [{ ...COMMAND, cwd: `${rig.directory}/missing` }, 'cwd_missing'],
      [{ ...COMMAND, argv: [] }, 'invalid_request'],
    ] as const;
    for (const [body, code] of refusals) expect(refused(await dry(rig, body)).code).toBe(code);
    expect(refused(await post(rig, '/work-units?dryRun=maybe', undefined, COMMAND))).toMatchObject({
      status: 422,
      paths: ['/dryRun'],
    });
    expect(rig.counts()).toEqual(before);
  });

  it('tells what it would wait for and what it would cancel', async () => {
    const rig = await bootApi();
    const first = await start(rig.socket, {
      handle: 'first',
      exclusive: true,
      cwd: '/tmp',
      externalSubject: 'github:a/b#1',
    });
    rig.writer.commit((transaction) => {
      makeAttempt(rig.inner, transaction, transaction.workUnit(first.id));
    });
    const body = { ...PI, cwd: '/tmp', externalSubject: 'github:a/b#1' };
    const view = json<DryRun>(await dry(rig, { ...body, onNewerSubject: 'supersede' }));
    expect(view).toMatchObject({
      waiting: { why: 'blocked', heldBy: 'first' },
      supersedes: ['first'],
    });
    expect(rig.store.workUnits.get(first.id)?.status).toBe('claimed');
    const busy = refused(await dry(rig, { ...body, onNewerSubject: 'block' }));
    expect(busy).toMatchObject({ status: 409, code: 'subject_busy' });
    const now = refused(await dry(rig, { ...body, queueOnConflict: false }));
    expect(now).toMatchObject({ status: 409, code: 'resource_busy' });
  });
});
