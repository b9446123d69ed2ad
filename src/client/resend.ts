/** Commands that carry an idempotency key may be sent again when their answer is lost. */
import { setTimeout as pause } from 'node:timers/promises';
import { unreachableReason } from './transport.ts';

/** First pause before a lost command is sent again, milliseconds; doubles. */
const RESEND_PAUSE_MS = 50;

/**
 * Sends; when the connection is lost before the answer, sends the same once more,
 * waiting for the daemon to listen again at most `withinMs`.
 */
export async function sendAgainWhenLost<Result>(
  send: () => Promise<Result>,
  withinMs: number,
): Promise<Result> {
  const end = performance.now() + withinMs;
  let resent = false;
  for (let wait = RESEND_PAUSE_MS; ; wait *= 2) {
    try {
      return await send();
    } catch (error) {
      const reason = unreachableReason(error);
      const mayResend = reason === 'lost' ? !resent : resent && reason === 'absent';
      if (!mayResend || performance.now() + wait > end) throw error;
      resent = true;
      await pause(wait);
    }
  }
}
