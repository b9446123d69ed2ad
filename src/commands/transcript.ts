/** Events turned into what a person reads of a run, in order. Pure: it prints nothing. */
import type { EventView } from '../api/schemas.ts';
import type { RunnerId } from '../domain/work-unit.ts';
import { formatDuration } from './duration.ts';
import { numberOf, stringOf, toolCallText } from './event-data.ts';
import { noteOf } from './event-notes.ts';
import { sanitize, sanitizeLine } from './sanitize.ts';
import { truncate } from './table.ts';

/**
 * `raw_*` is a command's own output, byte for byte and possibly ending in mid-line;
 * every other kind is one whole line without its line feed, safe for a terminal.
 */
export interface Piece {
  readonly kind:
    | 'text'
    | 'thought'
    | 'tool'
    | 'tool_output'
    | 'tool_failed'
    | 'note'
    | 'raw_stdout'
    | 'raw_stderr';
  readonly text: string;
}

type Line = Piece['kind'];

export class Transcript {
  readonly #runnerId: RunnerId;
  readonly #toolOutput: boolean;
  /** A line still being said: which stream says it, and its start. */
  #open: { key: string; kind: Line; text: string } | null = null;
  #message = 0;
  #messageText = '';

  /** `toolOutput`: also what tools print while they run. */
  constructor(runnerId: RunnerId, { toolOutput }: { toolOutput: boolean }) {
    this.#runnerId = runnerId;
    this.#toolOutput = toolOutput;
  }

  /** What the model said in its last message with text, as far as it was handed out. */
  get lastMessage(): string {
    return this.#messageText;
  }

  /** The pieces this event completes. */
  push(event: EventView): Piece[] {
    const { type, data } = event;
    if (type === 'stdout_delta' || type === 'stderr_delta') return this.#output(type, data);
    if (type === 'agent.message' || type === 'agent.thought') return this.#said(type, data);
    if (type === 'tool.start') return [...this.end(), line('tool', `→ ${toolCallText(data)}`)];
    if (type === 'tool.update') return this.#toolSays(data);
    if (type === 'tool.end') return [...this.end(), toolEnd(data)];
    const note = noteOf(event);
    return note === null ? [] : [...this.end(), { kind: 'note', text: note }];
  }

  /** The line still open, if any; call it when nothing more will come. */
  end(): Piece[] {
    const open = this.#open;
    this.#open = null;
    return open && open.text !== '' ? [{ kind: open.kind, text: open.text }] : [];
  }

  #output(type: 'stdout_delta' | 'stderr_delta', data: EventView['data']): Piece[] {
    const text = stringOf(data, 'text') ?? '';
    if (this.#runnerId !== 'command') return this.#append(type, 'tool_output', text);
    return [{ kind: type === 'stdout_delta' ? 'raw_stdout' : 'raw_stderr', text }];
  }

  #said(type: 'agent.message' | 'agent.thought', data: EventView['data']): Piece[] {
    const delta = stringOf(data, 'delta');
    if (delta === null) return this.end(); // The end of a message.
    const message = numberOf(data, 'message') ?? 0;
    const key = `${type} ${message} ${numberOf(data, 'block')}`;
    const again = data['replace'] === true ? this.end() : [];
    if (type === 'agent.thought') return [...again, ...this.#append(key, 'thought', delta)];
    if (message !== this.#message || data['replace'] === true) this.#messageText = '';
    this.#message = message;
    this.#messageText += delta;
    return [...again, ...this.#append(key, 'text', delta)];
  }

  #toolSays(data: EventView['data']): Piece[] {
    if (!this.#toolOutput) return [];
    const key = `tool ${stringOf(data, 'toolCallId')}`;
    return this.#append(key, 'tool_output', stringOf(data, 'delta') ?? '');
  }

  /** Whole lines go out, the rest waits for its end or for somebody else to speak. */
  #append(key: string, kind: Line, text: string): Piece[] {
    const before = this.#open !== null && this.#open.key !== key ? this.end() : [];
    const [first = '', ...rest] = sanitize(text).split('\n');
    const lines = [(this.#open?.text ?? '') + first, ...rest];
    this.#open = { key, kind, text: lines.pop() ?? '' };
    return [...before, ...lines.map((each) => ({ kind, text: each }))];
  }
}

// A line about a call is there to recognise it by; the whole call is in `outlive events`.
const CALL_CELLS = 240;

const line = (kind: Line, text: string): Piece => ({
  kind,
  text: truncate(sanitizeLine(text), CALL_CELLS),
});

function toolEnd(data: EventView['data']): Piece {
  const tool = stringOf(data, 'tool') ?? 'tool';
  const duration = numberOf(data, 'durationMs');
  const took = duration === null ? '' : ` ${formatDuration(duration)}`;
  if (data['isError'] !== true) return line('tool', `✓ ${tool}${took}`);
  return line('tool_failed', `✗ ${tool}${took}: ${stringOf(data, 'result') ?? ''}`);
}
