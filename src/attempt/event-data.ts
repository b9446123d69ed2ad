/** What each event of the spool carries as `data`. Types only. */
import type { LastWord, Opened } from '../domain/spool.ts';

/** Why somebody tells an attempt to stop over the control socket. */
export type AbortReason = 'cancel' | 'interrupt' | 'suspend' | 'fail';

/** Token counts of one message of the model. */
export interface MessageUsage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cacheReadTokens: number;
  readonly cacheWriteTokens: number;
  readonly totalTokens: number;
}

/**
 * A piece of what the model said. The pieces of one `message` and `block`, put
 * together in their order, are the whole text, each exactly once.
 */
export interface TextPiece {
  /** Number of the model's message in this attempt, from 1. */
  readonly message: number;
  /** Index of the content block in that message. */
  readonly block: number;
  readonly delta: string;
  /** Set where the block starts anew: earlier pieces of it were only provisional. */
  readonly replace?: true;
}

/** The end of one message of the model. */
export interface MessageEnd {
  readonly message: number;
  readonly end: true;
  /** Pi's: stop, length, toolUse, error, aborted. */
  readonly stopReason: string;
  readonly errorMessage: string | null;
  /** `provider/model` that answered. */
  readonly model: string | null;
  readonly usage: MessageUsage;
  /** US dollars of this message. */
  readonly costUsd: number;
}

export type StartedData =
  | {
      readonly runner: 'pi';
      readonly pid: number;
      readonly sessionId: string | null;
      /** `provider/model`, null when Pi has none. */
      readonly model: string | null;
      readonly piVersion: string | null;
    }
  | { readonly runner: 'command'; readonly pid: number; readonly argv: readonly string[] };

/** Something worth a line that is neither text nor a tool call. */
export interface ProgressData {
  readonly kind:
    | 'retry'
    | 'retry_end'
    | 'compaction'
    | 'dialog'
    | 'notice'
    | 'extension_error'
    | 'tool_call_stream'
    | 'output_dropped'
    | 'output_held'
    | 'control_unavailable'
    | 'decision_ignored'
    | 'temporary_space'
    | 'sandbox_weaker';
  /** The sentence a person reads. */
  readonly message: string;
  readonly [detail: string]: unknown;
}

/** How a command ended. */
export interface CommandEnd {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly durationMs: number;
}

/** Type to data, for everything the wrapper writes. */
export interface EventData {
  readonly 'attempt.opened': Opened;
  readonly 'attempt.deadline': { readonly hardTimeoutMs: number; readonly elapsedMs: number };
  readonly 'attempt.told_to_stop': {
    readonly by: 'SIGTERM' | 'control';
    /** Null for a signal: it says nothing. */
    readonly reason: AbortReason | null;
    readonly graceMs: number;
  };
  readonly started: StartedData;
  readonly progress: ProgressData;
  readonly stdout_delta: { readonly text: string };
  readonly stderr_delta: { readonly text: string };
  readonly 'agent.message': TextPiece | MessageEnd;
  readonly 'agent.thought': TextPiece;
  readonly 'tool.start': {
    readonly toolCallId: string;
    readonly tool: string;
    /** Long strings are cut in the middle. */
    readonly arguments: unknown;
    /** Of a fenced call: on the disk before the call acts. */
    readonly fenced?: true;
    readonly fingerprint?: string;
    /** The approval this start spends. */
    readonly approvalId?: string;
  };
  /** What a running tool printed since the last one; not complete, the result is in tool.end. */
  readonly 'tool.update': {
    readonly toolCallId: string;
    readonly tool: string;
    readonly delta: string;
    /** Bytes left out before `delta`, 0 mostly. */
    readonly skippedBytes: number;
  };
  readonly 'tool.end': {
    readonly toolCallId: string;
    readonly tool: string;
    readonly isError: boolean;
    /** Text of the result, cut in the middle when long. */
    readonly result: string;
    /** Null when the tool did not run. */
    readonly durationMs: number | null;
    readonly fenced?: true;
    /** SHA-256 (hex) of the whole result's text. */
    readonly digest?: string;
  };
  readonly 'tool.refused': {
    readonly toolCallId: string;
    readonly tool: string;
    readonly arguments: unknown;
    readonly by: 'policy' | 'person' | 'expiry' | 'fence';
    readonly reason: string;
  };
  readonly 'approval.requested': {
    readonly toolCallId: string;
    readonly tool: string;
    readonly arguments: unknown;
    readonly fingerprint: string;
    /** Where the call would run. */
    readonly cwd: string;
    /** What an edit or a write would change, bounded; null for other tools. */
    readonly diff: string | null;
    /** Of the rule that asks; null when it gives none. */
    readonly reason: string | null;
    readonly expiresAt: string;
  };
  readonly 'approval.resolved': {
    readonly toolCallId: string;
    readonly fingerprint: string;
    readonly resolution: 'approved' | 'denied' | 'expired' | 'dropped';
  };
  readonly succeeded: CommandEnd;
  readonly failed: CommandEnd & { readonly code: string; readonly message: string };
  readonly 'runner.finished': LastWord;
}

/**
 * Writes one event, durably if it demands that (see spool-writer.ts). False when it was not
 * written: what it was to announce must not happen.
 */
export type Emit = <Type extends keyof EventData>(type: Type, data: EventData[Type]) => boolean;
