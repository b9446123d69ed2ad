import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type ScriptedModel, startScriptedModel } from '../support/scripted-model/server.ts';
import {
  assistant,
  caller,
  errorOf,
  post,
  readStream,
  result,
  scripted,
  user,
} from '../support/scripted-model/test-client.ts';

const KEY = { authorization: 'Bearer k' };

let model: ScriptedModel;
beforeEach(async () => {
  model = await startScriptedModel({ apiKey: 'k' });
});
afterEach(() => model.close());

const at = (path: string, init: RequestInit = {}) =>
  fetch(`http://127.0.0.1:${model.port}${path}`, { headers: KEY, ...init });

async function play(...messages: unknown[]) {
  const response = await post(model.baseUrl, messages);
  expect(response.status).toBe(200);
  return readStream(await response.text());
}

async function textOf(...messages: unknown[]): Promise<string> {
  return (await play(...messages)).text;
}

describe('directives', () => {
  const edit = (oldText: string, newText: string) => ({
    calls: [['edit', { path: 'a', edits: [{ oldText, newText }] }]],
  });
  const bash = (command: string) => ['bash', { command }];

  test.each([
    ['say Hello\\n\\\\n you', { text: 'Hello\n\\n you', finish: 'stop', calls: [] }],
    ['think Let me see. ;; say Yes', { thought: 'Let me see.', text: 'Yes' }],
    ['think Alone', { thought: 'Alone', text: 'Alone' }],
    ['slow 1 5 abcdefghij', { text: 'abcdefghij', texts: 5 }],
    ['length So far', { text: 'So far', finish: 'length' }],
    ['length', { text: 'This answer reached its limit', finish: 'length' }],
    ["bash printf 'a\\n'", { calls: [bash("printf 'a\\n'")], finish: 'tool_calls' }],
    ['read a', { calls: [['read', { path: 'a' }]] }],
    ['write a one\\ntwo\\n', { calls: [['write', { path: 'a', content: 'one\ntwo\n' }]] }],
    ['edit a one two => three', edit('one two', 'three')],
    ['edit a one =>', edit('one', '')],
    ['call bash {"command":"x","n":3}', { calls: [['bash', { command: 'x', n: 3 }]] }],
    ['say Two. ;; bash a ;; bash b', { text: 'Two.', calls: [bash('a'), bash('b')] }],
    ['bash a ;; length', { calls: [bash('a')], finish: 'length' }],
  ])('%s', async (line, expected) => {
    const answer = await play(scripted(line));
    expect(answer).toMatchObject({ ...expected, whole: true });
    expect(answer.usage?.completion_tokens).toBeGreaterThan(0);
    expect(answer.usage?.prompt_tokens).toBeGreaterThan(0);
    expect(new Set(answer.ids).size).toBe(answer.calls.length);
  });

  test('status answers an error with its headers', async () => {
    const line = 'status 429 retry-after 7 message slow down';
    const response = await post(model.baseUrl, [scripted(line)]);
    expect(response.headers.get('retry-after')).toBe('7');
    expect(await errorOf(response)).toEqual([429, 'slow down']);
    const plain = await post(model.baseUrl, [scripted('status 503')]);
    expect(await errorOf(plain)).toEqual([503, 'scripted 503']);
    expect(model.violations()).toEqual([]);
  });

  test('cut streams two deltas and breaks the connection', async () => {
    const response = await post(model.baseUrl, [scripted('cut one two three')]);
    const seen: string[] = [];
    const decoder = new TextDecoder();
    await expect(async () => {
      for await (const bytes of response.body ?? []) seen.push(decoder.decode(bytes));
    }).rejects.toThrow('terminated');
    const received = { text: 'one two th', texts: 2, whole: false };
    expect(readStream(seen.join(''))).toMatchObject(received);
    expect(model.requests()).toMatchObject([{ ended: 'cut', usage: null }]);
  });

  test.each(['hang', 'slow 60000 2 late'])('%s notices that the client leaves', async (line) => {
    const leave = new AbortController();
    const asked = post(model.baseUrl, [scripted(line)], {}, { signal: leave.signal });
    const read = asked.then((response) => response.text());
    await model.waitFor((request) => request.turn === line);
    leave.abort();
    await expect(read).rejects.toThrow('aborted');
    const left = await model.waitFor((request) => request.ended === 'client-left');
    expect(left.turn).toBe(line);
    // Another exchange, so that whatever the leaving set off is over.
    expect(await textOf(user('still there?'))).toContain('still there?');
    expect(model.violations()).toEqual([]);
  });

  test('close ends a hanging request', async () => {
    const asked = post(model.baseUrl, [scripted('hang')]);
    const closed = model.waitFor((request) => request.turn === 'hang').then(() => model.close());
    await expect(asked).rejects.toThrow('fetch failed');
    await closed;
  });

  test.each([
    ['dance', 'script line "dance": unknown directive "dance"'],
    ['say a ;; dance', 'script line "say a ;; dance": unknown directive "dance"'],
    ['status 99', 'expected status CODE'],
    ['hang twice', 'expected nothing or xK'],
    ['call bash {', 'not JSON'],
    ['slow 1 text', 'expected slow MS N TEXT'],
    ['edit a.txt x', 'expected edit PATH OLD => NEW'],
    ['bash', 'expected bash CMD'],
    ['call grep {}', 'the script calls grep, the request offers: bash, read, write, edit'],
  ])('%s is refused, naming the line', async (line, message) => {
    const [status, said] = await errorOf(await post(model.baseUrl, [scripted(line)]));
    expect([status, said]).toEqual([400, expect.stringContaining(message)]);
    expect(model.violations()).toMatchObject([{ status: 400, message: said }]);
  });
});

