/**
 * Splits a byte stream into lines at LF only. Generic line readers also split at
 * U+2028 and U+2029, which occur raw inside JSON strings; and text decoded chunk
 * by chunk breaks characters that lie across two chunks. So: bytes until a line
 * is whole.
 */

const LF = 0x0a;
const CR = 0x0d;

/** Somebody sent a line longer than anybody should hold in memory. */
export class LineTooLong extends Error {
  constructor(limit: number) {
    super(`a line of more than ${limit} bytes`);
    this.name = 'LineTooLong';
  }
}

export class LineSplitter {
  readonly #limit: number;
  #parts: Buffer[] = [];
  #held = 0;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  /** The lines that this chunk completes, without their LF (or CR LF). Throws LineTooLong. */
  push(chunk: Buffer): Buffer[] {
    const lines: Buffer[] = [];
    let start = 0;
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, start)) {
      this.#hold(chunk.subarray(start, end));
      lines.push(this.#take());
      start = end + 1;
    }
    this.#hold(chunk.subarray(start));
    return lines;
  }

  /** What came after the last LF, null when there was nothing. */
  end(): Buffer | null {
    return this.#held === 0 ? null : this.#take();
  }

  #hold(part: Buffer): void {
    this.#held += part.length;
    if (this.#held > this.#limit) throw new LineTooLong(this.#limit);
    if (part.length > 0) this.#parts.push(part);
  }

  #take(): Buffer {
    const [first] = this.#parts;
    const line = this.#parts.length === 1 && first ? first : Buffer.concat(this.#parts);
    this.#parts = [];
    this.#held = 0;
    return line.at(-1) === CR ? line.subarray(0, -1) : line;
  }
}
