// The main job, step by step, through the same commands a person types. The model is scripted
// and says so; Pi, systemd, the daemon and the command line are the real ones.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { writePiLab } from '../../test/support/scripted-model/lab.ts';
import { startScriptedModel } from '../../test/support/scripted-model/server.ts';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const outlive = path.join(root, 'ops/scripts/outlive');
const WORKSPACE = 'try';
const HANDLE = 'issue42';

const base = mkdtempSync(path.join(os.homedir(), '.outlive-try-'));
const tree = path.join(base, 'tree');
mkdirSync(tree);
const runtime = process.env.XDG_RUNTIME_DIR ?? `/run/user/${process.getuid()}`;
const env = {
  ...process.env,
  XDG_RUNTIME_DIR: runtime,
  XDG_STATE_HOME: path.join(base, 'state'),
  XDG_CONFIG_HOME: path.join(base, 'config'),
  XDG_CACHE_HOME: path.join(base, 'cache'),
  PI_CODING_AGENT_DIR: path.join(base, 'agent'),
  PI_OFFLINE: '1',
  OUTLIVE_WORKSPACE: WORKSPACE,
  OUTLIVE_PORT: '0',
  NO_COLOR: '1',
};
const failures = [];
let step = 0;

const say = (text) => console.log(text.replace(/^/gm, '   '));
const heading = (text) => console.log(`\n${++step}. ${text}`);
function mustHold(fact, holds) {
  say(`${holds ? 'yes' : 'NO '}: ${fact}`);
  if (!holds) failures.push(`step ${step}: ${fact}`);
}

function run(command, args) {
  const result = spawnSync(command, args, { env, encoding: 'utf8', cwd: tree });
  return { status: result.status, out: result.stdout ?? '', err: result.stderr ?? '' };
}
function shown(command, args) {
  say(`$ ${[command === outlive ? 'outlive' : command, ...args].join(' ')}`);
  const result = run(command, args);
  const text = `${result.out}${result.err}`.trim();
  if (text) say(text);
  return result;
}
const json = (args) => JSON.parse(run(outlive, [...args, '--json']).out || 'null');

let shownSeq = 0;

/** Follows the events of the run from where the last look ended; resolves at the first that passes. */
function follow(passes) {
  return new Promise((resolve, reject) => {
    const child = spawn(
      outlive,
      ['events', HANDLE, '--follow', '--after', String(shownSeq), '--json'],
      { env, stdio: ['ignore', 'pipe', 'inherit'] },
    );
    let pending = '';
    child.stdout.setEncoding('utf8').on('data', (chunk) => {
      const lines = (pending + chunk).split('\n');
      pending = lines.pop();
      for (const line of lines) {
        const event = JSON.parse(line);
        shownSeq = event.seq;
        const note = JSON.stringify(
          event.data.delta ?? event.data.arguments?.command ?? event.data.text ?? '',
        );
        say(
          `${String(event.seq).padStart(3)}  ${event.type.padEnd(22)} ${note.slice(1, -1).slice(0, 60)}`.trimEnd(),
        );
        if (!passes(event)) continue;
        child.stdout.removeAllListeners('data');
        child.kill('SIGTERM');
        resolve(event);
      }
    });
    child.on('exit', () => reject(new Error('the events ended too early')));
  });
}

/** Steps 1 to 3. @returns what the daemon says of itself. */
function startDaemon(model) {
  heading('Toolchain');
  const pi = JSON.parse(
    readFileSync(
      path.join(root, 'node_modules/@earendil-works/pi-coding-agent/package.json'),
      'utf8',
    ),
  );
  say(
    `Node ${process.version}, Pi ${pi.version} (the real CLI), ${run('systemctl', ['--version']).out.split('\n')[0]}`,
  );
  say(
    `Model: a scripted stand-in on ${model.baseUrl}; it costs nothing and says what this demo needs.`,
  );

  heading('Host');
  say(process.env.OUTLIVE_TRY_HOST ?? 'your own systemd --user');
  mustHold(
    'the user manager answers',
    /running|degraded|starting/.test(run('systemctl', ['--user', 'is-system-running']).out),
  );

  heading('The daemon is up');
  shown(outlive, ['daemon', 'start']);
  const first = json(['daemon', 'status']);
  mustHold(`it answers as pid ${first?.pid}`, first?.status === 'ready');
  return first;
}

