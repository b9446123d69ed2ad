import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { SpoolLine } from '../../src/domain/spool.ts';
import { ControlClient } from './support/control-client.ts';
import { isAlive } from './support/lab.ts';
import { makePiLab } from './support/pi-lab.ts';

const LONG_TOOL = ['bash echo $$ ; sleep 300; echo end > ../reached', 'say never'];
const toolOutput = (line: SpoolLine): boolean => line.type === 'tool.update';

test('SIGTERM in the middle of a tool: told, aborted, session closed, last word, died of TERM', async () => {
  const { lab, messages, model } = await makePiLab({ script: LONG_TOOL });
  const wrapper = lab.start();
  const started = await wrapper.event('started');
  const update = await wrapper.line('output of the tool', toolOutput);
  wrapper.kill('SIGTERM');
  expect(await wrapper.ended).toEqual({ code: null, signal: 'SIGTERM', stderr: '' });
  const { lines } = wrapper.spool;
  const types = lines.map((line) => line.type);
  expect(types.indexOf('attempt.told_to_stop')).toBeLessThan(types.indexOf('tool.end'));
  const word = lines.at(-1);
  expect(word).toMatchObject({
    type: 'runner.finished',
    data: {
      verdict: 'stopped',
      code: null,
      exitCode: 0,
      signal: null,
      usage: { totalTokens: expect.any(Number) },
    },
  });
  expect(model.requests(), 'no turn after the abort').toHaveLength(1);
  expect(isAlive(Number(started.data['pid']))).toBe(false);
  expect(isAlive(Number(update.data['delta']))).toBe(false);
  expect(existsSync(path.join(lab.root, 'reached'))).toBe(false);
  const roles = (await messages()).map((message) => message.role);
  expect(roles.slice(0, 4)).toEqual(['system', 'user', 'assistant', 'toolResult']);
});

test('abort over the control socket in the middle of an answer keeps the partial text and the cost', async () => {
  const { lab, messages } = await makePiLab({
    script: ['slow 50 400 '.concat('word '.repeat(400))],
  });
  const wrapper = lab.start();
  await wrapper.event('agent.message');
  const client = new ControlClient(lab.launch.controlSocket);
  await client.at(1);
  client.send({ v: 1, type: 'abort', id: 'x', reason: 'cancel', graceMs: 10_000 });
  expect((await wrapper.ended).signal).toBe('SIGTERM');
  const { lines } = wrapper.spool;
  expect(lines.find((line) => line.type === 'attempt.told_to_stop')?.data).toMatchObject({
    by: 'control',
    reason: 'cancel',
  });
  const word = lines.at(-1)?.data;
  expect(word).toMatchObject({ verdict: 'stopped', exitCode: 0 });
  expect(String(word?.['text'])).toMatch(/^word /);
  const end = lines.findLast((line) => line.type === 'agent.message')?.data;
  expect(end).toMatchObject({ end: true, stopReason: 'aborted' });
  expect((await messages()).at(-1)).toMatchObject({ role: 'assistant', stopReason: 'aborted' });
});

test('heartbeats tell the running tool, tokens and cost', async () => {
  const { lab } = await makePiLab({
    script: LONG_TOOL,
    launch: { timeouts: { heartbeatIntervalMs: 100 } },
  });
  const wrapper = lab.start();
  await wrapper.line('output of the tool', toolOutput);
  const client = new ControlClient(lab.launch.controlSocket);
  const beat = await client.at(2);
  expect(beat).toMatchObject({
    type: 'heartbeat',
    live: { currentTool: 'bash', totalTokens: expect.any(Number), costUsd: expect.any(Number) },
  });
});

test('SIGTERM while Pi starts: no prompt is ever sent', async () => {
  const { lab, model } = await makePiLab();
  const wrapper = lab.start();
  await wrapper.event('attempt.opened');
  wrapper.kill('SIGTERM');
  expect((await wrapper.ended).signal).toBe('SIGTERM');
  expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({ verdict: 'stopped' });
  expect(model.requests()).toEqual([]);
});

test('a Pi that hears nothing any more is killed when the grace is over; T87 pi-agents#139', async () => {
  const { lab, model } = await makePiLab({
    script: ['hang'],
    launch: { timeouts: { cancelGraceMs: 1_000 } },
  });
  const wrapper = lab.start();
  const started = await wrapper.event('started');
  await model.waitFor(() => true);
  process.kill(Number(started.data['pid']), 'SIGSTOP');
  wrapper.kill('SIGTERM');
  expect((await wrapper.ended).signal).toBe('SIGTERM');
  expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({ verdict: 'stopped', signal: 'SIGKILL' });
});

test('the wrapper killed by SIGKILL: Pi sees the end of its input and goes by itself', async () => {
  const { lab, messages } = await makePiLab({ script: LONG_TOOL });
  const wrapper = lab.start();
  const started = await wrapper.event('started');
  await wrapper.line('output of the tool', toolOutput);
  const gone = new Promise<void>((resolve) => {
    // Pi is no child of ours; its end shows in the session it closes.
    const check = setInterval(() => {
      if (isAlive(Number(started.data['pid']))) return;
      clearInterval(check);
      resolve();
    }, 20);
  });
  wrapper.kill('SIGKILL');
  await wrapper.ended;
  await gone;
  expect((await messages()).at(3)).toMatchObject({ role: 'toolResult' });
});
