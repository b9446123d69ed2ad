import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { rootEntry } from '../support/private-host.ts';

/** The script under test. */
export const host = fileURLToPath(new URL('../../ops/scripts/host', import.meta.url));
export const checkout = join(dirname(host), '../..');

export const root = process.getuid?.() === 0;
/** For the title of what boots hosts: says why it is skipped where it is. */
export const needsRoot = root ? '' : ' (SKIPPED: needs root)';

export interface Ended {
  /** Exit code; null where a signal ended the process. */
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

export interface Running {
  child: ChildProcessWithoutNullStreams;
  ended: Promise<Ended>;
  /** Resolves to stdout so far, once it holds the text. */
  prints(text: string): Promise<string>;
}

export interface Options {
  env?: NodeJS.ProcessEnv | undefined;
  /** All of stdin; null leaves it open. */
  input?: string | null;
  /** Another script or command than `host` of this checkout. */
  command?: string;
}

export function start(args: string[], { env, input = '', command = host }: Options = {}): Running {
  const child = spawn(command, args, { env: { ...process.env, ...env } });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += String(chunk);
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += String(chunk);
  });
  child.stdin.on('error', () => {}); // a command that reads no stdin may be gone already
  if (input !== null) child.stdin.end(input);
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
  onTestFinished(async () => {
    child.kill(); // a test that failed early leaves nothing either
    await ended;
  });
  const prints = (text: string) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        if (stdout.includes(text)) resolve(stdout);
      };
      child.stdout.on('data', look);
      child.on('close', () => reject(new Error(`ended without printing ${text}: ${stderr}`)));
      look();
    });
  return { child, ended, prints };
}

export const run = (args: string[], options?: Options) => start(args, options).ended;

/** `host ARGS`, which has to end with 0; its stdout. */
export async function ok(...args: string[]): Promise<string> {
  const { code, signal, stdout, stderr } = await run(args);
  if (code !== 0) throw new Error(`host ${args.join(' ')} ended with ${code ?? signal}: ${stderr}`);
  return stdout;
}

/** Runs a command as root in a host that is up: what only root can do to a user manager. */
export async function asRoot(name: string, ...command: readonly string[]): Promise<void> {
  const { code, stderr } = await run(rootEntry(name, command), { command: 'nsenter' });
  if (code !== 0) throw new Error(`${command.join(' ')} ended with ${code}: ${stderr}`);
}

/** `host run` in a terminal of its own; prints its pid first. Type into child.stdin. */
export const startInTerminal = (command: string, env?: NodeJS.ProcessEnv) =>
  start(['-qec', `echo pid $$; exec '${host}' run -- ${command}`, '/dev/null'], {
    command: 'script',
    input: null,
    env,
  });

/** A script for the shell inside: host run -- sh -ec SCRIPT. */
export const inside = (script: string) => ['run', '--', 'sh', '-ec', script];

let names = 0;
/** A name nobody else uses; the host is thrown away when the test is over. */
export function hostName(): string {
  names += 1;
  const name = `t${process.pid}-${names}`;
  onTestFinished(() => {
    spawnSync(host, ['down', name], { stdio: 'ignore' });
  });
  return name;
}

/** A checkout with nothing in it but the script and one file. */
export function tinyCheckout(): { top: string; repo: string; host: string } {
  const top = mkdtempSync('/tmp/outlive-checkout-');
  onTestFinished(() => rmSync(top, { recursive: true, force: true }));
  const repo = join(top, 'a, b: c');
  mkdirSync(join(repo, 'ops'), { recursive: true });
  cpSync(join(checkout, 'ops/scripts'), join(repo, 'ops/scripts'), { recursive: true });
  chmodSync(top, 0o755);
  return { top, repo, host: join(repo, 'ops/scripts/host') };
}

/** Shell: waits until the line is in the user's journal. */
export const journaled = (unit: string, line: string) =>
  `for i in $(seq 200); do journalctl --user -u ${unit} -o cat | grep -x '${line}' && break; sleep 0.1; done`;

/** Waits for what no event announces (a path made by somebody else). */
export async function until(what: string, test: () => boolean, ms = 30_000): Promise<void> {
  const deadline = performance.now() + ms;
  while (!test()) {
    if (performance.now() > deadline) throw new Error(`${what} did not happen within ${ms} ms`);
    await delay(2);
  }
}

export const registry = '/run/outlive-hosts';
const cgroups = existsSync('/sys/fs/cgroup/unified') ? '/sys/fs/cgroup/unified' : '/sys/fs/cgroup';

export const entries = (dir: string) => (existsSync(dir) ? readdirSync(dir) : []);
const read = (path: string) => {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return ''; // the process is gone
  }
};

/** State directories of hosts whose name starts so. */
export const states = (prefix: string) =>
  entries(registry)
    .filter((name) => name.startsWith(prefix))
    .map((name) => join(registry, name));

export const groups = (prefix: string) =>
  entries(cgroups).filter((name) => name.startsWith(`outlive-host-${prefix}`));

/** Everything on this machine that belongs to hosts of that name: must be empty in the end. */
export function traces(prefix: string, marker = prefix): string[] {
  const found = [...states(prefix), ...groups(prefix)];
  for (const pid of entries('/proc').filter((name) => /^\d+$/.test(name))) {
    if (Number(pid) === process.pid) continue;
    const stat = read(`/proc/${pid}/stat`);
    if (/\) Z /.test(stat)) continue; // dead, its parent has not looked yet
    const command = read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ');
    if (
      command.includes(marker) ||
      command.includes(`${registry}/${prefix}`) ||
      read(`/proc/${pid}/cgroup`).includes(`outlive-host-${prefix}`)
    )
      found.push(`process ${pid}: ${command}`);
    if (read(`/proc/${pid}/mountinfo`).includes(`${registry}/${prefix}`))
      found.push(`mount seen by process ${pid}: ${command}`);
  }
  return found;
}

/** What a `host run` with this pid may leave. */
export const tracesOfRun = (running: Running, marker?: string) =>
  traces(`run-${running.child.pid}-`, marker);
