/** A machine without systemd, as far as a process can tell: a PATH that has all but its tools, and no bus. */
import { mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { Registry } from '../../src/executor/direct-files.ts';
import { markOf, scanTree } from '../../src/executor/direct-tree.ts';
import { signalProcess } from '../../src/executor/process-table.ts';

const SYSTEMDS = /^(systemctl|systemd.*|loginctl|busctl|journalctl|dbus.*|machinectl|runlevel)$/;

/** Makes a directory of links to every program there is but systemd's, and returns it as a PATH. */
export function pathWithoutSystemd(base: string): string {
  const bin = path.join(base, 'bin');
  mkdirSync(bin, { recursive: true });
  symlinkSync(process.execPath, path.join(bin, 'node'));
  for (const directory of ['/usr/bin', '/bin']) {
    for (const name of readdirSync(directory)) {
      if (SYSTEMDS.test(name)) continue;
      try {
        symlinkSync(path.join(directory, name), path.join(bin, name));
      } catch {
        // The first of a name wins, as on any PATH.
      }
    }
  }
  return bin;
}

/** Kills whatever the direct executor of this directory still keeps. */
export async function killDirectAttempts(directory: string): Promise<void> {
  for (const unit of await new Registry(directory).units())
    await killDirectAttempt(directory, unit);
}

/** Kills one attempt of it, keeper included: it leaves no record of its end. */
export async function killDirectAttempt(directory: string, unit: string): Promise<void> {
  const entry = await new Registry(directory).get(unit);
  if (!entry) return;
  const { core, marked } = await scanTree(markOf(entry.nonce), entry.nonce);
  // Its keeper must not see the others die, and write that down.
  for (const signal of [19, 9]) {
    await Promise.all([...core, ...marked].map((each) => signalProcess(each, signal)));
  }
}
