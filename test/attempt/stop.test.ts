import { expect, test } from 'vitest';
import { isAlive, makeShellLab } from './support/lab.ts';
import { readSpool } from './support/spool.ts';

const types = (file: string): string[] => readSpool(file).lines.map((line) => line.type);

test('SIGTERM: recorded at once, the command ended, the last word stopped, the wrapper dies of TERM', async () => {
  const lab = await makeShellLab('echo up; sleep 300');
  const wrapper = lab.start();
  await wrapper.event('stdout_delta');
  wrapper.kill('SIGTERM');
  expect(await wrapper.ended).toMatchObject({ code: null, signal: 'SIGTERM', stderr: '' });
  const { lines } = wrapper.spool;
  expect(lines.slice(-3)).toMatchObject([
    { type: 'attempt.told_to_stop', data: { by: 'SIGTERM', reason: null, graceMs: 15_000 } },
    { type: 'failed', data: { code: 'aborted', signal: 'SIGTERM' } },
    {
      type: 'runner.finished',
      data: { verdict: 'stopped', code: null, signal: 'SIGTERM', text: 'up\n' },
    },
  ]);
});

test('the whole process group is told to end', async () => {
  const lab = await makeShellLab('sh -c "sleep 300; echo not reached" & echo $!; wait');
  const wrapper = lab.start();
  const started = await wrapper.event('stdout_delta');
  wrapper.kill('SIGTERM');
  await wrapper.ended;
  expect(isAlive(Number(started.data['text']))).toBe(false);
  expect(types(lab.spoolFile)).not.toContain('progress');
});

test('a command that ignores SIGTERM is killed when the grace is over', async () => {
  const lab = await makeShellLab(`trap '' TERM; echo up; while :; do sleep 1; done`, {
    timeouts: { cancelGraceMs: 200 },
  });
  const wrapper = lab.start();
  await wrapper.event('stdout_delta');
  wrapper.kill('SIGTERM');
  expect((await wrapper.ended).signal).toBe('SIGTERM');
  expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({ verdict: 'stopped', signal: 'SIGKILL' });
});

test('a second SIGTERM changes nothing', async () => {
  const lab = await makeShellLab(
    `trap 'echo ending; read x < fifo; exit 5' TERM; mkfifo fifo; echo up; sleep 300 & wait`,
  );
  const wrapper = lab.start();
  await wrapper.event('stdout_delta');
  wrapper.kill('SIGTERM');
  await wrapper.line('its ending', (line) => String(line.data['text']).includes('ending'));
  wrapper.kill('SIGTERM');
  await lab.write('work/fifo', 'go\n');
  expect((await wrapper.ended).signal).toBe('SIGTERM');
  const { lines } = wrapper.spool;
  expect(lines.filter((line) => line.type === 'attempt.told_to_stop')).toHaveLength(1);
  expect(lines.at(-1)?.data).toMatchObject({ verdict: 'stopped', exitCode: 5, signal: null });
});

test('SIGTERM before the command is up still ends in a last word', async () => {
  const lab = await makeShellLab('sleep 300');
  const wrapper = lab.start();
  await wrapper.event('attempt.opened');
  wrapper.kill('SIGTERM');
  expect((await wrapper.ended).signal).toBe('SIGTERM');
  expect(wrapper.spool.lines.at(-1)).toMatchObject({
    type: 'runner.finished',
    data: { verdict: 'stopped' },
  });
});

test('the hard deadline is met a moment early: said, ended, hard_timeout, exit 1', async () => {
  const lab = await makeShellLab('echo up; sleep 300', { timeouts: { hardTimeoutMs: 2_000 } });
  const { code, signal, lines } = await lab.run();
  expect({ code, signal }).toEqual({ code: 1, signal: null });
  expect(lines.slice(-3)).toMatchObject([
    { type: 'attempt.deadline', data: { hardTimeoutMs: 2_000 } },
    { type: 'failed', data: { code: 'hard_timeout' } },
    { type: 'runner.finished', data: { verdict: 'error', code: 'hard_timeout', text: 'up\n' } },
  ]);
  expect(
    lines.find((line) => line.type === 'attempt.deadline')?.data['elapsedMs'],
  ).toBeGreaterThanOrEqual(1_800);
});

test('SIGTERM after the deadline was said leaves the verdict hard_timeout', async () => {
  const lab = await makeShellLab(
    `trap 'echo ending; read x < fifo' TERM; mkfifo fifo; sleep 300 & wait`,
    {
      timeouts: { hardTimeoutMs: 5_000 },
    },
  );
  const wrapper = lab.start();
  await wrapper.line('its ending', (line) => String(line.data['text']).includes('ending'));
  wrapper.kill('SIGTERM');
  await lab.write('work/fifo', 'go\n');
  expect(await wrapper.ended).toMatchObject({ code: 1, signal: null });
  expect(types(lab.spoolFile)).not.toContain('attempt.told_to_stop');
  expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({ code: 'hard_timeout' });
});

test('a fault of the wrapper itself ends the command and is said in the last word', async () => {
  const lab = await makeShellLab('echo up; sleep 300');
  const fault = 'process.on("SIGUSR2", () => { throw new Error("boom"); })';
  const wrapper = lab.start({
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(fault)}`,
  });
  await wrapper.event('stdout_delta');
  wrapper.kill('SIGUSR2');
  const { code, stderr } = await wrapper.ended;
  expect(code).toBe(1);
  expect(stderr).toContain('The wrapper broke: Error: boom');
  expect(wrapper.spool.lines.slice(-2)).toMatchObject([
    { type: 'failed', data: { code: 'runner_error', signal: 'SIGTERM' } },
    { type: 'runner.finished', data: { code: 'runner_error', text: 'up\n' } },
  ]);
});
