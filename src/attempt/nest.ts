/**
 * The nest of an attempt: a room of namespaces that every command of the model enters. Inside
 * there is nothing of outlive, of other attempts or of the person's own manager to be seen,
 * signalled or written; the user is the same one, the network too.
 *
 * Made by two user namespaces, one in the other: the outer one owns mounts and processes, in the
 * inner one commands run, as the user and with no power at all. See nest-script.ts.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';

import { within } from './clock.ts';
import { NestPlanError, type NestSpec, planNest } from './nest-mounts.ts';
import {
  enterCommand,
  findPrograms,
  type Identity,
  NEST_PATH,
  type NestPrograms,
  OPEN,
  openCommand,
} from './nest-script.ts';
import type { RunnerNest } from './runner.ts';

/** From the start of its keeper to the first command that can enter, at most. */
const OPEN_MS = 5_000;
/** All it holds is killed at once; far below what systemd adds to the grace. */
const CLOSE_MS = 1_000;
const SAID_MAX = 2_000;

/** It cannot be opened; the message says why. */
export class NestError extends Error {}

export interface Nest extends RunnerNest {
  /** Processes that are the nest itself, and no leftovers of a command. */
  readonly pids: ReadonlySet<number>;
  /** Ends all that runs in it; resolves when that is gone, or after a second. */
  close(): Promise<void>;
}

export interface NestOptions {
  readonly cwd: string;
  /** Variables that commands do not get. */
  readonly without: readonly string[];
  /** For the processes of the nest itself: what they are found by. */
  readonly mark?: string | undefined;
  /** Aborts the opening. */
  readonly signal?: AbortSignal;
}

/**
 * Opens a nest.
 * @throws NestError when it cannot be had, or was not there within five seconds, or was aborted.
 */
export async function openNest(
  spec: NestSpec,
  { cwd, without, mark, signal }: NestOptions,
): Promise<Nest> {
  const programs = findPrograms();
  if ('missing' in programs) throw new NestError(`${programs.missing} is not installed`);
  const identity = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const { mounts, paths } = plan(spec, cwd);
  const [file = '', ...args] = openCommand(programs, identity, mounts);
  const keeper = spawn(file, args, {
    cwd: '/',
    env: { PATH: NEST_PATH, LC_ALL: 'C', ...(mark ? { OUTLIVE_MARK: mark } : {}) },
    stdio: ['ignore', 'pipe', 'pipe'],
    // A signal to the wrapper's group is not for it: it is closed when the runner has ended.
    detached: true,
  });
  await untilOpen(keeper, signal);
  return new OpenNest(keeper, paths, programs, identity, without);
}

function plan(spec: NestSpec, cwd: string) {
  try {
    return planNest(spec, cwd);
  } catch (error) {
    if (error instanceof NestPlanError) throw new NestError(error.message);
    throw error;
  }
}

/** Rejects, with everything ended, unless its first process says that it is there. */
async function untilOpen(keeper: ChildProcess, signal: AbortSignal | undefined): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<string | null>();
  let said = '';
  keeper.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(0, SAID_MAX);
  });
  keeper.stdout?.setEncoding('utf8').on('data', (text: string) => {
    if (text.includes(OPEN)) resolve(null);
  });
  keeper.once('error', (error) => resolve(error.message));
  // close, not exit: what it said is then read.
  keeper.once('close', (status) => resolve(said.trim() || `it ended with ${status ?? 'a signal'}`));
  const aborted = (): void => resolve('it was told to stop');
  signal?.addEventListener('abort', aborted);
  if (signal?.aborted) aborted();
  const problem = await within(promise, OPEN_MS);
  signal?.removeEventListener('abort', aborted);
  for (const stream of [keeper.stdout, keeper.stderr]) stream?.destroy();
  if (problem === null) return;
  // Its group: a child that was being forked has not asked yet to die with it.
  if (keeper.pid !== undefined) kill(-keeper.pid);
  throw new NestError(problem === 'late' ? `it did not open within ${OPEN_MS / 1000} s` : problem);
}

class OpenNest implements Nest {
  readonly enter: readonly string[];
  readonly paths: RunnerNest['paths'];
  readonly #keeper: ChildProcess;
  readonly #ended: Promise<unknown>;

  constructor(
    keeper: ChildProcess,
    paths: RunnerNest['paths'],
    programs: NestPrograms,
    identity: Identity,
    without: readonly string[],
  ) {
    this.#keeper = keeper;
    this.#ended = hasEnded(keeper) ? Promise.resolve() : once(keeper, 'exit');
    this.paths = paths;
    this.enter = enterCommand(programs, identity, keeper.pid ?? 0, without);
  }

  get pids(): ReadonlySet<number> {
    if (hasEnded(this.#keeper)) return new Set();
    const keeper = this.#keeper.pid ?? 0;
    return new Set([keeper, ...childrenOf(keeper)]);
  }

  async close(): Promise<void> {
    if (hasEnded(this.#keeper)) return;
    // The first process of a pid namespace takes all others with it, and is reaped after them;
    // the keeper ends once it has.
    for (const pid of childrenOf(this.#keeper.pid ?? 0)) kill(pid);
    if ((await within(this.#ended, CLOSE_MS)) !== 'late') return;
    this.#keeper.kill('SIGKILL');
  }
}

const hasEnded = ({ exitCode, signalCode }: ChildProcess): boolean =>
  exitCode !== null || signalCode !== null;

/** man proc_pid_task: exact for a process whose children do not change, as here. */
function childrenOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
    return text.split(' ').map(Number).filter(Boolean);
  } catch {
    return [];
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // Gone by itself.
  }
}
