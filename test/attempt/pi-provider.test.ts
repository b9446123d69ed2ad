/** What the wrapper makes of a provider that fails or gets expensive; real Pi, real HTTP. */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { makePiLab, type PiLabChanges } from './support/pi-lab.ts';

const TIMES: [string, PiLabChanges, number][] = [
  ['the header Retry-After of a 429', { script: ['status 429 retry-after 77'] }, 77],
  ['the header Retry-After of a 503', { script: ['status 503 retry-after 5'] }, 5],
  ['the words of the error', { script: ['status 429 message Please try again in 6m0s.'] }, 360],
  [
    'the header rather than the words',
    { script: ['status 429 retry-after 9 message Please try again in 6m0s.'] },
    9,
  ],
];

test.each(TIMES)('the last word carries the reset time: %s', async (_, changes, seconds) => {
  const { lab } = await makePiLab(changes);
  const before = Date.now();
  const { word, lines } = await lab.run();
  const after = Date.now();
  expect(word.code).toMatch(/rate_limited|provider_unavailable/);
  const at = Date.parse(word.retryAt ?? '');
  expect(at).toBeGreaterThanOrEqual(before + seconds * 1_000);
  expect(at).toBeLessThanOrEqual(after + seconds * 1_000);
  const told = lines.filter(({ data }) => JSON.stringify(data).includes('outlive:'));
  expect(told, 'the notice of the extension is for nobody').toEqual([]);
});

test.each<[string, PiLabChanges]>([
  ['a failure that names none', { script: ['status 503'] }],
  ['a cut stream', { script: ['cut'] }],
  [
    'a run that ended well after a pause',
    { script: ['status 429 retry-after 1 x1', 'say ok'], pi: { retries: 'fast' } },
  ],
])('%s has no reset time', async (_, changes) => {
  const { lab } = await makePiLab(changes);
  expect((await lab.run()).word.retryAt).toBeNull();
});

test("a reset is forgotten when Pi's own retry got an answer and something else failed later", async () => {
  const { lab } = await makePiLab({
    script: ['status 429 retry-after 77 x1', 'bash true', 'status 400 message odd'],
    pi: { retries: 'fast' },
  });
  expect((await lab.run()).word).toMatchObject({ code: 'model_error', retryAt: null });
});

test('a conversation that was begun is gone on with; one that was not gets its prompt; T89 orca PR#8876', async () => {
  const first = await makePiLab({ script: ['bash true', 'status 503 x1', 'say done'] });
  await first.lab.run();
  const { sessionFile } = first;
  const second = await makePiLab({ sessionFile, continuation: 'Go on.', prompt: 'NOT AGAIN' });
  await second.useModelOf(first);
  expect((await second.lab.run()).word).toMatchObject({ verdict: 'ok', text: 'done' });
  const said = (await second.messages()).filter(({ role }) => role === 'user');
  expect(said.map(({ content }) => JSON.stringify(content)).at(-1)).toContain('Go on.');
  expect(said).toHaveLength(2);

  const fresh = await makePiLab({ script: ['say fresh'], continuation: 'Go on.' });
  expect((await fresh.lab.run()).word.text).toBe('fresh');
});

test.each([
  ['tokens', { microUsd: null, tokens: 40 }],
  ['money', { microUsd: 100, tokens: null }],
])(
  'a run that goes on beyond its ceiling in %s is stopped, its session whole',
  async (_, ceiling) => {
    const { lab, messages } = await makePiLab({
      script: ['bash echo one', 'bash echo two', 'bash sleep 60', 'say never'],
      launch: { ceiling },
    });
    const { word, code } = await lab.run();
    expect(code).toBe(1);
    expect(word).toMatchObject({ verdict: 'error', code: 'budget_exceeded', exitCode: 0 });
    expect(word.message).toMatch(
      /^It spent \$[\d.]+ and \d+ tokens, all that was left of its ceiling$/,
    );
    expect((await messages()).at(-1)?.role, 'every call has its result').not.toBe('user');
  },
);

test('an answer that ends the run may cross the ceiling: what is done is done', async () => {
  const { lab } = await makePiLab({
    script: ['say done'],
    launch: { ceiling: { microUsd: 1, tokens: 1 } },
  });
  expect((await lab.run()).word).toMatchObject({ verdict: 'ok', text: 'done' });
});

test('a lock that a killed Pi left in its directory is waited for, not a failure', async () => {
  const { lab, model } = await makePiLab({ script: ['say done'] });
  // As a power cut leaves it: made a moment ago, its owner gone.
  mkdirSync(path.join(lab.root, '.pi/agent/trust.json.lock'));
  const { word, lines } = await lab.run();
  expect(word).toMatchObject({ verdict: 'ok', text: 'done' });
  const retries = lines.filter(({ data }) => (data as { kind?: string }).kind === 'retry');
  expect(retries).toHaveLength(1);
  expect(model.requests()).toHaveLength(1);
}, 60_000);

test('a stop while that lock is waited for ends the wait: no other Pi is started', async () => {
  const { lab, model } = await makePiLab({ script: ['say done'] });
  mkdirSync(path.join(lab.root, '.pi/agent/trust.json.lock'));
  const wrapper = lab.start();
  await wrapper.line('the wait', ({ data }) => (data as { kind?: string }).kind === 'retry');
  wrapper.kill('SIGTERM');
  expect((await wrapper.ended).signal).toBe('SIGTERM');
  expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({ verdict: 'stopped' });
  expect(model.requests()).toEqual([]);
});
