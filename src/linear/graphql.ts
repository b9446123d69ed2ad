/** One request to Linear's GraphQL API, with a deadline of its own. Documents are text. */
import type { RawAnswer } from './answer.ts';
import { LinearError } from './port.ts';

export interface GraphqlRequest {
  readonly url: string;
  readonly token: string;
  readonly document: string;
  readonly variables: Readonly<Record<string, unknown>>;
  /** For connection, answer and body together, milliseconds. */
  readonly deadlineMs: number;
  /** Ends it sooner, as the daemon's end does. */
  readonly signal: AbortSignal;
}

/** @throws LinearError `transient` where there is no whole answer; it may have had its effect. */
export async function postGraphql(request: GraphqlRequest): Promise<RawAnswer> {
  const { url, token, document, variables, deadlineMs, signal } = request;
  return await readWhole(url, deadlineMs, signal, {
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ query: document, variables }),
  });
}

/** A POST whose answer is read to its end. @throws LinearError `transient`. */
export async function readWhole(
  url: string,
  deadlineMs: number,
  signal: AbortSignal,
  what: { readonly headers: Readonly<Record<string, string>>; readonly body: string },
): Promise<RawAnswer> {
  const deadline = AbortSignal.timeout(deadlineMs);
  try {
    const answer = await fetch(url, {
      method: 'POST',
      headers: { accept: 'application/json', 'user-agent': 'outlive', ...what.headers },
      body: what.body,
      // A token must not follow to wherever a redirect points.
      redirect: 'error',
      signal: AbortSignal.any([deadline, signal]),
    });
    return { status: answer.status, headers: answer.headers, text: await answer.text() };
  } catch (error) {
    if (deadline.aborted) throw lost(`no answer within ${deadlineMs} ms`);
    throw lost(signal.aborted ? 'given up, the daemon ends' : `no answer: ${reasonOf(error)}`);
  }
}

const lost = (message: string): LinearError => new LinearError({ kind: 'transient', message });

/** The code of what broke (`ECONNREFUSED`); fetch's own words say only that it failed. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const { code } = cause as { code?: unknown };
  if (typeof code === 'string') return code;
  return cause instanceof Error ? cause.message : String(cause);
}
