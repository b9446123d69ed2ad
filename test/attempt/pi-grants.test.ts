import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ATTEMPT_FILES } from '../../src/domain/attempt-files.ts';
import type { Grant, ToolPolicy } from '../../src/domain/decisions.ts';
import { asks, Decider, grant, told } from './support/decider.ts';
import { makePiLab, type PiLab } from './support/pi-lab.ts';

const CALLS = ['approval.requested', 'tool.start', 'tool.end', 'tool.refused'] as const;
const SPOOL = '../attempt/events.jsonl';

/** An attempt that replaces one which had asked; its grants are about its own work tree. */
async function makeGrantedLab(
  script: readonly string[],
  grants: (cwd: string) => readonly Grant[],
  policy: ToolPolicy = asks('bash', 'edit', 'write'),
): Promise<PiLab & { decider: Decider }> {
  const decider = new Decider();
  const made = await makePiLab({ script });
  const launch = {
    ...made.lab.launch,
    approvals: decider.spec(policy, grants(made.lab.launch.cwd)),
  };
  await writeFile(path.join(made.lab.directory, ATTEMPT_FILES.launch), JSON.stringify(launch));
  return { ...made, decider };
}

const bash = (cwd: string, command: string, more: object = {}) => ({
  tool: 'bash',
  arguments: { command, ...more },
  cwd,
});

/** The text of the last prompt. */
async function promptOf({ messages }: PiLab): Promise<string> {
  const user = (await messages()).findLast(({ role }) => role === 'user');
  const [part] = (user?.content ?? []) as { text: string }[];
  return part?.text ?? '';
}

