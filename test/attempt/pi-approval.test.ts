import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Decision } from '../../src/domain/decisions.ts';
import type { SpoolLine } from '../../src/domain/spool.ts';
import { ControlClient } from './support/control-client.ts';
import { asks, Decider, strangersKey, told } from './support/decider.ts';
import type { Wrapper } from './support/lab.ts';
import { makePiLab, type PiLab, type PiLabChanges } from './support/pi-lab.ts';

const CALLS = [
  'approval.requested',
  'approval.resolved',
  'tool.start',
  'tool.end',
  'tool.refused',
] as const;

interface Asking extends PiLab {
  readonly decider: Decider;
}

async function makeAskingLab(
  tools: readonly string[],
  script: readonly string[],
  changes: PiLabChanges = {},
): Promise<Asking> {
  const decider = new Decider();
  const launch = { ...changes.launch, approvals: decider.spec(asks(...tools)) };
  return { ...(await makePiLab({ ...changes, script, launch })), decider };
}

const isQuestion = (command: string) => (line: SpoolLine) =>
  line.type === 'approval.requested' && JSON.stringify(line.data['arguments']).includes(command);

const question = (wrapper: Wrapper, command = ''): Promise<SpoolLine> =>
  wrapper.line(`a question about ${command}`, isQuestion(command));

test('a call that is asked about waits, and runs once when a person approves', async () => {
  const { lab, decider } = await makeAskingLab(
    ['bash'],
    [
      'bash echo acted >> acts; grep -c \'"type":"tool.start"\' ../attempt/events.jsonl',
      'say done',
    ],
  );
  const wrapper = lab.start();
  const asked = await question(wrapper);
  expect(existsSync(path.join(lab.launch.cwd, 'acts'))).toBe(false);
  expect(asked.data).toMatchObject({
    tool: 'bash',
    cwd: lab.launch.cwd,
    diff: null,
    reason: 'bash is asked about',
  });
  const left = Date.parse(String(asked.data['expiresAt'])) - Date.parse(asked.ts);
  expect(Math.abs(left - 60_000)).toBeLessThan(1_000);
  const { approvalId } = decider.decide(asked, 'approved');
  expect(await wrapper.ended).toMatchObject({ code: 0, stderr: '' });
  const { toolCallId, fingerprint } = asked.data;
  expect(told(wrapper.spool.lines, ...CALLS)).toMatchObject([
    ['approval.requested', { toolCallId }],
    ['approval.resolved', { toolCallId, fingerprint, resolution: 'approved' }],
    ['tool.start', { toolCallId, fingerprint, approvalId, fenced: true }],
    ['tool.end', { toolCallId, result: '1\n', isError: false }],
  ]);
  expect(await lab.readText('work/acts')).toBe('acted\n');
});

test('a call that a person denies does not run; the model hears why and goes on', async () => {
  const { lab, decider, messages } = await makeAskingLab(
    ['write'],
    ['write a.txt no', 'bash echo on', 'say done'],
  );
  const wrapper = lab.start();
  decider.decide(await question(wrapper), 'denied', { reason: 'use the other file' });
  expect((await wrapper.ended).code).toBe(0);
  expect(told(wrapper.spool.lines, ...CALLS)).toMatchObject([
    ['approval.requested', { tool: 'write' }],
    ['approval.resolved', { resolution: 'denied' }],
    ['tool.refused', { tool: 'write', by: 'person', reason: 'use the other file' }],
    ['tool.start', { tool: 'bash' }],
    ['tool.end', { result: 'on\n' }],
  ]);
  expect(existsSync(path.join(lab.launch.cwd, 'a.txt'))).toBe(false);
  const result = (await messages()).find(({ role }) => role === 'toolResult');
  expect(JSON.stringify(result?.content)).toContain('Denied by a person: use the other file');
});

test('who is asked about an edit or a write sees what it would change', async () => {
  const { lab, decider } = await makeAskingLab(
    ['edit', 'write'],
    [
      'bash printf "a\\nb\\nc\\n" > f.txt',
      'edit f.txt b => B',
      'write new.txt x\\ny\\n',
      'say done',
    ],
  );
  const wrapper = lab.start();
  const edit = await question(wrapper, 'f.txt');
  expect(edit.data['diff']).toBe('--- f.txt\n+++ f.txt\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n');
  decider.decide(edit, 'approved');
  const write = await question(wrapper, 'new.txt');
  expect(write.data['diff']).toBe('--- new.txt\n+++ new.txt\n@@ -0,0 +1,2 @@\n+x\n+y\n');
  decider.decide(write, 'approved');
  expect((await wrapper.ended).code).toBe(0);
  expect(await lab.readText('work/f.txt')).toBe('a\nB\nc\n');
});

