/** The last word: the runner's result, seen in the light of why it ended. */
import type { LastWord } from '../domain/spool.ts';
import { cutMiddle } from './bounded-text.ts';
import type { Leftover } from './leftovers.ts';
import type { Redact } from './redact.ts';
import type { RunnerResult } from './runner.ts';
import type { StopRequest } from './stop.ts';

// With room for escapes and everything else a line holds.
const TEXT_BYTES = 24 * 1024;
const MESSAGE_BYTES = 4 * 1024;

/** Secrets go before anything is cut. A stop that was recorded outweighs whatever the runner still made of it. */
export function lastWord(
  result: RunnerResult,
  stop: StopRequest | null,
  leftovers: Leftover[],
  redact: Redact,
): LastWord {
  const { text, exitCode, signal, usage, costUsd, retryAt } = result;
  const { verdict, code, message } = stop === null ? result : verdictOfStop(stop);
  return {
    verdict,
    code,
    message: message === null ? null : cutMiddle(redact(message), MESSAGE_BYTES),
    text: cutMiddle(redact(text), TEXT_BYTES),
    exitCode,
    signal,
    usage,
    costUsd,
    leftovers,
    retryAt: verdict === 'error' ? retryAt : null,
  };
}

function verdictOfStop({
  code,
  message,
}: StopRequest): Pick<LastWord, 'verdict' | 'code' | 'message'> {
  return { verdict: code === null ? 'stopped' : 'error', code, message };
}
