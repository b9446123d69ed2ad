/**
 * Finds the git repository of a directory without running git, and without believing
 * anything in it: what the agent can write to must not decide what runs out here.
 */
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  realpathSync,
  type Stats,
  statSync,
} from 'node:fs';
import path from 'node:path';

/** Where things lie, all paths absolute. */
export interface WorkTree {
  /** The top directory. */
  readonly root: string;
  /** The person's index; there need not be one. */
  readonly index: string;
  readonly objects: string;
  /** `info/exclude`. */
  readonly exclude: string;
  readonly objectFormat: 'sha1' | 'sha256';
}

const SMALL_BYTES = 256 * 1024;
const SHA256 = /^\s*objectformat\s*=\s*"?sha256"?\s*$/im;

/**
 * The work tree that `cwd` lies in; null where there is none, where it is bare, or where
 * tree or repository belong to another user.
 */
export function findWorkTree(cwd: string): WorkTree | null {
  try {
    let root = realpathSync(cwd);
    for (;;) {
      const repository = repositoryAt(root);
      if (repository !== null)
        return isOurs(root) && isOurs(repository) ? at(root, repository) : null;
      const parent = path.dirname(root);
      if (parent === root) return null;
      root = parent;
    }
  } catch {
    return null; // What cannot be read is no work tree of ours.
  }
}

/** The git directory of a work tree; `.git` may be a file that says where it is. */
function repositoryAt(root: string): string | null {
  const entry = path.join(root, '.git');
  const info = infoOf(entry);
  if (info === null) return null;
  const directory = info.isDirectory() ? entry : pointedAt(root, readSmall(entry));
  return directory !== null && infoOf(path.join(directory, 'HEAD')) !== null ? directory : null;
}

function pointedAt(from: string, text: string | null): string | null {
  const target = /^gitdir: (.+)$/m.exec(text ?? '')?.[1];
  return target === undefined ? null : path.resolve(from, target);
}

function at(root: string, repository: string): WorkTree | null {
  // Of a linked work tree: the repository that it shares.
  const shared = readSmall(path.join(repository, 'commondir'))?.trim();
  const common = shared === undefined ? repository : path.resolve(repository, shared);
  const objects = path.join(common, 'objects');
  if (!isOurs(objects)) return null;
  return {
    root,
    index: path.join(repository, 'index'),
    objects,
    exclude: path.join(common, 'info/exclude'),
    objectFormat: SHA256.test(readSmall(path.join(common, 'config')) ?? '') ? 'sha256' : 'sha1',
  };
}

const infoOf = (file: string): Stats | null => statSync(file, { throwIfNoEntry: false }) ?? null;

const isOurs = (file: string): boolean => infoOf(file)?.uid === process.getuid?.();

/** The text of a small regular file; null for anything else. */
export function readSmall(file: string): string | null {
  let fd: number;
  try {
    // A FIFO would otherwise wait for its writer.
    fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return null;
  }
  try {
    const info = fstatSync(fd);
    return info.isFile() && info.size <= SMALL_BYTES ? readFileSync(fd, 'utf8') : null;
  } finally {
    closeSync(fd);
  }
}

/**
 * The git of a search path. One that this user could have written is passed over: the agent
 * may have put it there, and it would run outside of its nest.
 */
export function findGit(searchPath: string): string | null {
  for (const directory of searchPath.split(path.delimiter)) {
    const file = path.join(directory, 'git');
    if (path.isAbsolute(directory) && isTrusted(directory) && isTrusted(file)) return file;
  }
  return null;
}

function isTrusted(file: string): boolean {
  const uid = process.getuid?.() ?? 0;
  const infos = [lstatSync(file, { throwIfNoEntry: false }), infoOf(file)];
  return infos.every((info) => info && (uid === 0 || info.uid !== uid));
}
