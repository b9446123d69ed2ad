/**
 * Keeps the head and the tail of an endless stream of bytes in a file of bounded
 * size. Until the bound is reached every byte is on the disk at once; from then on
 * the tail is in memory and written at the end, after a note of what was cut.
 */
import { closeSync, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';
import { ceilCharacter, cutNote, floorCharacter } from './bounded-text.ts';
import { errorCode, writeAll } from './files.ts';
import { type Redact, RedactedStream } from './redact.ts';
import { TailRing } from './tail-ring.ts';

export interface CaptureOptions {
  readonly file: string;
  /** Bytes kept, note not counted. */
  readonly limit: number;
  /** How many of them are the head's. */
  readonly head: number;
  readonly redact: Redact;
  readonly warn: (sentence: string) => void;
}

export class Capture {
  readonly #options: CaptureOptions;
  readonly #tail: TailRing;
  readonly #clean: RedactedStream;
  #fd: number | null = null;
  #seen = 0;
  /** Bytes that were given to file and tail. */
  #kept = 0;

  constructor(options: CaptureOptions) {
    this.#options = options;
    this.#tail = new TailRing(options.limit - options.head);
    this.#clean = new RedactedStream(options.redact);
    this.#guard(() => {
      this.#fd = openSync(options.file, 'w+', 0o600);
    });
  }

  /** Bytes that came. */
  get seen(): number {
    return this.#seen;
  }

  push(bytes: Buffer): void {
    this.#seen += bytes.length;
    // One byte a character: nothing is lost in what is no text.
    this.#keep(this.#clean.push(bytes.toString('latin1')));
  }

  #keep(text: string): void {
    const bytes = Buffer.from(text, 'latin1');
    this.#tail.push(bytes);
    const room = this.#options.limit - this.#kept;
    this.#kept += bytes.length;
    if (room <= 0 || bytes.length === 0) return;
    this.#onFile((fd) => writeAll(fd, bytes.subarray(0, room)));
  }

  /** The last `maxBytes` that came, as text; of a secret that is coming in, nothing. */
  tailText(maxBytes: number): string {
    this.#keep(this.#clean.end());
    const bytes = this.#tail.bytes();
    const start = Math.max(0, bytes.length - maxBytes);
    return bytes.toString(
      'utf8',
      this.#kept > bytes.length - start ? ceilCharacter(bytes, start) : 0,
    );
  }

  /** Makes the file what it should be and closes it. */
  finish(): void {
    this.#keep(this.#clean.end());
    this.#onFile((fd) => {
      if (this.#kept > this.#options.limit) this.#writeCut(fd);
      closeSync(fd);
    });
    this.#fd = null;
  }

  #writeCut(fd: number): void {
    const head = this.#headEnd(fd);
    const tail = this.#tail.bytes();
    const start = ceilCharacter(tail, 0);
    const cut = this.#kept - head - (tail.length - start);
    ftruncateSync(fd, head);
    const note = Buffer.from(`${head > 0 ? '\n' : ''}${cutNote(cut)}\n`);
    writeSync(fd, note, 0, note.length, head);
    const rest = tail.subarray(start);
    for (let done = 0; done < rest.length; ) {
      done += writeSync(fd, rest, done, rest.length - done, head + note.length + done);
    }
  }

  /** Where the head ends without half a character. */
  #headEnd(fd: number): number {
    const { head } = this.#options;
    const from = Math.max(0, head - 4);
    const end = Buffer.alloc(head - from);
    readSync(fd, end, 0, end.length, from);
    return from + floorCharacter(end, end.length);
  }

  #onFile(act: (fd: number) => void): void {
    const fd = this.#fd;
    if (fd !== null) this.#guard(() => act(fd));
  }

  /** A log that cannot be written is worth a sentence, never the run. */
  #guard(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#fd = null;
      this.#options.warn(`${this.#options.file} is not complete: ${errorCode(error)}`);
    }
  }
}
