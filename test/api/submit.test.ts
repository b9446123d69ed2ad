import { mkdirSync, rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WorkUnitView } from '../../src/api/schemas.ts';
import { workUnitViewSchema } from '../../src/api/schemas.ts';
import { PROMPT_MAX } from '../../src/domain/request.ts';
import { COMMAND, json, PI, post, problem, refused, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await bootApi();
});
afterAll(cleanUp);

let made = 0;
const freshKey = (): string => `key-${++made}`;

describe('rows 027 and 170: POST /work-units', () => {
  it('makes a queued task_run and says where it is', async () => {
    const answer = await post(rig.socket, { ...COMMAND, handle: 'issue42' });
    expect(answer.status).toBe(201);
    const workUnit = workUnitViewSchema.parse(json(answer));
    expect(answer.headers.location).toBe(`/work-units/${workUnit.id}`);
    expect(answer.headers['content-type']).toMatch(/^application\/json\b/);
    expect(workUnit).toMatchObject({
      workspaceId: 'main',
      handle: 'issue42',
      kind: 'task_run',
      status: 'queued',
      ownerType: 'user',
      ownerId: 'ada',
      createdByActor: 'user',
      priority: 0,
      attemptCount: 0,
      activeAttemptId: null,
      attempts: [],
      live: null,
      cwd: '/',
      model: null,
    });
    expect(workUnit.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  });

  it('answers the same over TCP with the token', async () => {
    expect((await start(rig.tcp)).status).toBe('queued');
  });

  it('row 021: stores the events of its beginning, in order', async () => {
    const { id } = await start(rig.socket);
    const answer = await send(rig.socket, { path: `/work-units/${id}/events` });
    const { items } = json<{ items: { seq: number; type: string; actor: string }[] }>(answer);
    expect(items.map(({ seq, type, actor }) => [seq, type, actor])).toEqual([
      [1, 'work_unit.created', 'user'],
      [2, 'work_unit.queued', 'user'],
    ]);
  });

  it('fills in what was not said: a handle, the home directory, the timeouts of the kind', async () => {
    const { cwd: _cwd, ...body } = COMMAND;
    const workUnit = json(await post(rig.socket, { ...body, kind: 'channel_ai_reply' }));
    expect(workUnit.handle).toMatch(/^[a-z0-9]{6}$/);
    expect(workUnit.cwd).toBe(rig.directory);
    expect(workUnit.hardTimeoutMs).toBe(900_000);
    expect(workUnit.timeoutPolicy.cancelGraceMs).toBe(15_000);
  });

  it('takes single timeouts and leaves the others at their defaults', async () => {
    const workUnit = await start(rig.socket, { timeoutPolicy: { hardTimeoutMs: 5_400_000 } });
    expect(workUnit.timeoutPolicy).toMatchObject({
      hardTimeoutMs: 5_400_000,
      idleTimeoutMs: 600_000,
    });
  });

  it('never shows the secrets of the daemon', async () => {
    const answer = await post(rig.socket, { ...PI, prompt: 'print SECRET_KEY' });
    expect(answer.text).not.toContain('the-secret-itself');
  });
});

describe('row 076: the same idempotency key', () => {
  it('gives the same work unit, 201 first and 200 then', async () => {
    const headers = { 'idempotency-key': freshKey() };
    const first = await post(rig.socket, COMMAND, headers);
    const before = rig.counts();
    const second = await post(rig.socket, COMMAND, headers);
    expect([first.status, second.status]).toEqual([201, 200]);
    expect(json(second)).toEqual(json(first));
    expect(rig.counts()).toEqual(before);
  });

  it('in fifty posts at once makes one work unit', async () => {
    const headers = { 'idempotency-key': freshKey() };
    const before = rig.counts();
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        post(index % 2 ? rig.socket : rig.tcp, COMMAND, headers),
      ),
    );
    const statuses = answers.map(({ status }) => status).sort((a, b) => a - b);
    expect(statuses).toEqual([...Array.from({ length: 49 }, () => 200), 201]);
    expect(new Set(answers.map((answer) => json(answer).id)).size).toBe(1);
    expect(rig.counts()['work_units']).toBe((before['work_units'] ?? 0) + 1);
    expect(rig.counts()['runtime_events']).toBe((before['runtime_events'] ?? 0) + 2);
  });

  it('in the header wins over the one in the body', async () => {
    const [header, body] = [freshKey(), freshKey()];
    const request = { ...COMMAND, idempotencyKey: body };
    const first = json(await post(rig.socket, request, { 'idempotency-key': header }));
    expect(first.idempotencyKey).toBe(header);
    const other = await post(rig.socket, request);
    expect(other.status).toBe(201);
    expect(json(other).idempotencyKey).toBe(body);
  });

  it.each([
    ['another prompt', { prompt: 'goodbye' }],
    ['another model', { model: 'a/b' }],
    ['another directory', { cwd: '/tmp' }],
    ['another priority', { priority: 1 }],
    ['another handle', { handle: 'of-the-mismatch' }],
    ['another timeout', { timeoutPolicy: { hardTimeoutMs: 60_000 } }],
    ['another queueing', { queueOnConflict: false }],
  ])('with %s is a conflict that names the first', async (_what, change) => {
    const headers = { 'idempotency-key': freshKey() };
    const first = json(await post(rig.socket, PI, headers));
    const before = rig.counts();
    const answer = await post(rig.socket, { ...PI, ...change }, headers);
    expect(refused(answer)).toMatchObject({ status: 409, code: 'idempotency_mismatch' });
    expect(problem(answer).extra).toEqual({ workUnitId: first.id });
    expect(rig.counts()).toEqual(before);
  });

  it('does not mind what is only said in another way', async () => {
    const headers = { 'idempotency-key': freshKey() };
    const first = json(await post(rig.socket, PI, headers));
    const { prompt, ...rest } = PI;
    const again = [
      { prompt, ...rest, priority: 0, kind: 'task_run', ownerType: 'user' },
      { ...PI, cwd: '/../.', createdByClientId: 'another' },
      { ...PI, timeoutPolicy: { hardTimeoutMs: 3_600_000 } },
    ];
    for (const body of again) {
      const answer = await post(rig.socket, body, headers);
      expect([answer.status, json(answer).id], JSON.stringify(body)).toEqual([200, first.id]);
    }
  });

  it('belongs to its owner and kind: others may use it, too', async () => {
    const headers = { 'idempotency-key': freshKey() };
    const ids = new Set<string>();
    for (const change of [{}, { ownerId: 'bob' }, { ownerType: 'bot' }, { kind: 'media_job' }]) {
      const answer = await post(rig.socket, { ...COMMAND, ...change }, headers);
      expect(answer.status).toBe(201);
      ids.add(json(answer).id);
    }
    expect(ids.size).toBe(4);
  });

  it('still stands for its work unit when that has ended', async () => {
    const headers = { 'idempotency-key': freshKey() };
    const first = json(await post(rig.socket, COMMAND, headers));
    await send(rig.socket, { method: 'POST', path: `/work-units/${first.id}/cancel` });
    const again = await post(rig.socket, COMMAND, headers);
    expect(again.status).toBe(200);
    expect(json(again)).toMatchObject({ id: first.id, status: 'cancelled' });
  });

  it('counts also when the directory has gone in the meantime', async () => {
    const cwd = `${rig.directory}/worktree`;
    mkdirSync(cwd);
    const headers = { 'idempotency-key': freshKey() };
    const first = await post(rig.socket, { ...COMMAND, cwd }, headers);
    rmSync(cwd, { recursive: true });
    const again = await post(rig.socket, { ...COMMAND, cwd }, headers);
    expect([first.status, again.status]).toEqual([201, 200]);
  });

  it('that is not given is made by the daemon: two posts are two work units', async () => {
    const [one, other] = [await start(rig.socket), await start(rig.socket)];
    expect(one.id).not.toBe(other.id);
  });

  it.each([
    ['empty', ''],
    ['too long', 'k'.repeat(257)],
    ['given twice', ['one', 'two']],
  ])('that is %s in the header is refused by name', async (_what, key) => {
    const before = rig.counts();
    const answer = await post(rig.socket, COMMAND, { 'idempotency-key': key });
    expect(refused(answer)).toEqual({
      status: 422,
      code: 'invalid_request',
      paths: ['/headers/idempotency-key'],
    });
    expect(rig.counts()).toEqual(before);
  });
});

