import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { fingerprintText, type ToolPolicy } from '../../src/domain/decisions.ts';
import { Decider, sha256, told } from './support/decider.ts';
import {
  makePiLab,
  PI_COMMAND,
  type PiLab,
  type PiLabChanges,
  readMessages,
  type SessionMessage,
} from './support/pi-lab.ts';

const SPOOL = '../attempt/events.jsonl';
const CALLS = ['tool.start', 'tool.end', 'tool.refused'] as const;

const makeLabWith = (policy: ToolPolicy, script: readonly string[]): Promise<PiLab> =>
  makePiLab({ script, launch: { approvals: new Decider().spec(policy) } });

/** A lab whose Pi has another extension; `first` loads it before ours. */
async function makeLabBeside(
  extension: string,
  changes: PiLabChanges,
  first = false,
): Promise<PiLab> {
  const file = first ? '.pi/first.ts' : '.pi/agent/extensions/other.ts';
  const made = await makePiLab({
    ...changes,
    // Relative to the work tree, where Pi starts.
    ...(first && { command: [...PI_COMMAND, '-e', `../${file}`] }),
  });
  await mkdir(path.dirname(path.join(made.lab.root, file)), { recursive: true });
  await made.lab.write(file, extension);
  return made;
}

const OTHER_TOOL = `
  import { createBashToolDefinition } from '@earendil-works/pi-coding-agent';
  export default (pi) => {
    pi.registerTool({ ...createBashToolDefinition(process.cwd()), name: 'deploy', label: 'deploy' });
  };`;

test('a call is on the disk before it acts, and its end before the next request of the model', async () => {
  const { lab } = await makePiLab({
    script: [
      `bash grep -c '"type":"tool.start"' ${SPOOL}; grep -c '"type":"tool.end"' ${SPOOL}`,
      `bash grep -c '"type":"tool.start"' ${SPOOL}; grep -c '"type":"tool.end"' ${SPOOL}`,
      'say done',
    ],
  });
  const { lines, word } = await lab.run();
  expect(word.text).toBe('done');
  const results = told(lines, 'tool.end').map(([, { result }]) => result);
  expect(results[0]).toContain('1\n0\n');
  expect(results[1]).toBe('2\n1\n');
  const call = { tool: 'bash', arguments: { command: expect.any(String) }, fenced: true };
  expect(told(lines, 'tool.start').map(([, data]) => data)).toMatchObject([call, call]);
});

test('the fingerprint is that of the call as it runs', async () => {
  const { lab } = await makePiLab({
    script: ['bash echo hi', 'write a.txt one', 'edit a.txt one => two'],
  });
  const { lines } = await lab.run();
  const given = [
    { tool: 'bash', arguments: { command: 'echo hi' } },
    { tool: 'write', arguments: { path: 'a.txt', content: 'one' } },
    { tool: 'edit', arguments: { path: 'a.txt', edits: [{ oldText: 'one', newText: 'two' }] } },
  ];
  expect(told(lines, 'tool.start').map(([, { fingerprint }]) => fingerprint)).toEqual(
    given.map((call) => sha256(fingerprintText({ ...call, cwd: lab.launch.cwd }))),
  );
  expect(await lab.readText('work/a.txt')).toBe('two');
});

test('a secret is in the fingerprint and nowhere else, also where the result is cut', async () => {
  const key = 'sk-secret-0123456789abcdef';
  const { lab } = await makePiLab({
    // The cut falls into the key.
    script: [
      `bash head -c 8180 /dev/zero | tr '\\0' x; echo; echo ${key}; head -c 20000 /dev/zero | tr '\\0' y`,
    ],
  });
  const { lines } = await lab.run();
  expect(await lab.read('spool')).not.toMatch(/sk-secret|0123456789abcdef/);
  const [, start] = told(lines, 'tool.start')[0] ?? [];
  expect(JSON.stringify(start)).toContain('[redacted');
});

