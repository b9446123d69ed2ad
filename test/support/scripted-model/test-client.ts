/** Asks a scripted model the way a provider's client does, for the tests of the model itself. */

interface Delta {
  readonly content?: string;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly {
    readonly id?: string;
    readonly function: { readonly name?: string; readonly arguments: string };
  }[];
}

interface Chunk {
  readonly choices: readonly { readonly delta: Delta; readonly finish_reason: string | null }[];
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

const TOOLS = ['bash', 'read', 'write', 'edit'].map((name) => ({
  type: 'function',
  function: { name },
}));

export const user = (...lines: string[]) => ({ role: 'user', content: lines.join('\n') });
export const scripted = (...lines: string[]) => user('Do it.', '#script', ...lines);
export const assistant = (content: string) => ({ role: 'assistant', content });
export const result = (id: string) => ({ role: 'tool', tool_call_id: id, content: 'ok' });
export const caller = (id: string) => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id, function: { name: 'bash', arguments: '{}' } }],
});

/** Sends a chat completion request with key `k`; `change` goes over the body, `init` over the rest. */
export function post(
  baseUrl: string,
  messages: unknown,
  change: Record<string, unknown> = {},
  init: RequestInit = {},
): Promise<Response> {
  const body = {
    model: 'scripted',
    stream: true,
    stream_options: { include_usage: true },
    tools: TOOLS,
    messages,
    ...change,
  };
  const headers = { authorization: 'Bearer k' };
  const url = `${baseUrl}/chat/completions`;
  return fetch(url, { method: 'POST', headers, body: JSON.stringify(body), ...init });
}

/** Status and message of an error answer. */
export async function errorOf(response: Response): Promise<[number, string]> {
  const body: { error: { message: string } } = JSON.parse(await response.text());
  return [response.status, body.error.message];
}

/** The message that a stream adds up to. */
export function readStream(stream: string) {
  const events = stream.split('\n\n').flatMap((event) => event.split('data: ')[1] ?? []);
  const chunks = events
    .filter((event) => event !== '[DONE]')
    .map((event): Chunk => JSON.parse(event));
  const choices = chunks.flatMap((chunk) => chunk.choices);
  const deltas = choices.map((choice) => choice.delta);
  const calls = joinCalls(deltas);
  return {
    text: deltas.map((delta) => delta.content ?? '').join(''),
    thought: deltas.map((delta) => delta.reasoning_content ?? '').join(''),
    /** Number of deltas with text. */
    texts: deltas.filter((delta) => delta.content).length,
    calls: calls.map(({ name, args }): [string, unknown] => [name, JSON.parse(args)]),
    ids: calls.map((call) => call.id),
    finish: choices.findLast((choice) => choice.finish_reason)?.finish_reason,
    usage: chunks.at(-1)?.usage,
    /** Whether it ended the proper way. */
    whole: events.at(-1) === '[DONE]',
  };
}

function joinCalls(deltas: readonly Delta[]) {
  const calls: { id: string; name: string; args: string }[] = [];
  for (const call of deltas.flatMap((delta) => delta.tool_calls ?? [])) {
    if (call.id !== undefined) {
      calls.push({ id: call.id, name: call.function.name ?? '', args: '' });
    }
    const last = calls.at(-1);
    if (last !== undefined) last.args += call.function.arguments;
  }
  return calls;
}
