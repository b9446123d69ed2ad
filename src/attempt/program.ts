/** A program as a child with its own process group, and its end as one promise. */
import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process';
import { statSync } from 'node:fs';
import path from 'node:path';
import { errorCode } from './files.ts';

/** How a program ended; `error` when it could not be started at all. */
export interface ProgramEnd {
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** The system's code (ENOENT, EACCES, …). */
  readonly error: string | null;
}

export interface ProgramOptions {
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly stdin: 'ignore' | 'pipe';
  /** Of the program; the wrapper's own files stay private. */
  readonly umask: number;
}

export interface Program {
  readonly child: ChildProcess;
  /** 0 when it could not be started. */
  readonly pid: number;
  /** Settles at its exit; its output may still be in the pipes. Never rejects. */
  readonly ended: Promise<ProgramEnd>;
  /** Settles when nobody holds its output any more. */
  readonly closed: Promise<void>;
  /** Signals the whole group; nothing when it is gone. */
  killGroup(signal: NodeJS.Signals): void;
}

/** Starts a program in a process group of its own, so that a signal reaches what it starts. */
export function startProgram(argv: readonly string[], options: ProgramOptions): Program {
  const [file = '', ...args] = argv;
  const stdio: StdioOptions = [options.stdin, 'pipe', 'pipe'];
  const child = withUmask(options.umask, () =>
    spawn(file, args, { cwd: options.cwd, env: options.environment, detached: true, stdio }),
  );
  const ended = new Promise<ProgramEnd>((resolve) => {
    child.once('error', (error) =>
      resolve({ exitCode: null, signal: null, error: errorCode(error) }),
    );
    child.once('exit', (exitCode, signal) => resolve({ exitCode, signal, error: null }));
  });
  const closed = new Promise<void>((resolve) => {
    child.once('close', () => resolve());
  });
  const pid = child.pid ?? 0;
  return { child, pid, ended, closed, killGroup: (signal) => signalGroup(pid, signal) };
}

/** A child takes the mask of the moment of its fork, which happens within spawn(). */
function withUmask<Result>(umask: number, act: () => Result): Result {
  const own = process.umask(umask);
  try {
    return act();
  } finally {
    process.umask(own);
  }
}

function signalGroup(pid: number, signal: NodeJS.Signals): void {
  if (pid <= 1) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // ESRCH: all gone. EPERM: nobody there whom we may signal (a setuid program).
  }
}

/** True when nothing of that name is there to be started, in this directory with this PATH. */
export function isMissing(
  program: string,
  { cwd, environment }: Pick<ProgramOptions, 'cwd' | 'environment'>,
): boolean {
  const isThere = (directory: string): boolean =>
    statSync(path.resolve(cwd, directory, program), { throwIfNoEntry: false }) !== undefined;
  if (program.includes('/')) return !isThere('.');
  const search = environment['PATH'];
  // Without one, which directories are meant is the C library's business.
  return search !== undefined && !search.split(':').some((directory) => isThere(directory || '.'));
}

/** What a shell would have exited with. */
export const spawnExitCode = (error: string): number => (error === 'ENOENT' ? 127 : 126);
