/** A rig for one group of figures, and attempts that run without daemon and systemd. All of it is gone afterwards. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import {
  ATTEMPT_FILES,
  type CommandRunnerSpec,
  LAUNCH_VERSION,
  type LaunchFile,
  type PiRunnerSpec,
} from '../../src/domain/attempt-files.ts';
import type { SpoolLine } from '../../src/domain/spool.ts';
import { defaultTimeouts } from '../../src/domain/work-unit.ts';
import { Rig, ROOT, script, within } from '../support/rig.ts';
import { strictLine } from '../support/spool-line.ts';

/** As built: what units run. */
const WRAPPER = path.join(ROOT, 'dist/attempt/main.js');
const PI = path.join(ROOT, 'node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js');

/** How long a process is left alone before its memory counts. */
const SETTLE_MS = 1_500;
export const settle = (): Promise<void> => pause(SETTLE_MS);

const open = new Set<Workshop>();

/** Ends whatever is still there: for a benchmark that is interrupted. */
export async function endAll(): Promise<void> {
  await Promise.all([...open].map((workshop) => workshop.end()));
}

export async function inWorkshop<T>(work: (workshop: Workshop) => Promise<T>): Promise<T> {
  const workshop = new Workshop(await Rig.create());
  open.add(workshop);
  try {
    return await work(workshop);
  } finally {
    await workshop.end();
    open.delete(workshop);
  }
}

/** An attempt as the wrapper finds it. */
export interface BareAttempt {
  readonly directory: string;
  readonly nonce: string;
}

export class Workshop {
  readonly rig: Rig;
  readonly #children = new Set<ChildProcess>();
  #made = 0;

  constructor(rig: Rig) {
    this.rig = rig;
  }

  /** What a runner gets of the daemon: the same for a wrapper's Pi as for a bare one. */
  get environment(): Record<string, string> {
    const { PATH = '', HOME = '', PI_CODING_AGENT_DIR = '' } = this.rig.env;
    return {
      PATH,
      HOME,
      LANG: 'C.UTF-8',
      PI_CODING_AGENT_DIR,
      PI_OFFLINE: '1',
      PI_SKIP_VERSION_CHECK: '1',
      PI_TELEMETRY: '0',
      NODE_COMPILE_CACHE: path.join(this.rig.base, 'cache/node'),
    };
  }

  /** A name nobody has had. */
  name(): string {
    this.#made += 1;
    return `bench${this.#made}`;
  }

  /** Pi as the daemon has it run, with a session of its own and a prompt that begins with a marker. */
  pi(marker: string, turn: string): PiRunnerSpec {
    const prompt = `${marker}: ${script(turn)}`;
    const sessionFile = path.join(this.rig.base, 'sessions', `${this.name()}.jsonl`);
    const command = [process.execPath, PI];
    return { kind: 'pi', command, sessionFile, prompt, continuation: null, model: 'lab/scripted' };
  }

  /** Writes what the wrapper needs. */
  async attempt(runner: PiRunnerSpec | CommandRunnerSpec): Promise<BareAttempt> {
    const name = this.name();
    const { workspace, tree, base, config } = this.rig;
    const directory = path.join(base, 'attempts', name);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await mkdir(path.join(base, 'sessions'), { recursive: true, mode: 0o700 });
    const launch: LaunchFile = {
      version: LAUNCH_VERSION,
      workspace,
      workUnitId: name,
      attemptId: name,
      attemptNumber: 1,
      handle: name,
      unit: `outlive-${workspace}-${name}-1.service`,
      nonce: name,
      runnerId: runner.kind,
      runner,
      cwd: tree,
      environment: this.environment,
      credentialVariables: [],
      keyProxy: [],
      timeouts: defaultTimeouts('task_run'),
      controlSocket: path.join(config.directories.runtime, name, 'control.sock'),
      temporaryDirectory: runner.kind === 'pi' ? path.join(base, 'tmp', name) : null,
      captureBytes: config.file.captureBytes,
      umask: config.umask,
      ceiling: { microUsd: null, tokens: null },
      approvals: null,
      sandbox: null,
    };
    await writeFile(path.join(directory, ATTEMPT_FILES.launch), JSON.stringify(launch));
    return { directory, nonce: name };
  }

  /** The wrapper as systemd would start it. */
  wrapper({ directory, nonce }: BareAttempt): ChildProcess {
    const [PATH, HOME] = [this.environment['PATH'], this.environment['HOME']];
    const env = { PATH, HOME, LANG: 'C.UTF-8', OUTLIVE_NONCE: nonce };
    const argv = [process.execPath, WRAPPER, directory];
    return this.start(argv, { cwd: directory, env, stdin: 'ignore' });
  }

  /** Any program; its stdout is read and dropped. */
  start(
    [program = '', ...args]: readonly string[],
    options: { cwd: string; env: NodeJS.ProcessEnv; stdin: 'ignore' | 'pipe' },
  ): ChildProcess {
    const { cwd, env, stdin } = options;
    const child = spawn(program, args, { cwd, env, stdio: [stdin, 'pipe', 'inherit'] });
    child.stdout?.resume();
    this.#children.add(child);
    child.once('exit', () => this.#children.delete(child));
    return child;
  }

  /** Wall time at which the model got the request with the marker, ms; throws when who should ask has ended. */
  async requested(marker: string, ended: Promise<void>): Promise<number> {
    const asked = this.rig.model.waitFor(({ lastUserText }) =>
      lastUserText.startsWith(`${marker}:`),
    );
    const first = await within('a request at the model', Promise.race([asked, ended]));
    if (first === undefined) throw new Error('it ended without a request at the model');
    return Date.parse(first.time);
  }

  async end(): Promise<void> {
    // SIGTERM: a wrapper ends its runner, killed it would leave it behind.
    const ends = [...this.#children].map(async (child) => {
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGTERM');
      await ended;
    });
    await Promise.all(ends);
    await this.rig.end();
  }
}

/** The first spool line of that type; it must be there. */
export async function spoolLine(directory: string, type: SpoolLine['type']): Promise<SpoolLine> {
  const text = await readFile(path.join(directory, ATTEMPT_FILES.spool), 'utf8');
  const whole = text.split('\n').slice(0, -1);
  const lines = whole.map(strictLine);
  const found = lines.find((line) => line.type === type);
  if (found === undefined) throw new Error(`the spool in ${directory} has no ${type}`);
  return found;
}
