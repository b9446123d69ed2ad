/**
 * The attempt wrapper: `node dist/attempt/main.js <attempt directory>`, the main
 * process of an attempt's unit. The order of its acts is the point of this file.
 *
 * It ends with 0 only when the last word is `ok`; by SIGTERM when it was told to
 * stop, so that systemd does not see a success; with 1 when the last word is an
 * error (the hard deadline too); else with a status of WRAPPER_EXIT.
 */
import { readFileSync } from 'node:fs';
import { uptime } from 'node:os';
import { type LaunchFile, WRAPPER_EXIT } from '../domain/attempt-files.ts';
import { Attempt } from './attempt.ts';
import { claimAttempt } from './claim.ts';
import { processAge } from './deadline.ts';
import type { WrapperEnvironment } from './env.ts';
import { exit, leave, orExit, warn } from './exit.ts';
import { errorCode, isDiskFull } from './files.ts';
import { readLaunchFile } from './launch-file.ts';

const ageMs = processAge();
const bornAt = Math.round((uptime() - ageMs() / 1000) * 100) / 100;
const directory = process.argv[2] ?? '';
const environment: WrapperEnvironment = {
  nonce: process.env['OUTLIVE_NONCE'],
  invocationId: process.env['INVOCATION_ID'],
  credentialsDirectory: process.env['CREDENTIALS_DIRECTORY'],
  mark: process.env['OUTLIVE_MARK'],
};

// Nothing below yields before the runner runs: a signal that comes meanwhile waits for its handler.
process.on('SIGTERM', () => attempt.terminate());
process.on('uncaughtException', (error) => attempt.crash(error));

const launch = orExit(WRAPPER_EXIT.badLaunchFile, () =>
  readLaunchFile(directory, environment.nonce),
);
claim(launch);
const attempt = orExit(spoolStatus, () => open(launch));
leave(await attempt.run());

/** A full disk has a status of its own: it is no fault of the attempt's. */
function spoolStatus(error: unknown): number {
  return isDiskFull(errorCode(error)) ? WRAPPER_EXIT.diskFull : WRAPPER_EXIT.noSpool;
}

function claim({ nonce }: LaunchFile): void {
  const { pid } = process;
  const invocationId = environment.invocationId ?? null;
  const result = orExit(spoolStatus, () =>
    claimAttempt(directory, { v: 1, by: 'wrapper', nonce, invocationId, pid }),
  );
  if (!result.won) exit(WRAPPER_EXIT.claimLost, `the attempt is not ours: ${result.winner}`);
}

function open({ attemptId, workUnitId, nonce, runnerId }: LaunchFile): Attempt {
  const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  const invocationId = environment.invocationId ?? null;
  const { pid } = process;
  const opened = { attemptId, workUnitId, nonce, invocationId, bootId, uptimeSeconds: bornAt, pid };
  const setting = { directory, launch, environment, ageMs, warn };
  return new Attempt(setting, { ...opened, runner: runnerId });
}
