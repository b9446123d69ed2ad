/** How the wrapper's process ends, and its way to say why. */
import { writeSync } from 'node:fs';
import { ATTEMPT_FILES, WRAPPER_EXIT } from '../domain/attempt-files.ts';
import type { Ending } from './attempt.ts';
import { errorCode } from './files.ts';

/** Ends the process as the last word asks. */
export function leave(ending: Ending): never {
  if (ending === 'stopped') raise();
  if (ending === 'spool_lost')
    exit(WRAPPER_EXIT.spoolLost, `no last word in ${ATTEMPT_FILES.spool}`);
  process.exit(ending === 'ok' ? 0 : WRAPPER_EXIT.runnerFailed);
}

/** Dies of the signal that told it to stop. */
function raise(): never {
  process.removeAllListeners('SIGTERM');
  process.kill(process.pid, 'SIGTERM');
  // Still here: as init of a pid namespace one cannot die of it. A shell would exit so.
  process.exit(128 + 15);
}

/** What `act` returns; when it throws, the process ends with this status and the reason. */
export function orExit<T>(status: number | ((error: unknown) => number), act: () => T): T {
  try {
    return act();
  } catch (error) {
    const known = typeof status === 'number' ? status : status(error);
    return exit(known, error instanceof Error ? error.message : errorCode(error));
  }
}

export function exit(status: number, why: string): never {
  warn(why);
  process.exit(status);
}

/** Says a sentence to the journal; whether anybody hears it never matters. */
export function warn(sentence: string): void {
  try {
    writeSync(2, `outlive-attempt: ${sentence}\n`);
  } catch {
    // Nobody listens: the journal is gone, the run is not.
  }
}