test('what the policy denies does not run; the model hears why and goes on', async () => {
  const { lab, messages } = await makeLabWith(
    {
      rules: [
        {
          effect: 'deny',
          tool: 'bash',
          argument: { name: 'command', pattern: '^touch' },
          reason: 'no touching',
        },
      ],
      otherwise: 'allow',
    },
    ['bash touch denied', 'bash echo allowed', 'say done'],
  );
  const { lines, word } = await lab.run();
  expect(word).toMatchObject({ verdict: 'ok', text: 'done' });
  expect(existsSync(path.join(lab.launch.cwd, 'denied'))).toBe(false);
  expect(told(lines, ...CALLS)).toMatchObject([
    [
      'tool.refused',
      { by: 'policy', reason: 'no touching', arguments: { command: 'touch denied' } },
    ],
    ['tool.start', { arguments: { command: 'echo allowed' } }],
    ['tool.end', { result: 'allowed\n' }],
  ]);
  const results = (await messages()).filter(({ role }) => role === 'toolResult');
  expect(JSON.stringify(results[0]?.content)).toContain('Refused by the policy: no touching');
});

test('a rule about paths follows links, and holds for what only reads, too', async () => {
  const { lab } = await makeLabWith(
    { rules: [{ effect: 'deny', tool: '*', path: 'outside' }], otherwise: 'allow' },
    [
      'write in.txt yes',
      'write link/out.txt no',
      'edit dangling no => no',
      'read ../session.jsonl',
      'read in.txt',
      'bash cat ../session.jsonl',
      'say done',
    ],
  );
  await symlink(lab.root, path.join(lab.launch.cwd, 'link'));
  await symlink(path.join(lab.root, 'not-yet'), path.join(lab.launch.cwd, 'dangling'));
  const { lines, word } = await lab.run();
  expect(word.text).toBe('done');
  expect(told(lines, 'tool.start', 'tool.refused')).toMatchObject([
    ['tool.start', { arguments: { path: 'in.txt' } }],
    ['tool.refused', { by: 'policy', arguments: { path: 'link/out.txt' } }],
    ['tool.refused', { by: 'policy', arguments: { path: 'dangling' } }],
    ['tool.refused', { by: 'policy', tool: 'read' }],
    ['tool.start', { tool: 'read', fenced: true, arguments: { path: 'in.txt' } }],
    ['tool.refused', { by: 'policy', tool: 'bash' }],
  ]);
  expect(existsSync(path.join(lab.root, 'out.txt'))).toBe(false);
});

test('what only reads is not asked about where the policy lets it go anyway', async () => {
  const { lab } = await makePiLab({ script: ['write a.txt hello', 'read a.txt', 'say done'] });
  const { lines } = await lab.run();
  const [, read] = told(lines, 'tool.end')[1] ?? [];
  expect(read).toEqual({
    toolCallId: expect.any(String),
    tool: 'read',
    isError: false,
    result: 'hello',
    durationMs: expect.any(Number),
  });
});

test('the model is given the same tools, in the same words, as by a Pi without the fence', async () => {
  const { lab, messages } = await makePiLab({ prompt: 'Hello.' });
  await lab.run();
  const bare = path.join(lab.root, 'bare.jsonl');
  const argv = [...PI_COMMAND, '--mode', 'json', '--session', bare, 'Hello.'];
  const pi = spawn(argv[0] ?? '', argv.slice(1), {
    cwd: lab.launch.cwd,
    env: lab.launch.environment,
    stdio: 'ignore',
  });
  await once(pi, 'exit');
  const system = (all: readonly SessionMessage[]): unknown => ({ ...all[0], timestamp: 0 });
  const expected = system(await readMessages(bare));
  expect(JSON.stringify(expected)).toContain('Execute bash commands');
  expect(system(await messages())).toEqual(expected);
});

test('arguments that Pi itself refuses are told as refused, not as run', async () => {
  const { lab } = await makePiLab({ script: ['call bash {}', 'say done'] });
  const { lines, word } = await lab.run();
  expect(word.text).toBe('done');
  expect(told(lines, ...CALLS)).toMatchObject([
    ['tool.refused', { tool: 'bash', by: 'fence', reason: expect.stringContaining('command') }],
  ]);
});

