/** How much of a command's output may go into the spool; the rest is only in the logs' head and tail. */
import type { Emit } from './event-data.ts';

/** Bytes of deltas per attempt, lines' own overhead counted. */
export const OUTPUT_BUDGET_BYTES = 8 * 1024 * 1024;
const LINE_OVERHEAD_BYTES = 120;

export class OutputBudget {
  readonly #emit: Emit;
  readonly #signOfLifeMs: number;
  #left: number;
  #dropped = 0;
  #said = Number.NEGATIVE_INFINITY;

  /** `signOfLifeMs`: how often a command that prints on beyond the budget is said to be alive. */
  constructor(emit: Emit, signOfLifeMs: number, budgetBytes = OUTPUT_BUDGET_BYTES) {
    this.#emit = emit;
    this.#signOfLifeMs = signOfLifeMs;
    this.#left = budgetBytes;
  }

  /** Emits a delta as long as there is budget; then says, now and again, that there is none. */
  delta(type: 'stdout_delta' | 'stderr_delta', text: string): void {
    const bytes = Buffer.byteLength(text);
    this.#left -= bytes + LINE_OVERHEAD_BYTES;
    if (this.#left >= 0) this.#emit(type, { text });
    else this.#drop(bytes);
  }

  #drop(bytes: number): void {
    this.#dropped += bytes;
    // Without it a command that prints on would look idle.
    if (performance.now() - this.#said < this.#signOfLifeMs) return;
    this.#said = performance.now();
    this.#emit('progress', {
      kind: 'output_dropped',
      message:
        'It prints too much to keep all of it: only head and tail are in the logs from here on',
      droppedBytes: this.#dropped,
    });
  }
}
