/**
 * Runs git over a work tree from a repository of our own: own index, own objects, own (empty)
 * configuration. The person's objects are only read, as alternates. So nothing of theirs is
 * changed, and nothing that a repository can configure (hooks, filters, drivers, a file
 * system monitor) runs.
 */
import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { readSmall, type WorkTree } from './work-tree.ts';

/** Most that a command may say, if nobody reads it as it comes. */
const OUTPUT_BYTES = 16 * 1024 * 1024;
/** A larger index is of a tree that is too large for us. */
const INDEX_BYTES = 256 * 1024 * 1024;

/** Without effect in an empty repository of our own; said all the same. */
const SETTINGS = [
  'core.hooksPath=/dev/null',
  'core.fsmonitor=false',
  'core.untrackedCache=false',
  'core.attributesFile=/dev/null',
  'core.fsync=none',
  'core.looseCompression=1',
  'core.quotePath=false',
  'gc.auto=0',
].flatMap((setting) => ['-c', setting]);

export interface GitCall {
  readonly signal: AbortSignal;
  readonly input?: Buffer;
  /** Takes what it says as it comes. */
  readonly onOutput?: (bytes: Buffer) => void;
}

export interface GitPlaces {
  /** Where the repository is made; it must not exist. */
  readonly directory: string;
  /** The person's. */
  readonly home: string;
  /** Ours: never looked into, should it lie in the tree. */
  readonly own: string;
}

export class Git {
  readonly #program: string;
  readonly #tree: WorkTree;
  readonly #environment: Readonly<Record<string, string>>;

  /** Makes the repository. Throws where it cannot. */
  constructor(program: string, tree: WorkTree, places: GitPlaces) {
    const { directory } = places;
    this.#program = program;
    this.#tree = tree;
    makeRepository(tree, places);
    this.#environment = {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: directory,
      LC_ALL: 'C.UTF-8',
      GIT_DIR: directory,
      GIT_WORK_TREE: tree.root,
      GIT_INDEX_FILE: path.join(directory, 'index'),
      GIT_OBJECT_DIRECTORY: path.join(directory, 'objects'),
      GIT_ALTERNATE_OBJECT_DIRECTORIES: quoted(tree.objects),
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_ATTR_NOSYSTEM: '1',
      GIT_NO_LAZY_FETCH: '1',
      GIT_NO_REPLACE_OBJECTS: '1',
      GIT_OPTIONAL_LOCKS: '0',
      GIT_TERMINAL_PROMPT: '0',
      GIT_PAGER: 'cat',
    };
  }

  /**
   * What a command says, and whether it ended well. Killed when `signal` aborts, and gone
   * when the promise settles. Rejects only where it cannot be started.
   */
  run(args: readonly string[], { signal, input, onOutput }: GitCall): Promise<GitEnd> {
    if (signal.aborted) return Promise.resolve({ ok: false, output: Buffer.alloc(0) });
    const child = spawn(this.#program, [...SETTINGS, ...args], {
      cwd: this.#tree.root,
      env: this.#environment,
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    const chunks: Buffer[] = [];
    let bytes = 0;
    const kill = (): boolean => child.kill('SIGKILL');
    signal.addEventListener('abort', kill, { once: true });
    child.stdout.on('data', (chunk: Buffer) => {
      if (onOutput) onOutput(chunk);
      else chunks.push(chunk);
      bytes += chunk.length;
      if (!onOutput && bytes > OUTPUT_BYTES) kill();
    });
    // It may end before it has read everything.
    child.stdin.on('error', () => {});
    child.stdin.end(input);
    return new Promise<GitEnd>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (status) => {
        resolve({ ok: status === 0, output: Buffer.concat(chunks) });
      });
    }).finally(() => signal.removeEventListener('abort', kill));
  }
}

export interface GitEnd {
  readonly ok: boolean;
  readonly output: Buffer;
}

/** A path in a list that `:` separates (git, "environment": a quoted path may hold one). */
const quoted = (file: string): string =>
  `"${file.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`;

function makeRepository(tree: WorkTree, { directory, home, own }: GitPlaces): void {
  for (const part of ['', 'objects', 'refs', 'info']) {
    mkdirSync(path.join(directory, part), { mode: 0o700 });
  }
  const write = (name: string, text: string): void =>
    writeFileSync(path.join(directory, name), text, { mode: 0o600 });
  write('HEAD', 'ref: refs/heads/none\n');
  write('config', configOf(tree));
  const ignored = [tree.exclude, path.join(home, '.config/git/ignore')];
  const patterns = [...ignored.map((file) => readSmall(file) ?? ''), patternOf(tree.root, own)];
  write('info/exclude', patterns.join('\n'));
  const info = statSync(tree.index, { throwIfNoEntry: false });
  if (!info) return;
  if (!info.isFile() || info.size > INDEX_BYTES) throw new Error('its index cannot be copied');
  copyFileSync(tree.index, path.join(directory, 'index'));
}

/** A pattern of gitignore(5) for a directory in the tree; none for one that is not. */
function patternOf(root: string, directory: string): string {
  const inside = path.relative(root, directory);
  if (inside === '' || inside.startsWith('..')) return '';
  return `/${inside.replaceAll(/[\\*?[\]!# ]/g, '\\$&')}/\n`;
}

const configOf = ({ objectFormat }: WorkTree): string =>
  objectFormat === 'sha1'
    ? '[core]\n\trepositoryformatversion = 0\n'
    : '[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n';
