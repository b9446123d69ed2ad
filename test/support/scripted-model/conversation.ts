/** Where a conversation stands: the turn to play next, found from the request alone. */
import { createHash } from 'node:crypto';
import { type ChatMessage, type ChatRequest, lastUserText, Refusal } from './chat-request.ts';
import { findScript, pickTurn, ScriptError, type Turn, textTurn } from './script.ts';

/** Token counts, in the words of the OpenAI API. */
export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}

/** Counts how often the faults with `xK` were played; the only thing kept between requests. */
export class FaultCounter {
  readonly #played = new Map<string, number>();

  count(key: string): number {
    return this.#played.get(key) ?? 0;
  }

  add(key: string): void {
    this.#played.set(key, this.count(key) + 1);
  }

  clear(): void {
    this.#played.clear();
  }
}

/**
 * The turn this request is answered with. Playing a counted fault is noted in
 * `faults`, under the conversation: `session` if the client names one, and
 * everything said up to the script.
 */
export function nextTurn(request: ChatRequest, session: string, faults: FaultCounter): Turn {
  const { messages } = request;
  for (let index = messages.length - 1; index >= 0; index--) {
    const message = messages[index];
    const script = message?.role === 'user' ? readScript(message.text) : undefined;
    if (script === undefined) continue;
    const key = `${session} ${digest(messages.slice(0, index + 1))}`;
    return turnOf(script, answersIn(messages.slice(index + 1)), key, faults);
  }
  return textTurn('(no script)', unscriptedAnswer(messages));
}

/** A short name of this point of the conversation, the same on every machine. */
export function digest(messages: readonly ChatMessage[]): string {
  // The system prompt is left out: it holds the date and the working directory.
  const said = messages.filter((message) => !isInstruction(message));
  return createHash('sha256').update(JSON.stringify(said)).digest('hex').slice(0, 12);
}

/** Token counts made from lengths (4 characters each, 1 at least), system prompt left out as in digest. */
export function usageOf(request: ChatRequest, answer: string, truncated: boolean): Usage {
  const prompt = tokens(
    request.messages
      .filter((message) => !isInstruction(message))
      .map(weighed)
      .join(''),
  );
  // A message that ends with `length` has by definition used up what it was allowed.
  const completion =
    truncated && request.maxTokens !== undefined ? request.maxTokens : tokens(answer);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    // From the second turn on a real provider finds the beginning in its cache.
    prompt_tokens_details: {
      cached_tokens: answersIn(request.messages) > 0 ? Math.floor(prompt / 2) : 0,
    },
  };
}

function turnOf(
  script: readonly Turn[],
  answered: number,
  key: string,
  faults: FaultCounter,
): Turn {
  const picked = pickTurn(script, answered, (index) => faults.count(`${key} ${index}`));
  if (picked === undefined) return textTurn('(end of script)', 'done');
  if (picked.turn.kind !== 'message') faults.add(`${key} ${picked.index}`);
  return picked.turn;
}

function readScript(text: string): Turn[] | undefined {
  try {
    return findScript(text);
  } catch (error) {
    if (error instanceof ScriptError) throw new Refusal(error.message);
    throw error;
  }
}

function answersIn(messages: readonly ChatMessage[]): number {
  return messages.filter((message) => message.role === 'assistant').length;
}

function unscriptedAnswer(messages: readonly ChatMessage[]): string {
  // Quoted, so on one line: an echoed script must not become one when Pi quotes the answer back.
  const echo = JSON.stringify(Array.from(lastUserText(messages)).slice(0, 80).join(''));
  return `scripted model, no script: ${messages.length} messages, last user text: ${echo}`;
}

function isInstruction(message: ChatMessage): boolean {
  return message.role === 'system' || message.role === 'developer';
}

function weighed(message: ChatMessage): string {
  return message.text + message.calls.map((call) => call.name).join('');
}

function tokens(text: string): number {
  return Math.max(1, Math.ceil(text.length / 4));
}