test('an approved command is run once by the wrapper, before the prompt, which tells of it', async () => {
  const command = `grep -c '"type":"tool.start"' ${SPOOL}; echo acted >> acts; echo "$HOME"`;
  const made = await makeGrantedLab(['say done'], (cwd) => [grant(bash(cwd, command))]);
  const { lab, model } = made;
  const { lines, word } = await lab.run();
  expect(word.text).toBe('done');
  expect(await lab.readText('work/acts')).toBe('acted\n');
  const call = { toolCallId: 'call-of-old', tool: 'bash', fenced: true };
  expect(told(lines, ...CALLS)).toMatchObject([
    ['tool.start', { ...call, approvalId: 'approval-of-old', arguments: { command } }],
    ['tool.end', { ...call, isError: false, result: `1\n${lab.root}\n` }],
  ]);
  const types = lines.map(({ type }) => type);
  expect(types.indexOf('tool.end')).toBeLessThan(types.indexOf('agent.message'));
  expect(model.requests()).toHaveLength(1);
  const prompt = await promptOf(made);
  expect(prompt).toMatch(/^go\n#script/);
  expect(prompt).toContain('It has run now; do not run it again.');
  expect(prompt).toContain(`\`\`\`\n1\n${lab.root}\n\`\`\``);
});

test.each([
  ['fails', 'echo out; echo err >&2; exit 7', {}, 'out\nerr\n\n\nCommand exited with code 7'],
  ['takes too long', 'echo out; sleep 60', { timeout: 0.2 }, 'Command timed out after 0.2 seconds'],
  ['ends by a signal', 'kill -9 $$', {}, 'Command was ended by SIGKILL'],
  ['is in a directory that is gone', 'true', { gone: true }, 'bash could not be started in'],
])('an approved command that %s is told so, and the run goes on', async (_, command, how, said) => {
  const { gone, ...more } = how as { gone?: boolean };
  const made = await makeGrantedLab(['say done'], (cwd) => [
    grant(bash(gone ? `${cwd}/gone` : cwd, command, more)),
  ]);
  const { lines, word } = await made.lab.run();
  expect(word.text).toBe('done');
  const [, end] = told(lines, 'tool.end')[0] ?? [];
  expect(end).toMatchObject({ isError: true, result: expect.stringContaining(said) });
  expect(await promptOf(made)).toContain('It has run now, and failed');
});

test('of an approved command that prints without end only the end is told', async () => {
  const made = await makeGrantedLab(['say done'], (cwd) => [
    grant(bash(cwd, 'seq 1 100000; echo "the end"')),
  ]);
  await made.lab.run();
  const prompt = await promptOf(made);
  expect(prompt).toContain('\nthe end\n');
  expect(prompt).toContain('100000\n');
  expect(prompt).not.toContain('\n98000\n');
  expect(prompt).toMatch(/\[Only the end of \d+ bytes is shown\]/);
});

test('an approved command without its whole arguments is not run, but may be called once as it was', async () => {
  const made = await makeGrantedLab(
    ['bash echo a >> acts', 'bash echo a >> acts', 'say done'],
    (cwd) => [
      grant(bash(cwd, 'echo a >> acts'), { arguments: { command: 'echo [redacted KEY] >> acts' } }),
    ],
  );
  const wrapper = made.lab.start();
  const asked = await wrapper.event('approval.requested');
  made.decider.decide(asked, 'denied');
  await wrapper.ended;
  expect(told(wrapper.spool.lines, ...CALLS)).toMatchObject([
    ['tool.start', { approvalId: 'approval-of-old', tool: 'bash' }],
    ['tool.end', { isError: false }],
    ['approval.requested', { tool: 'bash' }],
    ['tool.refused', { by: 'person' }],
  ]);
  expect(await made.lab.readText('work/acts')).toBe('a\n');
  expect(await promptOf(made)).toContain('Call it again exactly as it was');
});

test('an approved write holds for one identical call, and for no other', async () => {
  const made = await makeGrantedLab(
    ['write a.txt other', 'write a.txt yes', 'write a.txt yes', 'say done'],
    (cwd) => [grant({ tool: 'write', arguments: { path: 'a.txt', content: 'yes' }, cwd })],
  );
  const wrapper = made.lab.start();
  const other = await wrapper.event('approval.requested');
  expect(other.data['arguments']).toEqual({ path: 'a.txt', content: 'other' });
  made.decider.decide(other, 'denied');
  const again = await wrapper.line(
    'a second question',
    ({ type, n }) => type === 'approval.requested' && n !== other.n,
  );
  made.decider.decide(again, 'denied');
  await wrapper.ended;
  expect(told(wrapper.spool.lines, 'tool.start')).toMatchObject([
    ['tool.start', { tool: 'write', approvalId: 'approval-of-old', arguments: { content: 'yes' } }],
  ]);
  expect(await made.lab.readText('work/a.txt')).toBe('yes');
});

test('what was denied is told with the reason, beside what was approved', async () => {
  const made = await makeGrantedLab(['say done'], (cwd) => [
    grant(bash(cwd, 'rm -rf /'), { decision: 'denied', reason: 'not the root' }),
    grant(bash(cwd, 'echo yes > acts')),
  ]);
  const { lines } = await made.lab.run();
  const prompt = await promptOf(made);
  expect(prompt).toContain('Denied: bash {"command":"rm -rf /"}');
  expect(prompt).toContain('Reason: not the root.');
  expect(told(lines, 'tool.start')).toHaveLength(1);
  expect(existsSync(path.join(made.lab.launch.cwd, 'acts'))).toBe(true);
});

test('a conversation that was begun gets the continuation and what was decided', async () => {
  const first = await makePiLab({ script: ['bash true', 'say one', 'say two'] });
  await first.lab.run();
  const decider = new Decider();
  const second = await makePiLab({ sessionFile: first.sessionFile, continuation: 'Go on.' });
  const approvals = decider.spec(asks('bash'), [grant(bash(second.lab.launch.cwd, 'echo hi'))]);
  const launch = { ...second.lab.launch, approvals };
  await writeFile(path.join(second.lab.directory, ATTEMPT_FILES.launch), JSON.stringify(launch));
  await second.useModelOf(first);
  expect((await second.lab.run()).word.text).toBe('two');
  expect(await promptOf(second)).toMatch(/^Go on\.\n\nWhile this run was interrupted/);
});

test('a stop while an approved command runs ends it, and nothing is prompted', async () => {
  const made = await makeGrantedLab(['say never'], (cwd) => [
    grant(bash(cwd, 'echo $$; sleep 300; echo end > ../reached')),
    grant(bash(cwd, 'echo second > ../reached'), { toolCallId: 'call-2' }),
  ]);
  const wrapper = made.lab.start();
  const update = await wrapper.event('tool.update');
  wrapper.kill('SIGTERM');
  expect((await wrapper.ended).signal).toBe('SIGTERM');
  const { lines } = wrapper.spool;
  expect(told(lines, 'tool.start', 'tool.end')).toMatchObject([
    ['tool.start', { toolCallId: 'call-of-old' }],
    ['tool.end', { toolCallId: 'call-of-old', isError: true }],
  ]);
  expect(lines.at(-1)?.data).toMatchObject({ verdict: 'stopped', leftovers: [] });
  expect(spawnSync('kill', ['-0', String(update.data['delta']).trim()]).status).not.toBe(0);
  expect(made.model.requests()).toEqual([]);
  expect(existsSync(path.join(made.lab.root, 'reached'))).toBe(false);
});

test('the wrapper killed while an approved command runs leaves its start and no end', async () => {
  const made = await makeGrantedLab(['say never'], (cwd) => [grant(bash(cwd, 'kill -9 $PPID'))]);
  const wrapper = made.lab.start();
  expect((await wrapper.ended).signal).toBe('SIGKILL');
  expect(told(wrapper.spool.lines, ...CALLS).map(([type]) => type)).toEqual(['tool.start']);
});
