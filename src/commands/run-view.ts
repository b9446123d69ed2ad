/** How `outlive run` shows a run while it waits: NDJSON, plain lines, or lines above a status line. */
import type { EventView, WorkUnitView } from '../api/schemas.ts';
import type { Context } from './context.ts';
import { LiveFigures } from './live-figures.ts';
import type { Output } from './output.ts';
import { styled } from './piece-style.ts';
import { truncate } from './table.ts';
import { type Piece, Transcript } from './transcript.ts';

export interface RunView {
  event(event: EventView): Promise<void>;
  connection(state: 'connected' | 'away'): void;
  /** A sentence in between. */
  say(sentence: string): Promise<void>;
  /** Leaves the terminal as it was. */
  close(): Promise<void>;
  /** True when the person has read this text already, on the same terminal. */
  hasShown(text: string): boolean;
}

/** The view that fits the terminal and `--json`. */
export function createView(context: Context, workUnit: WorkUnitView, json: boolean): RunView {
  if (json) return new JsonView(context);
  const { stderr } = context;
  const figures = new LiveFigures(workUnit.handle, workUnit.hardTimeoutMs);
  const transcript = new Transcript(workUnit.runnerId, { toolOutput: false });
  const status = stderr.canRedraw ? new StatusLine(stderr) : null;
  return new HumanView(context, transcript, figures, status);
}

const AWAY = 'daemon away, the run goes on; waiting';
const BACK = 'daemon back';

class JsonView implements RunView {
  readonly #context: Context;
  constructor(context: Context) {
    this.#context = context;
  }
  event(event: EventView): Promise<void> {
    return this.#context.stdout.json(event);
  }
  connection(state: 'connected' | 'away'): void {
    void this.say(state === 'away' ? AWAY : BACK);
  }
  say(sentence: string): Promise<void> {
    return this.#context.stderr.line(sentence);
  }
  close(): Promise<void> {
    return Promise.resolve();
  }
  hasShown(): boolean {
    return true; // All there is to say went out as events.
  }
}

/** One line at the bottom of the terminal, drawn over again and again. */
class StatusLine {
  readonly #output: Output;
  #drawn: string | null = null;

  constructor(output: Output) {
    this.#output = output;
  }

  async draw(text: string): Promise<void> {
    // One cell less than there are: a full line would wrap and could not be erased.
    const line = truncate(text, this.#output.columns - 1);
    if (line === this.#drawn) return;
    this.#drawn = line;
    await this.#output.write(`\r\x1b[2K${this.#output.paint('dim', line)}`);
  }

  async clear(): Promise<void> {
    if (this.#drawn === null) return;
    this.#drawn = null;
    await this.#output.write('\r\x1b[2K');
  }
}

class HumanView implements RunView {
  readonly #context: Context;
  readonly #transcript: Transcript;
  readonly #figures: LiveFigures;
  readonly #status: StatusLine | null;
  readonly #timer: NodeJS.Timeout | null;
  #isAway = false;
  /** Everything that writes waits for what was asked before it, or lines would tear. */
  #queue: Promise<void> = Promise.resolve();
  /** A command's raw output stands in mid-line: a status line would break into it. */
  #midLine = false;

  constructor(
    context: Context,
    transcript: Transcript,
    figures: LiveFigures,
    status: StatusLine | null,
  ) {
    this.#context = context;
    this.#transcript = transcript;
    this.#figures = figures;
    this.#status = status;
    this.#timer = status && setInterval(() => void this.#enqueue(() => this.#redraw()), 1_000);
  }

  event(event: EventView): Promise<void> {
    return this.#enqueue(async () => {
      this.#figures.push(event);
      await this.#print(this.#transcript.push(event));
      await this.#redraw();
    });
  }

  connection(state: 'connected' | 'away'): void {
    this.#isAway = state === 'away';
    if (this.#status) void this.#enqueue(() => this.#redraw());
    else void this.say(this.#isAway ? AWAY : BACK);
  }

  say(sentence: string): Promise<void> {
    return this.#enqueue(async () => {
      await this.#print([], sentence);
      await this.#redraw();
    });
  }

  close(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    return this.#enqueue(async () => {
      await this.#print(this.#transcript.end());
      await this.#status?.clear();
      await this.#endRawLine();
    });
  }

  hasShown(text: string): boolean {
    const { stdout, stderr } = this.#context;
    return (
      stdout.isTerminal && stderr.isTerminal && this.#transcript.lastMessage.trim() === text.trim()
    );
  }

  #enqueue(work: () => Promise<void>): Promise<void> {
    this.#queue = this.#queue.then(work);
    return this.#queue;
  }

  async #print(pieces: readonly Piece[], sentence?: string): Promise<void> {
    if (pieces.length === 0 && sentence === undefined) return;
    await this.#status?.clear();
    for (const piece of pieces) await this.#printOne(piece);
    if (sentence === undefined) return;
    await this.#endRawLine();
    await this.#context.stderr.line(sentence);
  }

  async #printOne(piece: Piece): Promise<void> {
    const { stdout, stderr } = this.#context;
    if (piece.kind === 'raw_stdout' || piece.kind === 'raw_stderr') {
      const output = piece.kind === 'raw_stdout' ? stdout : stderr;
      await output.write(piece.text);
      if (output.isTerminal && piece.text !== '') this.#midLine = !piece.text.endsWith('\n');
      return;
    }
    await this.#endRawLine();
    await stderr.line(styled(piece, stderr));
  }

  async #endRawLine(): Promise<void> {
    if (this.#midLine && this.#context.stderr.isTerminal) await this.#context.stderr.line();
    this.#midLine = false;
  }

  async #redraw(): Promise<void> {
    if (this.#status === null || this.#midLine) return;
    await this.#status.draw(this.#figures.line(Date.now(), this.#isAway));
  }
}
