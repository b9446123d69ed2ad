/** Where the branch of an issue begins, and who has it already. */
import { type Git, treeError } from './git.ts';

/** `origin` where there is one, else the only remote; null for none. */
export async function remoteOf(git: Git): Promise<string | null> {
  const remotes = (await git.must(['remote'])).split('\n').filter((name) => name !== '');
  if (remotes.includes('origin')) return 'origin';
  return remotes.length === 1 ? (remotes[0] ?? null) : null;
}

const isCommit = async (git: Git, ref: string): Promise<boolean> =>
  (await git.run(['rev-parse', '--verify', '--quiet', `${ref}^{commit}`])).ok;

/** What a remote calls its default branch, as far as it is known here. */
async function remoteDefault(git: Git, remote: string): Promise<string | null> {
  const head = await git.line(['symbolic-ref', '--quiet', `refs/remotes/${remote}/HEAD`]);
  if (head !== null && (await isCommit(git, head))) return head;
  return firstCommit(
    git,
    USUAL.map((name) => `refs/remotes/${remote}/${name}`),
  );
}

/** Where nobody says what the default branch is. */
const USUAL = ['main', 'master', 'trunk'];

async function firstCommit(git: Git, refs: readonly string[]): Promise<string | null> {
  for (const ref of refs) if (await isCommit(git, ref)) return ref;
  return null;
}

/**
 * The repository's default branch, as a full name of a ref.
 * @throws OutliveError `work_tree_unavailable`, reason `no_commits`.
 */
export async function defaultBranch(git: Git): Promise<string> {
  const remote = await remoteOf(git);
  const ofRemote = remote === null ? null : await remoteDefault(git, remote);
  if (ofRemote !== null) return ofRemote;
  // What a person has checked out says nothing; of a bare repository HEAD is what it says.
  const isBare = (await git.line(['config', '--bool', 'core.bare'])) === 'true';
  const usual = isBare ? [] : USUAL.map((name) => `refs/heads/${name}`);
  const head = await git.line(['symbolic-ref', '--quiet', 'HEAD']);
  const local = await firstCommit(git, [...usual, head ?? 'HEAD']);
  if (local !== null) return local;
  throw treeError(
    'no_commits',
    'The repository has no commit on its default branch. Make a first commit, or fetch one.',
  );
}

/** Where a new branch begins: where somebody pushed it before, else at the default branch. */
export async function chooseBase(git: Git, branch: string): Promise<string> {
  const remote = await remoteOf(git);
  const pushed = `refs/remotes/${remote}/${branch}`;
  if (remote !== null && (await isCommit(git, pushed))) return pushed;
  return defaultBranch(git);
}

export interface ListedTree {
  readonly path: string;
  /** Full name of the ref; null where none is checked out. */
  readonly branch: string | null;
  readonly isLocked: boolean;
}

/** All work trees as git knows them, the main one among them. */
export async function listedTrees(git: Git): Promise<ListedTree[]> {
  const output = await git.must(['worktree', 'list', '--porcelain', '-z']);
  return output
    .split('\0\0')
    .filter((entry) => entry !== '')
    .map((entry) => {
      const lines = entry.split('\0');
      const after = (word: string): string | null =>
        lines.find((line) => line.startsWith(`${word} `))?.slice(word.length + 1) ?? null;
      const isLocked = lines.some((line) => line === 'locked' || line.startsWith('locked '));
      return { path: after('worktree') ?? '', branch: after('branch'), isLocked };
    });
}

/** The work tree in which a branch is checked out; null for none. */
export async function holderOf(git: Git, branch: string): Promise<string | null> {
  const trees = await listedTrees(git);
  return trees.find((tree) => tree.branch === `refs/heads/${branch}`)?.path ?? null;
}
