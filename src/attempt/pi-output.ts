/** What an event of Pi means to us. Types only. */
import type { EventData, MessageEnd, ProgressData } from './event-data.ts';
import type { FenceRecord } from './fence-record.ts';
import type { JsonObject } from './json.ts';

export type TextKind = 'agent.message' | 'agent.thought';

export type PiOutput =
  | {
      readonly kind: 'text';
      readonly type: TextKind;
      readonly message: number;
      readonly block: number;
      readonly text: string;
      /** The block starts anew with this text. */
      readonly replace: boolean;
    }
  | { readonly kind: 'message_end'; readonly data: MessageEnd; readonly text: string }
  | { readonly kind: 'tool_start'; readonly data: EventData['tool.start'] }
  /** All that the tool has printed so far, or its tail. */
  | {
      readonly kind: 'tool_snapshot';
      readonly toolCallId: string;
      readonly tool: string;
      readonly text: string;
    }
  | { readonly kind: 'tool_end'; readonly data: EventData['tool.end'] }
  | { readonly kind: 'progress'; readonly data: ProgressData }
  /** Headers of an answer that the provider failed; for the verdict only. */
  | { readonly kind: 'failed_answer'; readonly headers: JsonObject }
  /** The model writes a tool call: progress without text. */
  | { readonly kind: 'writing_call'; readonly tool: string; readonly bytes: number }
  | {
      readonly kind: 'dialog';
      /** The record to send back. */
      readonly answer: JsonObject;
      readonly data: ProgressData;
    }
  /** Our extension asks, or tells; `id` of the question, null where none waits. */
  | { readonly kind: 'fence'; readonly id: string | null; readonly record: FenceRecord }
  | { readonly kind: 'settled'; readonly aborted: boolean };