const FORGERIES: readonly [string, Partial<Decision>, string][] = [
  ['of another attempt', { attemptId: 'attempt-2' }, 'it is for another attempt'],
  ['of another call', { toolCallId: 'call_other' }, 'it is for another call'],
  ['of other arguments', { fingerprint: 'f'.repeat(64) }, 'the call was another one'],
  ['that decides nothing', { decision: 'maybe' as 'approved' }, 'it does not say what was decided'],
];

test('decisions that are forged, or of something else, are ignored, each told once', async () => {
  const { lab, decider } = await makeAskingLab(['bash'], ['bash echo acted >> acts', 'say done']);
  const wrapper = lab.start();
  const asked = await question(wrapper);
  const toolCallId = String(asked.data['toolCallId']);
  const client = new ControlClient(lab.launch.controlSocket);
  await client.at(1);
  let looks = 0;
  const look = async (): Promise<void> => {
    looks += 1;
    client.send({ v: 1, type: 'look', id: `l${looks}` });
    await client.at(1 + looks);
  };
  const ignored = (): unknown[] =>
    told(wrapper.spool.lines, 'progress')
      .filter(([, { kind }]) => kind === 'decision_ignored')
      .map(([, { message }]) => message);
  for (const [, changes] of FORGERIES) {
    decider.decide(asked, 'approved', changes);
    await look();
  }
  decider.decide(asked, 'approved', {}, strangersKey());
  await look();
  await look();
  decider.place(toolCallId, 'approved');
  await look();
  const all = [
    ...FORGERIES.map(([, , why]) => why),
    'its signature does not hold',
    'it is no JSON object',
  ];
  expect(ignored()).toEqual(
    all.map((why) => `A decision about call ${toolCallId} was ignored: ${why}`),
  );
  expect(existsSync(path.join(lab.launch.cwd, 'acts'))).toBe(false);
  expect(told(wrapper.spool.lines, ...CALLS)).toHaveLength(1);
  decider.decide(asked, 'approved');
  expect((await wrapper.ended).code).toBe(0);
  expect(await lab.readText('work/acts')).toBe('acted\n');
});

test('a signed approval that is changed afterwards does not hold', async () => {
  const { lab, decider } = await makeAskingLab(['bash'], ['bash echo acted', 'say done']);
  const wrapper = lab.start();
  const asked = await question(wrapper);
  decider.decide(asked, 'denied', { attemptId: 'attempt-2' });
  const [name] = spawnSync('ls', [decider.directory], { encoding: 'utf8' }).stdout.split('\n');
  const text = readFileSync(path.join(decider.directory, name ?? ''), 'utf8');
  decider.place(
    String(asked.data['toolCallId']),
    text.replace('attempt-2', 'attempt-1').replace('denied', 'approved'),
  );
  const note = await wrapper.line('the note', ({ data }) => data['kind'] === 'decision_ignored');
  expect(note.data['message']).toContain('was ignored: ');
  decider.decide(asked, 'denied');
  await wrapper.ended;
  expect(told(wrapper.spool.lines, 'tool.start')).toEqual([]);
});

test('a hint to look is enough where the directory could not be watched', async () => {
  const { lab, decider } = await makeAskingLab(['bash'], ['bash echo acted', 'say done']);
  decider.removeDirectory();
  const wrapper = lab.start();
  const asked = await question(wrapper);
  decider.makeDirectory();
  decider.decide(asked, 'approved');
  const client = new ControlClient(lab.launch.controlSocket);
  await client.at(1);
  client.send({ v: 1, type: 'look', id: 'l' });
  expect(await client.at(2)).toEqual({ v: 1, type: 'done', id: 'l' });
  expect(told(wrapper.spool.lines, 'tool.start')).toHaveLength(1);
  expect((await wrapper.ended).code).toBe(0);
});

test('two calls of one message: one waits for a person while the other runs to its end', async () => {
  const decider = new Decider();
  const argument = { name: 'command', pattern: 'asked' };
  const policy = {
    rules: [{ effect: 'ask', tool: 'bash', argument }],
    otherwise: 'allow',
  } as const;
  const { lab } = await makePiLab({
    script: ['bash echo asked ;; bash echo free', 'say done'],
    launch: { approvals: decider.spec(policy) },
  });
  const wrapper = lab.start();
  const asked = await question(wrapper);
  await wrapper.line(
    'the end of the other',
    ({ type, data }) => type === 'tool.end' && data['result'] === 'free\n',
  );
  decider.decide(asked, 'approved');
  expect((await wrapper.ended).code).toBe(0);
  const ends = told(wrapper.spool.lines, 'tool.end').map(([, { result }]) => result);
  expect(ends).toEqual(['free\n', 'asked\n']);
});

