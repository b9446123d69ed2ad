/**
 * Every operation of the OpenAPI document, spoiled in every way its schema knows. An
 * operation without a recipe fails the first test: a new endpoint cannot be forgotten.
 */

import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import Database from 'better-sqlite3';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { OpenApi, Operation } from '../../src/api/openapi.ts';
import { driverSpecSchema } from '../../src/domain/driver.ts';
import { createClaimer } from '../../src/supervisor/claim.ts';
import { COMMAND, json, problem, send, start } from '../support/api-http.ts';
import { atTheEnd, bootApi, cleanUp, type Rig } from '../support/api-rig.ts';
import { ask } from '../support/approvals.ts';
import {
  type Recipe,
  type Spoiled,
  spoilBody,
  spoilHeaders,
  spoilPath,
  spoilQuery,
} from '../support/schema-fuzz.ts';

afterEach(cleanUp);

/** What a recipe finds in the store: a queued unit `fuzz` in the channel `lane`. */
type Make = (rig: Rig) => Recipe;

const unit =
  (rest: string, status = 200, body?: Recipe['body']): Make =>
  () => ({ path: `/work-units/fuzz${rest}`, status, ...(body ? { body } : {}) });
const plain =
  (path: string, more: Partial<Recipe> = {}): Make =>
  () => ({ path, status: 200, ...more });

function claimedAttempt(rig: Rig): string {
  const { claim } = createClaimer(rig.inner)();
  if (!claim) throw new Error('nothing was claimed');
  return claim.attempt.id;
}

/** A question of a work unit that waits for its answer. @returns the question's id. */
function askedQuestion(rig: Rig): string {
  const { claim } = createClaimer(rig.inner)();
  if (!claim) throw new Error('nothing was claimed');
  rig.inner.writer.commit((transaction) => {
    transaction.moveAttempt(claim.attempt, 'started');
    const fields = { actor: 'system' } as const;
    transaction.moveWorkUnit(claim.workUnit, 'runner_started', fields);
  });
  return ask(rig.inner, claim.attempt).id;
}

/** One artifact of an attempt, with its file. */
function artifactOf(rig: Rig): string {
  const attemptId = claimedAttempt(rig);
  const workUnitId = rig.store.attempts.get(attemptId)?.workUnitId ?? '';
  const directory = path.join(rig.inner.settings.attemptsDirectory, workUnitId, attemptId);
  mkdirSync(directory, { recursive: true });
  writeFileSync(path.join(directory, 'stdout.log'), 'out\n');
  const row = { id: 'artifact-1', workUnitId, attemptId, kind: 'stdout', bytes: 4 } as const;
  const rest = { fileName: 'stdout.log', truncated: false, sha256: '0', createdAt: '2026-01-02' };
  rig.store.write(() => rig.store.artifacts.insert({ ...row, ...rest }));
  return row.id;
}

const driverSpec = (rig: Rig) => ({
  census: { argv: ['true'], timeoutMs: 60_000 },
  run: { argv: ['true'] },
  cwd: rig.directory,
});
/** About a driver that is there. */
const driver =
  (rest: string, body?: Recipe['body']): Make =>
  (rig) => {
    rig.context.drivers.put('driver', driverSpecSchema.parse(driverSpec(rig)), false);
    return { path: `/drivers/driver${rest}`, status: 200, ...(body ? { body } : {}) };
  };

const NOTHING = { body: {} };