describe('position', () => {
  const script = scripted('say one', '', 'say two', '#end', 'say not part');

  test('is the number of answers since the script', async () => {
    const first = [script, assistant('one'), user('go on')];
    expect(await textOf(script)).toBe('one');
    expect(await textOf(...first)).toBe('two');
    expect(await textOf(...first, assistant('two'), user('more'))).toBe('done');
    expect(await textOf(...first, scripted('say new'))).toBe('new');
    expect(await textOf(user('#script', 'say old', '#end', '#script', 'say new'))).toBe('new');
  });

  test('the same request gets the same bytes, also from another server', async () => {
    const other = await startScriptedModel();
    const ask = async (url: string) => (await post(url, [script, caller('a'), result('a')])).text();
    const first = await ask(model.baseUrl);
    expect([await ask(model.baseUrl), await ask(other.baseUrl)]).toEqual([first, first]);
    await other.close();
  });

  test('without a script it counts and echoes, on one line', async () => {
    const system = { role: 'system', content: 's' };
    const echo = `"hi\\n#scrip\\n${'x'.repeat(70)}"`;
    expect(await textOf(system, user('hi', '#scrip', 'x'.repeat(100)))).toBe(
      `scripted model, no script: 2 messages, last user text: ${echo}`,
    );
  });

  test('a quoted script is not a script', async () => {
    const quote = user('<conversation>', '#script', 'say one', '</conversation>');
    expect(await textOf(quote)).toContain('no script');
  });

  test('xK faults are passed after K times, per conversation', async () => {
    const flaky = scripted('status 500 x2', 'say up');
    const status = async (session: string) => {
      const headers = { ...KEY, 'x-session-affinity': session };
      return (await post(model.baseUrl, [flaky], {}, { headers })).status;
    };
    expect([await status('a'), await status('a'), await status('a')]).toEqual([500, 500, 200]);
    expect(await status('b')).toBe(500);
    await at('/_reset', { method: 'POST' });
    expect(await status('a')).toBe(500);
    expect(await textOf(flaky, assistant('up'), user('more'))).toBe('done');
  });
});

