/** Waiting for the rest of a program's output once it has ended. */
import type { ChildProcess } from 'node:child_process';

// Long enough for a loaded machine, short enough for a person.
const SILENCE_MS = 250;
const LONGEST_MS = 2_000;

/** How the wait ended: all was read, or somebody else still holds the pipes. */
export type Drained = 'closed' | 'held';

/**
 * Call at the program's `exit`. What it printed is in the pipes then, so it is read
 * at the next turns of the event loop; end of file comes only when nobody holds the
 * other end, and a process left behind may hold it for ever. So: until `close`, or
 * until nothing more comes.
 */
export function drainOutput(
  child: ChildProcess,
  closed: Promise<void>,
  seen: () => number,
): Promise<Drained> {
  return new Promise((resolve) => {
    const started = performance.now();
    let before = seen();
    let timer = setTimeout(check, SILENCE_MS);
    void closed.then(() => {
      clearTimeout(timer);
      resolve('closed');
    });
    function check(): void {
      // Timers run before the poll for input: only after one more poll is silence silence.
      setImmediate(() => {
        const quiet = seen() === before;
        before = seen();
        if (!quiet && performance.now() - started < LONGEST_MS) {
          timer = setTimeout(check, SILENCE_MS);
          return;
        }
        child.stdout?.destroy();
        child.stderr?.destroy();
        resolve('held');
      });
    }
  });
}
