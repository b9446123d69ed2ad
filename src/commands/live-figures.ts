/** What the status line shows, added up from the events themselves: nothing is polled. */
import type { EventView } from '../api/schemas.ts';
import { formatDuration } from './duration.ts';
import { numberOf, stringOf, toolCallText } from './event-data.ts';
import { sanitizeLine } from './sanitize.ts';

export class LiveFigures {
  readonly #handle: string;
  readonly #hardTimeoutMs: number;
  /** Start of the current attempt, milliseconds since the epoch by the daemon's clock. */
  #startedAt: number | null = null;
  /** Calls in flight, oldest first. */
  readonly #tools = new Map<string, string>();
  #costUsd = 0;

  constructor(handle: string, hardTimeoutMs: number) {
    this.#handle = handle;
    this.#hardTimeoutMs = hardTimeoutMs;
  }

  push({ type, ts, data }: EventView): void {
    const call = stringOf(data, 'toolCallId') ?? '';
    if (type === 'attempt.opened') {
      this.#startedAt = Date.parse(ts);
      this.#tools.clear();
    } else if (type === 'tool.start') {
      this.#tools.set(call, toolCallText(data));
    } else if (type === 'tool.end') {
      this.#tools.delete(call);
    } else if (type === 'agent.message') {
      this.#costUsd += numberOf(data, 'costUsd') ?? 0;
    }
  }

  /** `issue42 · 2m 13s / 1h · bash: npm test · $0.12`. `now` is milliseconds since the epoch. */
  line(now: number, isAway: boolean): string {
    const parts = [this.#handle];
    if (this.#startedAt === null) parts.push('waiting to start');
    else {
      // Whole seconds, so that the line does not jitter; the clocks are the same machine's.
      const elapsed = Math.max(0, Math.floor((now - this.#startedAt) / 1_000)) * 1_000;
      const shown = elapsed === 0 ? '0s' : formatDuration(elapsed);
      parts.push(`${shown} / ${formatDuration(this.#hardTimeoutMs)}`);
    }
    if (isAway) parts.push('daemon away, the run goes on; waiting');
    else parts.push(...this.#toolPart());
    if (this.#costUsd > 0) parts.push(formatCost(this.#costUsd));
    return parts.join(' · ');
  }

  #toolPart(): string[] {
    const names = [...this.#tools.values()];
    const newest = names.at(-1);
    if (newest === undefined) return [];
    const others = names.length > 1 ? ` (+${names.length - 1})` : '';
    return [sanitizeLine(newest).slice(0, 60) + others];
  }
}

/** US dollars with cents, and with more digits where cents would say nothing. */
export function formatCost(usd: number): string {
  return `$${usd >= 1 || usd === 0 ? usd.toFixed(2) : usd.toPrecision(2)}`;
}
