/**
 * Records what the real Pi writes in RPC mode into samples/*.jsonl, one file per
 * scenario, for tests of whatever reads Pi's events. Run it again after an update
 * of Pi and read the difference:  node_modules/.bin/node test/support/scripted-model/record-samples.ts [NAME…]
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type PiLabOptions, writePiLab } from './lab.ts';
import { type PiEvent, type PiProcess, startPi } from './pi-process.ts';
import { type ScriptedModel, startScriptedModel } from './server.ts';

interface Scene {
  readonly script: readonly string[];
  readonly retries?: NonNullable<PiLabOptions['retries']>;
  readonly settings?: NonNullable<PiLabOptions['settings']>;
  /** Pi's key, where it is not the one the model expects. */
  readonly apiKey?: string;
  readonly mode?: 'rpc' | 'json';
  /** Plays the scene where it is more than one prompt. */
  readonly act?: (pi: PiProcess, model: ScriptedModel, prompt: string) => Promise<unknown>;
}

const KEY = 'scripted-key';
const OVERFLOW = "This model's maximum context length is 128000 tokens.";
/** Lets Pi compact a conversation of a few words. */
const SMALL_CONTEXT = { compaction: { enabled: true, keepRecentTokens: 1, reserveTokens: 100 } };

const SCENES: Readonly<Record<string, Scene>> = {
  text: { script: ['say Hello from the scripted model.'] },
  thinking: { script: ['think The user wants a greeting. ;; say Hello.'] },
  'json-mode': { script: ['say I look. ;; bash echo hi', 'say Done.'], mode: 'json' },
  bash: {
    script: ['say I will run it. ;; bash echo hi; sleep 0.4; echo there', 'say It said hi.'],
  },
  'bash-failed': { script: ['bash echo out; echo err >&2; exit 7', 'say It failed.'] },
  parallel: { script: ['bash sleep 0.3; echo a ;; bash echo b', 'say Both ran.'] },
  'write-edit-read': {
    script: [
      'write note.txt one\\ntwo\\n',
      'edit note.txt two => three',
      'read note.txt',
      'edit note.txt absent => x',
      'say Edited.',
    ],
  },
  slow: { script: ['slow 40 6 The quick brown fox jumps over it.'] },
  'status-401': { script: ['say never'], apiKey: 'wrong-key' },
  'status-429': { script: ['status 429 retry-after 1'] },
  'status-429-retried': {
    script: ['status 429 retry-after 1 x1', 'say After the retry.'],
    retries: 'fast',
  },
  'status-500': { script: ['status 500'] },
  'status-500-retries-exhausted': { script: ['status 500'], retries: 'fast' },
  'retry-aborted': {
    script: ['status 503'],
    retries: 'default',
    act: abortDuring((event) => event.type === 'auto_retry_start'),
  },
  cut: { script: ['cut'] },
  'cut-retried': { script: ['cut x1', 'say Whole this time.'], retries: 'fast' },
  'hang-abort': { script: ['hang'], act: abortHang },
  'slow-abort': {
    script: ['slow 100 50 A long answer that is interrupted half way.'],
    act: abortDuring(isTextDelta),
  },
  'hang-timeout': { script: ['hang'], settings: { httpIdleTimeoutMs: 500 } },
  refused: { script: ['say never'], act: promptWithoutModel },
  'bash-abort': { script: ['bash echo started; sleep 60'], act: abortDuring(isToolOutput) },
  length: { script: ['length This answer reached its limit'] },
  'length-in-call': { script: ['bash echo never ;; length', 'say After the refused call.'] },
  'context-overflow': { script: [`status 400 message ${OVERFLOW}`] },
  steer: { script: ['bash sleep 0.5; echo done', 'say Saw the steering.'], act: steerDuringBash },
  compact: { script: ['say One.'], settings: SMALL_CONTEXT, act: compactAfter },
  'context-overflow-recovered': {
    // Compaction takes the script away: what follows is the answer to a conversation without one.
    script: ['say One.', `status 400 x1 message ${OVERFLOW}`],
    settings: SMALL_CONTEXT,
    act: promptTwice,
  },
};

await main(process.argv.slice(2));