test('several questions are open at once and answered in any order', async () => {
  const { lab, decider } = await makeAskingLab(
    ['bash'],
    ['bash echo one ;; bash echo two ;; bash echo three', 'say done'],
  );
  const wrapper = lab.start();
  const [one, two, three] = [
    await question(wrapper, 'one'),
    await question(wrapper, 'two'),
    await question(wrapper, 'three'),
  ];
  decider.decide(three, 'approved');
  await wrapper.line('three', ({ data }) => data['result'] === 'three\n');
  decider.decide(one, 'denied');
  await wrapper.event('tool.refused');
  decider.decide(two, 'approved');
  expect((await wrapper.ended).code).toBe(0);
  const results = told(wrapper.spool.lines, 'tool.end').map(([, { result }]) => result);
  expect(results).toEqual(['three\n', 'two\n']);
});

test('a call that Pi aborts while it waits is dropped, and never runs', async () => {
  const { lab, decider } = await makeAskingLab(['bash'], ['bash echo acted >> acts', 'say never']);
  const aborts = `
    export default (pi) => {
      pi.on('ui_prompt_start', (_event, context) => { setTimeout(() => context.abort(), 50); });
    };`;
  await makeExtension(lab.root, aborts);
  const wrapper = lab.start();
  const asked = await question(wrapper);
  await wrapper.event('approval.resolved');
  decider.decide(asked, 'approved');
  await wrapper.ended;
  expect(told(wrapper.spool.lines, ...CALLS)).toMatchObject([
    ['approval.requested', {}],
    ['approval.resolved', { resolution: 'dropped' }],
    ['tool.refused', { by: 'fence', reason: 'it was aborted while a person was asked' }],
  ]);
  expect(existsSync(path.join(lab.launch.cwd, 'acts'))).toBe(false);
});

async function makeExtension(root: string, text: string): Promise<void> {
  const directory = path.join(root, '.pi/agent/extensions');
  spawnSync('mkdir', ['-p', directory]);
  writeFileSync(path.join(directory, 'other.ts'), text);
}

test.each([
  ['SIGTERM', {}],
  ['the deadline', { hardTimeoutMs: 3_000 }],
])('%s leaves an open question open: another attempt may have the answer', async (by, timeouts) => {
  const { lab, model } = await makeAskingLab(['bash'], ['bash echo acted >> acts', 'say never'], {
    launch: { timeouts },
  });
  const wrapper = lab.start();
  await question(wrapper);
  if (by === 'SIGTERM') wrapper.kill('SIGTERM');
  await wrapper.ended;
  const { lines } = wrapper.spool;
  expect(told(lines, ...CALLS).map(([type]) => type)).toEqual(['approval.requested']);
  expect(told(lines, 'attempt.told_to_stop', 'attempt.deadline')).toHaveLength(1);
  expect(model.requests(), 'the model hears of it in no further request').toHaveLength(1);
  expect(existsSync(path.join(lab.launch.cwd, 'acts'))).toBe(false);
});

test('an approval is spent: a later call with the same id and arguments is asked about again', async () => {
  const { lab, decider } = await makeAskingLab(
    ['bash'],
    ['bash echo a', 'bash echo a', 'say done'],
  );
  // A provider that begins anew with its ids at each message.
  const sameIds = `
    export default (pi) => {
      pi.on('message_end', ({ message }) => {
        if (message.role !== 'assistant') return;
        const content = message.content.map((part) => part.type === 'toolCall' ? { ...part, id: 'call_0' } : part);
        return { message: { ...message, content } };
      });
    };`;
  await makeExtension(lab.root, sameIds);
  const wrapper = lab.start();
  decider.decide(await question(wrapper), 'approved');
  const second = await wrapper.line(
    'the second question',
    (line) => line.type === 'approval.requested' && line.n > 8,
  );
  expect(second.data['toolCallId'], 'a question of its own').toBe('call_0~2');
  expect(told(wrapper.spool.lines, 'tool.start')).toHaveLength(1);
  decider.decide(second, 'approved');
  await wrapper.ended;
  expect(told(wrapper.spool.lines, 'tool.start')).toHaveLength(2);
});

test('a full disk at the moment of the start: the approved call does not run', async (context) => {
  const disk = mkdtempSync(path.join(tmpdir(), 'outlive-full-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', disk]);
  onTestFinished(() => {
    if (mounted.status === 0) spawnSync('umount', ['-l', disk]);
    rmSync(disk, { recursive: true });
  });
  if (mounted.status !== 0) return context.skip('mounting a tmpfs needs root');
  // Larger than what is left of the spool's last page.
  const command = `echo acted >> ../../acts; : ${'x'.repeat(9_000)}`;
  const made = await makeAskingLab(['bash'], [`bash ${command}`, 'say never'], { parent: disk });
  const wrapper = made.lab.start();
  const asked = await question(wrapper);
  spawnSync('sh', ['-c', `cat /dev/zero > ${disk}/fill`]);
  made.decider.decide(asked, 'approved');
  await wrapper.ended;
  const { lines } = wrapper.spool;
  expect(lines.at(-1)).toMatchObject({ type: 'runner.finished', data: { code: 'disk_full' } });
  expect(told(lines, 'tool.start', 'tool.end')).toEqual([]);
  expect(existsSync(path.join(disk, 'acts'))).toBe(false);
});
