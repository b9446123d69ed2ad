/**
 * One maker of work trees at a time in a repository, whichever daemon it is of. A flock(2)
 * belongs to an open file, not to a process: flock(1) takes it for us on a descriptor that we
 * share with it, and every git command that inherits the descriptor keeps it, so that the lock
 * is free when the last of them is gone and no sooner, however we end.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import path from 'node:path';
import { treeError } from './git.ts';

/** Exit status of flock(1) that waited for nothing. */
const TIMED_OUT = 1;

function take(fd: number, seconds: number): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const child = spawn('flock', ['--exclusive', '--wait', String(seconds), '3'], {
    stdio: ['ignore', 'ignore', 'ignore', fd],
    env: { PATH: '/usr/local/bin:/usr/bin:/bin' },
  });
  child.once('error', reject);
  child.once('close', (status) => resolve(status ?? -1));
  return promise;
}

/**
 * Does `work` alone in a repository; it is given the descriptor to hand on.
 * @param repository the git directory that all its work trees share, without links.
 * @param seconds how long somebody else is waited for.
 * @throws OutliveError `work_tree_unavailable`, reason `repository_busy`.
 */
export async function withRepository<Result>(
  directory: string,
  repository: string,
  seconds: number,
  work: (fd: number) => Promise<Result>,
): Promise<Result> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const name = createHash('sha256').update(repository).digest('hex').slice(0, 32);
  const fd = openSync(path.join(directory, `${name}.lock`), 'a', 0o600);
  try {
    const status = await take(fd, seconds);
    if (status === TIMED_OUT) {
      throw treeError(
        'repository_busy',
        `Another work tree of ${repository} has been in the making for more than ${seconds} s. Look for a git that hangs.`,
      );
    }
    if (status !== 0) throw treeError('git_failed', `flock(1) ended with status ${status}.`);
    return await work(fd);
  } finally {
    closeSync(fd);
  }
}