describe('a handle', () => {
  it('of live work is taken: the conflict names who has it', async () => {
    const first = await start(rig.socket, { handle: 'taken' });
    const before = rig.counts();
    const answer = await post(rig.socket, { ...COMMAND, handle: 'taken' });
    expect(refused(answer)).toMatchObject({ status: 409, code: 'handle_taken' });
    expect(problem(answer).extra).toEqual({ workUnitId: first.id, status: 'queued' });
    expect(rig.counts()).toEqual(before);
  });

  it('of ended work is free again', async () => {
    const first = await start(rig.socket, { handle: 'again' });
    await send(rig.socket, { method: 'POST', path: `/work-units/${first.id}/cancel` });
    const second = await start(rig.socket, { handle: 'again' });
    expect(second.id).not.toBe(first.id);
  });

  it('is given to one of many that ask for it at once', async () => {
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => post(rig.socket, { ...COMMAND, handle: 'race' })),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(19);
  });
});

describe('the size of a prompt', () => {
  const stored = (workUnit: WorkUnitView): string | undefined =>
    rig.store.workUnits.get(workUnit.id)?.request.prompt;

  it('of one megabyte is taken whole', async () => {
    const prompt = 'a line of a prompt, with "quotes"\n'.repeat(32_000);
    const workUnit = json(await post(rig.socket, { ...PI, prompt }));
    expect(stored(workUnit)).toBe(prompt);
  });

  it('may be what the limit says, in plain text', async () => {
    const prompt = 'x'.repeat(PROMPT_MAX);
    const workUnit = json(await post(rig.socket, { ...PI, prompt }));
    expect(stored(workUnit)).toHaveLength(prompt.length);
  });

  it('beyond the limit is refused by its field', async () => {
    const before = rig.counts();
    const prompt = 'x'.repeat(PROMPT_MAX + 1);
    expect(refused(await post(rig.socket, { ...PI, prompt }))).toEqual({
      status: 422,
      code: 'invalid_request',
      paths: ['/prompt'],
    });
    expect(rig.counts()).toEqual(before);
  });

  it('that begins with @ or - is a prompt like any other', async () => {
    for (const prompt of ['@file', '--help', '/compact', '-']) {
      expect(stored(json(await post(rig.socket, { ...PI, prompt })))).toBe(prompt);
    }
  });
});
