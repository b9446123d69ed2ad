/** Names that are there twice, and other bodies that mean nothing, at every endpoint and on both listeners. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { OpenApi } from '../../src/api/openapi.ts';
import { COMMAND, json, refused, send, type Target } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
let before: ReturnType<Rig['counts']>;
beforeAll(async () => {
  rig = await bootApi();
});
beforeEach(() => {
  before = rig.counts();
});
afterAll(cleanUp);

const listeners = [
  ['the unix socket', () => rig.socket],
  ['TCP', () => rig.tcp],
] as const satisfies readonly (readonly [string, () => Target])[];

/** Every operation that has a body, from the API's own document. */
async function operations(): Promise<{ method: string; path: string }[]> {
  const { paths } = json<OpenApi>(await send(rig.socket, { path: '/openapi.json' }));
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods)
      .filter((method) => ['post', 'put', 'patch'].includes(method))
      .map((method) => ({
        method: method.toUpperCase(),
        path: path.replaceAll(/\{\w+\}/g, 'x'),
      })),
  );
}

const asJson = { 'content-type': 'application/json' };

describe.each(listeners)('a body on %s', (_name, target) => {
  it('with a name twice is refused by every endpoint, by its path', async () => {
    const all = await operations();
    expect(all.length).toBeGreaterThan(8);
    for (const { method, path } of all) {
      const body = '{"reason":"a","nested":{"b":[{"c":1,"c":2}]}}';
      const answer = await send(target(), { method, path, headers: asJson, body });
      expect(refused(answer), `${method} ${path}`).toEqual({
        status: 422,
        code: 'duplicate_key',
        paths: ['/nested/b/0/c'],
      });
    }
    expect(rig.counts()).toEqual(before);
  });

  it('cut off anywhere, or of another type, is refused by every endpoint', async () => {
    for (const { method, path } of await operations()) {
      const cut = await send(target(), { method, path, headers: asJson, body: '{"reason":"a' });
      expect(refused(cut), `${method} ${path}`).toMatchObject({
        status: 400,
        code: 'malformed_body',
      });
      const headers = { 'content-type': 'text/yaml' };
      const other = await send(target(), { method, path, headers, body: 'reason: a' });
      expect(refused(other), `${method} ${path}`).toMatchObject({
        status: 415,
        code: 'unsupported_media_type',
      });
    }
    expect(rig.counts()).toEqual(before);
  });
});

describe('a name', () => {
  const post = (body: string) => send(rig.socket, { path: '/work-units', headers: asJson, body });

  it.each([
    ['plainly', '{"a":1,"a":2}', '/a'],
    ['once in escapes', '{"ab":1,"\\u0061b":2}', '/ab'],
    ['with an escaped quote in it', '{"a\\"b":1,"a\\"b":2}', '/a"b'],
    ['that ends in a backslash', '{"a\\\\":1,"a\\\\":2}', '/a\\'],
    ['that needs escapes in a pointer', '{"a/b~":1,"a/b~":2}', '/a~1b~0'],
    ['that is empty', '{"":1,"":2}', '/'],
    ['after an object', '{"a":{"b":1},"a":2}', '/a'],
    ['after an array of objects', '{"x":[{"a":1},{"a":1}],"x":1}', '/x'],
    ['in the second object of an array', '{"x":[{"a":1},{"a":1,"a":2}]}', '/x/1/a'],
    ['across white space', '{ "a" : 1 ,\n\t"a" : 2 }', '/a'],
  ])('that is there twice, %s, is told', async (_what, body, path) => {
    expect(refused(await post(body))).toEqual({
      status: 422,
      code: 'duplicate_key',
      paths: [path],
    });
    expect(rig.counts()).toEqual(before);
  });

  it.each([
    ['is a value elsewhere', { ...COMMAND, argv: ['argv', 'ownerId', 'argv'] }],
    ['looks like syntax in a text', { ...COMMAND, argv: ['{"a":1,"a":2}', '\\"', '\\\\'] }],
  ])('that %s is no name that is there twice', async (_what, body) => {
    expect((await post(JSON.stringify(body))).status).toBe(201);
  });
});
