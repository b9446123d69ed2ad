/**
 * What a client sent, checked the way a strict provider would, and read into
 * the few things the scripted model looks at.
 */

/** One message of the conversation. */
export interface ChatMessage {
  readonly role: string;
  /** Its text parts, joined. */
  readonly text: string;
  /** Tool calls of an assistant message. */
  readonly calls: readonly { readonly id: string; readonly name: string }[];
  /** Id of the call that a tool message answers. */
  readonly answers: string | undefined;
}

/** A checked chat completion request. */
export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly ChatMessage[];
  /** Names of the offered tools. */
  readonly tools: ReadonlySet<string>;
  readonly includeUsage: boolean;
  /** Output limit asked for, tokens. */
  readonly maxTokens: number | undefined;
}

/** A request that is answered with an error instead of a turn; always recorded as a violation. */
export class Refusal extends Error {
  /** HTTP status. */
  readonly status: number;

  constructor(message: string, status = 400) {
    super(message);
    this.name = 'Refusal';
    this.status = status;
  }
}

/** Parses and checks a request body; throws a Refusal that says what is wrong. */
export function readChatRequest(body: string, models: readonly string[]): ChatRequest {
  const raw = parseObject(body);
  if (raw.stream !== true) throw new Refusal('stream must be true: this model only streams');
  if (typeof raw.model !== 'string' || !models.includes(raw.model)) {
    throw new Refusal(
      `model ${JSON.stringify(raw.model)} is unknown, it is one of: ${models.join(', ')}`,
    );
  }
  if (!Array.isArray(raw.messages) || raw.messages.length === 0) {
    throw new Refusal('messages must be a list with at least one message');
  }
  const messages = raw.messages.map(readMessage);
  checkToolPairs(messages);
  return {
    model: raw.model,
    messages,
    tools: new Set(list(raw.tools).map(toolName)),
    includeUsage: isObject(raw.stream_options) && raw.stream_options.include_usage === true,
    maxTokens: firstNumber(raw.max_completion_tokens, raw.max_tokens),
  };
}

/** The text of the newest user message. */
export function lastUserText(messages: readonly ChatMessage[]): string {
  return messages.findLast((message) => message.role === 'user')?.text ?? '';
}

const ROLES = new Set(['system', 'developer', 'user', 'assistant', 'tool']);

function readMessage(raw: unknown, index: number): ChatMessage {
  if (!isObject(raw) || typeof raw.role !== 'string' || !ROLES.has(raw.role)) {
    throw new Refusal(`messages[${index}] has no known role`);
  }
  if (raw.role === 'tool' && typeof raw.tool_call_id !== 'string') {
    throw new Refusal(`messages[${index}] is a tool message without tool_call_id`);
  }
  return {
    role: raw.role,
    text: textOf(raw.content),
    calls: list(raw.tool_calls).map((call) => readCall(call, index)),
    answers: typeof raw.tool_call_id === 'string' ? raw.tool_call_id : undefined,
  };
}

function readCall(raw: unknown, index: number): { id: string; name: string } {
  if (!isObject(raw) || typeof raw.id !== 'string' || raw.id === '') {
    throw new Refusal(`messages[${index}] has a tool call without an id`);
  }
  return { id: raw.id, name: toolName(raw) };
}

/** Every call is answered once, right after the message that made it, and nothing else is answered. */
function checkToolPairs(messages: readonly ChatMessage[]): void {
  let open = new Set<string>();
  for (const [index, message] of messages.entries()) {
    if (message.role === 'tool') {
      if (message.answers === undefined || !open.delete(message.answers)) {
        throw new Refusal(
          `messages[${index}]: tool_call_id ${JSON.stringify(message.answers)} answers no open call of the preceding assistant message`,
        );
      }
      continue;
    }
    checkAllAnswered(open, `before messages[${index}]`);
    open = new Set(message.calls.map((call) => call.id));
  }
  checkAllAnswered(open, 'at the end of messages');
}

function checkAllAnswered(open: ReadonlySet<string>, where: string): void {
  if (open.size > 0) throw new Refusal(`no tool result for ${[...open].join(', ')} ${where}`);
}

function parseObject(body: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    throw new Refusal('the body is not JSON');
  }
  if (!isObject(value)) throw new Refusal('the body is not a JSON object');
  return value;
}

function toolName(raw: unknown): string {
  if (!isObject(raw)) return '';
  const definition = isObject(raw.function) ? raw.function : raw.custom;
  return isObject(definition) && typeof definition.name === 'string' ? definition.name : '';
}

function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return list(content)
    .map((part) => (isObject(part) && typeof part.text === 'string' ? part.text : ''))
    .join('');
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function firstNumber(...values: readonly unknown[]): number | undefined {
  return values.find((value): value is number => typeof value === 'number');
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
