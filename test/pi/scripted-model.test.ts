/** The real Pi against the scripted model: what the rest of the tests stand on. */
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { LAB_COST, type PiLabOptions, writePiLab } from '../support/scripted-model/lab.ts';
import { type PiEvent, type PiProcess, startPi } from '../support/scripted-model/pi-process.ts';
import { type ScriptedModel, startScriptedModel } from '../support/scripted-model/server.ts';

const KEY = 'key-of-the-test';

let home: string;
let model: ScriptedModel;
const started: PiProcess[] = [];

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'pi-lab-'));
  await mkdir(join(home, 'work'));
  model = await startScriptedModel({ apiKey: KEY });
});

afterEach(async () => {
  await Promise.all(started.splice(0).map((pi) => pi.kill('SIGKILL')));
  await model.close();
  await rm(home, { recursive: true });
});

async function lab(options: Partial<PiLabOptions> = {}): Promise<PiProcess> {
  const agentDir = join(home, 'agent');
  await writePiLab(agentDir, { baseUrl: model.baseUrl, apiKey: '$LAB_KEY', ...options });
  const args = ['--session', join(home, 'session.jsonl')];
  const pi = startPi({ agentDir, cwd: join(home, 'work'), args, env: { LAB_KEY: KEY } });
  started.push(pi);
  return pi;
}

const script = (...lines: string[]): string => ['Do it.', '#script', ...lines].join('\n');

/** The last assistant message: the verdict of a run. */
function verdict(events: readonly PiEvent[]): unknown {
  return events.findLast((event) => event.type === 'message_end')?.message;
}

function toolEnds(events: readonly PiEvent[]): PiEvent[] {
  return events.filter((event) => event.type === 'tool_execution_end');
}

test('text, with the cost that the model reported', async () => {
  const pi = await lab();
  const events = await pi.run(script('think Hm. ;; say Hello.'));
  expect(verdict(events)).toMatchObject({
    stopReason: 'stop',
    content: [{ type: 'thinking' }, { type: 'text', text: 'Hello.' }],
  });
  expect(events.at(-1)).toEqual({ type: 'agent_settled', aborted: false });

  const usage = model.requests()[0]?.usage;
  const cost =
    ((usage?.prompt_tokens ?? 0) * LAB_COST.input +
      (usage?.completion_tokens ?? 0) * LAB_COST.output) /
    1e6;
  const stats = await pi.command({ type: 'get_session_stats' });
  expect(cost).toBeGreaterThan(0);
  expect(stats.data).toMatchObject({
    cost: expect.closeTo(cost, 10),
    tokens: { input: usage?.prompt_tokens },
  });
  expect(model.violations()).toEqual([]);
  expect(await pi.close()).toBe(0);
});

test('tool calls that really act, two of them at once', async () => {
  const pi = await lab();
  const events = await pi.run(
    script(
      'write note.txt one\\n',
      'edit note.txt one => two',
      'bash cat note.txt ;; bash exit 3',
      'say Done.',
    ),
  );
  expect(toolEnds(events).map((event) => [event.toolName, event.isError])).toEqual(
    expect.arrayContaining([
      ['write', false],
      ['edit', false],
      ['bash', false],
      ['bash', true],
    ]),
  );
  expect(await readFile(join(home, 'work/note.txt'), 'utf8')).toBe('two\n');
  expect(JSON.stringify(toolEnds(events))).toContain('"output":"two\\n"');
  expect(verdict(events)).toMatchObject({ stopReason: 'stop', content: [{ text: 'Done.' }] });
  expect(model.requests()).toHaveLength(4);
  expect(model.violations()).toEqual([]);
});

test('a wrong key is a 401', async () => {
  const pi = await lab({ apiKey: 'wrong' });
  const events = await pi.run(script('say never'));
  expect(verdict(events)).toMatchObject({
    stopReason: 'error',
    errorMessage: expect.stringMatching(/^401: .*Incorrect API key/),
  });
  expect(events.at(-1)).toEqual({ type: 'agent_settled', aborted: false });
});

test('a cut stream keeps what had come, and is retried where retries are on', async () => {
  const pi = await lab();
  const events = await pi.run(script('cut one two three'));
  expect(verdict(events)).toMatchObject({
    stopReason: 'error',
    errorMessage: expect.stringContaining('other side closed'),
    content: [{ type: 'text', text: 'one two th' }],
  });
  await pi.close();

  const retrying = await lab({ retries: 'fast' });
  const again = await retrying.run(script('cut x1', 'status 429 retry-after 1 x1', 'say Whole.'));
  expect(again.filter((event) => event.type === 'auto_retry_start')).toHaveLength(2);
  expect(verdict(again)).toMatchObject({ stopReason: 'stop', content: [{ text: 'Whole.' }] });
});

test('a hanging model is left by an abort', async () => {
  const pi = await lab();
  const run = pi.run(script('hang'));
  await model.waitFor((request) => request.turn === 'hang');
  const [events] = await Promise.all([run, pi.command({ type: 'abort' })]);
  expect(verdict(events)).toMatchObject({ stopReason: 'aborted' });
  expect(events.at(-1)).toEqual({ type: 'agent_settled', aborted: true });
  await expect(model.waitFor((request) => request.ended === 'client-left')).resolves.toMatchObject({
    status: 0,
  });
});

test('after a SIGKILL in a tool the resumed conversation goes on with its script', async () => {
  const pi = await lab();
  const run = pi.run(script('bash echo begun; sleep 300', 'say Went on.'));
  const killed = pi.waitFor(hasBegun, 0).then(async () => {
    const shell = await toolProcess(pi);
    await pi.kill('SIGKILL');
    process.kill(-shell, 'SIGKILL');
  });
  await expect(run).rejects.toThrow('Pi ended');
  await killed;

  const resumed = await lab();
  const events = await resumed.run('Please continue.');
  expect(verdict(events)).toMatchObject({ stopReason: 'stop', content: [{ text: 'Went on.' }] });
  expect(model.requests().at(-1)?.roles).toEqual(['system', 'user', 'assistant', 'tool', 'user']);
  expect(model.violations()).toEqual([]);
});

function hasBegun(event: PiEvent): boolean {
  return event.type === 'tool_execution_update' && JSON.stringify(event).includes('"begun\\n"');
}

/** Pid of the shell that Pi runs; it leads a session of its own, so it outlives a killed Pi. */
async function toolProcess(pi: PiProcess): Promise<number> {
  const children = await readFile(`/proc/${pi.pid}/task/${pi.pid}/children`, 'utf8');
  const pid = Number(children.trim().split(' ')[0]);
  if (!(pid > 1)) throw new Error(`Pi has no child: ${children}`);
  return pid;
}