/** Steps 4 to 6. @returns the attempt, its tool call begun. */
async function submitRun() {
  heading('A Pi run is submitted; this command could go away now');
  const prompt = [
    'Do as the script says.',
    '#script',
    'say I will run the tests ;; bash echo tests begin; until [ -e proceed ]; do sleep 0.1; done; echo tests end',
    'say All tests pass',
  ].join('\n');
  writeFileSync(path.join(base, 'prompt.txt'), prompt);
  shown(outlive, [
    'run',
    '--handle',
    HANDLE,
    '--model',
    'lab/scripted',
    '--hard-timeout',
    '5m',
    '--detach',
    '--prompt-file',
    path.join(base, 'prompt.txt'),
  ]);

  heading('Its events, live, until the tool has begun');
  await follow(
    (event) => event.type === 'tool.update' && String(event.data.delta).includes('tests begin'),
  );
  const before = json(['show', HANDLE]);
  const attempt = before.attempts[0];

  heading('It runs in a unit of its own, beside the daemon and not under it');
  say(`unit   ${attempt.unit}\ncgroup ${attempt.controlGroup}`);
  say(
    run('systemctl', [
      '--user',
      'show',
      attempt.unit,
      '-p',
      'ActiveState,MainPID,RuntimeMaxUSec,KillMode',
    ]).out.trim(),
  );

  return attempt;
}

/** Steps 7 and 8. */
async function killAndReattach(first, attempt) {
  heading('The daemon is killed with SIGKILL, in the middle of the tool call');
  process.kill(first.pid, 'SIGKILL');
  const away = run(outlive, ['ps']);
  mustHold('the daemon is gone (outlive exits 4)', away.status === 4);
  const active = run('systemctl', ['--user', 'is-active', attempt.unit]).out.trim();
  mustHold(`the run goes on: systemctl --user is-active says "${active}"`, active === 'active');

  heading('A new daemon starts');
  shown(outlive, ['daemon', 'start']);
  const second = json(['daemon', 'status']);
  mustHold(`another process (pid ${second?.pid})`, second?.pid !== first.pid);
  await follow((event) => event.type === 'attempt.reattached');
  const during = json(['show', HANDLE]).attempts;
  const same =
    during.length === 1 &&
    during[0].id === attempt.id &&
    during[0].invocationId === attempt.invocationId;
  mustHold(`re-attached: same attempt, same InvocationID (${attempt.invocationId})`, same);
}

/** Steps 9 and 10. */
async function finish(model, attempt) {
  heading('The tool is allowed to finish; the run ends');
  writeFileSync(path.join(tree, 'proceed'), '');
  await follow(
    (event) =>
      event.type.startsWith('work_unit.') &&
      ['succeeded', 'failed', 'cancelled'].some((end) => event.type.endsWith(end)),
  );
  const after = json(['show', HANDLE]);
  const events = run(outlive, ['events', HANDLE, '--json'])
    .out.trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const result = after.attempts[0].result;
  mustHold(
    `outcome: ${after.status}, "${result?.text}"`,
    after.status === 'succeeded' && result?.text === 'All tests pass',
  );
  mustHold(
    `cost $${result?.costUsd?.toFixed(5)}, ${result?.usage?.totalTokens} tokens`,
    result?.costUsd > 0,
  );
  mustHold(
    `${events.length} events, sequence 1 to ${events.length} without a gap`,
    events.every((event, index) => event.seq === index + 1),
  );
  mustHold(
    'the model was asked each turn once',
    model.requests().length === 2 && model.violations().length === 0,
  );

  heading('Look yourself, at a run of your own');
  say(
    `systemctl --user status '${attempt.unit}'\njournalctl --user -u '${attempt.unit}'\noutlive show HANDLE, outlive events HANDLE, outlive logs HANDLE`,
  );
}

async function main(model) {
  const first = startDaemon(model);
  const attempt = await submitRun();
  await killAndReattach(first, attempt);
  await finish(model, attempt);
}

function cleanUp() {
  run(outlive, ['daemon', 'stop']);
  run('systemctl', ['--user', 'stop', `outlive-attempts-${WORKSPACE}.slice`]);
  run('systemctl', ['--user', 'reset-failed', `outlive-${WORKSPACE}-*`]);
  rmSync(path.join(runtime, 'systemd/user', `outlive-${WORKSPACE}-.service.d`), {
    recursive: true,
    force: true,
  });
  rmSync(path.join(runtime, 'outlive', WORKSPACE), { recursive: true, force: true });
  rmSync(base, { recursive: true, force: true, maxRetries: 5 });
}

const model = await startScriptedModel({ apiKey: 'try' });
try {
  await writePiLab(env.PI_CODING_AGENT_DIR, {
    baseUrl: model.baseUrl,
    apiKey: 'try',
    retries: 'off',
  });
  await main(model);
} catch (error) {
  failures.push(String(error));
} finally {
  cleanUp();
  await model.close();
}
console.log('');
for (const failure of failures) console.log(`failed: ${failure}`);
console.log(
  failures.length === 0 ? 'All of it held. Nothing was left running.' : 'Not all of it held.',
);
process.exitCode = failures.length === 0 ? 0 : 1;
