import { once } from 'node:events';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { BODY_MAX_BYTES, problemSchema } from '../../src/api/schemas.ts';
import { COMMAND, json, PI, post, problem, refused, send, start } from '../support/api-http.ts';
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

const invalid = (...paths: string[]) => ({ status: 422, code: 'invalid_request', paths });
const expectNothingWritten = () => expect(rig.counts()).toEqual(before);

describe('a bad field is told by its JSON pointer', () => {
  const { ownerId: _owner, ...withoutOwner } = COMMAND;
  const { argv: _argv, ...withoutArgv } = COMMAND;

  it.each<[string, object, string]>([
    ['no runner', { ownerId: 'ada' }, '/runnerId'],
    ['an unknown runner', { ...COMMAND, runnerId: 'cobol' }, '/runnerId'],
    ['no owner', withoutOwner, '/ownerId'],
    ['an owner that is a number', { ...COMMAND, ownerId: 7 }, '/ownerId'],
    ['an empty owner', { ...COMMAND, ownerId: '' }, '/ownerId'],
    ['a long owner', { ...COMMAND, ownerId: 'o'.repeat(257) }, '/ownerId'],
    ['no argv', withoutArgv, '/argv'],
    ['an empty argv', { ...COMMAND, argv: [] }, '/argv'],
    ['an argv that is a string', { ...COMMAND, argv: 'true' }, '/argv'],
    ['an argument that is a number', { ...COMMAND, argv: ['sleep', 1] }, '/argv/1'],
    ['a command without a name', { ...COMMAND, argv: [''] }, '/argv/0'],
    ['no prompt', { runnerId: 'pi', ownerId: 'ada' }, '/prompt'],
    ['an empty prompt', { ...PI, prompt: '' }, '/prompt'],
    ['a prompt of blanks', { ...PI, prompt: ' \n\t ' }, '/prompt'],
    ['a prompt that is null', { ...PI, prompt: null }, '/prompt'],
    ['an unknown kind', { ...COMMAND, kind: 'holiday' }, '/kind'],
    ['a bad handle', { ...COMMAND, handle: 'Issue 42' }, '/handle'],
    ['a relative directory', { ...COMMAND, cwd: 'src' }, '/cwd'],
    ['a priority that is no integer', { ...COMMAND, priority: 0.5 }, '/priority'],
    ['a priority out of range', { ...COMMAND, priority: 1001 }, '/priority'],
    ['a timeout that is a string', withTimeout('60m'), '/timeoutPolicy/hardTimeoutMs'],
    ['a timeout of nothing', withTimeout(0), '/timeoutPolicy/hardTimeoutMs'],
    ['a timeout beyond a month', withTimeout(2_592_000_001), '/timeoutPolicy/hardTimeoutMs'],
    ['timeouts that are a list', { ...COMMAND, timeoutPolicy: [] }, '/timeoutPolicy'],
    ['queueOnConflict as a word', { ...COMMAND, queueOnConflict: 'yes' }, '/queueOnConflict'],
    ['an empty idempotency key', { ...COMMAND, idempotencyKey: '' }, '/idempotencyKey'],
    ['an empty model', { ...PI, model: '' }, '/model'],
  ])('%s', async (_what, body, path) => {
    expect(refused(await post(rig.socket, body))).toEqual(invalid(path));
    expectNothingWritten();
  });

  function withTimeout(hardTimeoutMs: unknown): object {
    return { ...COMMAND, timeoutPolicy: { hardTimeoutMs } };
  }

  it('and each bad field has an entry of its own', async () => {
    const body = {
      runnerId: 'pi',
      ownerId: 7,
      prompt: '',
      priority: 'high',
      cwd: 'src',
      handle: '-',
      timeoutPolicy: { hardTimeoutMs: 'x', idleTimeoutMs: -1 },
    };
    expect(refused(await post(rig.socket, body))).toEqual(
      invalid(
        '/cwd',
        '/handle',
        '/ownerId',
        '/priority',
        '/prompt',
        '/timeoutPolicy/hardTimeoutMs',
        '/timeoutPolicy/idleTimeoutMs',
      ),
    );
    expectNothingWritten();
  });

  it('and unknown fields are bad fields, each told by its own name', async () => {
    const body = {
      ...COMMAND,
      prompt: 'of the other runner',
      shell: true,
      'a/b~c': 1,
      timeoutPolicy: { hardTimeout: 1 },
    };
    expect(refused(await post(rig.socket, body))).toEqual(
      invalid('/a~1b~0c', '/prompt', '/shell', '/timeoutPolicy/hardTimeout'),
    );
    expectNothingWritten();
  });

  it('and every entry says what is wrong', async () => {
    const answer = await post(rig.socket, { ...COMMAND, handle: 'Issue 42', shell: true });
    for (const { path, message } of problem(answer).errors) {
      expect(message.length, path).toBeGreaterThan(5);
      expect(problem(answer).detail).toContain(path);
    }
  });

  it.each([['null'], ['[]'], ['"text"'], ['7'], ['true']])(
    'a body that is %s is bad as a whole',
    async (body) => {
      const { status, code } = refused(await post(rig.socket, body));
      expect([status, code]).toEqual([422, 'invalid_request']);
      expectNothingWritten();
    },
  );
});

