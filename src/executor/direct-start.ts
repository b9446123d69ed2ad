/** How a direct attempt is started: the keeper's command line, and the sending of it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, watch } from 'node:fs';
import { access, constants, copyFile, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { OutliveError } from '../domain/errors.ts';
import { PROCESS_FILE } from './direct-files.ts';
import { markOf } from './direct-tree.ts';
import type { StartRequest } from './port.ts';

/** What timeout adds to the wrapper's own cancel grace before it sends SIGKILL; as for a unit. */
const KILL_MARGIN_MS = 5_000;
/** From the fork to process.json: two small programs and two fsyncs on a machine that may be busy. */
const INTRODUCED_MS = 15_000;
const USUAL_PATH = '/usr/local/bin:/usr/bin:/bin';

/** Where the keeper's files are; all absolute. */
export interface KeeperFiles {
  readonly keeper: string;
  readonly exitRecord: string;
  readonly exits: string;
}

export interface KeeperCommand {
  readonly argv: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

/** Absolute path of a program, null when PATH and the usual directories have none. */
export async function findProgram(name: string, searchPath: string): Promise<string | null> {
  for (const directory of `${searchPath}:${USUAL_PATH}`.split(':')) {
    if (!path.isAbsolute(directory)) continue;
    const file = path.join(directory, name);
    const found = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (found) return file;
  }
  return null;
}

/** The keeper's command and environment; pure. `held` is the directory of the copied credentials. */
export function keeperCommand(
  request: StartRequest,
  files: KeeperFiles,
  held: string | null,
): KeeperCommand {
  const hardMs = Math.max(1, Math.round(request.hardTimeoutMs));
  const graceMs = Math.round(request.cancelGraceMs + KILL_MARGIN_MS);
  return {
    argv: [
      '/bin/sh',
      files.keeper,
      request.attemptDirectory,
      files.exits,
      files.exitRecord,
      String(hardMs),
      String(graceMs),
      held ?? '-',
      markOf(request.nonce),
      ...request.argv,
    ],
    // Spread first: no variable of the caller's can take the place of the identity.
    environment: {
      ...request.environment,
      OUTLIVE_NONCE: request.nonce,
      ...(held === null ? {} : { CREDENTIALS_DIRECTORY: held }),
    },
  };
}

/** Copies the credentials to where they stay as long as the attempt; its keeper removes them. */
export async function holdCredentials(
  { credentials }: StartRequest,
  held: string,
): Promise<string | null> {
  if (credentials.length === 0) return null;
  await mkdir(held, { recursive: true, mode: 0o700 });
  for (const { name, path: from } of credentials) {
    // The copy has the mode of the original, which is 0600.
    await copyFile(from, path.join(held, name));
  }
  return held;
}

/** Waits, from now on, until the keeper has said who it is. @throws when its directory cannot be watched. */
function awaitKeeper(directory: string): { came: Promise<void>; seen(): boolean; stop(): void } {
  const file = path.join(directory, PROCESS_FILE);
  const seen = (): boolean => existsSync(file);
  const { promise: came, resolve } = Promise.withResolvers<void>();
  const watcher = watch(directory, () => seen() && resolve());
  watcher.on('error', () => undefined); // The deadline is then what ends the waiting.
  if (seen()) resolve();
  return { came, seen, stop: () => watcher.close() };
}

/** Resolves with what went wrong with the fork; never when it went well. */
function forkFailed(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(`setsid could not be run: ${error.message}`));
    child.once('exit', (status) => {
      if (status !== 0) resolve(`setsid ended with ${status ?? 'a signal'}`);
    });
  });
}

/**
 * Sends it off under `setsid --fork`: orphaned at once, in a session of its own, holding
 * nothing of ours. @returns why it was not seen to begin; null when it was. Neither is proof.
 * @throws before anything was sent.
 */
export async function sendOff(command: KeeperCommand, directory: string): Promise<string | null> {
  const setsid = await findProgram('setsid', command.environment['PATH'] ?? '');
  if (setsid === null) return 'setsid (util-linux) is not installed';
  const keeper = awaitKeeper(directory);
  let late: NodeJS.Timeout | undefined;
  try {
    const child = spawn(setsid, ['--fork', ...command.argv], {
      cwd: directory,
      env: { ...command.environment },
      stdio: 'ignore',
      detached: true,
    });
    child.unref();
    const overdue = new Promise<string>((resolve) => {
      const text = `nothing introduced itself within ${INTRODUCED_MS / 1000} s`;
      late = setTimeout(() => resolve(text), INTRODUCED_MS);
    });
    const reason = await Promise.race([keeper.came, forkFailed(child), overdue]);
    return keeper.seen() ? null : (reason ?? 'unknown');
  } finally {
    clearTimeout(late);
    keeper.stop();
  }
}

/** As a refusal before anything was sent. */
export function refusal(error: unknown): OutliveError {
  if (error instanceof OutliveError) return error;
  const full = ['ENOSPC', 'EDQUOT'].includes((error as NodeJS.ErrnoException).code ?? '');
  return new OutliveError(full ? 'disk_full' : 'state_dir_unwritable', (error as Error).message, {
    cause: error,
  });
}
