/** A daemon without a user manager: a process in a session of its own, with a log file. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, openSync, watch } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { RuntimeView } from '../api/schemas.ts';
import { daemonEnvironment, writeCredentials } from './daemon-environment.ts';
import type { DaemonContext } from './daemon-host.ts';
import { sanitize } from './sanitize.ts';

/** As for its unit: recovery comes before the first answer, the daemon's own grace before its end. */
const START_MS = 90_000;
const STOP_MS = 100_000;
/** A socket that is there may not be answered on yet, and no event tells when. */
const ASK_AGAIN_MS = 200;
const LOG_LINES = 20;

export const detachedLog = ({ config }: Pick<DaemonContext, 'config'>): string =>
  path.join(config.directories.state, 'outlived.log');

/** Spawned so that it lives on when we are gone, whatever becomes of our terminal. */
function spawnDaemon(
  context: DaemonContext,
  main: string,
  environment: Readonly<Record<string, string>>,
): ChildProcess {
  const { config } = context;
  mkdirSync(config.directories.state, { recursive: true, mode: 0o700 });
  const log = openSync(detachedLog(context), 'a', 0o600);
  const child = spawn(process.execPath, [main, '--workspace', config.workspace], {
    cwd: '/',
    env: { ...environment },
    stdio: ['ignore', log, log],
    detached: true, // setsid(2)
  });
  child.unref();
  return child;
}

/** Its end, for a daemon that does not come up: a status, a signal, or why it could not be run. */
function untilEnd(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (status, signal) => resolve(signal ?? `status ${status}`));
  });
}

/** Asks whenever something changes beside the socket, until it answers or has ended. */
async function untilAnswer(
  ask: () => Promise<RuntimeView | null>,
  socket: string,
  ended: Promise<string>,
): Promise<RuntimeView | string> {
  const directory = path.dirname(socket);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  let changed = Promise.withResolvers<void>();
  const watcher = watch(directory, () => changed.resolve());
  const deadline = performance.now() + START_MS;
  try {
    while (performance.now() < deadline) {
      const answer = await ask();
      if (answer) return answer;
      const end = await Promise.race([ended, changed.promise, pause(ASK_AGAIN_MS)]);
      if (typeof end === 'string') return end;
      changed = Promise.withResolvers<void>();
    }
    return 'it was given enough time';
  } finally {
    watcher.close();
  }
}

/**
 * Starts it and returns once it answers. `ask` gives null while nobody listens.
 * @returns what it answered, or the end of its log when it did not come up.
 */
export async function startDetached(
  context: DaemonContext,
  main: string,
  ask: () => Promise<RuntimeView | null>,
): Promise<RuntimeView | { readonly why: string; readonly log: readonly string[] }> {
  const { config, env } = context;
  const files = await writeCredentials(config);
  const [first] = files.credentials;
  try {
    const child = spawnDaemon(context, main, {
      ...daemonEnvironment(config, env),
      // Read once, at its start; then the files go.
      ...(first ? { CREDENTIALS_DIRECTORY: path.dirname(first.path) } : {}),
    });
    const answer = await untilAnswer(ask, config.directories.apiSocket, untilEnd(child));
    if (typeof answer !== 'string') return answer;
    const text = await readFile(detachedLog(context), 'utf8').catch(() => '');
    return { why: answer, log: sanitize(text.trimEnd()).split('\n').slice(-LOG_LINES) };
  } finally {
    await files.remove();
  }
}

/** Stops the daemon that has just told its pid on its own socket. True once it is gone. */
export async function stopDetached({ pid }: RuntimeView): Promise<boolean> {
  process.kill(pid, 'SIGTERM');
  const deadline = performance.now() + STOP_MS;
  while (performance.now() < deadline) {
    if (!isAlive(pid)) return true;
    await pause(ASK_AGAIN_MS); // It is no child of ours: no event tells of its end.
  }
  return false;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
