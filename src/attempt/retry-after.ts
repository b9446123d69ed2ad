/**
 * When a provider that failed may be asked again: from its headers, else from the words
 * of its error. Pure; times are milliseconds since the epoch.
 */

/** How the extension that runs inside Pi tells of a failed answer: a notice that begins so. */
export const ANSWER_NOTICE = 'outlive:provider-answer ';

const YEAR_MS = 366 * 24 * 3_600_000;
/** Below this a number of seconds is a delay, above it a time. */
const EPOCH_SECONDS = 1_000_000_000;

/** A time that can be meant: not past, and not for ever. */
const plausible = (at: number, now: number): number | null =>
  Number.isFinite(at) && at >= now && at <= now + YEAR_MS ? Math.ceil(at) : null;

/** By the headers `retry-after-ms` and `retry-after` (RFC 9110: seconds or a date). */
export function resetOfHeaders(
  headers: Readonly<Record<string, unknown>>,
  now: number,
): number | null {
  const text = (name: string): string => {
    const value = headers[name];
    return typeof value === 'string' ? value.trim() : '';
  };
  const ms = text('retry-after-ms');
  if (/^\d+(?:\.\d+)?$/.test(ms)) return plausible(now + Number(ms), now);
  const after = text('retry-after');
  if (/^\d+(?:\.\d+)?$/.test(after)) return plausible(now + Number(after) * 1_000, now);
  return after === '' ? null : plausible(Date.parse(after), now);
}

const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

const PIECE =
  /(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|hrs?|d|days?)(?![a-z])/gi;

function unitMs(name: string): number {
  const unit = name.toLowerCase();
  if (unit === 'ms' || unit.startsWith('milli')) return 1;
  return UNIT_MS[unit.charAt(0)] ?? 0;
}

/** `6m0s`, `1h 2m`, `350ms`, `20 seconds`; null when it holds no duration. */
function durationMs(text: string): number | null {
  const pieces = [...text.matchAll(PIECE)];
  if (pieces.length === 0) return null;
  return pieces.reduce((sum, [, count, unit]) => sum + Number(count) * unitMs(unit ?? ''), 0);
}

const DURATION = String.raw`(?:\d+(?:\.\d+)?\s*(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|hrs?|d|days?)(?![a-z])[\s,]*)+`;
const DELAY = new RegExp(
  String.raw`(?:(?:try|retry|available|reset(?:s|ting)?)(?: again)?(?: in| after)?|retry.?delay["']?\s*[:=]?|requested)\s*["']?~?\s*(${DURATION})`,
  'i',
);
const SECONDS =
  /["']?(?:retry.?after|resets?_in(?:_seconds)?|retry_after_seconds)["']?\s*[:=]?\s*["']?(\d+(?:\.\d+)?)(?!\s*[a-z\d-])/i;
const AT =
  /["']?resets?.?at["']?\s*[:=]?\s*["']?(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)|\d{10,13}(?![\d.-]))/i;

function timeOf(text: string): number {
  if (!/^\d+$/.test(text)) return Date.parse(text);
  return text.length > 10 ? Number(text) : Number(text) * 1_000;
}

/** By the words of an error, as providers and Pi write them; null when they say nothing. */
export function resetOfMessage(message: string, now: number): number | null {
  const at = AT.exec(message)?.[1];
  if (at !== undefined) return plausible(timeOf(at), now);
  const delay = durationMs(DELAY.exec(message)?.[1] ?? '');
  if (delay !== null) return plausible(now + delay, now);
  const seconds = SECONDS.exec(message)?.[1];
  if (seconds === undefined) return null;
  const count = Number(seconds);
  return plausible(count >= EPOCH_SECONDS ? count * 1_000 : now + count * 1_000, now);
}