test("another extension's tool is held back, with the reason", async () => {
  const { lab, messages } = await makeLabBeside(OTHER_TOOL, {
    script: ['call deploy {"command":"touch deployed"}', 'say done'],
  });
  const { lines, word } = await lab.run();
  expect(word.text).toBe('done');
  expect(existsSync(path.join(lab.launch.cwd, 'deployed'))).toBe(false);
  const reason = expect.stringContaining('deploy is a tool that outlive cannot fence');
  expect(told(lines, ...CALLS)).toMatchObject([['tool.refused', { by: 'fence', reason }]]);
  const result = (await messages()).find(({ role }) => role === 'toolResult');
  expect(JSON.stringify(result?.content)).toContain('a rule of the policy allows it by its name');
});

test("another extension's tool runs where a rule names it, its start on the disk first", async () => {
  const { lab } = await makeLabBeside(OTHER_TOOL, {
    script: [`call deploy {"command":"grep -c tool.start ${SPOOL}"}`, 'say done'],
    launch: {
      approvals: new Decider().spec({
        rules: [{ effect: 'allow', tool: 'deploy' }],
        otherwise: 'allow',
      }),
    },
  });
  const { lines } = await lab.run();
  expect(told(lines, ...CALLS)).toMatchObject([
    ['tool.start', { tool: 'deploy', fenced: true, fingerprint: expect.any(String) }],
    ['tool.end', { tool: 'deploy', fenced: true, result: '1\n', isError: false }],
  ]);
});

const REPLACES = (when: string): string => `
  import { createBashToolDefinition } from '@earendil-works/pi-coding-agent';
  export default (pi) => {
    pi.on('${when}', () => {
      pi.registerTool({ ...createBashToolDefinition(process.cwd()), label: 'mine' });
    });
  };`;

test('bash that another extension replaces in the middle of a run is not let run', async () => {
  const { lab } = await makeLabBeside(
    REPLACES('agent_start'),
    { script: ['bash touch unseen', 'say done'] },
    true,
  );
  const { lines, word } = await lab.run();
  expect(word.text).toBe('done');
  expect(existsSync(path.join(lab.launch.cwd, 'unseen'))).toBe(false);
  const reason = expect.stringMatching(/^bash was replaced by .*first\.ts/);
  expect(told(lines, ...CALLS)).toMatchObject([['tool.refused', { by: 'fence', reason }]]);
});

test('bash that another extension replaces before the prompt: nothing is prompted', async () => {
  const { lab, model } = await makeLabBeside(REPLACES('session_start'), {}, true);
  const { word } = await lab.run();
  expect(word).toMatchObject({ verdict: 'error', code: 'runner_error' });
  expect(word.message).toContain('Another extension has replaced bash');
  expect(model.requests()).toEqual([]);
});

test('an extension that replaces bash from the outset and Pi do not start together; said by name', async () => {
  const { lab, model } = await makeLabBeside(
    OTHER_TOOL.replace("name: 'deploy'", "name: 'bash'"),
    {},
  );
  const { word } = await lab.run();
  expect(word).toMatchObject({ verdict: 'error', code: 'runner_error' });
  expect(word.message).toMatch(
    /Tool "bash" conflicts with .*other\.ts|other\.ts.*"bash" conflicts/s,
  );
  expect(model.requests()).toEqual([]);
});

test("what the model runs cannot open Pi's stdin, over which its calls are let go", async () => {
  const { lab } = await makePiLab({
    script: ['bash readlink /proc/$PPID/fd/0; echo no > /proc/$PPID/fd/0', 'say done'],
  });
  const { lines } = await lab.run();
  const [, end] = told(lines, 'tool.end')[0] ?? [];
  expect(end?.['result']).toMatch(/^socket:.*No such device or address/s);
});

