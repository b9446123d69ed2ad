/** Joins many small pieces of text into few: one at a time, by age and by size. */

export interface CoalescerOptions {
  /** Longest time a piece waits, milliseconds. */
  readonly flushMs: number;
  /** Longest piece, UTF-16 units (as JSON at most six times that many bytes). */
  readonly maxLength: number;
  readonly emit: (text: string) => void;
}

export class DeltaCoalescer {
  readonly #options: CoalescerOptions;
  #pending = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(options: CoalescerOptions) {
    this.#options = options;
  }

  push(text: string): void {
    this.#pending += text;
    this.#emitFullPieces();
    if (this.#pending !== '') this.#timer ??= setTimeout(() => this.#tick(), this.#options.flushMs);
  }

  /** Emits what waits; call it before anything that must stand after the text. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const text = this.#pending;
    this.#pending = '';
    if (text !== '') this.#options.emit(text);
  }

  #tick(): void {
    this.#timer = undefined;
    // The second half of a character may still come: it would be lost to readers of single pieces.
    const end = endsInHalf(this.#pending, this.#pending.length) ? -1 : this.#pending.length;
    const text = this.#pending.slice(0, end);
    this.#pending = this.#pending.slice(text.length);
    if (text !== '') this.#options.emit(text);
  }

  #emitFullPieces(): void {
    const { maxLength, emit } = this.#options;
    let start = 0;
    while (this.#pending.length - start >= maxLength) {
      const end = start + maxLength;
      const cut = endsInHalf(this.#pending, end) ? end - 1 : end;
      emit(this.#pending.slice(start, cut));
      start = cut;
    }
    if (start > 0) this.#pending = this.#pending.slice(start);
  }
}

/** Whether a piece that ends before `end` would end in the first half of a surrogate pair. */
function endsInHalf(text: string, end: number): boolean {
  const last = text.charCodeAt(end - 1);
  return last >= 0xd800 && last <= 0xdbff;
}