describe('the working directory', () => {
  it.each([
    ['is not there', '/nowhere/at/all'],
    ['is a file', '/etc/passwd'],
    ['lies below a file', '/etc/passwd/x'],
    ['has a name too long for any disk', `/${'d'.repeat(300)}`],
  ])('that %s is refused by name', async (_what, cwd) => {
    expect(refused(await post(rig.socket, { ...COMMAND, cwd }))).toEqual({
      status: 422,
      code: 'cwd_missing',
      paths: ['/cwd'],
    });
    expectNothingWritten();
  });
});

describe('characters that cannot be carried', () => {
  it.each<[string, object, string]>([
    ['NUL in an argument', { ...COMMAND, argv: ['echo', 'a\0b'] }, '/argv/1'],
    ['NUL in the directory', { ...COMMAND, cwd: '/tmp\0x' }, '/cwd'],
    ['NUL in the owner', { ...COMMAND, ownerId: 'a\0b' }, '/ownerId'],
    ['NUL in the model', { ...PI, model: 'a/\0' }, '/model'],
    ['NUL in the key', { ...COMMAND, idempotencyKey: 'a\0' }, '/idempotencyKey'],
    ['an unpaired surrogate in an argument', { ...COMMAND, argv: ['a\ud800'] }, '/argv/0'],
    ['an unpaired surrogate in the directory', { ...COMMAND, cwd: '/\udc00' }, '/cwd'],
    ['an unpaired surrogate in the owner', { ...COMMAND, ownerId: '\ud83d' }, '/ownerId'],
    [
      'an unpaired surrogate in the key',
      { ...COMMAND, idempotencyKey: '\udfff' },
      '/idempotencyKey',
    ],
  ])('%s is refused by its field', async (_what, body, path) => {
    expect(refused(await post(rig.socket, body))).toEqual(invalid(path));
    expectNothingWritten();
  });

  it('in a prompt are kept as they came: it goes to the runner as JSON', async () => {
    const prompt = 'NUL \0, half a pair \ud800, a whole one \ud83d\ude00, line ends \r\n\u2028';
    const { id } = json(await post(rig.socket, { ...PI, prompt }));
    expect(rig.store.workUnits.get(id)?.request.prompt).toBe(prompt);
  });

  it('are not needed to keep two keys apart: characters outside ASCII count', async () => {
    const keys = ['é', 'e\u0301', 'ｋ', '\u202e', '\ud83d\ude00'];
    const answers = await Promise.all(
      keys.map((idempotencyKey) => post(rig.socket, { ...COMMAND, idempotencyKey })),
    );
    expect(new Set(answers.map((answer) => json(answer).id)).size).toBe(keys.length);
  });
});

