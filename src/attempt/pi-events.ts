/**
 * Turns Pi's events into ours. Pure but for what it must remember: no clock, no
 * files, no processes. Snapshots (agent_end, turn_end, system prompts) end here.
 */
import { boundValue, cutMiddle } from './bounded-text.ts';
import type { EventData, MessageEnd, MessageUsage } from './event-data.ts';
import { isObject, type JsonObject, listOf, numberOf, objectOf, stringOf } from './json.ts';
import { dialogOf, noteOf } from './pi-notes.ts';
import type { PiOutput, TextKind } from './pi-output.ts';

const ARGUMENTS_BYTES = 16 * 1024;
const RESULT_BYTES = 16 * 1024;

export class PiEvents {
  #message = 0;
  /** Text so far of each block of the current message. */
  #blocks = new Map<number, string>();
  #call = { tool: '', bytes: 0 };

  /** The outputs of one event, in order; none for what nobody needs. */
  next(event: JsonObject): PiOutput[] {
    switch (event['type']) {
      case 'message_start':
        return this.#messageStart(objectOf(event['message']));
      case 'message_update':
        return this.#update(objectOf(event['assistantMessageEvent']));
      case 'message_end':
        return this.#messageEnd(objectOf(event['message']));
      case 'tool_execution_start':
        return [{ kind: 'tool_start', data: toolStart(event) }];
      case 'tool_execution_update':
        return toolSnapshot(event);
      case 'tool_execution_end':
        return [{ kind: 'tool_end', data: toolEnd(event) }];
      case 'agent_settled':
        return [{ kind: 'settled', aborted: event['aborted'] === true }];
      case 'extension_ui_request':
        return dialogOf(event);
      default:
        return noteOf(event);
    }
  }

  #messageStart(message: JsonObject): PiOutput[] {
    if (message['role'] !== 'assistant') return [];
    this.#message += 1;
    this.#blocks.clear();
    return [];
  }

  #update(event: JsonObject): PiOutput[] {
    const block = numberOf(event['contentIndex']) ?? 0;
    const delta = stringOf(event['delta']) ?? '';
    switch (event['type']) {
      case 'text_delta':
        return this.#text('agent.message', block, delta, false);
      case 'thinking_delta':
        return this.#text('agent.thought', block, delta, false);
      case 'toolcall_start':
        this.#call = { tool: stringOf(event['toolName']) ?? '', bytes: 0 };
        return [];
      case 'toolcall_delta':
        this.#call.bytes += Buffer.byteLength(delta);
        return [{ kind: 'writing_call', ...this.#call }];
      default:
        return [];
    }
  }

  #text(type: TextKind, block: number, text: string, replace: boolean): PiOutput[] {
    if (text === '' && !replace) return [];
    this.#blocks.set(block, replace ? text : (this.#blocks.get(block) ?? '') + text);
    return [{ kind: 'text', type, message: this.#message, block, text, replace }];
  }

  #messageEnd(message: JsonObject): PiOutput[] {
    if (message['role'] !== 'assistant') return [];
    const content = listOf(message['content']).map(objectOf);
    const missing = content.flatMap((part, block) => this.#reconcile(part, block));
    const text = content.map((part) => stringOf(part['text']) ?? '').join('');
    return [...missing, { kind: 'message_end', text, data: messageEnd(this.#message, message) }];
  }

  /** message_end is authoritative: emits what the deltas did not say, or the block anew. */
  #reconcile(part: JsonObject, block: number): PiOutput[] {
    const type = part['type'] === 'thinking' ? 'agent.thought' : 'agent.message';
    const whole = stringOf(part['text']) ?? stringOf(part['thinking']);
    if (whole === null) return [];
    const said = this.#blocks.get(block) ?? '';
    if (whole === said) return [];
    if (whole.startsWith(said)) return this.#text(type, block, whole.slice(said.length), false);
    return this.#text(type, block, whole, true);
  }
}

function messageEnd(number: number, message: JsonObject): MessageEnd {
  const usage = objectOf(message['usage']);
  const provider = stringOf(message['provider']);
  const model = stringOf(message['model']);
  return {
    message: number,
    end: true,
    stopReason: stringOf(message['stopReason']) ?? 'unknown',
    errorMessage: stringOf(message['errorMessage']),
    model: provider === null || model === null ? null : `${provider}/${model}`,
    usage: usageOf(usage),
    costUsd: numberOf(objectOf(usage['cost'])['total']) ?? 0,
  };
}

/** Pi's usage of one message in our words. */
export function usageOf(usage: JsonObject): MessageUsage {
  const [input, output, read, write] = ['input', 'output', 'cacheRead', 'cacheWrite'].map(
    (name) => numberOf(usage[name]) ?? 0,
  );
  return {
    inputTokens: input ?? 0,
    outputTokens: output ?? 0,
    cacheReadTokens: read ?? 0,
    cacheWriteTokens: write ?? 0,
    totalTokens: numberOf(usage['totalTokens']) ?? numberOf(usage['total']) ?? 0,
  };
}

const callOf = (event: JsonObject): { toolCallId: string; tool: string } => ({
  toolCallId: stringOf(event['toolCallId']) ?? '',
  tool: stringOf(event['toolName']) ?? '',
});

const toolStart = (event: JsonObject): EventData['tool.start'] => ({
  ...callOf(event),
  arguments: boundValue(event['args'] ?? null, ARGUMENTS_BYTES),
});

function toolSnapshot(event: JsonObject): PiOutput[] {
  const text = textOf(event['partialResult']);
  return text === '' ? [] : [{ kind: 'tool_snapshot', ...callOf(event), text }];
}

const toolEnd = (event: JsonObject): EventData['tool.end'] => ({
  ...callOf(event),
  isError: event['isError'] === true,
  result: cutMiddle(textOf(event['result']), RESULT_BYTES),
  durationMs: numberOf(event['durationMs']),
});

/** The text parts of a tool's result. */
function textOf(result: unknown): string {
  return listOf(objectOf(result)['content'])
    .filter(isObject)
    .map((part) => stringOf(part['text']) ?? '')
    .join('');
}
