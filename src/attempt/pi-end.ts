/** The two ways a Pi process is brought to its end. Both are bounded and end with no Pi alive. */
import { Budget, within } from './clock.ts';
import type { PiRpc } from './pi-rpc.ts';
import type { ProgramEnd } from './program.ts';

// Pi needed 0.03 to 0.27 s to exit in every case measured.
const EXIT_MS = 5_000;
const TERMINATED_MS = 2_000;
// After SIGKILL only a process in uninterruptible sleep is still there: systemd's business.
const KILLED_MS = 2_000;

const UNKNOWN_END: ProgramEnd = { exitCode: null, signal: 'SIGKILL', error: null };

/** Ends an idle Pi: end of input closes its session; signals follow if it does not go. */
export async function closePi(rpc: PiRpc): Promise<ProgramEnd> {
  rpc.closeInput();
  return endBy(rpc, EXIT_MS, TERMINATED_MS);
}

/**
 * Ends a working Pi within the grace: queued messages go, the run is aborted (and
 * written down as such in the session), `last` may ask something, then as above.
 * A Pi without a run skips to the end of its input.
 */
export async function abortPi(
  rpc: PiRpc,
  running: boolean,
  graceMs: number,
  last: (ms: number) => Promise<void>,
): Promise<ProgramEnd> {
  const budget = new Budget(graceMs);
  if (running) {
    // The other way round, a queued message would start another turn.
    await rpc.request('clear_queue', {}, budget.until(0.3));
    const aborted = await rpc.request('abort', {}, budget.until(0.5));
    if (aborted.kind === 'ok') await last(budget.until(0.6));
  }
  rpc.closeInput();
  const exitMs = budget.until(0.8);
  return endBy(rpc, exitMs, budget.until(1) - exitMs);
}

async function endBy(rpc: PiRpc, exitMs: number, terminatedMs: number): Promise<ProgramEnd> {
  let end = await within(rpc.ended, exitMs);
  if (end !== 'late') return end;
  rpc.kill('SIGTERM');
  end = await within(rpc.ended, terminatedMs);
  if (end !== 'late') return end;
  rpc.kill('SIGKILL');
  end = await within(rpc.ended, KILLED_MS);
  return end === 'late' ? UNKNOWN_END : end;
}
