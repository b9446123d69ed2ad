/** The workspace as a whole over real HTTP: diagnostics, admission, channels, the document. */
import { afterEach, describe, expect, it } from 'vitest';
import type { z } from 'zod';
import {
  activePageSchema,
  channelViewSchema,
  leasePageSchema,
  semaphorePageSchema,
  stuckPageSchema,
  supervisorViewSchema,
} from '../../src/api/schemas-runtime.ts';
import { makeAttempt } from '../../src/supervisor/claim.ts';
import { type Answer, json, refused, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

afterEach(cleanUp);

const parse = <Schema extends z.ZodType>(schema: Schema, answer: Answer): z.output<Schema> => {
  expect(answer.status, answer.text).toBe(200);
  return schema.parse(JSON.parse(answer.text));
};
const get = (rig: Rig, path: string): Promise<Answer> => send(rig.socket, { path });
const put = (rig: Rig, path: string, body: object): Promise<Answer> =>
  send(rig.socket, { method: 'PUT', path, body });

/** What the scheduler does with a unit it takes. */
function claim(rig: Rig, id: string): void {
  rig.writer.commit((transaction) => {
    makeAttempt(rig.inner, transaction, transaction.workUnit(id));
  });
}

function run(rig: Rig, id: string): void {
  claim(rig, id);
  rig.writer.commit((transaction) => {
    transaction.moveWorkUnit(transaction.workUnit(id), 'runner_started', {
      actor: 'system',
      patch: { startedAt: transaction.at },
    });
  });
}

describe('diagnostics', () => {
  it('say what runs, what holds what and what waits for it', async () => {
    const rig = await bootApi();
    const first = await start(rig.socket, {
      handle: 'first',
      exclusive: true,
      cwd: '/tmp',
      createdByClientId: 'editor-7',
    });
    const second = await start(rig.socket, { handle: 'second', exclusive: true, cwd: '/tmp' });
    run(rig, first.id);
    rig.store.workUnits.touchEvent(first.id, new Date().toISOString());
    rig.store.queue.block(second.id, 'lease bound_path /tmp', new Date().toISOString());

    const supervisor = parse(supervisorViewSchema, await get(rig, '/runtime/supervisor'));
    expect(supervisor).toMatchObject({
      admission: 'open',
      counts: { running: 1, queued: 1, failed: 0 },
      queue: { queued: 1, blocked: 1, nextDueAt: null },
      blockers: [{ resource: 'lease bound_path /tmp', waiting: 1 }],
      recovery: null,
    });
    const active = parse(activePageSchema, await get(rig, '/runtime/active'));
    expect(active.items).toMatchObject([
      {
        handle: 'first',
        status: 'running',
        runnerId: 'command',
        ownerId: 'ada',
        leases: ['bound_path /tmp'],
        slots: ['runner command'],
        canCancel: true,
        canRetry: false,
        canReconcile: true,
        createdByClientId: 'editor-7',
        createdByActor: 'user',
        unit: 'outlive-main-first-1.service',
      },
    ]);
    expect(active.items[0]?.lastEventAgeMs ?? -1).toBeGreaterThanOrEqual(0);
    const leases = parse(leasePageSchema, await get(rig, '/runtime/leases'));
    expect(leases.items).toMatchObject([
      { resourceType: 'bound_path', resourceKey: '/tmp', handle: 'first', expired: false },
    ]);
    const slots = parse(semaphorePageSchema, await get(rig, '/runtime/semaphores'));
    expect(slots.items).toMatchObject([
      { resourceType: 'runner', resourceKey: 'pi', limit: 2, used: 0, holders: [] },
      { resourceKey: 'command', limit: 4, used: 1, holders: [{ handle: 'first' }] },
    ]);
  });

  it('shows the report of the last recovery', async () => {
    const rig = await bootApi();
    const at = new Date().toISOString();
    rig.store.recordInstance({ id: 'i1', pid: 1, version: '0', startedAt: at });
    rig.store.saveReport('i1', { reattached: ['u'], settled: [], foreignUnits: [] });
    const view = parse(supervisorViewSchema, await get(rig, '/runtime/supervisor'));
    expect(view.recovery).toEqual({ reattached: ['u'], settled: [], foreignUnits: [] });
  });

  it('calls stuck what is silent beyond half its idle timeout, stale, or overdue', async () => {
    const rig = await bootApi();
    const timeoutPolicy = { idleTimeoutMs: 10_000, cancelGraceMs: 0 };
    const silent = await start(rig.socket, { handle: 'silent', timeoutPolicy });
    const fine = await start(rig.socket, { handle: 'fine', timeoutPolicy });
    const stale = await start(rig.socket, { handle: 'stale', timeoutPolicy });
    const late = await start(rig.socket, { handle: 'late', timeoutPolicy });
    for (const { id } of [silent, fine, stale, late]) run(rig, id);
    const ago = (ms: number): string => new Date(Date.now() - ms).toISOString();
    rig.store.workUnits.touchEvent(silent.id, ago(6_000));
    rig.store.workUnits.touchEvent(fine.id, ago(1_000));
    rig.writer.commit((transaction) => {
      transaction.moveWorkUnit(transaction.workUnit(stale.id), 'runner_lost', { actor: 'system' });
    });
    rig.context.supervisor.cancel(late.id, { actor: 'user', reason: null });
    const attemptId = rig.store.workUnits.get(late.id)?.activeAttemptId ?? '';
    rig.store.attempts.patch(attemptId, { abortRequestedAt: ago(5_000) });

    const stuck = parse(stuckPageSchema, await get(rig, '/runtime/stuck'));
    expect(stuck.items).toMatchObject([
      { handle: 'silent', why: 'silent', canCancel: true, canRetry: false },
      { handle: 'stale', why: 'stale', canCancel: true, canRetry: true },
      { handle: 'late', why: 'cancel_overdue', canCancel: false, canRetry: false },
    ]);
    expect(stuck.items[0]?.lastEventAgeMs).toBeGreaterThanOrEqual(6_000);
  });
});

describe('admission', () => {
  it('pause, drain and resume are durable and answer what is left to do', async () => {
    const rig = await bootApi();
    await start(rig.socket);
    for (const [verb, admission] of [
      ['pause', 'paused'],
      ['drain', 'draining'],
      ['resume', 'open'],
    ] as const) {
      const answer = await send(rig.socket, { method: 'POST', path: `/runtime/${verb}` });
      expect(json<object>(answer)).toEqual({ admission, activeAttempts: 0, queued: 1 });
      expect(rig.store.channels.admission()).toBe(admission);
    }
    const bad = await send(rig.socket, { path: '/runtime/pause', body: { now: true } });
    expect(refused(bad)).toMatchObject({ status: 422, code: 'invalid_request' });
  });
});

describe('channels', () => {
  it('are made, listed, shown and changed in part', async () => {
    const rig = await bootApi();
    const id = 'linear/team a';
    const path = `/channels/${encodeURIComponent(id)}`;
    expect(refused(await get(rig, path))).toMatchObject({ status: 404, code: 'not_found' });
    const made = parse(channelViewSchema, await put(rig, path, { maxConcurrentRuns: 3 }));
    expect(made).toMatchObject({
      id,
      status: 'active',
      maxConcurrentRuns: 3,
      onNewerSubject: 'queue',
    });
    const paused = parse(channelViewSchema, await put(rig, path, { status: 'paused' }));
    expect(paused).toMatchObject({ status: 'paused', maxConcurrentRuns: 3, running: 0 });
    expect(json<{ items: object[] }>(await get(rig, '/channels')).items).toEqual([paused]);
    expect(parse(channelViewSchema, await get(rig, path))).toEqual(paused);
  });

  it('with the longest id there may be', async () => {
    const rig = await bootApi();
    const path = `/channels/${encodeURIComponent('ü'.repeat(256))}`;
    expect((await put(rig, path, {})).status).toBe(200);
    const longer = `/channels/${'x'.repeat(257)}`;
    expect(refused(await put(rig, longer, {}))).toMatchObject({ status: 422, paths: ['/id'] });
  });

  it.each([
    [{ maxConcurrentRuns: 0 }, '/maxConcurrentRuns'],
    [{ maxConcurrentRuns: '1' }, '/maxConcurrentRuns'],
    [{ status: 'off' }, '/status'],
    [{ onNewerSubject: 1 }, '/onNewerSubject'],
    [{ colour: 'red' }, '/colour'],
  ])('refuse %j and write nothing', async (body, path) => {
    const rig = await bootApi();
    const before = rig.counts();
    const answer = refused(await put(rig, '/channels/x', body));
    expect(answer).toEqual({ status: 422, code: 'invalid_request', paths: [path] });
    expect(rig.counts()).toEqual(before);
  });
});

describe('the document', () => {
  it('names every route with its schemas', async () => {
    const rig = await bootApi();
    const answer = await get(rig, '/openapi.json');
    const document = json<{
      openapi: string;
      paths: Record<string, Record<string, object>>;
      components: { schemas: Record<string, object> };
    }>(answer);
    expect(document.openapi).toBe('3.1.0');
    const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(routes.sort()).toEqual(
      [
        'GET /approvals',
        'GET /approvals/{id}',
        'GET /artifacts/{id}',
        'GET /artifacts/{id}/content',
        'GET /attempts/{id}',
        'GET /channels',
        'GET /channels/{id}',
        'GET /docs',
        'GET /events',
        'GET /ledger',
        'GET /linear/status',
        'GET /openapi.json',
        'GET /providers',
        'GET /runtime',
        'GET /runtime/active',
        'GET /runtime/leases',
        'GET /runtime/semaphores',
        'GET /runtime/stuck',
        'GET /runtime/supervisor',
        'GET /spend',
        'GET /work-units',
        'GET /work-units/{id}',
        'GET /work-units/{id}/artifacts',
        'GET /work-units/{id}/events',
        'GET /work-units/{id}/explain',
        'POST /approvals/{id}/approve',
        'POST /approvals/{id}/deny',
        'POST /maintenance/backup',
        'POST /maintenance/gc',
        'POST /providers/{name}/resume',
        'POST /runs',
        'POST /runtime/drain',
        'POST /runtime/pause',
        'POST /runtime/reconcile',
        'POST /runtime/resume',
        'POST /work-units',
        'POST /work-units/{id}/cancel',
        'POST /work-units/{id}/reconcile',
        'POST /work-units/{id}/retry',
        'PUT /channels/{id}',
      ].sort(),
    );
    // Every reference leads somewhere, and nothing of the schemas' own bookkeeping is left.
    const text = answer.text;
    for (const [, name] of text.matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      expect(document.components.schemas).toHaveProperty(name ?? '');
    }
    expect(text).not.toContain('$defs');
    expect(document.paths['/work-units']?.['post']).toMatchObject({
      requestBody: { required: true },
      responses: { 201: { description: 'Created' }, default: {} },
    });
  });

  it('is a page that loads nothing', async () => {
    const rig = await bootApi();
    const { text, headers } = await get(rig, '/docs');
    expect(headers['content-type']).toContain('text/html');
    expect(text).toContain('POST /work-units/{id}/retry');
    expect(text).not.toMatch(/<script|src=|https?:\/\/(?!json-schema)/);
  });
});
