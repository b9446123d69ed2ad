/** Writes one chat completion as the server-sent events of the OpenAI API. */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Usage } from './conversation.ts';

// Not the clock: the same request gets the same bytes.
const CREATED = 1_700_000_000;

/** One streamed completion. Every write waits for the client and throws once it has left. */
export class CompletionStream {
  readonly #response: ServerResponse;
  readonly #gone: AbortSignal;
  readonly #head: { readonly id: string; readonly model: string };

  constructor(response: ServerResponse, gone: AbortSignal, head: { id: string; model: string }) {
    this.#response = response;
    this.#gone = gone;
    this.#head = head;
  }

  /** Sends the headers and the delta that names the role. */
  async open(): Promise<void> {
    this.#response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
    });
    await this.delta({ role: 'assistant', content: '' });
  }

  /** Sends one delta of the message. */
  async delta(delta: Record<string, unknown>, finishReason: string | null = null): Promise<void> {
    await this.#event({
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }],
    });
  }

  /** Sends the token counts: a chunk of their own without a choice, as OpenAI does. */
  async usage(usage: Usage): Promise<void> {
    await this.#event({ choices: [], usage });
  }

  /** Ends the stream the proper way. */
  end(): void {
    this.#response.end('data: [DONE]\n\n');
  }

  async #event(content: Record<string, unknown>): Promise<void> {
    this.#gone.throwIfAborted();
    const { id, model } = this.#head;
    const chunk = { id, object: 'chat.completion.chunk', created: CREATED, model, ...content };
    if (this.#response.write(`data: ${JSON.stringify(chunk)}\n\n`)) return;
    await once(this.#response, 'drain', { signal: this.#gone });
  }
}