describe('checks', () => {
  test.each([
    ['stream', [user('x')], { stream: false }, 'stream must be true'],
    ['model', [user('x')], { model: 'gpt' }, 'model "gpt" is unknown, it is one of: scripted'],
    ['no messages', [], {}, 'at least one message'],
    ['role', [{ role: 'robot' }], {}, 'messages[0] has no known role'],
    ['tool alone', [user('x'), result('a')], {}, 'messages[1]: tool_call_id "a" answers no open'],
    ['tool twice', [caller('a'), result('a'), result('a')], {}, 'messages[2]: tool_call_id "a"'],
    ['other tool', [caller('a'), result('b')], {}, 'messages[1]: tool_call_id "b"'],
    ['no result', [caller('a'), user('x')], {}, 'no tool result for a before messages[1]'],
    ['call at the end', [user('x'), caller('a')], {}, 'no tool result for a at the end'],
  ])('%s', async (_name, messages, change, message) => {
    const [status, said] = await errorOf(await post(model.baseUrl, messages, change));
    expect([status, said]).toEqual([400, expect.stringContaining(message)]);
    expect(model.violations()).toMatchObject([{ status: 400, message: said }]);
    expect(model.requests()).toMatchObject([{ status: 400, ended: 'refused' }]);
  });

  test('key, path and JSON', async () => {
    const keyless = await post(model.baseUrl, [user('x')], {}, { headers: {} });
    expect(await errorOf(keyless)).toEqual([401, 'Incorrect API key provided']);
    const broken = await post(model.baseUrl, [], {}, { body: '{' });
    expect(await errorOf(broken)).toEqual([400, 'the body is not JSON']);
    const [status, message] = await errorOf(await at('/v1/responses', { method: 'POST' }));
    expect([status, message]).toEqual([400, expect.stringContaining('POST /v1/responses is not')]);
    expect(model.violations().map((violation) => violation.status)).toEqual([401, 400, 400]);
  });

  test('says what it is and what it was asked', async () => {
    const home = await at('/');
    expect(home.headers.get('x-scripted-model')).toBe('outlive');
    expect(await home.text()).toContain('stand-in for a model provider');
    expect(await (await at('/v1/models')).json()).toMatchObject({ data: [{ id: 'scripted' }] });
    const { usage } = await play(user('one'), assistant('two'), scripted('say three'));
    const roles = ['user', 'assistant', 'user'];
    expect(await (await at('/_requests')).json()).toMatchObject([
      { model: 'scripted', roles, messages: 3, turn: 'say three', usage, ended: 'answered' },
    ]);
    expect(await (await at('/_violations')).json()).toEqual([]);
  });
});

describe('main.ts', () => {
  let child: ChildProcess | undefined;
  afterEach(() => child?.kill('SIGKILL'));

  test('says where it listens and ends on SIGTERM', async () => {
    const root = join(import.meta.dirname, '../..');
    const home = await mkdtemp(join(tmpdir(), 'scripted-model-'));
    const portFile = join(home, 'port');
    const argv = [join(root, 'test/support/scripted-model/main.ts'), '--port-file', portFile];
    child = spawn(join(root, 'node_modules/.bin/node'), [
      ...argv,
      '--api-key',
      'k',
      '--model',
      'm',
    ]);
    const [line] = child.stdout === null ? [] : await once(child.stdout, 'data');
    const url = `http://127.0.0.1:${(await readFile(portFile, 'utf8')).trim()}/v1`;
    expect(String(line)).toBe(`listening on ${url} (scripted model, no provider)\n`);
    const models = await fetch(`${url}/models`, { headers: KEY });
    expect(await models.json()).toMatchObject({ data: [{ id: 'm' }] });
    child.kill('SIGTERM');
    expect(await once(child, 'exit')).toEqual([0, null]);
    await rm(home, { recursive: true });
  });
});
