/** Writes down what Pi does: events in their order, live figures, and what the verdict needs. */
import { DeltaCoalescer } from './delta-coalescer.ts';
import type { EventData, MessageUsage, TextPiece } from './event-data.ts';
import { Fence } from './fence.ts';
import type { GrantBook } from './grants.ts';
import { type JsonObject, objectOf } from './json.ts';
import { PiEvents } from './pi-events.ts';
import type { PiOutput, TextKind } from './pi-output.ts';
import type { LastMessage } from './pi-verdict.ts';
import { RedactedStream, redactValue } from './redact.ts';
import { resetOfHeaders } from './retry-after.ts';
import type { RunnerContext } from './runner.ts';
import { ToolUpdates } from './tool-updates.ts';

const PIECE = { flushMs: 250, maxLength: 2 * 1024 };
// While the model writes the arguments of a call nothing else tells that it is alive.
const SIGN_OF_LIFE_MS = 5_000;

type TextKey = Omit<TextPiece, 'delta' | 'replace'> & { readonly type: TextKind };
const NO_KEY: TextKey = { type: 'agent.message', message: 0, block: 0 };

export class PiRecorder {
  readonly #context: RunnerContext;
  readonly #answer: (record: JsonObject) => void;
  readonly #events = new PiEvents();
  readonly #text: DeltaCoalescer;
  readonly #clean: RedactedStream;
  readonly #updates: ToolUpdates;
  readonly #openCalls = new Map<string, EventData['tool.start']>();
  #key = NO_KEY;
  #replace = false;
  #lastEmit = performance.now();
  #settle: (aborted: boolean) => void = () => {};

  /** Settles with Pi's `agent_settled`; the value tells whether it was aborted. */
  readonly settled: Promise<boolean>;
  readonly fence: Fence;
  last: LastMessage | null = null;
  /** Text of the last message that had any. */
  lastText = '';
  usage: MessageUsage | null = null;
  costUsd: number | null = null;
  /** By the headers of the last failed answer, milliseconds since the epoch. */
  resetAt: number | null = null;

  /** `answer` sends a record to Pi. */
  constructor(context: RunnerContext, answer: (record: JsonObject) => void, grants: GrantBook) {
    this.#context = context;
    this.#answer = answer;
    this.#clean = new RedactedStream(context.redact);
    this.#text = new DeltaCoalescer({ ...PIECE, emit: (delta) => this.#piece(delta) });
    this.#updates = new ToolUpdates((data) => this.#emit('tool.update', data));
    this.fence = new Fence(context, (type, data) => this.#fenced(type, data), answer, grants);
    this.settled = new Promise((resolve) => {
      this.#settle = resolve;
    });
  }

  take(event: JsonObject): void {
    for (const output of this.#events.next(this.#redacted(event))) this.#record(output);
  }

  /** What a tool that the wrapper runs itself has printed so far, or its tail. */
  printed(toolCallId: string, tool: string, text: string): void {
    this.#updates.snapshot(toolCallId, tool, this.#context.redact(text));
  }

  /** Writes what still waits and stops all timers. */
  finish(): void {
    this.#endText();
    this.#updates.dispose();
    this.fence.dispose();
  }

  /** What tools say is cut to size later: a secret must be gone before. Messages come in deltas. */
  #redacted(event: JsonObject): JsonObject {
    const isOfTool = String(event['type']).startsWith('tool_execution_');
    return isOfTool ? objectOf(redactValue(this.#context.redact, event)) : event;
  }

  #record(output: PiOutput): void {
    switch (output.kind) {
      case 'text':
        this.#say(output);
        break;
      case 'message_end':
        this.#messageEnd(output);
        break;
      case 'tool_start':
        this.#toolStart(output.data);
        break;
      case 'tool_snapshot':
        this.#updates.snapshot(output.toolCallId, output.tool, output.text);
        break;
      case 'tool_end':
        this.#toolEnd(output.data);
        break;
      case 'progress':
        this.#emit('progress', output.data);
        break;
      case 'failed_answer':
        this.resetAt = resetOfHeaders(output.headers, Date.now());
        break;
      case 'writing_call':
        this.#writingCall(output.tool, output.bytes);
        break;
      case 'dialog':
        this.#answer(output.answer);
        this.#emit('progress', output.data);
        break;
      case 'fence':
        this.fence.take(output.id, output.record);
        break;
      case 'settled':
        this.#settle(output.aborted);
        break;
    }
  }

  #say({ type, message, block, text, replace }: PiOutput & { kind: 'text' }): void {
    const key = this.#key;
    const same = key.type === type && key.message === message && key.block === block;
    if (!same || replace) this.#endText();
    this.#key = { type, message, block };
    this.#replace = replace;
    // A block that turns out to be empty must still take back what was said.
    if (replace && text === '') this.#piece('');
    else this.#text.push(this.#clean.push(text));
  }

  /** Nothing more of this block will come: what was held back goes out with it. */
  #endText(): void {
    this.#text.push(this.#clean.end());
    this.#text.flush();
  }

