/** What Pi's messages mean for the outcome. Pure; the patterns follow pi-ai's own lists. */
import type { FailureCode } from '../domain/outcome-codes.ts';

/** The last message of the model, as far as the verdict needs it. */
export interface LastMessage {
  readonly stopReason: string;
  readonly errorMessage: string | null;
}

export interface Verdict {
  readonly code: FailureCode | null;
  readonly message: string | null;
}

const OK: Verdict = { code: null, message: null };

/** The verdict at `agent_settled`, from the last message of this attempt. */
export function verdictOf(last: LastMessage | null, aborted: boolean): Verdict {
  // An abort during the pause before a retry leaves the error as the last message.
  if (aborted) return { code: 'aborted', message: 'The run was aborted' };
  if (last === null) {
    return { code: 'runner_no_result', message: 'Pi settled without any answer of the model' };
  }
  const message = last.errorMessage;
  switch (last.stopReason) {
    case 'stop':
    // A tool may end the run itself, then no further message follows.
    case 'toolUse':
      return OK;
    case 'length':
      return { code: 'output_limit', message: message ?? 'The answer reached its length limit' };
    case 'aborted':
      return { code: 'aborted', message: message ?? 'The run was aborted' };
    case 'error':
      return { code: classifyError(message ?? ''), message: message ?? 'no message' };
    default:
      return { code: 'model_error', message: `The model stopped with ${last.stopReason}` };
  }
}

const OVERFLOW = new RegExp(
  [
    'prompt (?:is )?too long',
    'prompt exceeds max length',
    'request_too_large',
    'input is too long for requested model',
    'exceeds the context window',
    "exceeds (?:the )?(?:model'?s )?maximum context length",
    'context[ _]window[ _]exceed',
    'input token count.*exceeds the maximum',
    'maximum prompt length is \\d',
    'reduce the length of the messages',
    'maximum context length is \\d',
    'maximum allowed input length',
    'longer than the model.?s context length',
    'prompt token count of .* exceeds the limit of \\d',
    'exceeds the available context size',
    'greater than the context length',
    'exceeded model token limit',
    'too large for model with \\d+ maximum context length',
    'configured context size is',
    'model_context_window_exceeded',
    'range of input length should be',
    'context[_ ]length[_ ]exceeded',
    'context overflow recovery failed',
    'too many tokens',
    'token limit exceeded',
  ].join('|'),
  'i',
);
const RATE = /rate.?limit|too many requests|throttl|quota|usage.?limit|resourceexhausted/i;
const AUTH = new RegExp(
  [
    'no api key',
    'no models? (?:selected|available)',
    '(?:invalid|incorrect|missing|expired).{0,20}(?:api.?key|token|credential)',
    'failed to resolve api key',
    'unauthori[sz]ed',
    'authenticat',
    'permission.?denied',
    'forbidden',
    'not logged in',
    'oauth',
  ].join('|'),
  'i',
);
const UNAVAILABLE = new RegExp(
  [
    'overloaded',
    'server.?(?:is.?)?busy',
    'high demand',
    'at capacity',
    'unavailable',
    '(?:server|internal|network|connection|fetch|socket|upstream).{0,20}(?:error|fail|refused|lost|closed|reset|hang)',
    'other side closed',
    'getaddrinfo',
    'E(?:CONN[A-Z]+|TIMEDOUT|PIPE|NOTFOUND|AI_AGAIN|HOSTUNREACH|NETUNREACH)\\b',
    'timed? ?out',
    'timeout',
    'terminated',
    'websocket',
    'stream (?:ended|closed|disconnected|was interrupted)',
    'ended without',
    'provider.?returned.?(?:an.?)?error',
  ].join('|'),
  'i',
);

/** The code of an error text of Pi or of a provider. An HTTP status at its head outweighs its words. */
export function classifyError(message: string): FailureCode {
  const status = Number(/^(?:[\w -]{0,40}API error \()?([45]\d\d)\b/i.exec(message)?.[1] ?? 0);
  return byStatus(status, message) ?? byWords(message);
}

function byStatus(status: number, message: string): FailureCode | null {
  if (status === 401 || status === 403) return 'provider_auth';
  if (status === 429) return 'rate_limited';
  if (status === 413) return 'context_overflow';
  if (status === 408 || status >= 500) return 'provider_unavailable';
  if (status >= 400) return OVERFLOW.test(message) ? 'context_overflow' : byRefusal(message);
  return null;
}

/** A refused request (400, 404, …) is the model's error unless it says what else. */
const byRefusal = (message: string): FailureCode =>
  AUTH.test(message) ? 'provider_auth' : 'model_error';

/** Before the words of a rate limit: a disk has a quota, too. */
const DISK = /\b(?:ENOSPC|EDQUOT)\b|no space left on device|disk quota exceeded/i;

function byWords(message: string): FailureCode {
  if (DISK.test(message)) return 'disk_full';
  if (RATE.test(message)) return 'rate_limited';
  if (OVERFLOW.test(message)) return 'context_overflow';
  if (AUTH.test(message)) return 'provider_auth';
  if (UNAVAILABLE.test(message)) return 'provider_unavailable';
  return 'model_error';
}

/** The code when Pi ended before it was ready, from what it said on stderr. */
export function classifyStartFailure(stderr: string): FailureCode {
  if (DISK.test(stderr)) return 'disk_full';
  if (/stored session working directory does not exist/i.test(stderr)) return 'cwd_missing';
  if (/no api key|failed to resolve api key|no models? (?:selected|available)/i.test(stderr)) {
    return 'provider_auth';
  }
  return 'runner_error';
}

/** What Pi's lock library says, as an error that nobody caught. */
const LOCK_HELD = /code: 'ELOCKED'|lock file is already being held/i;

/** True when Pi ended at its start because a lock of its directory was held. */
export const isLockHeld = (stderr: string): boolean => LOCK_HELD.test(stderr);
