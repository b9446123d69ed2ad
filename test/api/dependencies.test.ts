/** Work that waits for other work, over HTTP: what is shown, and what is refused. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { workUnitViewSchema } from '../../src/api/schemas.ts';
import { dryRunSchema, explanationSchema } from '../../src/api/schemas-explain.ts';
import { COMMAND, json, post, problem, refused, send, start } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await bootApi();
});
afterAll(cleanUp);

const waitsFor = (workUnits: readonly string[], needed?: unknown): object => ({
  ...COMMAND,
  after: { workUnits, ...(needed === undefined ? {} : { needed }) },
});

it('a work unit shows what it waits for, in the order in which it was named, and for how many', async () => {
  const [a, b] = [await start(rig.socket), await start(rig.socket)];
  const answer = await post(rig.socket, waitsFor([b.handle, a.id], 'any'));
  expect(answer.status).toBe(201);
  const view = workUnitViewSchema.parse(json(answer));
  expect(view).toMatchObject({
    afterNeeded: 1,
    after: [
      { workUnitId: b.id, handle: b.handle, state: 'pending' },
      { workUnitId: a.id, handle: a.handle, state: 'pending' },
    ],
  });
  const explained = await send(rig.socket, { path: `/work-units/${view.id}/explain` });
  expect(explanationSchema.parse(json(explained))).toMatchObject({
    waiting: {
      why: 'blocked',
      reason: `it waits for 1 of ${b.handle} (queued) or ${a.handle} (queued)`,
      heldBy: b.handle,
      resource: `after ${b.id}`,
    },
  });
  expect(a).toMatchObject({ after: [], afterNeeded: null });
});

it('a dry run shows it too', async () => {
  const { handle } = await start(rig.socket);
  const path = '/work-units?dryRun=true';
  const answer = await send(rig.socket, { path, body: waitsFor([handle]) });
  expect(dryRunSchema.parse(json(answer))).toMatchObject({
    workUnit: { after: [{ handle, state: 'pending' }], afterNeeded: 1 },
    waiting: { why: 'blocked', heldBy: handle },
  });
});

it.each([
  ['a name of nothing', ['nobody-there'], undefined, 404, 'not_found', '/after/workUnits/0'],
  ['nobody', [], undefined, 422, 'invalid_request', '/after/workUnits'],
  ['more than are named', ['x'], 2, 422, 'invalid_request', '/after/needed'],
])('%s is refused, naming the field', async (_, names, needed, status, code, path) => {
  const before = rig.counts();
  const answer = await post(rig.socket, waitsFor(names, needed));
  expect(refused(answer)).toEqual({ status, code, paths: [path] });
  expect(rig.counts()).toEqual(before);
});

it('one that would not wait is refused with the reason', async () => {
  const { handle } = await start(rig.socket);
  const answer = await post(rig.socket, { ...waitsFor([handle]), queueOnConflict: false });
  expect(problem(answer)).toMatchObject({
    code: 'resource_busy',
    detail: `It cannot start now: it waits for ${handle} (queued).`,
  });
});
