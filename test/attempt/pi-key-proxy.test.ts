/** The key of a provider stays with the wrapper; real Pi, real HTTP. */
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { writePiLab } from '../support/scripted-model/lab.ts';
import { makePiLab, type PiLabChanges, withCredentials } from './support/pi-lab.ts';

const KEY = 'Planted-Key-0123456789abcdef';
const TOKEN = /outlive-[\w-]{43}/;
const proxied = { key: KEY };

/** Files below a directory that hold the key or a token, each with which. */
function foundBelow(root: string): string[] {
  return readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .flatMap((file) => {
      const text = readFileSync(file, 'latin1');
      const name = path.relative(root, file);
      return [
        ...(text.includes(KEY) ? [`the key in ${name}`] : []),
        ...(TOKEN.test(text) ? [`a token in ${name}`] : []),
      ];
    });
}

test('the key reaches the provider, and neither Pi, its commands nor any file has key or token; row 284', async () => {
  const { lab, model } = await makePiLab({
    serverKey: KEY,
    proxied,
    script: [
      'bash env > ../env; cat /proc/$PPID/environ /proc/$PPID/cmdline > ../pi; echo up; until [ -e ../go ]; do sleep 0.05; done',
      'say Done.',
    ],
  });
  const wrapper = lab.start(withCredentials(lab));
  await wrapper.line('the command', (line) => line.type === 'tool.update');
  expect(foundBelow(lab.root), 'while it runs').toEqual([]);
  writeFileSync(path.join(lab.root, 'go'), '');
  expect(await wrapper.ended).toEqual({ code: 0, signal: null, stderr: '' });
  expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({ verdict: 'ok', text: 'Done.' });
  expect(model.violations(), 'the model demands the key').toEqual([]);
  expect(model.requests()).toHaveLength(2);
  expect(foundBelow(lab.root), 'afterwards').toEqual([]);
  const pi = await lab.readText('pi');
  expect(pi, 'it is Pi that was looked at').toContain(`HOME=${lab.root}`);
});

test('what a command prints of key or token is redacted, also where it was never given them', async () => {
  const { lab } = await makePiLab({ proxied, script: [`bash echo it is ${KEY}`, `say ${KEY}`] });
  const { word, lines } = await lab.run(withCredentials(lab));
  expect(word.text).toBe('[redacted LAB_KEY]');
  expect(JSON.stringify(lines)).not.toContain(KEY);
});

/** Milliseconds; 0 for none. */
const momentOf = (time: string | null): number => (time === null ? 0 : Date.parse(time));

/** A run with the provider itself, and one through the proxy. */
const CASES: [string, PiLabChanges][] = [
  ['a provider that works', { script: ['bash true', 'say fine'] }],
  ['a key that is refused', { serverKey: 'another', pi: { apiKey: KEY } }],
  ['429 with Retry-After', { script: ['status 429 retry-after 77'] }],
  ['503 with Retry-After', { script: ['status 503 retry-after 5'] }],
  ['500', { script: ['status 500'] }],
  ['400', { script: ['status 400 message prompt is too long'] }],
  ['an answer that is cut', { script: ['cut'] }],
  [
    'failures that Pi itself gets over',
    {
      script: ['cut x1', 'status 429 retry-after 0.1 x1', 'status 500 x1', 'say fine'],
      pi: { retries: 'fast' },
    },
  ],
];

test.each(CASES)('%s looks the same through the proxy', async (_, changes) => {
  const direct = await makePiLab(changes);
  const { retryAt, ...word } = (await direct.lab.run()).word;
  const through = await makePiLab({ ...changes, proxied });
  const { word: itsWord, stderr } = await through.lab.run(withCredentials(through.lab));
  const { retryAt: itsRetryAt, ...other } = itsWord;
  expect(other).toEqual(word);
  expect(Math.abs(momentOf(itsRetryAt) - momentOf(retryAt))).toBeLessThan(30_000);
  expect(through.model.requests()).toHaveLength(direct.model.requests().length);
  expect(stderr).toBe('');
});

test('a provider that cannot be reached has the same code, and the journal has the reason', async () => {
  const nowhere = 'http://127.0.0.1:9/v1';
  const direct = await makePiLab({ pi: { baseUrl: nowhere } });
  const { code, verdict } = (await direct.lab.run()).word;
  const { lab } = await makePiLab({ proxied: { ...proxied, baseUrl: nowhere } });
  const { word, stderr } = await lab.run(withCredentials(lab));
  expect(word).toMatchObject({ code, verdict });
  expect(stderr).toBe(
    'outlive-attempt: 127.0.0.1:9 could not be reached by the key proxy: ECONNREFUSED\n',
  );
});

test('a run that is stopped while its provider hangs ends the request there', async () => {
  const { lab, model } = await makePiLab({ proxied, script: ['hang'] });
  const wrapper = lab.start(withCredentials(lab));
  await model.waitFor(({ ended }) => ended === 'open');
  wrapper.kill('SIGTERM');
  await model.waitFor(({ ended }) => ended === 'client-left');
  expect((await wrapper.ended).signal).toBe('SIGTERM');
});

test('an answer is told while the provider still gives it', async () => {
  const { lab, model } = await makePiLab({
    proxied,
    script: ['slow 50 200 '.concat('word '.repeat(200))],
  });
  const wrapper = lab.start(withCredentials(lab));
  await wrapper.event('agent.message');
  expect(model.requests().map(({ ended }) => ended)).toEqual(['open']);
  wrapper.kill('SIGTERM');
  await wrapper.ended;
});

