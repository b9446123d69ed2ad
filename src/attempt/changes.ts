/**
 * `changes.diff`: what became of the work tree during an attempt, untracked files included,
 * whoever changed it. The tree is written down before the runner begins and once more after
 * it has ended; git compares the two. Nothing here may cost a run more than its time.
 */
import { accessSync, constants, lstatSync, type Stats } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { ATTEMPT_FILES } from '../domain/attempt-files.ts';
import { DiffFile } from './diff-file.ts';
import { errorCode } from './files.ts';
import { Git } from './git.ts';
import type { Redact } from './redact.ts';
import type { StopSwitch } from './stop.ts';
import { findGit, findWorkTree } from './work-tree.ts';

/** For each of both looks at the tree. */
export const CHANGES_MS = 5_000;
/** Larger files are only named. */
const FILE_BYTES = 8 * 1024 * 1024;
/** Of all files that one look has to read. */
const TOTAL_BYTES = 128 * 1024 * 1024;
const PATHS = 10_000;
const NAMED = 20;

const DIFF = [
  ...['diff-tree', '-r', '--stat=120', '-p', '--no-color', '--no-ext-diff', '--no-textconv'],
  ...['--find-renames', '-l200', '--src-prefix=a/', '--dst-prefix=b/'],
];

export interface ChangesOptions {
  readonly cwd: string;
  readonly attemptDirectory: string;
  /** The runner's, for PATH and HOME. */
  readonly environment: Readonly<Record<string, string>>;
  readonly limit: number;
  readonly redact: Redact;
  readonly stop: StopSwitch;
  readonly warn: (sentence: string) => void;
}

/** The tree at one moment. */
interface Look {
  readonly id: string;
  /** Files that were too large to read, with what tells one state of them from the next. */
  readonly unread: ReadonlyMap<string, string>;
}

export class Changes {
  readonly #options: ChangesOptions;
  readonly #git: Git;
  readonly #root: string;
  #before: Look = { id: '', unread: new Map() };

  private constructor(options: ChangesOptions, git: Git, root: string) {
    this.#options = options;
    this.#git = git;
    this.#root = root;
  }

  /**
   * Writes the tree down as it is, within {@link CHANGES_MS} and before a stop. Null where
   * there is no repository of this user, no git, or too much to read. Never rejects.
   */
  static async begin(options: ChangesOptions): Promise<Changes | null> {
    const { environment, attemptDirectory, warn } = options;
    const tree = findWorkTree(options.cwd);
    const program = tree && findGit(environment['PATH'] ?? '');
    if (!tree || !program) return null;
    const directory = path.join(attemptDirectory, ATTEMPT_FILES.snapshot);
    try {
      // attempts/<work unit>/<attempt> lies in the state directory: nobody's work.
      const own = path.resolve(attemptDirectory, '../../..');
      const git = new Git(program, tree, { directory, home: environment['HOME'] ?? '/', own });
      const changes = new Changes(options, git, tree.root);
      const time = new Time(CHANGES_MS, options.stop, 'at once');
      try {
        changes.#before = await changes.#look(time.signal);
        return changes;
      } finally {
        time.end();
      }
    } catch (error) {
      if (options.stop.request === null) warn(`No diff of the work tree: ${errorCode(error)}`);
      await removeSnapshot(directory);
      return null;
    }
  }

  /**
   * Writes the diff; no file where nothing changed. Takes at most `ms`, and of a stop that
   * comes meanwhile no more than half its grace. Never rejects.
   */
  async end(ms: number): Promise<void> {
    const { attemptDirectory, limit, redact, stop, warn } = this.#options;
    const time = new Time(ms, stop);
    const file = path.join(attemptDirectory, ATTEMPT_FILES.diff);
    const text = new DiffFile({ file, limit, redact, onFull: time.abort });
    try {
      await this.#compare(text, time.signal);
    } catch (error) {
      text.cut(time.signal.aborted ? 'there was no more time for git' : errorCode(error));
    } finally {
      time.end();
    }
    try {
      text.finish();
    } catch (error) {
      warn(`${file} is not complete: ${errorCode(error)}`);
    }
    // Of a run that has to end the daemon removes it.
    if (stop.request === null) {
      await removeSnapshot(path.join(attemptDirectory, ATTEMPT_FILES.snapshot));
    }
  }