const RECIPES: Readonly<Record<string, Make>> = {
  'post /work-units': plain('/work-units', { body: { ...COMMAND }, status: 201 }),
  'get /work-units': plain('/work-units'),
  'get /work-units/{id}': unit(''),
  'get /work-units/{id}/explain': unit('/explain'),
  'get /work-units/{id}/events': unit('/events'),
  'post /work-units/{id}/cancel': unit('/cancel', 200, { reason: 'enough' }),
  'post /work-units/{id}/retry': unit('/retry', 409, {}),
  'post /work-units/{id}/reconcile': unit('/reconcile', 200, {}),
  'get /attempts/{id}': (rig) => ({ path: `/attempts/${claimedAttempt(rig)}`, status: 200 }),
  'get /approvals': plain('/approvals'),
  'get /approvals/{id}': (rig) => ({ path: `/approvals/${askedQuestion(rig)}`, status: 200 }),
  'post /approvals/{id}/approve': (rig) => ({
    path: `/approvals/${askedQuestion(rig)}/approve`,
    body: { reason: 'fine' },
    status: 200,
  }),
  'post /approvals/{id}/deny': (rig) => ({
    path: `/approvals/${askedQuestion(rig)}/deny`,
    body: { reason: 'no', fail: false },
    status: 200,
  }),
  'get /work-units/{id}/artifacts': unit('/artifacts'),
  'get /artifacts/{id}': (rig) => ({ path: `/artifacts/${artifactOf(rig)}`, status: 200 }),
  'get /artifacts/{id}/content': (rig) => ({
    path: `/artifacts/${artifactOf(rig)}/content`,
    status: 200,
  }),
  'get /ledger': plain('/ledger'),
  'get /drivers': plain('/drivers'),
  'get /drivers/{name}': driver(''),
  'put /drivers/{name}': (rig) => ({
    path: '/drivers/fresh',
    body: {
      ...driverSpec(rig),
      every: 60_000,
      jitter: 0,
      handleFrom: 'number',
      leftovers: 'ignore',
      hardTimeoutMs: 60_000,
      priority: 1,
      maxAtOnce: 2,
      environment: { A: 'b' },
      environmentFiles: ['/etc/environment'],
    },
    status: 200,
  }),
  'post /drivers/{name}/pause': driver('/pause', { subject: 'a' }),
  'post /drivers/{name}/resume': driver('/resume', {}),
  'post /drivers/{name}/tick': driver('/tick', {}),
  'post /drivers/{name}/remove': driver('/remove', {}),
  'get /channels': plain('/channels'),
  'get /channels/{id}': plain('/channels/lane'),
  'put /channels/{id}': plain('/channels/lane', {
    body: { status: 'paused', maxConcurrentRuns: 2, onNewerSubject: 'block' },
    makesWhatItNames: true,
  }),
  'get /events': plain('/events'),
  'post /runs': plain('/runs', { body: { runnerId: 'pi', prompt: 'hello' } }),
  'get /runtime': plain('/runtime'),
  'get /runtime/supervisor': plain('/runtime/supervisor'),
  'get /runtime/active': plain('/runtime/active'),
  'get /runtime/stuck': plain('/runtime/stuck'),
  'get /runtime/leases': plain('/runtime/leases'),
  'get /runtime/semaphores': plain('/runtime/semaphores'),
  'post /runtime/reconcile': plain('/runtime/reconcile', NOTHING),
  'post /runtime/pause': plain('/runtime/pause', NOTHING),
  'post /runtime/drain': plain('/runtime/drain', NOTHING),
  'post /runtime/resume': plain('/runtime/resume', NOTHING),
  'get /providers': plain('/providers'),
  'post /providers/{name}/resume': plain('/providers/nobody/resume', { ...NOTHING, status: 404 }),
  'get /spend': plain('/spend'),
  'get /linear/status': plain('/linear/status'),
  'post /maintenance/gc': plain('/maintenance/gc', { body: { dryRun: true } }),
  'post /maintenance/backup': (rig) => ({
    path: '/maintenance/backup',
    body: { path: `${rig.directory}/copy.db` },
    status: 200,
  }),
  'get /openapi.json': plain('/openapi.json'),
  'get /docs': plain('/docs'),
};

interface Found {
  readonly name: string;
  readonly method: string;
  readonly template: string;
  readonly operation: Operation;
}

async function operations(rig: Rig): Promise<{ document: OpenApi; found: Found[] }> {
  const document = json<OpenApi>(await send(rig.socket, { path: '/openapi.json' }));
  const found = Object.entries(document.paths).flatMap(([template, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      name: `${method} ${template}`,
      method: method.toUpperCase(),
      template,
      operation,
    })),
  );
  return { document, found };
}

/** Says whether anything was committed since it was last asked, by whomever. */
function commits(rig: Rig): () => boolean {
  const db = new Database(rig.store.file, { readonly: true });
  atTheEnd(() => {
    db.close();
  });
  const version = (): number => Number(db.pragma('data_version', { simple: true }));
  let seen = version();
  return () => {
    const before = seen;
    seen = version();
    return seen !== before;
  };
}