test('no key is provider_auth, said by name, and nothing is asked of the provider', async () => {
  const { lab, model } = await makePiLab({ proxied: { ...proxied, keyVariable: 'OTHER_KEY' } });
  const { word } = await lab.run(withCredentials(lab));
  expect(word).toMatchObject({
    code: 'provider_auth',
    message: expect.stringContaining('there is no key: OTHER_KEY: ENOENT'),
  });
  expect(model.requests()).toEqual([]);
});

test('a run of another provider needs no key', async () => {
  const { lab, model } = await makePiLab({
    proxied: { ...proxied, provider: 'other', keyVariable: 'OTHER_KEY' },
  });
  await writePiLab(path.join(lab.root, '.pi/agent'), { baseUrl: model.baseUrl });
  expect((await lab.run(withCredentials(lab))).word).toMatchObject({ verdict: 'ok', text: 'done' });
});

test("a key of Pi's own goes before the token: refused, with what to do", async () => {
  const { lab, model } = await makePiLab({ proxied });
  const auth = { lab: { type: 'api_key', key: 'somebody-elses-key-0123' } };
  await lab.write('.pi/agent/auth.json', JSON.stringify(auth));
  const { word } = await lab.run(withCredentials(lab));
  expect(word).toMatchObject({
    code: 'provider_auth',
    message: expect.stringContaining("A key in Pi's own auth.json goes before it"),
  });
  expect(model.requests()).toEqual([]);
});

test('other proxies that a run is told of are not between Pi and its wrapper, but behind that', async () => {
  const other = await refusing();
  const { lab, model } = await makePiLab({ proxied });
  const environment = { ...lab.launch.environment, HTTP_PROXY: other.origin };
  await lab.write('attempt/launch.json', JSON.stringify({ ...lab.launch, environment }));
  const { word } = await lab.run(withCredentials(lab));
  expect(word.message).toContain('scripted refusal');
  expect(other.seen).toMatchObject([
    { url: `${model.baseUrl}/chat/completions`, headers: { authorization: `Bearer ${KEY}` } },
  ]);
});

/** A network of its own that has not one free port. */
const NO_PORT = `cd /proc/sys/net/ipv4
echo 40000 40000 > ip_local_port_range
echo 40000 > ip_local_reserved_ports
cd "$OLDPWD"
exec "$@"`;

test('a proxy that cannot listen fails the attempt before anything ran', async () => {
  const { lab, sessionFile } = await makePiLab({ proxied });
  const through = ['unshare', '--map-root-user', '--net', '--', 'sh', '-c', NO_PORT, 'sh'];
  const wrapper = lab.start(withCredentials(lab), through);
  expect((await wrapper.ended).code).toBe(1);
  const { lines } = wrapper.spool;
  expect(lines.map(({ type }) => type)).toEqual(['attempt.opened', 'runner.finished']);
  expect(lines.at(-1)?.data).toMatchObject({
    verdict: 'error',
    code: 'runner_error',
    message: 'The key proxy cannot be opened: EADDRINUSE',
  });
  expect(existsSync(sessionFile)).toBe(false);
});

interface Refused {
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly raw: string;
}

/** A server that refuses everything and tells what it was sent; gone after the test. */
async function refusing(): Promise<{ origin: string; seen: Refused[] }> {
  const seen: Refused[] = [];
  const server = createServer((request, response) => {
    const { headers, rawHeaders, url = '' } = request;
    seen.push({ url: url.split('?')[0] ?? '', headers, raw: rawHeaders.join('\n') });
    request.resume();
    response.writeHead(400, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message: 'scripted refusal' } }));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

/** Built-in providers: model, what the real base URL ends with, the header with its word, and the path asked for. */
const BUILT_IN: [string, string, string, string | null, RegExp][] = [
  ['anthropic/claude-fable-5', '', 'x-api-key', null, /^\/v1\/messages$/],
  ['groq/llama-3.3-70b-versatile', '/openai/v1', 'authorization', 'Bearer', /^\/openai\/v1\/chat/],
  ['openai/gpt-6-luna', '/v1', 'authorization', 'Bearer', /^\/v1\/responses$/],
  ['google/gemini-2.5-flash', '/v1beta', 'x-goog-api-key', null, /^\/v1beta\/models\/gemini/],
  ['mistral/codestral-latest', '', 'authorization', 'Bearer', /^\/v1\/chat\/completions$/],
];

test.each(BUILT_IN)(
  'a built-in provider is redirected: %s',
  async (model, tail, header, scheme, asked) => {
    const { origin, seen } = await refusing();
    const [provider = ''] = model.split('/');
    const baseUrl = `${origin}${tail}`;
    const { lab } = await makePiLab({
      model,
      proxied: { ...proxied, provider, baseUrl, header, scheme },
    });
    const { word } = await lab.run(withCredentials(lab));
    expect(word).toMatchObject({ code: 'model_error' });
    expect(word.message).toContain('scripted refusal');
    expect(seen.map(({ url }) => url)).toEqual([expect.stringMatching(asked)]);
    expect(seen[0]?.headers[header]).toBe(scheme === null ? KEY : `${scheme} ${KEY}`);
    expect(seen[0]?.raw).not.toMatch(TOKEN);
  },
);
