/** A file that only takes room: removed when the disk is full, so that the last word fits. */
import { rmSync, writeFileSync } from 'node:fs';

// One line of the spool at its longest, and some blocks.
const RESERVE_BYTES = 96 * 1024;

export class Reserve {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
    try {
      writeFileSync(file, Buffer.alloc(RESERVE_BYTES), { mode: 0o600, flag: 'wx' });
    } catch {
      // No room for a reserve: the run may still fit, and says so itself when not.
      this.release();
    }
  }

  release(): void {
    rmSync(this.#file, { force: true });
  }
}