async function mustBeRefused(rig: Rig, { call, status, at }: Spoiled): Promise<void> {
  const answer = await send(rig.socket, call);
  expect(answer.status, answer.text).toBeGreaterThanOrEqual(400);
  expect(answer.status, answer.text).toBeLessThan(500);
  const { errors, detail } = problem(answer);
  expect(detail).not.toBe('');
  expect(answer.status, answer.text).toBe(status ?? answer.status);
  const paths = errors.map(({ path }) => path);
  const isNamed = at === undefined || paths.some((path) => `${path}/`.startsWith(`${at}/`));
  expect(isNamed, `of ${at}, it names ${paths.join()}`).toBe(true);
}

/** Status of an answer that may be a stream without end. */
async function statusOf(rig: Rig, method: string, { path, body }: Recipe): Promise<number> {
  const request = http.request({
    socketPath: rig.socketPath,
    method,
    path,
    agent: false,
    headers: body ? { 'content-type': 'application/json' } : {},
  });
  request.on('error', () => undefined);
  request.end(body ? JSON.stringify(body) : undefined);
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  request.destroy();
  return response.statusCode ?? 0;
}

it('every operation of the OpenAPI document has a recipe, and no recipe is left over', async () => {
  const { found } = await operations(await bootApi());
  expect(found.map(({ name }) => name).sort()).toEqual(Object.keys(RECIPES).sort());
});

describe('spoiled in every way its schema knows', () => {
  it.each(Object.entries(RECIPES))('%s is refused, and writes nothing', async (name, make) => {
    const rig = await bootApi();
    await start(rig.socket, { handle: 'fuzz', channelId: 'lane' });
    const { document, found } = await operations(rig);
    const one = found.find((operation) => operation.name === name);
    if (!one) throw new Error(`the document has no ${name}`);
    const recipe = make(rig);
    const { method, operation, template } = one;
    const spoiled = [
      ...spoilPath(method, template, recipe),
      ...spoilQuery(method, operation, recipe),
      ...spoilHeaders(method, operation, recipe),
      ...spoilBody(document, method, operation, recipe),
    ];
    const committed = commits(rig);
    for (const bad of spoiled) {
      await mustBeRefused(rig, bad).catch((error: unknown) => {
        throw new Error(`${name}, ${bad.what}: ${(error as Error).message}`, { cause: error });
      });
      expect(committed(), `${name}, ${bad.what}: something was written`).toBe(false);
    }
    // Unspoiled it gets where it should: so it was the one wrong thing that was refused.
    expect(await statusOf(rig, method, recipe)).toBe(recipe.status);
  });
});

describe('with anything at all as a body', () => {
  const withBody = Object.entries(RECIPES).filter(([name]) => /^(?:post|put) /.test(name));

  it.each(withBody)('%s never fails by its own mistake', async (name, make) => {
    const rig = await bootApi();
    await start(rig.socket, { handle: 'fuzz', channelId: 'lane' });
    const recipe = make(rig);
    const [method = ''] = name.split(' ');
    const keys = fc.constantFrom(...Object.keys(recipe.body ?? {}), '__proto__', 'constructor', '');
    const values = fc.anything({ withNullPrototype: true, maxDepth: 3 });
    const body = fc.oneof(
      fc.dictionary(keys, values).map((more) => JSON.stringify({ ...recipe.body, ...more })),
      fc.json({ maxDepth: 5 }),
      fc.string({ unit: 'binary' }),
    );
    await fc.assert(
      fc.asyncProperty(body, async (text) => {
        // A run that is accepted streams until it ends: only refusals are of interest there.
        if (name === 'post /runs' && isRun(text)) return;
        const headers = { 'content-type': 'application/json' };
        const answer = await send(rig.socket, {
          method: method.toUpperCase(),
          path: recipe.path,
          body: text,
          headers,
        });
        expect(answer.status, answer.text).toBeLessThan(500);
        if (answer.status >= 400) problem(answer);
      }),
      { numRuns: 100 },
    );
  });

  function isRun(text: string): boolean {
    try {
      const value = JSON.parse(text) as unknown;
      return typeof (value as { prompt?: unknown } | null)?.prompt === 'string';
    } catch {
      return false;
    }
  }
});