describe('a body that is not JSON', () => {
  it.each([
    ['cut off', '{"runnerId":"command","ownerId":"a'],
    ['empty', ''],
    ['text', 'runnerId=command'],
    ['two documents', '{}{}'],
    ['single quotes', "{'runnerId':'command'}"],
    ['a byte order mark and nothing', '\ufeff'],
    ['NaN', '{"priority":NaN}'],
    ['a raw control character', '{"ownerId":"a\nb"}'],
    ['a poisoned prototype', '{"__proto__":{"runnerId":"command"}}'],
  ])('(%s) is refused', async (_what, body) => {
    const { status, code } = refused(await post(rig.socket, body));
    expect([status, code]).toEqual([400, 'malformed_body']);
    expectNothingWritten();
  });

  it('(a thousand times nested) is refused as what it is', async () => {
    const deep = `{"runnerId":"command","ownerId":"a","argv":${'['.repeat(1_000)}${']'.repeat(1_000)}}`;
    expect(refused(await post(rig.socket, deep))).toEqual({
      status: 400,
      code: 'malformed_body',
      paths: ['/argv'],
    });
    expectNothingWritten();
  });

  it('(a million times nested) is refused, and the daemon still answers', async () => {
    const deep = '['.repeat(1_000_000);
    const { status } = refused(await post(rig.socket, deep));
    expect(status).toBe(400);
    expect((await send(rig.socket, { path: '/runtime' })).status).toBe(200);
    expectNothingWritten();
  });

  it('(larger than any prompt) is refused before it is read', async () => {
    const body = Buffer.alloc(BODY_MAX_BYTES + 1, 0x20);
    expect(refused(await post(rig.socket, body))).toMatchObject({
      status: 413,
      code: 'body_too_large',
    });
    expectNothingWritten();
  });
});

describe('a content type that is not JSON', () => {
  it.each([
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/xml',
    'application/octet-stream',
    'nonsense',
  ])('(%s) is refused', async (type) => {
    const body = JSON.stringify(COMMAND);
    const { status, code } = refused(await post(rig.socket, body, { 'content-type': type }));
    expect([status, code]).toEqual([415, 'unsupported_media_type']);
    expectNothingWritten();
  });

  it('(none at all) is refused', async () => {
    const answer = await send(rig.socket, {
      method: 'POST',
      path: '/work-units',
      body: Buffer.from(JSON.stringify(COMMAND)),
    });
    expect(refused(answer).status).toBe(415);
    expectNothingWritten();
  });

  it('is not one that only names its character set', async () => {
    const headers = { 'content-type': 'application/json; charset=utf-8' };
    const answer = await post(rig.socket, JSON.stringify(COMMAND), headers);
    expect(answer.status).toBe(201);
  });
});

describe('a path that is nobody’s', () => {
  it.each(['/', '/work-unit', '/work-units/a/b', '/runtime/x', '//', '/%zz', '/*'])(
    '%s is not found',
    async (path) => {
      expect(refused(await send(rig.socket, { path }))).toMatchObject({
        status: 404,
        code: 'not_found',
      });
    },
  );

  it.each([
    ['an id that cannot be decoded', '/work-units/%E0%A4%A'],
    ['an id of 128 characters', `/work-units/${'a'.repeat(128)}`],
    ['an id of 4000 characters', `/work-units/${'a'.repeat(4000)}`],
  ])('%s is not found', async (_what, path) => {
    expect(refused(await send(rig.socket, { path }))).toMatchObject({
      status: 404,
      code: 'not_found',
    });
  });

  it('with a method that is not offered there is not found, either', async () => {
    for (const method of ['DELETE', 'PUT', 'PATCH', 'OPTIONS']) {
      const answer = await send(rig.socket, { method, path: '/work-units' });
      expect(refused(answer).status, method).toBe(404);
    }
    expectNothingWritten();
  });
});

describe('what is not even HTTP', () => {
  async function raw(bytes: string): Promise<{ head: string; body: string }> {
    const socket = net.connect(rig.socketPath);
    await once(socket, 'connect');
    socket.end(bytes);
    const [head = '', body = ''] = (await text(socket)).split('\r\n\r\n');
    return { head, body };
  }

  it.each([
    ['garbage', 'hello\r\n\r\n'],
    ['an unknown method', 'BREW /work-units HTTP/1.1\r\nHost: x\r\n\r\n'],
    ['headers without end', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(70_000)}\r\n\r\n`],
    [
      'two lengths',
      'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx',
    ],
  ])('(%s) is answered by a problem, too', async (_what, bytes) => {
    const { head, body } = await raw(bytes);
    expect(head).toMatch(/^HTTP\/1\.1 400 /);
    expect(head).toMatch(/content-type: application\/problem\+json/i);
    expect(problemSchema.parse(JSON.parse(body))).toMatchObject({
      status: 400,
      code: 'bad_request',
    });
    expectNothingWritten();
  });
});

describe('after all that', () => {
  it('the daemon takes work as before', async () => {
    expect((await start(rig.socket)).status).toBe('queued');
  });
});
