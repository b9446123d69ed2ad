/** The last bytes of a stream, at a fixed cost. */
export class TailRing {
  readonly #ring: Buffer;
  #at = 0;
  #full = false;

  constructor(size: number) {
    this.#ring = Buffer.alloc(size);
  }

  push(bytes: Buffer): void {
    const kept = bytes.subarray(Math.max(0, bytes.length - this.#ring.length));
    const first = kept.subarray(0, this.#ring.length - this.#at);
    this.#ring.set(first, this.#at);
    this.#ring.set(kept.subarray(first.length), 0);
    if (this.#at + kept.length >= this.#ring.length) this.#full = true;
    this.#at = this.#ring.length === 0 ? 0 : (this.#at + kept.length) % this.#ring.length;
  }

  /** A copy of what is kept, oldest first. */
  bytes(): Buffer {
    const older = this.#full ? this.#ring.subarray(this.#at) : this.#ring.subarray(0, 0);
    return Buffer.concat([older, this.#ring.subarray(0, this.#at)]);
  }
}