async function main(names: readonly string[]): Promise<void> {
  const target = join(import.meta.dirname, 'samples');
  await mkdir(target, { recursive: true });
  for (const [name, scene] of Object.entries(SCENES)) {
    if (names.length > 0 && !names.includes(name)) continue;
    const lines = await record(scene);
    await writeFile(join(target, `${name}.jsonl`), `${lines.join('\n')}\n`);
    console.log(`${name}: ${lines.length} lines`);
  }
}

async function record(scene: Scene): Promise<string[]> {
  const home = await mkdtemp(join(tmpdir(), 'pi-sample-'));
  const agentDir = join(home, 'agent');
  const cwd = join(home, 'work');
  await mkdir(cwd);
  const model = await startScriptedModel({ apiKey: KEY });
  await writePiLab(agentDir, {
    baseUrl: model.baseUrl,
    apiKey: scene.apiKey ?? KEY,
    retries: scene.retries ?? 'off',
    settings: scene.settings ?? {},
  });
  const prompt = ['Please do it.', '#script', ...scene.script].join('\n');
  const mode = scene.mode ?? 'rpc';
  const pi = startPi({
    agentDir,
    cwd,
    mode,
    args: mode === 'json' ? [prompt] : ['--session', join(home, 'session.jsonl')],
  });
  if (mode === 'json') await pi.waitFor((event) => event.type === 'agent_settled', 0);
  else await (scene.act ?? ((it: PiProcess) => it.run(prompt)))(pi, model, prompt);
  if (mode === 'rpc') await pi.command({ type: 'get_session_stats' });
  await pi.close();
  await model.close();
  await rm(home, { recursive: true });
  return pi.events.map((event) => trim(event, home));
}

function abortDuring(moment: (event: PiEvent) => boolean) {
  return async (pi: PiProcess, _model: ScriptedModel, prompt: string): Promise<void> => {
    const begun = pi.waitFor(moment);
    const settled = pi.run(prompt);
    await begun;
    await Promise.all([pi.command({ type: 'abort' }), settled]);
  };
}

async function abortHang(pi: PiProcess, model: ScriptedModel, prompt: string): Promise<void> {
  const settled = pi.run(prompt);
  await model.waitFor((request) => request.turn === 'hang');
  await Promise.all([pi.command({ type: 'abort' }), settled]);
  await model.waitFor((request) => request.ended === 'client-left');
}

async function steerDuringBash(
  pi: PiProcess,
  _model: ScriptedModel,
  prompt: string,
): Promise<void> {
  const begun = pi.waitFor((event) => event.type === 'tool_execution_start');
  const settled = pi.run(prompt);
  await begun;
  await Promise.all([pi.command({ type: 'steer', message: 'Look here instead.' }), settled]);
}

async function promptWithoutModel(
  pi: PiProcess,
  model: ScriptedModel,
  prompt: string,
): Promise<void> {
  await pi.command({ type: 'get_state' });
  await model.close();
  await pi.run(prompt);
}

async function promptTwice(pi: PiProcess, _model: ScriptedModel, prompt: string): Promise<void> {
  await pi.run(prompt);
  await pi.run('Go on.');
}

async function compactAfter(pi: PiProcess, model: ScriptedModel, prompt: string): Promise<void> {
  await promptTwice(pi, model, prompt);
  await pi.command({ type: 'compact' });
}

function isTextDelta(event: PiEvent): boolean {
  return (
    event.type === 'message_update' &&
    JSON.stringify(event.assistantMessageEvent).includes('"text_delta"')
  );
}

function isToolOutput(event: PiEvent): boolean {
  return (
    event.type === 'tool_execution_update' &&
    JSON.stringify(event.partialResult).includes('started')
  );
}

/** One line, without the machine's paths, the port of the day and the long system prompt. */
function trim(event: PiEvent, home: string): string {
  const short = (key: string, value: unknown): unknown =>
    key === 'sections' || key === 'toolsAdded' ? '[trimmed]' : value;
  return JSON.stringify(event, short)
    .replaceAll(home, '/lab')
    .replace(/127\.0\.0\.1:\d+/g, '127.0.0.1:4000');
}
