/** The file of a diff: redacted, and cut with a sentence once it is as long as it may be. */
import { closeSync, openSync } from 'node:fs';
import { DIFF_CUT } from '../domain/attempt-files.ts';
import { floorCharacter } from './bounded-text.ts';
import { writeAll } from './files.ts';
import { type Redact, RedactedStream } from './redact.ts';

export interface DiffFileOptions {
  readonly file: string;
  /** Bytes kept, sentences not counted. */
  readonly limit: number;
  readonly redact: Redact;
  /** Called once, when no more is wanted. */
  readonly onFull: () => void;
}

/** Made with its first byte. Methods throw what the system says. */
export class DiffFile {
  readonly #options: DiffFileOptions;
  readonly #clean: RedactedStream;
  readonly #cuts: string[] = [];
  #fd: number | null = null;
  #kept = 0;
  #full = false;
  #atLineStart = true;

  constructor(options: DiffFileOptions) {
    this.#options = options;
    this.#clean = new RedactedStream(options.redact);
  }

  get isFull(): boolean {
    return this.#full;
  }

  push(bytes: Buffer): void {
    // One byte a character: nothing is lost in what is no text.
    if (!this.#full) this.#keep(this.#clean.push(bytes.toString('latin1')));
  }

  /** Notes that this is not all, and why. */
  cut(why: string): void {
    this.#cuts.push(`${DIFF_CUT}${this.#options.redact(why)} …]\n`);
  }

  finish(): void {
    if (!this.#full) this.#keep(this.#clean.end());
    for (const cut of this.#cuts) this.#write(Buffer.from(this.#atLineStart ? cut : `\n${cut}`));
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
  }

  #keep(text: string): void {
    const bytes = Buffer.from(text, 'latin1');
    const room = this.#options.limit - this.#kept;
    if (bytes.length <= room) {
      this.#kept += bytes.length;
      this.#write(bytes);
      return;
    }
    this.#full = true;
    this.cut(`it is longer than ${this.#options.limit} bytes`);
    this.#write(bytes.subarray(0, floorCharacter(bytes, room)));
    this.#options.onFull();
  }

  #write(bytes: Buffer): void {
    if (bytes.length === 0) return;
    this.#fd ??= openSync(this.#options.file, 'w', 0o600);
    writeAll(this.#fd, bytes);
    this.#atLineStart = bytes.at(-1) === 0x0a;
  }
}
