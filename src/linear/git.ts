/**
 * Runs git in a person's repository. An agent can write to that repository, its configuration
 * included, and this runs outside of any nest: so nothing that it could name is run. Hooks, the
 * file system monitor and filters are turned off by settings that come after the repository's
 * own, and neither the person's nor the machine's configuration is read. Only a fetch needs
 * theirs (credentials, proxies); it is not made where the repository itself names programs.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { OutliveError } from '../domain/errors.ts';

/** For what does not leave the machine; the largest checkout has to fit. */
const LOCAL_MS = 300_000;
const OUTPUT_BYTES = 16 * 1024 * 1024;
const PATH = '/usr/local/bin:/usr/bin:/bin';

/** Why there is no work tree; `extra.reason` of the error. */
export type TreeReason =
  | 'git_missing'
  | 'git_failed'
  | 'repository_missing'
  | 'not_a_repository'
  | 'no_commits'
  | 'repository_busy'
  | 'repository_locked'
  | 'branch_in_use'
  | 'branch_unusable'
  | 'path_taken'
  | 'tree_damaged';

export const treeError = (reason: TreeReason, detail: string): OutliveError =>
  new OutliveError('work_tree_unavailable', detail, { extra: { reason } });

export interface GitEnd {
  readonly ok: boolean;
  readonly output: string;
  /** What it complained of, in one line. */
  readonly said: string;
  readonly timedOut: boolean;
}

type Settings = readonly (readonly [string, string])[];

/** What a repository may say about each, we do not want. */
const SETTINGS: Settings = [
  ['core.hooksPath', '/dev/null'],
  ['core.fsmonitor', 'false'],
  ['core.untrackedCache', 'false'],
  ['core.quotePath', 'false'],
  ['status.showUntrackedFiles', 'all'],
  // A process that outlives the command would keep our lock.
  ['gc.auto', '0'],
  ['maintenance.auto', 'false'],
  ['fetch.recurseSubmodules', 'false'],
  ['protocol.ext.allow', 'never'],
];

/** Drivers that run a program for each file (gitattributes(5)). */
const FILTERS = String.raw`^filter\..*\.(clean|smudge|process)$`;
/** What a fetch would run, or be led by (git-config(1)). */
const PROGRAMS = String.raw`^(core\.(sshcommand|gitproxy|askpass|alternaterefscommand)|credential\.(.*\.)?helper|remote\..*\.(uploadpack|vcs))$`;

interface RunOptions {
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly ms: number;
  /** An open file that the command shall keep open until it has ended. */
  readonly hold?: number | undefined;
}

/** By variables, not by `-c`: a name may hold a `=`. */
function asVariables(settings: Settings): Record<string, string> {
  const pairs = settings.flatMap(([key, value], index) => [
    [`GIT_CONFIG_KEY_${index}`, key],
    [`GIT_CONFIG_VALUE_${index}`, value],
  ]);
  return { GIT_CONFIG_COUNT: String(settings.length), ...Object.fromEntries(pairs) };
}

/** With all that it started: ssh would go on by itself. */
function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended by now.
  }
}

function run(args: readonly string[], options: RunOptions): Promise<GitEnd> {
  const { cwd, environment, ms, hold } = options;
  const { promise, resolve, reject } = Promise.withResolvers<GitEnd>();
  const child = spawn('git', args, {
    cwd,
    env: { ...environment },
    stdio: ['ignore', 'pipe', 'pipe', hold ?? 'ignore'],
    detached: true,
  });
  const text = { stdout: '', stderr: '' };
  let timedOut = false;
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (chunk: string) => {
      text[name] += chunk;
      if (text[name].length > OUTPUT_BYTES) killGroup(child);
    });
  }
  const timer = setTimeout(() => {
    timedOut = true;
    killGroup(child);
  }, ms);
  child.once('error', (error: NodeJS.ErrnoException) => {
    clearTimeout(timer);
    reject(
      error.code === 'ENOENT'
        ? treeError('git_missing', `git cannot be run in ${cwd}. Install git in ${PATH}.`)
        : treeError('git_failed', `git cannot be run in ${cwd}: ${error.message}.`),
    );
  });
  child.once('close', (status) => {
    clearTimeout(timer);
    const said = text.stderr.trim().replaceAll(/\s+/g, ' ').slice(0, 500);
    resolve({ ok: status === 0, output: text.stdout, said, timedOut });
  });
  return promise;
}

