/**
 * Runs inside Pi: tells the wrapper of answers of a provider that are failures, with
 * their Retry-After. Pi itself keeps no header of a failed answer, and gives none to
 * extensions; the HTTP client it is built on announces every answer in the process.
 *
 * Read as text and loaded by Pi on its own, so it imports nothing of ours.
 */
import { subscribe } from 'node:diagnostics_channel';

interface Ui {
  notify(message: string, level: string): void;
}

interface Pi {
  on(event: 'session_start', handler: (event: unknown, context: { ui: Ui }) => void): void;
}

const NOTICE = 'outlive:provider-answer ';
const TELLING: ReadonlySet<string> = new Set(['retry-after', 'retry-after-ms']);
const FAILED = 400;

/** Name and value take turns, each a string or bytes. */
function headersOf(list: readonly unknown[]): Record<string, string> {
  const pairs = list.flatMap((name, index) =>
    index % 2 === 0 ? [[String(name).toLowerCase(), String(list[index + 1])] as const] : [],
  );
  return Object.fromEntries(pairs.filter(([name]) => TELLING.has(name)));
}

export default function tellOfFailedAnswers(pi: Pi): void {
  let ui: Ui | null = null;
  pi.on('session_start', (_event, context) => {
    ui = context.ui;
  });
  subscribe('undici:request:headers', (message) => {
    const { response } = message as {
      response?: { statusCode?: number; headers?: readonly unknown[] };
    };
    const status = response?.statusCode ?? 0;
    if (status < FAILED || !response?.headers) return;
    const headers = headersOf(response.headers);
    if (Object.keys(headers).length === 0) return;
    ui?.notify(NOTICE + JSON.stringify({ status, headers }), 'info');
  });
}
