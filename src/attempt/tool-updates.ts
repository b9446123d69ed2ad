/**
 * Live output of running tools. Pi reports it as snapshots of all (or the last
 * 50 KB) that was printed; the spool gets only what is new, seldom and bounded, or
 * it would grow with the square of the output.
 */
import { tailOf } from './bounded-text.ts';
import type { EventData } from './event-data.ts';

const EVERY_MS = 1_000;
const DELTA_BYTES = 4 * 1024;

interface RunningTool {
  readonly tool: string;
  /** The snapshot that the spool knows. */
  told: string;
  /** The newest one. */
  latest: string;
  /** Whether a snapshot came that was not told yet. */
  fresh: boolean;
  timer: NodeJS.Timeout | undefined;
}

export class ToolUpdates {
  readonly #running = new Map<string, RunningTool>();
  readonly #emit: (data: EventData['tool.update']) => void;

  constructor(emit: (data: EventData['tool.update']) => void) {
    this.#emit = emit;
  }

  /** Takes a snapshot: the first is told at once, then at most one a second. */
  snapshot(toolCallId: string, tool: string, text: string): void {
    const running = this.#running.get(toolCallId) ?? newTool(tool);
    this.#running.set(toolCallId, running);
    running.latest = text;
    running.fresh = true;
    if (running.timer === undefined) this.#tell(toolCallId, running);
  }

  /** The tool has ended: its result says the rest. */
  end(toolCallId: string): void {
    clearTimeout(this.#running.get(toolCallId)?.timer);
    this.#running.delete(toolCallId);
  }

  /** Forgets all tools, and their timers. */
  dispose(): void {
    for (const toolCallId of [...this.#running.keys()]) this.end(toolCallId);
  }

  #tell(toolCallId: string, running: RunningTool): void {
    running.timer = undefined;
    if (!running.fresh) return;
    running.fresh = false;
    const news = running.latest.slice(overlap(running.told, running.latest));
    running.told = running.latest;
    running.timer = setTimeout(() => this.#tell(toolCallId, running), EVERY_MS);
    // Told also when nothing looks new: a tool that repeats itself is not idle.
    const delta = tailOf(news, DELTA_BYTES);
    const skippedBytes = Buffer.byteLength(news) - Buffer.byteLength(delta);
    this.#emit({ toolCallId, tool: running.tool, delta, skippedBytes });
  }
}

const newTool = (tool: string): RunningTool => ({
  tool,
  told: '',
  latest: '',
  fresh: false,
  timer: undefined,
});

/**
 * How much of the beginning of `next` is the end of `before`, at most: all of
 * `before` while the tool's output only grows, less once its window slides.
 * Knuth, Morris, Pratt: linear.
 */
export function overlap(before: string, next: string): number {
  if (next.startsWith(before)) return before.length;
  const borders = bordersOf(next);
  let length = 0;
  for (let at = Math.max(0, before.length - next.length); at < before.length; at++) {
    while (length > 0 && next[length] !== before[at]) length = borders[length - 1] ?? 0;
    if (next[length] === before[at]) length++;
  }
  return length;
}

/** For each prefix the length of its longest proper border. */
function bordersOf(text: string): Uint32Array {
  const borders = new Uint32Array(text.length);
  let length = 0;
  for (let at = 1; at < text.length; at++) {
    while (length > 0 && text[length] !== text[at]) length = borders[length - 1] ?? 0;
    if (text[length] === text[at]) length++;
    borders[at] = length;
  }
  return borders;
}
