/** Plays one turn on one HTTP response. */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { type ChatRequest, Refusal } from './chat-request.ts';
import { CompletionStream } from './completion-stream.ts';
import { digest, usageOf } from './conversation.ts';
import type { RequestRecord } from './journal.ts';
import type { FaultTurn, MessageTurn, Part, Turn } from './script.ts';

/** The open exchange that a turn is played on. */
export interface Exchange {
  readonly request: ChatRequest;
  readonly response: ServerResponse;
  /** Aborted when the connection is gone. */
  readonly gone: AbortSignal;
  /** Notes what became of it. */
  readonly note: (change: Partial<RequestRecord>) => void;
}

/** How many deltas a text without a pace is spread over. */
const PLAIN_CHUNKS = 4;
const CUT_DELAY_MS = 100;

/** Plays the turn to its end; rejects when the client leaves first. */
export async function play(turn: Turn, exchange: Exchange): Promise<void> {
  switch (turn.kind) {
    case 'message':
      return playMessage(turn, exchange);
    case 'status':
      return playStatus(turn, exchange);
    case 'cut':
      return playCut(turn.text, exchange);
    case 'hang':
      if (!exchange.gone.aborted) await once(exchange.gone, 'abort');
  }
}

/** The body of an error answer, shaped as OpenAI's. */
export function errorBody(status: number, message: string): string {
  const { type, code } = ERROR_KINDS[status] ?? (status < 500 ? INVALID : SERVER);
  return JSON.stringify({ error: { message, type, param: null, code } });
}

const INVALID = { type: 'invalid_request_error', code: null };
const SERVER = { type: 'server_error', code: null };
const ERROR_KINDS: Readonly<Record<number, { type: string; code: string | null }>> = {
  401: { type: 'invalid_request_error', code: 'invalid_api_key' },
  429: { type: 'requests', code: 'rate_limit_exceeded' },
};

async function playMessage(turn: MessageTurn, exchange: Exchange): Promise<void> {
  const { request, note } = exchange;
  checkTools(turn, request);
  const stream = openStream(exchange);
  note({ status: 200 });
  await stream.open();
  let calls = 0;
  for (const part of turn.parts) {
    if (part.kind === 'call') await streamCall(stream, part, calls++, request);
    else await streamText(stream, part, exchange.gone);
  }
  await stream.delta({}, finishReason(turn, calls));
  if (request.includeUsage) {
    const usage = usageOf(request, turn.parts.map(plainText).join(''), turn.truncated);
    note({ usage });
    await stream.usage(usage);
  }
  stream.end();
}

async function streamText(
  stream: CompletionStream,
  part: Exclude<Part, { kind: 'call' }>,
  gone: AbortSignal,
): Promise<void> {
  const field = part.kind === 'thought' ? 'reasoning_content' : 'content';
  const { chunks, gap } = (part.kind === 'text' && part.pace) || { chunks: PLAIN_CHUNKS, gap: 0 };
  for (const piece of cutUp(part.text, chunks)) {
    if (gap > 0) await pause(gap, undefined, { signal: gone });
    await stream.delta({ [field]: piece });
  }
}

async function streamCall(
  stream: CompletionStream,
  part: Extract<Part, { kind: 'call' }>,
  index: number,
  request: ChatRequest,
): Promise<void> {
  const id = `call_${digest(request.messages)}_${index}`;
  const named = { index, id, type: 'function', function: { name: part.tool, arguments: '' } };
  await stream.delta({ tool_calls: [named] });
  for (const piece of cutUp(JSON.stringify(part.args), 2)) {
    await stream.delta({ tool_calls: [{ index, function: { arguments: piece } }] });
  }
}

function playStatus(turn: Extract<FaultTurn, { kind: 'status' }>, exchange: Exchange): void {
  const { response, note } = exchange;
  if (turn.retryAfter !== undefined) response.setHeader('retry-after', String(turn.retryAfter));
  note({ status: turn.status });
  response.writeHead(turn.status, { 'content-type': 'application/json' });
  response.end(errorBody(turn.status, turn.message ?? `scripted ${turn.status}`));
}

async function playCut(text: string, exchange: Exchange): Promise<void> {
  const { response, gone, note } = exchange;
  const stream = openStream(exchange);
  note({ status: 200 });
  await stream.open();
  for (const piece of cutUp(text, 3).slice(0, 2)) await stream.delta({ content: piece });
  // A client throws away what it has not read yet when the connection breaks, and nothing says that it has read.
  await pause(CUT_DELAY_MS, undefined, { signal: gone });
  note({ ended: 'cut' });
  response.destroy();
}

function openStream({ request, response, gone }: Exchange): CompletionStream {
  const head = { id: `chatcmpl-${digest(request.messages)}`, model: request.model };
  return new CompletionStream(response, gone, head);
}

function checkTools(turn: MessageTurn, request: ChatRequest): void {
  for (const part of turn.parts) {
    if (part.kind !== 'call' || request.tools.has(part.tool)) continue;
    const offered = [...request.tools].join(', ') || 'none';
    throw new Refusal(`the script calls ${part.tool}, the request offers: ${offered}`);
  }
}

function finishReason(turn: MessageTurn, calls: number): string {
  if (turn.truncated) return 'length';
  return calls > 0 ? 'tool_calls' : 'stop';
}

function plainText(part: Part): string {
  return part.kind === 'call' ? part.tool + JSON.stringify(part.args) : part.text;
}

/** Cuts a text into at most `count` pieces of about the same size, never inside a character. */
function cutUp(text: string, count: number): string[] {
  const characters = Array.from(text);
  const size = Math.max(1, Math.ceil(characters.length / count));
  const pieces: string[] = [];
  for (let at = 0; at < characters.length; at += size)
    pieces.push(characters.slice(at, at + size).join(''));
  return pieces;
}
