import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { SpoolLine } from '../../src/domain/spool.ts';
import { LAB_COST } from '../support/scripted-model/lab.ts';
import { makePiLab } from './support/pi-lab.ts';

/** The text of one message or thought, put together from its pieces as a reader would. */
function said(
  lines: readonly SpoolLine[],
  type: 'agent.message' | 'agent.thought',
  message: number,
): string {
  let text = '';
  for (const { data } of lines.filter(
    (line) => line.type === type && line.data['message'] === message,
  )) {
    if (data['replace'] === true) text = '';
    text += typeof data['delta'] === 'string' ? data['delta'] : '';
  }
  return text;
}

test('a run with a thought, a tool call and an answer: events, last word, tokens, cost, session', async () => {
  const { lab, model, messages } = await makePiLab({
    script: ['think Hm. ;; say I will look. ;; bash echo a; echo b', 'say All is\\nwell.'],
  });
  const { code, stderr, lines, word } = await lab.run();
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(lines.map((line) => line.type).filter((type) => type !== 'tool.update')).toEqual([
    'attempt.opened',
    'started',
    'agent.thought',
    'agent.message',
    'agent.message',
    'tool.start',
    'tool.end',
    'agent.message',
    'agent.message',
    'runner.finished',
  ]);
  expect(lines[1]?.data).toMatchObject({ runner: 'pi', model: 'lab/scripted', piVersion: '1.6.0' });
  expect(said(lines, 'agent.thought', 1)).toBe('Hm.');
  expect(said(lines, 'agent.message', 1)).toBe('I will look.');
  expect(said(lines, 'agent.message', 2)).toBe('All is\nwell.');
  const start = lines.find((line) => line.type === 'tool.start')?.data;
  expect(start).toMatchObject({ tool: 'bash', arguments: { command: 'echo a; echo b' } });
  expect(lines.find((line) => line.type === 'tool.end')?.data).toEqual({
    toolCallId: start?.['toolCallId'],
    tool: 'bash',
    isError: false,
    result: 'a\nb\n',
    durationMs: expect.any(Number),
    fenced: true,
    digest: createHash('sha256').update('a\nb\n').digest('hex'),
  });
  const asked = model.requests().map((request) => request.usage);
  const total = asked.reduce((sum, usage) => sum + (usage?.total_tokens ?? 0), 0);
  expect(word).toMatchObject({
    verdict: 'ok',
    code: null,
    message: null,
    text: 'All is\nwell.',
    exitCode: 0,
    leftovers: [],
  });
  expect(word.usage?.totalTokens).toBe(total);
  const { inputTokens = 0, outputTokens = 0, cacheReadTokens = 0 } = word.usage ?? {};
  const cost =
    inputTokens * LAB_COST.input +
    outputTokens * LAB_COST.output +
    cacheReadTokens * LAB_COST.cacheRead;
  expect(word.costUsd).toBeCloseTo(cost / 1e6, 9);
  expect((await messages()).map((message) => message.role)).toEqual([
    'system',
    'user',
    'assistant',
    'toolResult',
    'assistant',
  ]);
  expect(model.violations()).toEqual([]);
});

test('a long answer comes in few pieces and whole, and no snapshot reaches the spool', async () => {
  const story = Array.from({ length: 400 }, (_, index) => `word${index}`).join(' ');
  const { lab } = await makePiLab({ script: [`slow 2 400 ${story}`] });
  const { lines, word } = await lab.run();
  expect(word.text).toBe(story);
  expect(said(lines, 'agent.message', 1)).toBe(story);
  expect(lines.length).toBeLessThan(40);
  expect(await readFile(lab.spoolFile, 'utf8')).not.toContain('coding assistant');
});

test.each([
  ['beginning with @', '@/etc/passwd is only text'],
  ['beginning with -', '--help me'],
  ['of 1 MB', `x${'y'.repeat(1_000_000)}`],
  ['with U+2028 and a pair of surrogates', 'a\u2028b😀'],
])('a prompt %s arrives as it is', async (_, prompt) => {
  const { lab, messages } = await makePiLab({ prompt });
  const { word } = await lab.run();
  expect(word).toMatchObject({ verdict: 'ok', message: null });
  const user = (await messages()).find((message) => message.role === 'user');
  expect(user?.content).toEqual([{ type: 'text', text: prompt }]);
});

test('U+2028 and half characters in a tool result do not split its line', async () => {
  const { lab } = await makePiLab({ script: [String.raw`bash printf 'a\342\200\250b'`, 'say ok'] });
  const { lines, word, stderr } = await lab.run();
  expect({ verdict: word.verdict, stderr }).toEqual({ verdict: 'ok', stderr: '' });
  expect(lines.find((line) => line.type === 'tool.end')?.data['result']).toBe('a\u2028b');
});

test('a second attempt on the same session counts only what it spent itself', async () => {
  const first = await makePiLab({ script: ['say one', 'say two'] });
  const before = await first.lab.run();
  const second = await makePiLab({ sessionFile: first.sessionFile, prompt: 'continue' });
  await second.useModelOf(first);
  const { word } = await second.lab.run();
  expect(word.text).toBe('two');
  const [, request] = first.model.requests();
  expect(word.usage?.totalTokens).toBe(request?.usage?.total_tokens);
  expect(before.word.usage?.totalTokens).toBe(first.model.requests()[0]?.usage?.total_tokens);
});

test('a credential reaches Pi by its file, and nothing that the wrapper writes', async () => {
  const key = 'sk-secret-"quoted"-0123456789';
  const { lab } = await makePiLab({
    serverKey: key,
    pi: { apiKey: '$LAB_KEY' },
    launch: { credentialVariables: ['LAB_KEY'] },
    script: [
      'bash echo "the key is $LAB_KEY"; echo "$LAB_KEY" >&2',
      'say It is in the environment.',
    ],
  });
  await lab.write('LAB_KEY', `${key}\n`);
  const { word, lines } = await lab.run({ CREDENTIALS_DIRECTORY: lab.root });
  expect(word).toMatchObject({ verdict: 'ok', text: 'It is in the environment.' });
  expect(lines.find((line) => line.type === 'tool.end')?.data['result']).toContain(
    'the key is [redacted LAB_KEY]',
  );
  for (const name of ['spool', 'stdout', 'stderr', 'launch'] as const) {
    const written = await lab.read(name);
    expect(`${name}: ${written}`).not.toMatch(/sk-secret/);
  }
});

test('a credential that is missing is said by name and nothing runs', async () => {
  const { lab, model } = await makePiLab({ launch: { credentialVariables: ['LAB_KEY'] } });
  const { code, word } = await lab.run({ CREDENTIALS_DIRECTORY: path.join(lab.root, 'none') });
  expect(code).toBe(1);
  expect(word).toMatchObject({
    code: 'provider_auth',
    message: expect.stringContaining('LAB_KEY: ENOENT'),
  });
  expect(model.requests()).toEqual([]);
});
