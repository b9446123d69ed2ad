/** A real attempt directory and the real wrapper as a process, without systemd. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, type FSWatcher, readFileSync, watch } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import {
  ATTEMPT_FILES,
  type CommandRunnerSpec,
  LAUNCH_VERSION,
  type LaunchFile,
  type PiRunnerSpec,
} from '../../../src/domain/attempt-files.ts';
import type { LastWord, SpoolLine } from '../../../src/domain/spool.ts';
import { lastWordOf, readSpool, type Spool } from './spool.ts';

export const WRAPPER = path.resolve(import.meta.dirname, '../../../src/attempt/main.ts');

/** How a wrapper ended. */
export interface WrapperEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stderr: string;
}

const TIMEOUTS = {
  heartbeatIntervalMs: 60_000,
  heartbeatTimeoutMs: 120_000,
  idleTimeoutMs: 120_000,
  hardTimeoutMs: 300_000,
  cancelGraceMs: 15_000,
  toolTimeoutMs: 120_000,
};

/** What a test changes in launch.json; timeouts one by one. */
export type LaunchChanges = Partial<Omit<LaunchFile, 'timeouts' | 'runner' | 'version'>> & {
  readonly timeouts?: Partial<LaunchFile['timeouts']>;
  /** Another version than ours. */
  readonly version?: number;
};

/** One attempt that is ready to start; gone after the test. */
export class Lab {
  /** Temporary directory that holds all of it. */
  readonly root: string;
  readonly launch: LaunchFile;
  readonly #wrappers: Wrapper[] = [];

  constructor(root: string, launch: LaunchFile) {
    this.root = root;
    this.launch = launch;
  }

  get directory(): string {
    return path.join(this.root, 'attempt');
  }

  get spoolFile(): string {
    return path.join(this.directory, ATTEMPT_FILES.spool);
  }

  /** The file's text. */
  read(name: keyof typeof ATTEMPT_FILES): Promise<string> {
    return readFile(path.join(this.directory, ATTEMPT_FILES[name]), 'utf8');
  }

  /** The text of a file below the root. */
  readText(name: string): Promise<string> {
    return readFile(path.join(this.root, name), 'utf8');
  }

  write(name: string, text: string): Promise<void> {
    return writeFile(path.join(this.root, name), text);
  }

  /** Starts the wrapper; `through` is a program that execs the rest of its arguments. */
  start(environment: NodeJS.ProcessEnv = {}, through: readonly string[] = []): Wrapper {
    const wrapper = new Wrapper(this, environment, through);
    this.#wrappers.push(wrapper);
    return wrapper;
  }

  /** Starts the wrapper and waits for its end. */
  async run(
    environment: NodeJS.ProcessEnv = {},
  ): Promise<WrapperEnd & { lines: readonly SpoolLine[]; word: LastWord }> {
    const end = await this.start(environment).ended;
    if (!existsSync(this.spoolFile)) throw new Error(`no spool: ${JSON.stringify(end)}`);
    const { lines } = readSpool(this.spoolFile);
    const word = lastWordOf(lines);
    checkEnd(end, word);
    return { ...end, lines, word };
  }

