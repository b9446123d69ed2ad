/** Runs the built command line as a process of its own. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { Readable } from 'node:stream';

export const root = path.resolve(import.meta.dirname, '../..');
export const entry = path.join(root, 'dist', 'cli.js');

if (!existsSync(entry)) throw new Error(`${entry} is missing: npm run build comes first`);

export interface Ended {
  /** Exit status; null when a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<Ended>;
  /** Resolves once this has been printed; rejects when the process ended without. */
  said(stream: 'stdout' | 'stderr', text: string): Promise<void>;
}

export interface Surroundings {
  /** XDG_RUNTIME_DIR; one without a daemon when absent. */
  readonly runtimeDirectory?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly stdin?: string;
}

/** Nothing of the machine's own outlive: no daemon, no configuration, no bus. */
function environment({ runtimeDirectory, env }: Surroundings): Record<string, string> {
  return {
    PATH: process.env['PATH'] ?? '',
    HOME: '/nonexistent',
    XDG_RUNTIME_DIR: runtimeDirectory ?? '/nonexistent/run',
    TERM: 'xterm',
    ...env,
  };
}

/** Starts `outlive` with these arguments. */
export function start(args: readonly string[], surroundings: Surroundings = {}): Running {
  // Without it Node takes an option of ours that it knows, --env-file, for its own.
  return launch(process.execPath, ['--', entry, ...args], surroundings);
}

/** Starts any program in the same surroundings. */
export function launch(
  program: string,
  args: readonly string[],
  surroundings: Surroundings,
): Running {
  const child = spawn(program, args, {
    env: environment(surroundings),
    cwd: surroundings.cwd ?? root,
  });
  child.stdin.on('error', () => {}); // It may end without reading.
  child.stdin.end(surroundings.stdin ?? '');
  const seen = { stdout: watch(child.stdout), stderr: watch(child.stderr) };
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) =>
      resolve({ code, signal, stdout: seen.stdout.text(), stderr: seen.stderr.text() }),
    );
  });
  return { child, ended, said: (stream, text) => seen[stream].until(text) };
}

function watch(stream: Readable) {
  let text = '';
  const listeners = new Set<() => void>();
  stream.setEncoding('utf8');
  stream.on('data', (chunk: string) => {
    text += chunk;
    for (const listener of listeners) listener();
  });
  return {
    text: () => text,
    until: (wanted: string) =>
      new Promise<void>((resolve, reject) => {
        const check = (): void => {
          if (text.includes(wanted)) resolve();
        };
        listeners.add(check);
        stream.on('close', () => reject(new Error(`it never said "${wanted}", only: ${text}`)));
        check();
      }),
  };
}

/** Runs `outlive` to its end. */
export function outlive(args: readonly string[], surroundings: Surroundings = {}): Promise<Ended> {
  return start(args, surroundings).ended;
}
