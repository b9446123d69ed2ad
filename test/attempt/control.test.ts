import { statSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ControlClient } from './support/control-client.ts';
import { type Lab, type LaunchChanges, makeShellLab, type Wrapper } from './support/lab.ts';

async function running(changes: LaunchChanges = {}): Promise<{ lab: Lab; wrapper: Wrapper }> {
  const lab = await makeShellLab('echo up; sleep 300', changes);
  const wrapper = lab.start({ INVOCATION_ID: 'feedbeef' });
  await wrapper.event('stdout_delta');
  return { lab, wrapper };
}

test('hello and heartbeats on two connections, one of which goes and comes again', async () => {
  const { lab, wrapper } = await running({ timeouts: { heartbeatIntervalMs: 100 } });
  const first = new ControlClient(lab.launch.controlSocket);
  const second = new ControlClient(lab.launch.controlSocket);
  for (const client of [first, second]) {
    expect(await client.at(0)).toMatchObject({
      v: 1,
      type: 'hello',
      attemptId: 'attempt-1',
      nonce: 'n0nce',
      invocationId: 'feedbeef',
      pid: wrapper.pid,
    });
    for (const index of [1, 2, 3]) {
      expect(await client.at(index)).toMatchObject({
        type: 'heartbeat',
        live: { currentTool: null, costUsd: null, totalTokens: null },
      });
    }
  }
  first.close();
  const again = new ControlClient(lab.launch.controlSocket);
  expect((await again.at(0)).type).toBe('hello');
  expect((await second.at(second.messages.length)).type).toBe('heartbeat');
  const { size } = statSync(lab.spoolFile);
  expect(await again.at(1)).toMatchObject({ spoolBytes: size });
});

test('the socket is for the owner alone, and gone after the end', async () => {
  const { lab, wrapper } = await running();
  const { controlSocket } = lab.launch;
  expect(statSync(controlSocket).mode & 0o777).toBe(0o600);
  expect(statSync(path.dirname(controlSocket)).mode & 0o777).toBe(0o700);
  wrapper.kill('SIGTERM');
  await wrapper.ended;
  expect(statSync(controlSocket, { throwIfNoEntry: false })).toBe(undefined);
});

test('ping is answered; what is no command is answered with the reason and the run goes on', async () => {
  const { lab, wrapper } = await running();
  const client = new ControlClient(lab.launch.controlSocket);
  await client.at(1);
  client.send({ v: 1, type: 'ping', id: 'p1' });
  client.send('{not json');
  client.send({ v: 1, type: 'approve', id: 'a1' });
  client.send({ v: 1, type: 'abort', id: 'a2', reason: 'mood', graceMs: 1 });
  client.send({ v: 1, type: 'abort', id: 'a3', reason: 'cancel', graceMs: -1 });
  client.send({ v: 9, type: 'ping', id: 'p2' });
  await client.at(7);
  expect(client.messages.slice(2)).toEqual([
    { v: 1, type: 'done', id: 'p1' },
    { v: 1, type: 'error', id: null, message: 'not a JSON object' },
    { v: 1, type: 'error', id: 'a1', message: 'type is none of ping, look, abort' },
    {
      v: 1,
      type: 'error',
      id: 'a2',
      message: 'reason is none of cancel, interrupt, suspend, fail',
    },
    { v: 1, type: 'error', id: 'a3', message: 'graceMs is not between 0 and 600000' },
    { v: 1, type: 'error', id: 'p2', message: 'v is not 1' },
  ]);
  expect(wrapper.spool.lines.map((line) => line.type)).not.toContain('attempt.told_to_stop');
});

test('abort: recorded with its reason before it is answered, stopped, the wrapper dies of TERM', async () => {
  const { lab, wrapper } = await running();
  const client = new ControlClient(lab.launch.controlSocket);
  await client.at(1);
  client.send({ v: 1, type: 'abort', id: 'a1', reason: 'interrupt', graceMs: 5_000 });
  expect(await client.at(2)).toEqual({ v: 1, type: 'done', id: 'a1' });
  expect(wrapper.spool.lines.map((line) => line.type)).toContain('attempt.told_to_stop');
  expect(await wrapper.ended).toMatchObject({ code: null, signal: 'SIGTERM' });
  const { lines } = wrapper.spool;
  expect(lines.find((line) => line.type === 'attempt.told_to_stop')?.data).toEqual({
    by: 'control',
    reason: 'interrupt',
    graceMs: 5_000,
  });
  expect(lines.at(-1)?.data).toMatchObject({
    verdict: 'stopped',
    message: 'Told to stop by the daemon: interrupt',
  });
});

test('a client that does not read is dropped, others are not', async () => {
  const { lab } = await running();
  const slow = new ControlClient(lab.launch.controlSocket);
  const good = new ControlClient(lab.launch.controlSocket);
  await Promise.all([slow.at(1), good.at(1)]);
  slow.pause();
  for (let count = 0; count < 20_000; count++) slow.send({ v: 1, type: 'ping', id: `p${count}` });
  await slow.closed;
  good.send({ v: 1, type: 'ping', id: 'still here' });
  expect(await good.at(2)).toMatchObject({ type: 'done', id: 'still here' });
});

test('an endless line ends that connection', async () => {
  const { lab } = await running();
  const client = new ControlClient(lab.launch.controlSocket);
  await client.at(1);
  client.send('x'.repeat(70_000));
  expect(await client.at(2)).toMatchObject({
    type: 'error',
    message: expect.stringContaining('65536'),
  });
  await client.closed;
});

test('a socket path that is too long: the run goes on without, and says so twice', async () => {
  const socket = `/tmp/${'long/'.repeat(25)}control.sock`;
  const lab = await makeShellLab('echo up', { controlSocket: socket });
  const { code, stderr, lines } = await lab.run();
  expect(code).toBe(0);
  expect(stderr).toContain('longer than 107 bytes');
  expect(lines[1]).toMatchObject({ type: 'progress', data: { kind: 'control_unavailable' } });
});

test('a socket directory that cannot be made: the run goes on without', async () => {
  const lab = await makeShellLab('echo up', { controlSocket: '/proc/no/control.sock' });
  const { code, lines } = await lab.run();
  expect(code).toBe(0);
  expect(lines[1]?.data['message']).toMatch(/ENOENT|EACCES|EPERM/);
});