  async dispose(): Promise<void> {
    for (const wrapper of this.#wrappers) await wrapper.dispose();
    await rm(this.root, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** What holds at the end of every attempt that had a last word. */
function checkEnd(end: WrapperEnd, { verdict }: LastWord): void {
  const expected = { ok: '0 null', error: '1 null', stopped: 'null SIGTERM' }[verdict];
  const seen = `${end.code} ${end.signal}`;
  if (seen !== expected) throw new Error(`the last word is ${verdict}, the wrapper ended ${seen}`);
}

/** Makes an attempt; what it runs may lie in its temporary directory. */
export async function makeLab(
  runnerIn: (root: string) => PiRunnerSpec | CommandRunnerSpec,
  changes: LaunchChanges = {},
  parent = tmpdir(),
): Promise<Lab> {
  const root = await mkdtemp(path.join(parent, 'outlive-attempt-'));
  const runner = runnerIn(root);
  const cwd = path.join(root, 'work');
  await mkdir(path.join(root, 'attempt'), { mode: 0o700 });
  await mkdir(cwd);
  const launch: LaunchFile = {
    workspace: 'main',
    workUnitId: 'work-1',
    attemptId: 'attempt-1',
    attemptNumber: 1,
    handle: 'issue42',
    unit: 'outlive-main-issue42-1.service',
    nonce: 'n0nce',
    runnerId: runner.kind,
    runner,
    cwd,
    environment: { PATH: process.env['PATH'] ?? '', HOME: root, PI_OFFLINE: '1' },
    credentialVariables: [],
    keyProxy: [],
    controlSocket: path.join(root, 'run/control.sock'),
    temporaryDirectory: path.join(root, 'tmp/attempt-1'),
    captureBytes: 64 * 1024,
    umask: 0o022,
    ceiling: { microUsd: null, tokens: null },
    approvals: null,
    sandbox: null,
    ...changes,
    version: (changes.version ?? LAUNCH_VERSION) as typeof LAUNCH_VERSION,
    timeouts: { ...TIMEOUTS, ...changes.timeouts },
  };
  await writeFile(path.join(root, 'attempt', ATTEMPT_FILES.launch), JSON.stringify(launch));
  const lab = new Lab(root, launch);
  onTestFinished(() => lab.dispose());
  return lab;
}

/** A lab whose runner is a shell script. */
export const makeShellLab = (
  script: string,
  changes: LaunchChanges = {},
  parent?: string,
): Promise<Lab> =>
  makeLab(() => ({ kind: 'command', argv: ['/bin/sh', '-c', script] }), changes, parent);

/** Whether a process runs; one that only waits to be reaped does not. */
export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return !stat.slice(stat.lastIndexOf(')')).startsWith(') Z');
  } catch {
    return false;
  }
}

interface Waiter {
  readonly test: (line: SpoolLine) => boolean;
  readonly what: string;
  readonly resolve: (line: SpoolLine) => void;
  readonly reject: (error: Error) => void;
}

/** A running wrapper, watched through its spool. */
export class Wrapper {
  readonly ended: Promise<WrapperEnd>;
  readonly #child: ChildProcess;
  readonly #lab: Lab;
  readonly #watcher: FSWatcher;
  readonly #waiters = new Set<Waiter>();
  #stderr = '';

  constructor(lab: Lab, environment: NodeJS.ProcessEnv, through: readonly string[]) {
    this.#lab = lab;
    // Before the start: no line can be missed.
    this.#watcher = watch(lab.directory, () => this.#look());
    const [program, ...args] = [...through, process.execPath, WRAPPER, lab.directory];
    this.#child = spawn(program, args, {
      cwd: lab.directory,
      env: { OUTLIVE_NONCE: lab.launch.nonce, ...environment },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr += text;
    });
    this.ended = this.#end();
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get spool(): Spool {
    return readSpool(this.#lab.spoolFile);
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** The first line, of now or later, that passes the test. */
  line(what: string, test: (line: SpoolLine) => boolean): Promise<SpoolLine> {
    return new Promise((resolve, reject) => {
      this.#waiters.add({ test, what, resolve, reject });
      this.#look();
    });
  }

  /** The first line of a type. */
  event(type: SpoolLine['type']): Promise<SpoolLine> {
    return this.line(type, (line) => line.type === type);
  }

  /** Lets the wrapper end its runner: killed, it would leave it behind. */
  async dispose(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) this.kill('SIGTERM');
    await this.ended;
  }

  async #end(): Promise<WrapperEnd> {
    // `close` may never come while something left behind holds the pipe.
    await once(this.#child, 'exit');
    this.#watcher.close();
    this.#look();
    for (const { reject, what } of this.#waiters)
      reject(new Error(`ended without ${what}: ${this.#dump()}`));
    const { exitCode, signalCode } = this.#child;
    return { code: exitCode, signal: signalCode, stderr: this.#stderr };
  }

  #look(): void {
    if (!existsSync(this.#lab.spoolFile)) return;
    const { lines } = this.spool;
    for (const waiter of this.#waiters) {
      const found = lines.find(waiter.test);
      if (found === undefined) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(found);
    }
  }

  #dump(): string {
    const types = existsSync(this.#lab.spoolFile) ? this.spool.lines.map((line) => line.type) : [];
    return `${types.join(' ')} | ${this.#stderr}`;
  }
}