  #piece(delta: string): void {
    const { type, message, block } = this.#key;
    const replace = this.#replace ? ({ replace: true } as const) : {};
    this.#replace = false;
    this.#write(type, { message, block, delta, ...replace });
  }

  #messageEnd({ data, text }: PiOutput & { kind: 'message_end' }): void {
    this.#endText();
    this.last = { stopReason: data.stopReason, errorMessage: data.errorMessage };
    if (data.stopReason !== 'error') this.resetAt = null;
    if (text !== '') this.lastText = text;
    this.usage = addUsage(this.usage, data.usage);
    this.costUsd = (this.costUsd ?? 0) + data.costUsd;
    this.#context.live({ totalTokens: this.usage.totalTokens, costUsd: this.costUsd });
    this.#emit('agent.message', data);
    if (data.stopReason === 'toolUse') this.#holdCeiling();
  }

  /** A run that goes on beyond what it may spend is stopped; one that has ended is let end. */
  #holdCeiling(): void {
    const { ceiling, timeouts } = this.#context.launch;
    const tokens = this.usage?.totalTokens ?? 0;
    const microUsd = Math.round((this.costUsd ?? 0) * 1e6);
    const isReached =
      tokens >= (ceiling.tokens ?? Infinity) || microUsd >= (ceiling.microUsd ?? Infinity);
    if (!isReached) return;
    const message = `It spent $${microUsd / 1e6} and ${tokens} tokens, all that was left of its ceiling`;
    const graceMs = timeouts.cancelGraceMs;
    this.#context.stop.turn({ by: 'ceiling', graceMs, code: 'budget_exceeded', message });
  }

  #toolStart(data: EventData['tool.start']): void {
    this.#openCalls.set(data.toolCallId, data);
    this.#tellCurrentTool();
    if (!this.fence.writes(data.tool)) this.#emit('tool.start', data);
  }

  #toolEnd(data: EventData['tool.end']): void {
    const started = this.#openCalls.get(data.toolCallId);
    this.#updates.end(data.toolCallId);
    this.#openCalls.delete(data.toolCallId);
    this.#tellCurrentTool();
    if (this.fence.writes(data.tool)) this.fence.piEnded(data, started?.arguments ?? null);
    else this.#emit('tool.end', data);
  }

  #tellCurrentTool(): void {
    this.#context.live({ currentTool: [...this.#openCalls.values()].at(-1)?.tool ?? null });
  }

  #writingCall(tool: string, bytes: number): void {
    if (performance.now() - this.#lastEmit < SIGN_OF_LIFE_MS) return;
    const message = `The model is writing a call of ${tool}`;
    this.#emit('progress', { kind: 'tool_call_stream', message, tool, bytes });
  }

  /** Nothing of a tool's output comes after its end. */
  #fenced<Type extends keyof EventData>(type: Type, data: EventData[Type]): boolean {
    if (type === 'tool.end') this.#updates.end((data as EventData['tool.end']).toolCallId);
    return this.#emit(type, data);
  }

  /** Whatever comes after text is written after it. */
  #emit<Type extends keyof EventData>(type: Type, data: EventData[Type]): boolean {
    this.#text.flush();
    return this.#write(type, data);
  }

  #write<Type extends keyof EventData>(type: Type, data: EventData[Type]): boolean {
    this.#lastEmit = performance.now();
    return this.#context.emit(type, data);
  }
}

function addUsage(sum: MessageUsage | null, more: MessageUsage): MessageUsage {
  if (sum === null) return more;
  return {
    inputTokens: sum.inputTokens + more.inputTokens,
    outputTokens: sum.outputTokens + more.outputTokens,
    cacheReadTokens: sum.cacheReadTokens + more.cacheReadTokens,
    cacheWriteTokens: sum.cacheWriteTokens + more.cacheWriteTokens,
    totalTokens: sum.totalTokens + more.totalTokens,
  };
}