/** git in one repository. */
export class Git {
  readonly #directory: string;
  readonly #hold: number | undefined;
  #filters: Settings = [];

  /** @param hold a file whose lock is to last until every command has ended. */
  constructor(directory: string, hold?: number) {
    this.#directory = directory;
    this.#hold = hold;
  }

  /** Turns the filters off that are configured now; to be called before files are read or written. */
  async withoutFilters(): Promise<void> {
    const { output } = await this.run(['config', '-z', '--name-only', '--get-regexp', FILTERS]);
    const drivers = new Set(
      output
        .split('\0')
        .filter((name) => name !== '')
        .map((name) => name.slice(0, name.lastIndexOf('.'))),
    );
    this.#filters = [...drivers].flatMap((driver) => [
      [`${driver}.clean`, ''],
      [`${driver}.smudge`, ''],
      [`${driver}.process`, ''],
      [`${driver}.required`, 'false'],
    ]);
  }

  /** Runs a command that needs no network. @throws OutliveError where git cannot be run at all. */
  run(args: readonly string[], cwd = this.#directory): Promise<GitEnd> {
    const environment = {
      PATH,
      HOME: '/nonexistent',
      LC_ALL: 'C.UTF-8',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_ATTR_NOSYSTEM: '1',
      GIT_OPTIONAL_LOCKS: '0',
      GIT_TERMINAL_PROMPT: '0',
      ...asVariables([...SETTINGS, ...this.#filters]),
    };
    return run(args, { cwd, environment, ms: LOCAL_MS, hold: this.#hold });
  }

  /** The same, for what must succeed. @throws OutliveError `work_tree_unavailable`. */
  async must(args: readonly string[], cwd = this.#directory): Promise<string> {
    const { ok, output, said, timedOut } = await this.run(args, cwd);
    if (ok) return output;
    throw treeError(
      'git_failed',
      `git ${args[0]} in ${cwd} ${timedOut ? 'took too long' : `failed: ${said}`}.`,
    );
  }

  /** One line of output; null where there is none. */
  async line(args: readonly string[], cwd?: string): Promise<string | null> {
    const { ok, output } = await this.run(args, cwd);
    const line = output.replace(/\n$/, '');
    return ok && line !== '' ? line : null;
  }

  /**
   * Asks a remote, as the person would: with their configuration. Holds no lock of ours, since
   * what ssh or a credential helper leaves running would keep it. @returns why it could not.
   */
  async fetch(
    remote: string,
    person: Readonly<Record<string, string>>,
    ms: number,
  ): Promise<string | null> {
    const named = await this.line(['config', '--name-only', '--get-regexp', PROGRAMS]);
    if (named !== null) {
      const names = named.split('\n').join(', ');
      return `its configuration names programs (${names}), which an agent may have written; those in ~/.gitconfig or ~/.ssh/config are used`;
    }
    // Nor their PATH: it may begin with a directory in which an agent puts a git of its own.
    const own = Object.entries(person).filter(([name]) => !/^(?:GIT_|PATH$)/.test(name));
    const environment = {
      ...Object.fromEntries(own),
      PATH,
      GIT_TERMINAL_PROMPT: '0',
      ...asVariables(SETTINGS),
    };
    const args = ['fetch', '--quiet', '--no-tags', '--no-auto-maintenance', '--', remote];
    const end = await run(args, { cwd: this.#directory, environment, ms });
    if (end.ok) return null;
    return end.timedOut ? `it took longer than ${ms / 1_000} s` : end.said;
  }
}
