/** Runs dist/cli.js the way a shell would, in the environment of a rig. */
import { spawn } from 'node:child_process';
import path from 'node:path';
import { type Rig, ROOT, within } from './rig.ts';

export interface CliResult {
  readonly status: number | NodeJS.Signals;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly stdin?: string | Buffer;
}

/** A running command line whose output can be waited for. */
export interface CliProcess {
  readonly pid: number;
  /** Resolves with all of stdout and stderr so far once it matches. */
  until(pattern: RegExp): Promise<string>;
  kill(signal: NodeJS.Signals): void;
  readonly ended: Promise<CliResult>;
}

export function startCli(rig: Rig, args: readonly string[], options: CliOptions = {}): CliProcess {
  const child = spawn(process.execPath, ['--', path.join(ROOT, 'dist/cli.js'), ...args], {
    cwd: options.cwd ?? rig.tree,
    env: { ...rig.env, NO_COLOR: '1', ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const text = { stdout: '', stderr: '' };
  const looks = new Set<() => void>();
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (chunk: string) => {
      text[name] += chunk;
      for (const look of looks) look();
    });
  }
  child.stdin.on('error', () => undefined); // It may end without reading.
  child.stdin.end(options.stdin ?? '');
  const ended = new Promise<CliResult>((resolve) => {
    child.on('close', (code, signal) => resolve({ status: signal ?? code ?? -1, ...text }));
  });
  const until = async (pattern: RegExp): Promise<string> => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const look = (): void => {
      const all = text.stdout + text.stderr;
      if (pattern.test(all)) resolve(all);
    };
    looks.add(look);
    look();
    return within(`${pattern} in the output of outlive ${args.join(' ')}`, promise);
  };
  return { pid: child.pid ?? -1, until, kill: (signal) => child.kill(signal), ended };
}

export const cli = (rig: Rig, args: readonly string[], options?: CliOptions): Promise<CliResult> =>
  within(`outlive ${args.slice(0, 3).join(' ')}`, startCli(rig, args, options).ended);
