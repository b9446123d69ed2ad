/** outlive installed as units of the user manager, for the workspace of a rig. */
import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import type { CliResult } from './cli.ts';
import { type Rig, ROOT, systemctl, within } from './rig.ts';

export interface ScriptOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
}

/** Runs ops/scripts/<name> the way a person would, in the environment of a rig. */
export function opsScript(
  rig: Pick<Rig, 'env'>,
  name: 'install' | 'uninstall' | 'halt',
  args: readonly string[] = [],
  { env, stdin }: ScriptOptions = {},
): Promise<CliResult> {
  const child = spawn(path.join(ROOT, 'ops/scripts', name), args, {
    env: { ...rig.env, ...env },
    cwd: os.homedir(),
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  child.stdin.on('error', () => undefined); // It may end without reading.
  child.stdin.end(stdin ?? '');
  const text = { stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream].setEncoding('utf8').on('data', (chunk: string) => {
      text[stream] += chunk;
    });
  }
  const ended = new Promise<CliResult>((resolve) => {
    child.on('close', (code, signal) => resolve({ status: signal ?? code ?? -1, ...text }));
  });
  return within(`${name} ${args.join(' ')}`, ended);
}

/** Where the user manager looks for a person's units. */
export const UNITS = path.join(os.homedir(), '.config/systemd/user');

export const service = (rig: Rig): string => `outlived@${rig.workspace}.service`;
export const apiSocket = (rig: Rig): string => `outlived-api@${rig.workspace}.socket`;
export const httpSocket = (rig: Rig): string => `outlived-http@${rig.workspace}.socket`;

/** Installs and starts; throws with the script's own words when that fails. */
export async function install(rig: Rig, ...args: readonly string[]): Promise<CliResult> {
  const result = await opsScript(rig, 'install', ['--no-linger', ...args]);
  if (result.status !== 0) throw new Error(result.stderr);
  return result;
}

/** Takes everything back; what a person's drop-ins were stays. */
export async function uninstall(rig: Rig): Promise<void> {
  await opsScript(rig, 'uninstall', ['--stop-attempts', '--purge', '--yes']);
}

/** A drop-in as a person would write it; applies from the next start on. */
export async function dropIn(unit: string, text: string): Promise<string> {
  const file = path.join(UNITS, `${unit}.d`, 'zz-person.conf');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
  await systemctl('daemon-reload');
  return file;
}

export const property = (unit: string, name: string): Promise<string> =>
  systemctl('show', '-P', name, unit);

/** A TCP port that nobody uses right now. */
export async function freePort(): Promise<number> {
  const server = net.createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as net.AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Resolves once a daemon has taken the attempt up again: its readiness does not wait for that. */
export async function takenUpAgain(rig: Rig, id: string): Promise<void> {
  await rig.waitForEvent(id, ({ type }) => type === 'attempt.reattached', 're-attachment');
}
