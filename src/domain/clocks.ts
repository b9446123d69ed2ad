/**
 * When an attempt has been silent for too long. Pure: a view goes in, a verdict comes out.
 *
 * Times are on the monotonic clock, so neither a clock change nor a suspended machine
 * kills anything; silence counts only from what this daemon itself has heard since it
 * took the attempt up, so a slow or late daemon kills nothing either.
 */
import type { FailureCode } from './outcome-codes.ts';
import type { TimeoutPolicy } from './work-unit.ts';

export interface ClockView {
  /** Monotonic now, milliseconds. */
  readonly now: number;
  readonly policy: Pick<TimeoutPolicy, 'heartbeatTimeoutMs' | 'idleTimeoutMs' | 'toolTimeoutMs'>;
  /** When the wrapper was last heard on the control socket; null before its first word. */
  readonly heardAt: number | null;
  /** There is no socket to hear it on: its heartbeats cannot be missed, its spool speaks for it. */
  readonly deaf: boolean;
  /** When the spool last grew by any line: the second witness that it lives. */
  readonly spoolGrewAt: number;
  /** When it last made meaningful progress (PROGRESS_EVENT_TYPES). */
  readonly progressAt: number;
  /** Start of the oldest tool call that has not ended; null when none is under way. */
  readonly toolSince: number | null;
  /** A frozen unit can neither speak nor work: its silence counts for nothing. */
  readonly frozen: boolean;
  /** Waiting for a person costs nothing but the request's own expiry. */
  readonly waiting: boolean;
  /** False while lines of the spool may be unread: they may hold the progress we miss. */
  readonly ingestCurrent: boolean;
}

export type SilenceCode = Extract<
  FailureCode,
  'heartbeat_timeout' | 'idle_timeout' | 'tool_timeout'
>;

export type ClockVerdict =
  /** Nothing is due; look again after `ms` (or earlier, when something is heard). */
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'expired'; readonly code: SilenceCode; readonly silentMs: number };

/** Nothing to measure yet, or nothing that counts: a look now and then is enough. */
const LOOK_AGAIN_MS = 30_000;

interface Due {
  readonly code: SilenceCode;
  readonly since: number;
  readonly limit: number;
}

function dues(view: ClockView): readonly Due[] {
  const { policy, heardAt, spoolGrewAt, progressAt, toolSince } = view;
  // A long tool call is not idleness; it has a budget of its own (case T33).
  const work: Due =
    toolSince === null
      ? { code: 'idle_timeout', since: progressAt, limit: policy.idleTimeoutMs }
      : { code: 'tool_timeout', since: toolSince, limit: policy.toolTimeoutMs };
  if (heardAt === null) return [work];
  // A missed heartbeat alone is no proof: the socket may be what is broken (case T34).
  const since = Math.max(heardAt, spoolGrewAt);
  return [{ code: 'heartbeat_timeout', since, limit: policy.heartbeatTimeoutMs }, work];
}

/** Judges the silence of an attempt. */
export function judgeSilence(view: ClockView): ClockVerdict {
  const { heardAt, now } = view;
  if ((heardAt === null && !view.deaf) || view.frozen || view.waiting || !view.ingestCurrent) {
    return { kind: 'wait', ms: LOOK_AGAIN_MS };
  }
  const remaining = dues(view).map((due) => ({
    ...due,
    left: due.since + due.limit - now,
  }));
  const expired = remaining.find(({ left }) => left <= 0);
  if (expired) return { kind: 'expired', code: expired.code, silentMs: now - expired.since };
  return { kind: 'wait', ms: Math.min(LOOK_AGAIN_MS, ...remaining.map(({ left }) => left)) };
}

/** What is known of a tool call that was under way before this daemon began. */
export interface EarlierTool {
  /** Age by the wall clock, milliseconds: wrong by as much as somebody set it. */
  readonly wallMs: number;
  /** Uptime of the machine when its wrapper began, seconds; null where it said none. */
  readonly openedAt: number | null;
  /** Uptime of the machine now, seconds. */
  readonly uptimeSeconds: number;
}

/** How long such a call has run: never longer than its wrapper by the machine's own clock, so a clock that is set ahead ends nothing. */
export function toolAgeMs({ wallMs, openedAt, uptimeSeconds }: EarlierTool): number {
  const attemptMs = openedAt === null ? Infinity : (uptimeSeconds - openedAt) * 1_000;
  return Math.max(0, Math.min(wallMs, attemptMs));
}
