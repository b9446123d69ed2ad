/** Answers that are no JSON and may be long: read in pieces. */
import { problemToError } from './problem.ts';
import { type Call, open, readAll, unreachable } from './transport.ts';

/**
 * The body of an answer as it comes.
 * @throws OutliveError what the daemon refused with, or `daemon_unreachable` when it went away.
 */
export async function* readBody(socketPath: string, call: Call): AsyncGenerator<Buffer, void> {
  const response = await open(socketPath, call);
  const status = response.statusCode ?? 0;
  if (status < 200 || status >= 300) {
    throw problemToError(status, await readAll(socketPath, response, call.timeoutMs));
  }
  const pieces = response[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  try {
    for (;;) {
      const { value, done } = await pieces.next().catch((error: unknown) => {
        throw unreachable(socketPath, 'lost', error);
      });
      if (done) return;
      yield value;
    }
  } finally {
    response.destroy();
  }
}
