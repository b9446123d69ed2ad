/** The daemon's log, which is the journal's. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { promisify } from 'node:util';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { daemonUnitName } from '../domain/names.ts';
import type { DaemonContext } from './daemon-host.ts';
import { sanitize } from './sanitize.ts';

const JOURNALCTL_MS = 10_000;

/** The newest lines of a unit; a line that says why when there are none to be had. */
export async function lastJournalLines(unit: string, count: number): Promise<string[]> {
  const argv = ['--user', '-u', unit, '-n', String(count), '--no-pager', '-o', 'cat'];
  try {
    const { stdout } = await promisify(execFile)('journalctl', argv, { timeout: JOURNALCTL_MS });
    return sanitize(stdout.trimEnd()).split('\n');
  } catch (error) {
    return [`(the journal cannot be read: ${sanitize((error as Error).message)})`];
  }
}

export interface LogsOptions {
  readonly follow?: boolean;
  readonly lines: string;
}

/** `outlive daemon logs`: hands the terminal to journalctl. */
export async function daemonLogs(
  { config }: DaemonContext,
  { follow, lines }: LogsOptions,
): Promise<number> {
  if (!/^\d{1,7}$/.test(lines)) {
    throw new OutliveError('usage', `-n "${lines}" is not a number of lines, as in -n 50.`);
  }
  const argv = ['--user', '-u', daemonUnitName(config.workspace), '-n', lines, '--no-pager'];
  const child = spawn('journalctl', follow ? [...argv, '-f'] : argv, { stdio: 'inherit' });
  try {
    const [code] = (await once(child, 'exit')) as [number | null];
    // Ended by a signal: the reader went away (| head), which is no failure.
    return code === null || code === 0 ? EXIT.ok : EXIT.failed;
  } catch (error) {
    throw new OutliveError(
      'no_user_manager',
      `The log is in the journal, and journalctl cannot be run: ${(error as Error).message}. A daemon that was started without systemd logs to ${path.join(config.directories.state, 'outlived.log')}.`,
    );
  }
}
