import { writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { makePiLab, type PiLabChanges } from './support/pi-lab.ts';

const FAILURES: [string, PiLabChanges, string, RegExp][] = [
  ['401', { script: ['status 401'] }, 'provider_auth', /^401/],
  ['403', { script: ['status 403'] }, 'provider_auth', /^403/],
  ['429', { script: ['status 429'] }, 'rate_limited', /^429/],
  ['500', { script: ['status 500'] }, 'provider_unavailable', /^500/],
  ['400', { script: ['status 400 message something odd'] }, 'model_error', /something odd/],
  [
    'a conversation too long',
    { script: ['status 400 message prompt is too long: 9 tokens > 8 maximum'] },
    'context_overflow',
    /too long/,
  ],
  ['a cut stream', { script: ['cut'] }, 'provider_unavailable', /./],
  ['the output limit', { script: ['length Too lo'] }, 'output_limit', /./],
];

test.each(FAILURES)('%s of the provider has its own code', async (_, changes, code, message) => {
  const { lab } = await makePiLab(changes);
  const run = await lab.run();
  expect(run.code).toBe(1);
  expect(run.word).toMatchObject({ verdict: 'error', code, exitCode: 0 });
  expect(run.word.message).toMatch(message);
});

test("Pi's own retries are progress, and the run then succeeds", async () => {
  const { lab } = await makePiLab({
    script: ['status 503 x2', 'say at last'],
    pi: { retries: 'fast' },
  });
  const { word, lines } = await lab.run();
  expect(word).toMatchObject({ verdict: 'ok', text: 'at last' });
  const retries = lines.filter((line) => line.data['kind'] === 'retry').map((line) => line.data);
  expect(retries).toMatchObject([
    { attempt: 1, maxAttempts: 3, delayMs: 20 },
    { attempt: 2, maxAttempts: 3, delayMs: 40 },
  ]);
  expect(retries[0]?.['message']).toContain('503');
});

test('a wrong key is provider_auth', async () => {
  const { lab } = await makePiLab({ serverKey: 'right', pi: { apiKey: 'wrong' } });
  expect((await lab.run()).word).toMatchObject({
    code: 'provider_auth',
    message: expect.stringContaining('401'),
  });
});

test("a key that is missing is provider_auth with Pi's own message", async () => {
  const { lab } = await makePiLab({ pi: { apiKey: '$NO_SUCH_VARIABLE' } });
  const { word, lines } = await lab.run();
  expect(word).toMatchObject({
    code: 'provider_auth',
    message: expect.stringContaining('No API key'),
  });
  expect(lines.map((line) => line.type)).toEqual(['attempt.opened', 'started', 'runner.finished']);
});

test("an unknown provider is runner_error with Pi's own message", async () => {
  const { lab } = await makePiLab({ model: 'nobody/nothing' });
  const { word, code } = await lab.run();
  expect(code).toBe(1);
  expect(word).toMatchObject({
    code: 'runner_error',
    exitCode: 1,
    message: expect.stringContaining('nobody'),
  });
});

test('a session file that is none is refused by Pi, and left alone', async () => {
  const { lab, sessionFile } = await makePiLab();
  writeFileSync(sessionFile, 'garbage\n');
  const { word } = await lab.run();
  expect(word).toMatchObject({
    code: 'runner_error',
    exitCode: 1,
    message: expect.stringContaining('session'),
  });
});

test('a provider that hangs until the deadline is hard_timeout, exit 1', async () => {
  const { lab, model } = await makePiLab({
    script: ['hang'],
    launch: { timeouts: { hardTimeoutMs: 5_000 } },
  });
  const { code, signal, word, lines } = await lab.run();
  expect(model.requests()).toHaveLength(1);
  expect({ code, signal }).toEqual({ code: 1, signal: null });
  expect(word).toMatchObject({ verdict: 'error', code: 'hard_timeout' });
  expect(lines.map((line) => line.type)).toContain('attempt.deadline');
});

test('Pi killed in the middle of its run is runner_error with the signal', async () => {
  const { lab, model } = await makePiLab({ script: ['hang'] });
  const wrapper = lab.start();
  const started = await wrapper.event('started');
  await model.waitFor(() => true);
  process.kill(Number(started.data['pid']), 'SIGKILL');
  expect((await wrapper.ended).code).toBe(1);
  expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({
    verdict: 'error',
    code: 'runner_error',
    signal: 'SIGKILL',
    message: expect.stringContaining('killed by SIGKILL'),
  });
});

test('no Pi at all is spawn_error', async () => {
  const { lab } = await makePiLab({ command: ['/no/such/pi'] });
  expect((await lab.run()).word).toMatchObject({ code: 'spawn_error', exitCode: 127 });
});

/** A stand-in that speaks what Pi would never say; real in everything else. */
const standIn = (body: string): readonly string[] => [
  process.execPath,
  '-e',
  `let rest = ''; process.stdin.on('data', (d) => { rest += d; const l = rest.split('\\n'); rest = l.pop(); l.map((x) => JSON.parse(x)).forEach(take); });
   const say = (o) => process.stdout.write(JSON.stringify(o) + '\\n');
   const ok = (c, data) => say({ id: c.id, type: 'response', command: c.type, success: true, data });
   say({ type: 'extension_ui_request', id: 'r', method: 'notify', message: 'outlive:fence {"kind":"ready","tools":["bash","edit","write"]}' });
   function take(c) { ${body} }`,
  '--',
];

test('lines that are not the protocol are counted and the run goes on', async () => {
  const { lab } = await makePiLab({
    command: standIn(`
      process.stdout.write('garbage\\n[1]\\n{"no":"type"}\\n');
      ok(c, c.type === 'get_last_assistant_text' ? { text: 'fine' } : {});
      if (c.type === 'prompt') { say({ type: 'future_event' });
        say({ type: 'message_end', message: { role: 'assistant', content: [], stopReason: 'stop' } });
        say({ type: 'agent_settled', aborted: false }); }`),
  });
  const { word, stderr } = await lab.run();
  expect(word).toMatchObject({ verdict: 'ok', text: 'fine' });
  expect(stderr).toContain('not its protocol: not a record: garbage');
  expect(stderr).toMatch(/said \d+ lines that are not its protocol/);
});

test('a line of more than 64 MiB is runner_protocol', async () => {
  const { lab } = await makePiLab({
    command: standIn(`ok(c, {}); if (c.type === 'prompt') process.stdout.write('x'.repeat(70e6));`),
  });
  const { word } = await lab.run();
  expect(word).toMatchObject({
    code: 'runner_protocol',
    message: expect.stringContaining('67108864'),
  });
});

test('an extension that asks is answered no at once, and the spool says so', async () => {
  const { lab } = await makePiLab({
    command: standIn(`
      if (c.type === 'extension_ui_response') {
        globalThis.answers = [...(globalThis.answers ?? []), c];
        if (answers.length === 2) {
          say({ type: 'message_end', message: { role: 'assistant', content: [{ type: 'text', text: JSON.stringify(answers) }], stopReason: 'stop' } });
          say({ type: 'agent_settled', aborted: false });
        }
        return;
      }
      ok(c, {});
      if (c.type === 'prompt') {
        say({ type: 'extension_ui_request', id: 'q1', method: 'confirm', title: 'Allow?', message: 'rm' });
        say({ type: 'extension_ui_request', id: 'q2', method: 'input', title: 'Name?' });
        say({ type: 'extension_ui_request', id: 'q3', method: 'notify', message: 'hello', notifyType: 'warning' });
        say({ type: 'extension_ui_request', id: 'q4', method: 'setStatus', statusKey: 'k' });
      }`),
  });
  const { word, lines } = await lab.run();
  expect(JSON.parse(word.text)).toEqual([
    { type: 'extension_ui_response', id: 'q1', confirmed: false },
    { type: 'extension_ui_response', id: 'q2', cancelled: true },
  ]);
  expect(lines.filter((line) => line.type === 'progress').map((line) => line.data)).toMatchObject([
    { kind: 'dialog', title: 'Allow?', answer: 'denied' },
    { kind: 'dialog', title: 'Name?', answer: 'cancelled' },
    { kind: 'notice', message: 'hello', level: 'warning' },
  ]);
});
