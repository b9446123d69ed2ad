/**
 * One daemon per workspace. Ownership is a kernel lock on a file of its own, held for the
 * process's whole life. `runtime.lock` only describes the owner; nothing is ever decided
 * from it.
 *
 * A description that is found with the lock free is a dead owner's. It is set aside under
 * its name until its takeover is stored: whoever dies in between, somebody stores it.
 */
import { mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { OutliveError } from '../domain/errors.ts';
import { type KernelLock, takeKernelLock } from './kernel-lock.ts';
import {
  ownerText,
  type RuntimeOwner,
  readOwner,
  syncDirectory,
  writeOwner,
} from './owner-file.ts';

const DESCRIPTION = 'runtime.lock';
const SET_ASIDE = `${DESCRIPTION}.dead-`;

export interface RuntimeLock {
  /** Owners that died without a word and whose takeover is not stored yet, oldest first. */
  readonly dead: readonly RuntimeOwner[];
  /** @throws OutliveError `disk_full` or `state_dir_unwritable`. */
  describe(owner: RuntimeOwner): void;
  /** The takeover from this owner is in the store: its description has served its time. */
  forget(dead: RuntimeOwner): void;
  /** An orderly end: the description goes first, so that nobody takes us for dead. */
  release(): void;
}

const unwritable = (directory: string, error: unknown): OutliveError =>
  new OutliveError(
    (error as NodeJS.ErrnoException).code === 'ENOSPC' ? 'disk_full' : 'state_dir_unwritable',
    `${directory}: ${(error as Error).message}. The daemon needs to write there.`,
    { cause: error },
  );

function guarded<Result>(directory: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw unwritable(directory, error);
  }
}

function take(directory: string, file: string): KernelLock | null {
  return guarded(directory, () => {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    return takeKernelLock(path.join(directory, file));
  });
}

const asideName = ({ runtimeInstanceId }: RuntimeOwner): string =>
  SET_ASIDE + encodeURIComponent(runtimeInstanceId).slice(0, 128);

/** The descriptions of dead owners, the one found now among them. */
function setAside(directory: string): readonly RuntimeOwner[] {
  const file = path.join(directory, DESCRIPTION);
  const found = readOwner(file);
  if (found) renameSync(file, path.join(directory, asideName(found)));
  else rmSync(file, { force: true });
  syncDirectory(directory);
  return readdirSync(directory)
    .filter((name) => name.startsWith(SET_ASIDE))
    .map((name) => readOwner(path.join(directory, name)))
    .filter((owner) => owner !== null)
    .sort((a, b) => a.startedAt.localeCompare(b.startedAt));
}

/**
 * Takes the workspace of a state directory or refuses within a moment; never takes over a
 * live owner, however slow it is.
 * @param elsewhere another file that may describe the owner, where this disk had no room.
 * @throws OutliveError `workspace_owned` with the owner, `state_dir_unwritable`, `disk_full`.
 */
export function acquireRuntimeLock(
  stateDirectory: string,
  workspace: string,
  elsewhere?: string,
): RuntimeLock {
  const lock = take(stateDirectory, `${DESCRIPTION}.db`);
  const file = path.join(stateDirectory, DESCRIPTION);
  if (!lock) {
    const owner = readOwner(file) ?? (elsewhere === undefined ? null : readOwner(elsewhere));
    throw new OutliveError(
      'workspace_owned',
      `Another daemon owns workspace "${workspace}" (${ownerText(owner)}). Use it, or stop it first: outlive daemon stop.`,
      { extra: owner ? { owner } : {} },
    );
  }
  try {
    const dead = guarded(stateDirectory, () => setAside(stateDirectory));
    return {
      dead,
      describe: (owner) => guarded(stateDirectory, () => writeOwner(file, owner)),
      forget: (owner) => rmSync(path.join(stateDirectory, asideName(owner)), { force: true }),
      release: () => {
        rmSync(file, { force: true });
        lock.release();
      },
    };
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** What a workspace has once per user manager: its API socket, its drop-in, its unit names. */
export interface HostLock {
  describe(owner: RuntimeOwner): void;
  /**
   * Takes the lock again where its file was removed (a user manager that ended takes
   * `$XDG_RUNTIME_DIR` with it). @throws OutliveError as {@link acquireHostLock}.
   */
  renew(): void;
  release(): void;
}

/** Where the owner of a workspace is described beside the user manager. */
export const hostDescription = (userRuntime: string, workspace: string): string =>
  path.join(userRuntime, 'outlive', `${workspace}.lock`);

/**
 * Takes a workspace on this user manager, whatever its state directory is.
 * @throws OutliveError `workspace_owned` with the other state directory, `state_dir_unwritable`.
 */
export function acquireHostLock(userRuntime: string, workspace: string): HostLock {
  const file = hostDescription(userRuntime, workspace);
  const directory = path.dirname(file);
  const acquire = (): KernelLock => {
    const taken = take(directory, `${workspace}.lock.db`);
    if (taken) return taken;
    const owner = readOwner(file);
    const where = owner?.stateDirectory ? ` with its state in ${owner.stateDirectory}` : '';
    throw new OutliveError(
      'workspace_owned',
      `Another daemon owns workspace "${workspace}" of this user manager${where} (${ownerText(owner)}). Use the same XDG_STATE_HOME, another workspace, or stop it first.`,
      { extra: owner ? { owner } : {} },
    );
  };
  let lock = acquire();
  let described: RuntimeOwner | null = null;
  const describe = (owner: RuntimeOwner): void => {
    described = owner;
    guarded(directory, () => writeOwner(file, owner));
  };
  rmSync(file, { force: true });
  return {
    describe,
    renew: () => {
      if (lock.isInPlace()) return;
      const next = acquire();
      lock.release();
      lock = next;
      if (described) describe(described);
    },
    release: () => {
      // A file that was removed under us may be another's by now.
      if (lock.isInPlace()) rmSync(file, { force: true });
      lock.release();
    },
  };
}
