/** Where the files of this installation lie: the same from src/ (tsx) and from dist/. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');

/** Where this installation lies. */
export const CHECKOUT = root;

/** The wrapper always runs from dist/: its start-up is paid on every attempt. */
export const WRAPPER = path.join(root, 'dist', 'attempt', 'main.js');

/** Beside the wrapper: tries a nest out, where the wrapper would open one. */
export const SANDBOX_PROBE = path.join(root, 'dist', 'attempt', 'sandbox-probe.js');

/**
 * Node's flags for the daemon. Most of what it allocates is an event on its way and dies at
 * once: a young generation of 2 MiB halves instead of 16 is cleared more often and in no
 * time, and is a quarter less memory for a process that is there all day.
 */
export const DAEMON_NODE_FLAGS: readonly string[] = ['--max-semi-space-size=2'];

/** Text of the exit-record script, read once: a deploy may replace the file under us. */
export function exitRecordScript(): string {
  return readFileSync(path.join(root, 'ops', 'units', 'exit-record.sh'), 'utf8');
}

/** Text of the script that keeps a direct attempt, read once like the other. */
export function keeperScript(): string {
  return readFileSync(path.join(root, 'ops', 'units', 'direct-attempt.sh'), 'utf8');
}

/** The Pi CLI this outlive depends on, run by our own node. */
export function bundledPi(node: string): readonly string[] {
  // The package exports no path to its CLI; it lies beside the entry that it does export.
  const entry = fileURLToPath(import.meta.resolve('@earendil-works/pi-coding-agent/rpc-entry'));
  return [node, path.join(path.dirname(entry), 'cli.js')];
}