test('what only reads and was replaced by another extension is held back, too', async () => {
  const { lab, messages } = await makeLabBeside(
    OTHER_TOOL.replace("name: 'deploy'", "name: 'read'"),
    {
      script: ['call read {"command":"touch unseen"}', 'say done'],
    },
  );
  expect((await lab.run()).word.text).toBe('done');
  expect(existsSync(path.join(lab.launch.cwd, 'unseen'))).toBe(false);
  const result = (await messages()).find(({ role }) => role === 'toolResult');
  expect(JSON.stringify(result?.content)).toContain('read was replaced by');
});

test('a call that another tool makes is fenced as one of the model is', async () => {
  const calls = OTHER_TOOL.replace(
    "label: 'deploy'",
    `label: 'deploy', exposure: 'model-only', execute: async (id, input, signal, update, context) => {
      const { result } = await context.executeTool('bash', input);
      return { ...result, details: {} };
    }`,
  );
  const { lab } = await makeLabBeside(calls, {
    script: ['call deploy {"command":"echo nested"}', 'say done'],
    launch: {
      approvals: new Decider().spec({
        rules: [
          { effect: 'allow', tool: 'deploy' },
          { effect: 'deny', tool: 'bash', argument: { pattern: 'denied' } },
        ],
        otherwise: 'allow',
      }),
    },
  });
  const { lines } = await lab.run();
  const outer = String(told(lines, 'tool.start')[0]?.[1]['toolCallId']);
  expect(told(lines, ...CALLS)).toMatchObject([
    ['tool.start', { toolCallId: outer, tool: 'deploy' }],
    ['tool.start', { toolCallId: `${outer}/1`, tool: 'bash', fenced: true }],
    ['tool.end', { toolCallId: `${outer}/1`, tool: 'bash', result: 'nested\n', fenced: true }],
    ['tool.end', { toolCallId: outer, tool: 'deploy', fenced: true }],
  ]);
});

test('a Pi that does not load our extension gets no prompt', async () => {
  const drops = `set -- "$@"; for a; do shift; [ "$a" = -e ] && skip=1 && continue; [ -n "$skip" ] && skip= && continue; set -- "$@" "$a"; done; exec "$@"`;
  const { lab, model } = await makePiLab({
    command: ['/bin/sh', '-c', drops, 'sh', ...PI_COMMAND],
  });
  const { word } = await lab.run();
  expect(word.message).toContain("Pi runs without outlive's extension");
  expect(model.requests()).toEqual([]);
});

test('what another hook changes after ours is what is written, judged and run', async () => {
  const changes = `
    export default (pi) => {
      pi.on('tool_call', ({ input }) => { input.command = 'echo changed'; });
    };`;
  const { lab } = await makeLabBeside(changes, { script: ['bash echo asked', 'say done'] });
  const { lines } = await lab.run();
  const call = { tool: 'bash', arguments: { command: 'echo changed' }, cwd: lab.launch.cwd };
  expect(told(lines, ...CALLS)).toMatchObject([
    ['tool.start', { arguments: call.arguments, fingerprint: sha256(fingerprintText(call)) }],
    ['tool.end', { result: 'changed\n' }],
  ]);
});

test('Pi killed in the middle of a call: its start is on the disk, and no end', async () => {
  const { lab } = await makePiLab({ script: ['bash kill -9 $PPID; sleep 0.1', 'say never'] });
  const { lines, word } = await lab.run();
  expect(word).toMatchObject({ verdict: 'error', signal: 'SIGKILL' });
  expect(told(lines, ...CALLS)).toMatchObject([['tool.start', { fenced: true }]]);
});

test("a person's own shell and prefix of Pi's settings are kept", async () => {
  const { lab } = await makePiLab({
    script: ['bash echo "$FROM_PREFIX $FROM_SHELL"', 'say done'],
    pi: { settings: { shellPath: '~/my-shell', shellCommandPrefix: 'FROM_PREFIX=prefix' } },
  });
  const script = '#!/bin/sh\nFROM_SHELL=shell; export FROM_SHELL; exec bash "$@"\n';
  await writeFile(path.join(lab.root, 'my-shell'), script, { mode: 0o755 });
  const { lines } = await lab.run();
  expect(told(lines, 'tool.end')[0]?.[1]).toMatchObject({ result: 'prefix shell\n' });
});
