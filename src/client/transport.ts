/** HTTP over the daemon's unix socket: one connection per call, a deadline on each. */
import http from 'node:http';
import { OutliveError } from '../domain/errors.ts';

/** sun_path holds 108 bytes with its closing NUL (man 7 unix). */
const SOCKET_PATH_MAX = 107;

export interface Call {
  readonly method: 'GET' | 'POST' | 'PUT';
  /** With the query, already encoded. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Milliseconds for connect and answer. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Why nobody answered; in `extra.reason` of a `daemon_unreachable`.
 * `lost`: there was a connection and it went away, so the daemon may have acted.
 */
export type UnreachableReason = 'absent' | 'denied' | 'lost' | 'timeout' | 'other';

const SENTENCES: Record<UnreachableReason, string> = {
  absent: 'No daemon listens',
  denied: 'This user may not connect to the daemon',
  lost: 'The daemon dropped the connection',
  timeout: 'The daemon did not answer in time',
  other: 'The daemon cannot be reached',
};

const REASONS: Readonly<Record<string, UnreachableReason>> = {
  ENOENT: 'absent',
  ECONNREFUSED: 'absent',
  ENOTSOCK: 'absent',
  EACCES: 'denied',
  EPERM: 'denied',
  ECONNRESET: 'lost',
  EPIPE: 'lost',
};

/** A `daemon_unreachable` that says why. */
export function unreachable(
  socketPath: string,
  reason: UnreachableReason,
  cause?: unknown,
): OutliveError {
  return new OutliveError('daemon_unreachable', `${SENTENCES[reason]} (${socketPath}).`, {
    extra: { socket: socketPath, reason },
    cause,
  });
}

/** The reason of a `daemon_unreachable`, null for every other error. */
export function unreachableReason(error: unknown): UnreachableReason | null {
  if (!(error instanceof OutliveError) || error.code !== 'daemon_unreachable') return null;
  return (error.extra['reason'] as UnreachableReason | undefined) ?? 'other';
}

function checkSocketPath(socketPath: string): void {
  const bytes = Buffer.byteLength(socketPath);
  if (bytes <= SOCKET_PATH_MAX) return;
  throw new OutliveError(
    'socket_path_too_long',
    `${socketPath} has ${bytes} bytes and a unix socket path holds ${SOCKET_PATH_MAX}. Set XDG_RUNTIME_DIR to a shorter directory.`,
  );
}

/** Sends a call and resolves with the response once its head is there. */
export async function open(socketPath: string, call: Call): Promise<http.IncomingMessage> {
  checkSocketPath(socketPath);
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), call.timeoutMs);
  const signal = call.signal ? AbortSignal.any([deadline.signal, call.signal]) : deadline.signal;
  try {
    return await new Promise((resolve, reject) => {
      const { method, path, headers = {}, body } = call;
      // No keep-alive: a socket of the previous daemon would fail the next call.
      const request = http.request({ socketPath, method, path, headers, signal, agent: false });
      request.on('response', resolve);
      request.on('error', reject);
      request.end(body);
    });
  } catch (error) {
    if (call.signal?.aborted) throw call.signal.reason;
    if (deadline.signal.aborted) throw unreachable(socketPath, 'timeout', error);
    const code = (error as NodeJS.ErrnoException).code ?? '';
    throw unreachable(socketPath, REASONS[code] ?? 'other', error);
  } finally {
    clearTimeout(timer);
  }
}

export interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Sends a call and resolves with the whole answer. */
export async function request(socketPath: string, call: Call): Promise<Answer> {
  const end = performance.now() + call.timeoutMs;
  const response = await open(socketPath, call);
  const text = await readAll(socketPath, response, end - performance.now());
  return { status: response.statusCode ?? 0, text };
}

/** The body as text, within `timeoutMs`. A body cut short is a lost connection. */
export async function readAll(
  socketPath: string,
  response: http.IncomingMessage,
  timeoutMs: number,
): Promise<string> {
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    response.destroy();
  }, timeoutMs);
  try {
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    return Buffer.concat(chunks).toString('utf8');
  } catch (error) {
    throw unreachable(socketPath, isLate ? 'timeout' : 'lost', error);
  } finally {
    clearTimeout(timer);
  }
}