  async #compare(text: DiffFile, signal: AbortSignal): Promise<void> {
    const after = await this.#look(signal);
    if (after.id !== this.#before.id) {
      const onOutput = (bytes: Buffer): void => text.push(bytes);
      const { ok } = await this.#git.run([...DIFF, this.#before.id, after.id], {
        signal,
        onOutput,
      });
      if (!ok && !text.isFull) throw new Error(signal.aborted ? '' : 'git could not go on');
    }
    const unread = [...after.unread].filter(
      ([name, state]) => this.#before.unread.get(name) !== state,
    );
    if (unread.length > 0) text.cut(unreadText(unread.map(([name]) => name)));
  }

  async #look(signal: AbortSignal): Promise<Look> {
    const list = ['ls-files', '-z', '--modified', '--deleted', '--others', '--exclude-standard'];
    const listed = await this.#git.run(list, { signal });
    if (!listed.ok) throw new Error('git could not list its files');
    // latin1 is one byte a character: names need not be text.
    const paths = new Set(listed.output.toString('latin1').split('\0'));
    const { read, unread } = this.#sort(paths);
    const input = Buffer.from(read.map((name) => `${name}\0`).join(''), 'latin1');
    const update = ['update-index', '-z', '--add', '--remove', '--replace', '--stdin'];
    const updated = await this.#git.run(update, { signal, input });
    if (!updated.ok) throw new Error('git could not read its files');
    const tree = await this.#git.run(['write-tree', '--missing-ok'], { signal });
    if (!tree.ok) throw new Error('git could not write the tree down');
    return { id: tree.output.toString('latin1').trim(), unread };
  }

  /** What git is to read, and what is too large; what is neither file nor link is left out. */
  #sort(paths: ReadonlySet<string>): { read: string[]; unread: Map<string, string> } {
    if (paths.size > PATHS) throw new Error(`more than ${PATHS} files differ from the index`);
    const read: string[] = [];
    const unread = new Map<string, string>();
    let total = 0;
    for (const name of paths) {
      // A repository within this one is listed with its slash.
      if (name === '' || name.endsWith('/')) continue;
      const file = Buffer.from(`${Buffer.from(this.#root).toString('latin1')}/${name}`, 'latin1');
      const info = lstatSync(file, { throwIfNoEntry: false });
      if (!isReadable(file, info)) continue;
      const bytes = info?.isFile() ? info.size : 0;
      if (bytes > FILE_BYTES || total + bytes > TOTAL_BYTES) {
        unread.set(name, `${bytes} ${info?.mtimeMs}`);
      } else {
        total += bytes;
        read.push(name);
      }
    }
    return { read, unread };
  }
}

/** Gone counts: its removal is a change. */
function isReadable(file: Buffer, info: Stats | undefined): boolean {
  if (!info || info.isSymbolicLink() || info.isDirectory()) return true;
  if (!info.isFile()) return false;
  try {
    accessSync(file, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

function unreadText(names: readonly string[]): string {
  const named = names
    .toSorted()
    .slice(0, NAMED)
    .map((name) => Buffer.from(name, 'latin1').toString());
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : '';
  return `too large to be shown: ${named.join(', ').replaceAll(/\s/g, ' ')}${more}`;
}

async function removeSnapshot(directory: string): Promise<void> {
  await rm(directory, { recursive: true, force: true }).catch(() => {});
}

/** Time for git: it ends by itself, by a stop, or because no more is wanted. */
class Time {
  readonly #controller = new AbortController();
  readonly #timers: NodeJS.Timeout[] = [];

  /** Of a stop that comes from now on, half the grace is taken; none where `heed` is `at once`. */
  constructor(ms: number, stop: StopSwitch, heed: 'at once' | 'half' = 'half') {
    this.#abortAfter(ms);
    if (stop.request !== null) return;
    void stop.turned.then(({ graceMs }) => this.#abortAfter(heed === 'half' ? graceMs / 2 : 0));
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  readonly abort = (): void => this.#controller.abort();

  end(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }

  #abortAfter(ms: number): void {
    if (ms <= 0) this.abort();
    else this.#timers.push(setTimeout(this.abort, ms));
  }
}
